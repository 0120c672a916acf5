"""Recurrent language models (row G6): each word from all words before it.

    RecurrentLanguageModel(words=10_000, cell=Lstm(), size=200, units=(200, 200), dropout=0.2)

Layers are those of `Recurrent`, whose cells they share. Here the states of a window begin where the last window of the
same text ended. Dropout is on what enters each layer and the output, never between two steps (Zaremba, Sutskever and
Vinyals 2014), and drawn for each step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ...runtime import keys
from ...specs.contracts import AbstractModel
from ...specs.knobs import is_off, switch
from ...specs.priors import Choice
from ...specs.schedules import AbstractSchedule, Constant, Noise, dropout_knob
from ...specs.sparse.rows import Rows
from ..initial_weights import AbstractInitial, GaussianWeights, Glorot
from ..mlp import check_widths, layer_widths
from ..recurrence.cells import AbstractCell, Lstm, State
from ..recurrence.recurrent import GateWeights, orthogonal
from .network import AbstractLanguageNetwork, check_numbers, check_tied, check_windows
from .word_output import AbstractWordOutput, FullSoftmax, SoftmaxWords, WordLayer


class ContinuedLayer(eqx.Module):
    """A recurrent layer that goes on from a given state."""

    weights: GateWeights
    bias: Float[Any, "gates units"]
    cell: AbstractCell = eqx.field(static=True)

    def begin(self) -> State:
        """The empty state."""
        return (jnp.zeros(self.bias.shape[1]),) * self.cell.vectors

    def __call__(
        self, inputs: Float[Array, "steps channels"], state: State
    ) -> tuple[Float[Array, "steps units"], State]:
        """h after each step, and the last state. All inputs enter by one matrix product."""
        shape = self.bias.shape
        driven = (inputs @ self.weights.input.T).reshape(-1, *shape) + self.bias

        def step(state: State, given: Array) -> tuple[State, Array]:
            new = self.cell.step(given, (self.weights.recurrent @ state[0]).reshape(shape), state)
            return new, new[0]

        state, states = jax.lax.scan(step, state, driven)
        return states, state


class RecurrentLanguageNetwork(AbstractLanguageNetwork):
    """Each word from a state that has read all words before it."""

    embedding: Float[Any, "words size"]
    layers: tuple[ContinuedLayer, ...]
    projection: Float[Any, "size units"] | None
    output: WordLayer
    dropout: Noise | None
    context: int = eqx.field(static=True)

    def begin(self) -> PyTree:
        return tuple(layer.begin() for layer in self.layers)

    def read(
        self, window: Float[Array, " length"], state: PyTree, *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "places width"], PyTree]:
        h, states = self.embed(window[:-1], key), []
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True), start=1):
            h, after = layer(h, before)
            h = self.drop(h, key, number)
            states.append(after)
        return (h if self.projection is None else h @ self.projection.T), tuple(states)


class RecurrentLanguageModel(AbstractModel):
    """A recurrent network of words: simple, gated or long short-term memory cells."""

    words: int = switch(10_000, allowed="[2, inf)", row="G6", about="words of the vocabulary")
    cell: AbstractCell = Lstm()
    size: int = switch(
        200,
        allowed="[1, inf)",
        prior=Choice((50, 100, 200, 400)),
        row="G6",
        kind="capacity",
        about="numbers that a word's embedding has",
    )
    units: tuple[int, ...] = layer_widths(
        (200, 200), *((100,), (200,), (200, 200), (400, 400)), row="G6", about="units of each recurrent layer"
    )
    tied: bool = switch(
        False,
        allowed=(False, True),
        prior=Choice((False, True)),
        row="G6",
        about="the weights of a word in the output are its embedding, after a linear map where sizes differ",
    )
    initial: AbstractInitial = Glorot()
    embedding: AbstractInitial = GaussianWeights(0.1)
    output: AbstractWordOutput = FullSoftmax()
    dropout: float = dropout_knob(0.0, "a unit between layers, or before the first or after the last")
    dropout_schedule: AbstractSchedule = Constant()

    def __check_init__(self) -> None:
        check_widths("RecurrentLanguageModel.units", self.units, least=1)
        check_tied(self, self.output)

    def _layer(self, channels: int, units: int, key: Key[Array, ""]) -> ContinuedLayer:
        draws = [jr.fold_in(key, gate) for gate in range(self.cell.gates)]
        inputs = [self.initial.draw(units, channels, 1.0, key=keys.named(draw, "input")) for draw in draws]
        held = [orthogonal(units, keys.named(draw, "recurrent")) for draw in draws]
        weights = GateWeights(jnp.concatenate(inputs), jnp.concatenate(held))
        return ContinuedLayer(weights, self.cell.initial_bias(units), self.cell.begun())

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> RecurrentLanguageNetwork:
        check_windows(self, inputs, 1)
        width, layers = self.size, []
        for number, units in enumerate(self.units):
            layers.append(self._layer(width, units, jr.fold_in(key, number)))
            width = units
        drawn = keys.named(key, "output")
        own = SoftmaxWords(None, jnp.zeros(self.words))  # its weights are the embeddings
        mapped = self.tied and width != self.size
        projection = self.initial.draw(self.size, width, 1.0, key=keys.named(key, "projection")) if mapped else None
        return RecurrentLanguageNetwork(
            embedding=self.embedding.draw(self.words, self.size, 1.0, key=keys.named(key, "embedding")),
            layers=tuple(layers),
            projection=projection,
            output=own if self.tied else self.output.build(self.words, width, key=drawn),
            dropout=None if is_off(self.dropout) else Noise(jnp.asarray(self.dropout), self.dropout_schedule),
            context=1,
        )

    def started(self, network: PyTree, inputs: Rows) -> PyTree:
        return network.with_unigram_biases(inputs)

    def check_inputs(self, inputs: Rows) -> None:
        check_numbers(self, inputs)
