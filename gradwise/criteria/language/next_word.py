"""The likelihood of each next word (row G6): what language models minimise, in nats per word.

    NextWord()               windows in any order, each read from an empty state
    NextWord(streams=20)     with the order `Streams(size=20)`: the state goes on from window to window

An example is a window of word numbers that begins with the network's context; the words after it are predicted, each
from those before it. A number below 0 stands beyond the end of the text and is not predicted.

A state is carried into a window only if it is the one after the last window of the same slot: so a stream begins with
an empty state in every epoch, and an order that shuffles windows carries nothing. Gradients end at the window's first
word: truncated back-propagation through time.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractCriterion, Batch, Scores, ValueAndTerms
from ...specs.knobs import switch
from ...specs.networks import require_methods

METRIC = "nats_per_word"
_WINDOWS = 16  # read side by side where nothing says how many

STREAMS: dict[str, Any] = {
    "allowed": "[0, inf)",
    "row": "G6",
    "kind": "optimiser",
    "about": "windows of an update whose state goes on in the next; 0: every window begins with an empty state",
}


class PredictedWords:
    """The words of some windows that are predicted, and which of them are there."""

    def __init__(self, inputs: Float[Array, "B length"], places: int):
        predicted = inputs[:, -places:].astype(jnp.int32)
        self.known = (predicted >= 0).astype(jnp.float32)
        self.words = jnp.maximum(predicted, 0)

    def mean(self, losses: Float[Array, " n"]) -> Float[Array, " B"]:
        """The mean loss of a word in each window."""
        summed = jnp.sum(losses.reshape(self.known.shape) * self.known, axis=1)
        return summed / jnp.maximum(jnp.sum(self.known, axis=1), 1.0)


def empty_states(model: PyTree, count: int) -> PyTree:
    """The state before the first word, for each of several windows."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), model.begin())


def exact_losses(model: PyTree, features: Float[Array, "n width"], words: Int[Array, " n"]) -> Float[Array, " n"]:
    """-log P(word | features), by all words."""
    losses: Array = -model.word_layer.log_probability(features, words)
    return losses


def losses_in_order(model: PyTree, inputs: Float[Array, "n length"], streams: int) -> Float[Array, " n"]:
    """The mean loss of a word in each window, read in order by so many streams, each from an empty state."""
    count = inputs.shape[0]
    streams = min(streams, count)
    each = -(-count // streams)
    rows = jnp.minimum(jnp.arange(streams) * each + jnp.arange(each)[:, None], count - 1)

    def turn(states: PyTree, places: Int[Array, " streams"]) -> tuple[PyTree, Array]:
        windows = inputs[places]
        features, states = jax.vmap(model.read)(windows, states)
        words = PredictedWords(windows, features.shape[1])
        losses = exact_losses(model, features.reshape(-1, features.shape[2]), words.words.ravel())
        return states, words.mean(losses)

    _, found = jax.lax.scan(turn, empty_states(model, streams), rows)
    return found.T.ravel()[:count]


def check_language_network(criterion: AbstractCriterion, network: PyTree) -> None:
    """Refuses a network that does not read words."""
    require_methods(type(criterion).__name__, network, ("read", "word_layer"), "FeedForwardLanguageModel")


class AbstractNextWord(AbstractCriterion):
    """What all ways to learn the next word share: they differ in the loss of a word in training."""

    learns_from = "inputs"
    streams: int

    @abc.abstractmethod
    def word_losses(
        self,
        model: PyTree,
        features: Float[Array, "n width"],
        words: Int[Array, " n"],
        memory: PyTree,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, " n"]:
        """The loss of each word in training; `memory` is what `remembered` made."""

    def remembered(self, model: PyTree, inputs: Float[Array, "n length"]) -> PyTree:
        """What the losses of words need of the training text."""
        return None

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        count = batch.inputs.shape[0]
        memory = batch.memory or {}
        states = self._states(model, batch, memory)
        noise, drawn = jr.split(key)
        features, states = jax.vmap(lambda window, state, one: model.read(window, state, key=one))(
            batch.inputs, states, jr.split(noise, count)
        )
        words = PredictedWords(batch.inputs, features.shape[1])
        flat = features.reshape(-1, features.shape[2])
        losses = words.mean(self.word_losses(model, flat, words.words.ravel(), memory.get("text"), key=drawn))
        terms: dict[str, Any] = {"loss": losses, "score": losses}
        if self.streams and batch.rows is not None and batch.memory is not None:
            terms["memory"] = {**memory, "states": states, "next": batch.rows.astype(jnp.int32) + 1}
        return jnp.sum(batch.weights * losses) / count, terms

    def _states(self, model: PyTree, batch: Batch, memory: dict[str, Any]) -> PyTree:
        """The state before each window: that of the slot, if its last window was the one before; else an empty one."""
        count = batch.inputs.shape[0]
        empty = empty_states(model, count)
        if not self.streams or batch.rows is None or "next" not in memory:
            return empty
        if memory["next"].shape[0] != count:
            raise RequestError(
                f"`{type(self).__name__}.streams` is {memory['next'].shape[0]}, but an update reads {count} windows. "
                f"Use `Streams(size={memory['next'].shape[0]})`."
            )
        follows = batch.rows == memory["next"]

        def chosen(held: Array, none: Array) -> Array:
            return jnp.where(follows.reshape(-1, *(1,) * (none.ndim - 1)), held, none)

        return jax.tree.map(chosen, memory["states"], empty)

    def begin(self, model: PyTree, inputs: Float[Array, "n length"], *, key: Key[Array, ""]) -> PyTree:
        memory = {"text": self.remembered(model, inputs)}
        if self.streams:
            count = min(self.streams, inputs.shape[0])
            memory |= {"states": empty_states(model, count), "next": jnp.full(count, -1, jnp.int32)}
        return memory

    def examples(
        self, model: PyTree, inputs: Float[Array, "n length"], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        losses = losses_in_order(model, inputs, self.streams or _WINDOWS)
        return losses, losses

    def judge(self, model: PyTree, train: PyTree, valid: PyTree) -> Scores:
        """The validation text by all words, its windows read in their order."""
        return Scores(*self.examples(model, valid.inputs, valid.targets))

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return (METRIC,)

    def measures(self, model: PyTree, inputs: Float[Array, "n length"]) -> dict[str, Float[Array, " n"]]:
        """The mean loss of a word in each window; rows are taken as neighbours, read by a few streams."""
        return {METRIC: losses_in_order(model, inputs, _WINDOWS)}

    def check_network(self, network: PyTree) -> None:
        check_language_network(self, network)


class NextWord(AbstractNextWord):
    """The negative log-likelihood of each word, by all words of the vocabulary."""

    streams: int = switch(0, **STREAMS)

    def word_losses(
        self,
        model: PyTree,
        features: Float[Array, "n width"],
        words: Int[Array, " n"],
        memory: PyTree,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, " n"]:
        return exact_losses(model, features, words)
