"""The feed-forward language model of Bengio, Ducharme, Vincent and Jauvin (2003), row G6.

    FeedForwardLanguageModel(words=10_000, context=5, size=100, units=(200,))
    FeedForwardLanguageModel(words=10_000, direct=True)       y = b + W x + U tanh(d + H x), x the embeddings

All places of a window are predicted at once, each from the `context` words before it, by the same weights: a
convolution over places. So the layer of all words is one large product.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractModel
from ...specs.knobs import is_off, switch
from ...specs.priors import Choice, LogInteger
from ...specs.schedules import AbstractSchedule, Constant, Noise, dropout_knob
from ...specs.sparse.rows import Rows
from ..activations import AbstractActivation, Tanh
from ..initial_weights import AbstractInitial, GaussianWeights, Glorot
from ..mlp import check_widths, layer_widths
from .network import AbstractLanguageNetwork, check_numbers, check_tied, check_windows
from .word_output import AbstractWordOutput, FullSoftmax, SoftmaxWords, WordLayer


class ContextLayer(eqx.Module):
    """f(W x + b) at every place."""

    weight: Float[Any, "units inputs"]
    bias: Float[Any, " units"]
    activation: Any

    def __call__(self, x: Float[Array, "places inputs"]) -> Float[Array, "places units"]:
        return self.activation(x @ self.weight.T + self.bias)


class FeedForwardLanguageNetwork(AbstractLanguageNetwork):
    """Each word from the few before it. It has no state."""

    embedding: Float[Any, "words size"]
    layers: tuple[ContextLayer, ...]
    output: WordLayer
    dropout: Noise | None
    context: int = eqx.field(static=True)
    direct: bool = eqx.field(static=True)

    def begin(self) -> PyTree:
        return ()

    def read(
        self, window: Float[Array, " length"], state: PyTree, *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "places width"], PyTree]:
        embedded = self.embed(window[:-1], key)
        places = window.shape[0] - self.context
        x = jnp.concatenate([embedded[first : first + places] for first in range(self.context)], axis=1)
        h = x
        for number, layer in enumerate(self.layers, start=1):
            h = self.drop(layer(h), key, number)
        return (jnp.concatenate([h, x], axis=1) if self.direct else h), state


class FeedForwardLanguageModel(AbstractModel):
    """A feed-forward network of the last few words (Bengio et al. 2003)."""

    words: int = switch(10_000, allowed="[2, inf)", row="G6", about="words of the vocabulary")
    context: int = switch(
        5, allowed="[1, inf)", prior=LogInteger(2, 10), row="G6", about="words before the predicted one that are read"
    )
    size: int = switch(
        100,
        allowed="[1, inf)",
        prior=Choice((30, 60, 100, 200)),
        row="G6",
        kind="capacity",
        about="numbers that a word's embedding has",
    )
    units: tuple[int, ...] = layer_widths(
        (200,), *((50,), (100,), (200,), (400,), (400, 400)), row="G6", about="units of each hidden layer"
    )
    direct: bool = switch(
        False,
        allowed=(False, True),
        prior=Choice((False, True)),
        row="G6",
        about="connections from the embeddings to the output, past the hidden layers",
    )
    tied: bool = switch(
        False,
        allowed=(False, True),
        prior=Choice((False, True)),
        row="G6",
        about="the weights of a word in the output are its embedding; a last layer of that size is added",
    )
    activation: AbstractActivation = Tanh()
    embedding: AbstractInitial = GaussianWeights(0.1)
    initial: AbstractInitial = Glorot()
    output: AbstractWordOutput = FullSoftmax()
    dropout: float = dropout_knob(0.0, "an embedding's number or a hidden unit")
    dropout_schedule: AbstractSchedule = Constant()

    def __check_init__(self) -> None:
        check_widths("FeedForwardLanguageModel.units", self.units, least=1)
        check_tied(self, self.output)
        if self.tied and self.direct:
            raise RequestError("`FeedForwardLanguageModel.tied` leaves no room for `direct`: choose one of them.")

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> FeedForwardLanguageNetwork:
        check_windows(self, inputs, self.context)
        width, layers = self.context * self.size, []
        for number, units in enumerate((*self.units, self.size) if self.tied else self.units):
            weight = self.initial.draw(units, width, self.activation.gain(), key=jr.fold_in(key, number))
            layers.append(ContextLayer(weight, jnp.zeros(units), self.activation.units(units)))
            width = units
        width += self.context * self.size if self.direct else 0
        drawn = keys.named(key, "output")
        own = SoftmaxWords(None, jnp.zeros(self.words))  # its weights are the embeddings
        return FeedForwardLanguageNetwork(
            embedding=self.embedding.draw(self.words, self.size, 1.0, key=keys.named(key, "embedding")),
            layers=tuple(layers),
            output=own if self.tied else self.output.build(self.words, width, key=drawn),
            dropout=None if is_off(self.dropout) else Noise(jnp.asarray(self.dropout), self.dropout_schedule),
            context=self.context,
            direct=self.direct,
        )

    def started(self, network: PyTree, inputs: Rows) -> PyTree:
        return network.with_unigram_biases(inputs)

    def check_inputs(self, inputs: Rows) -> None:
        check_numbers(self, inputs)
