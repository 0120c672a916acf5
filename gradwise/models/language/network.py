"""What every language model offers: it reads a window of word numbers and carries a state to the next window.

A window holds `context` words to begin with and then the words to predict, each from those before it. Numbers below 0
stand beyond the end of the text and are never predicted.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from ...runtime.errors import RequestError
from ...specs.networks import Network
from ...specs.schedules import Noise
from ..mlp import dropped
from .word_output import AbstractWordOutput, SoftmaxWords, WordLayer


def word_numbers(window: Float[Array, "*shape"], words: int) -> Int[Array, "*shape"]:
    """Numbers of words as indices that no table lacks."""
    return jnp.clip(window.astype(jnp.int32), 0, words - 1)


class AbstractLanguageNetwork(Network):
    """A network of words. Called on a window it gives its features of the words before the last place."""

    offers = ("read", "word_layer")

    embedding: eqx.AbstractVar[Any]
    output: eqx.AbstractVar[WordLayer]
    dropout: eqx.AbstractVar[Noise | None]
    context: eqx.AbstractVar[int]

    @abc.abstractmethod
    def begin(self) -> PyTree:
        """The state before the first word."""

    @abc.abstractmethod
    def read(
        self, window: Float[Array, " length"], state: PyTree, *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "places width"], PyTree]:
        """The features from which each word after the first `context` is predicted, and the state after them."""

    @property
    def word_layer(self) -> WordLayer:
        """The layer from features to words."""
        if isinstance(self.output, SoftmaxWords) and self.output.weight is None:
            return dataclasses.replace(self.output, weight=self.embedding)
        return self.output

    @property
    def words(self) -> int:
        """The number of words."""
        return int(self.embedding.shape[0])

    def frequencies(self, inputs: Float[Array, "n length"]) -> Float[Array, " words"]:
        """How often each word is predicted in these windows, as a share of all; half an occurrence is added to each."""
        predicted = inputs[:, self.context :]
        known = (predicted >= 0).astype(jnp.float32)
        counts = jnp.zeros(self.words).at[word_numbers(predicted, self.words).ravel()].add(known.ravel()) + 0.5
        return counts / jnp.sum(counts)

    def with_unigram_biases(self, inputs: Float[Array, "n length"]) -> "AbstractLanguageNetwork":
        """The same network, whose biases are those of a unigram model of these windows."""
        return eqx.tree_at(lambda net: net.output, self, self.output.begun(self.frequencies(inputs)))

    def embed(self, window: Float[Array, " n"], key: Key[Array, ""] | None) -> Float[Array, "n size"]:
        """The embeddings of these words, with dropout."""
        return self.drop(self.embedding[word_numbers(window, self.words)], key, 0)

    def drop(self, values: Float[Array, "..."], key: Key[Array, ""] | None, place: int) -> Float[Array, "..."]:
        """The values with dropout; each place of the network draws its own."""
        return dropped(values, self.dropout, None if key is None else jr.fold_in(key, place))

    def __call__(self, x: Float[Array, " length"], *, key: Key[Array, ""] | None = None) -> Float[Array, " width"]:
        return self.read(x, self.begin(), key=key)[0][-1]


def check_tied(model: Any, output: AbstractWordOutput) -> None:
    """Refuses an output layer that cannot share the embeddings."""
    if model.tied and not output.can_be_tied():
        name = type(model).__name__
        raise RequestError(f"`{name}.tied` needs output FullSoftmax(); got {type(output).__name__}. Set tied=False.")


def check_windows(model: Any, inputs: tuple[int, ...], context: int) -> None:
    """Refuses examples that are no windows of words, or that have no word after the context."""
    name = type(model).__name__
    if len(inputs) != 1 or inputs[0] <= context:
        raise RequestError(
            f"`{name}` needs windows of at least {context + 1} word numbers, of which the first {context} are context; "
            f"got examples of shape {inputs}. Make them with `gradwise.language.windows`."
        )


def check_numbers(model: Any, inputs: Any) -> None:
    """Refuses word numbers that the table of the model lacks."""
    largest = int(jnp.max(inputs))
    if largest >= model.words:
        raise RequestError(
            f"`{type(model).__name__}.words` is {model.words}, but the data have word number {largest}. "
            f"Give words={largest + 1}."
        )
