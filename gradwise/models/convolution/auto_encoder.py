"""Convolutional auto-encoders: filters that a picture, or a series, can be rebuilt from (rows A3, A5, A12).

    ConvolutionalAutoEncoder()                              16 rectified filters of 5 x 5 places, tied
    ConvolutionalAutoEncoder(units=8, winners=2)            only the largest answer of each 2 x 2 places is kept
    ConvolutionalAutoEncoder(units=8, dimensions=1)         series

The code is the map that the filters make, laid flat. The decoder is the transposed convolution: every answer puts its
filter back where it was found, and what overlaps adds up. Noise is a matter of the criterion (`Reconstruction`).

With `winners` an answer that is not the largest of its window is set to 0 (Masci, Meier, Ciresan & Schmidhuber 2011).
Else filters that each copy one pixel make no error, and only noise on the inputs rules them out.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractModel
from ...specs.knobs import check_whole, switch
from ...specs.networks import Network
from ...specs.priors import Choice
from ..activations import AbstractActivation, Rectifier
from ..initial_weights import AbstractInitial, Glorot
from .convolutional import check_example
from .network import ConvolutionLayer
from .patches import SAME, VALID, apply_filters, count_places
from .pooling import AbstractPooling, MaxPool, keep_largest


class ConvolutionalAutoEncoderNetwork(Network):
    """One layer of filters, and the way back. `layer` is also a layer of a convolutional network, with its pooling."""

    offers = ("decode",)
    layer: ConvolutionLayer
    decoder: Float[Any, "out taps"] | None  # None: the encoder's filters
    bias: Float[Any, " channels"]
    shape: tuple[int, ...] = eqx.field(static=True)  # of an example, with its channels
    winners: int = eqx.field(static=True)

    @property
    def places(self) -> tuple[int, ...]:
        """The sides of the map."""
        moves = {"kernel": self.layer.kernel, "stride": self.layer.stride, "padding": self.layer.padding}
        return tuple(count_places(side, **moves) for side in self.shape[:-1])  # type: ignore[arg-type]

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " code"]:
        h = self.layer.activation(self.layer.linear(x.reshape(self.shape)))
        return jnp.ravel(keep_largest(h, self.winners))

    def decode(self, code: Float[Array, " code"]) -> Float[Array, " inputs"]:
        """The input of the reconstruction loss, one number for each input."""
        layer = self.layer
        weight = layer.weight if self.decoder is None else self.decoder

        def encode(x: Float[Array, "*sides c"]) -> Float[Array, "*places out"]:
            return apply_filters(weight, x, kernel=layer.kernel, stride=layer.stride, padding=layer.padding)

        found = code.reshape(*self.places, weight.shape[0])
        (back,) = jax.linear_transpose(encode, jnp.zeros(self.shape, code.dtype))(found)
        return jnp.ravel(back + self.bias)

    @property
    def filters(self) -> Float[Array, "filters taps"]:
        return self.layer.weight

    @property
    def filter_shape(self) -> tuple[int, ...]:
        return (*(self.layer.kernel for _ in self.shape[:-1]), self.shape[-1])


class ConvolutionalAutoEncoder(AbstractModel):
    """A layer of filters, rebuilt by the transposed filters.

    In a stack the next layer reads the map after `pooling`. The activation of tied filters is that of their answers.
    """

    units: int = switch(
        16, allowed="[1, inf)", prior=Choice((8, 16, 32)), row="A12", kind="capacity", about="filters of the layer"
    )
    kernel: int = switch(
        5, allowed="[1, inf)", prior=Choice((3, 5, 7)), row="A12", about="places that a filter sees along each side"
    )
    stride: int = switch(1, allowed="[1, inf)", prior=Choice((1, 2)), row="A12", about="places that a filter moves by")
    padding: str = switch(SAME, allowed=(SAME, VALID), row="A12", about="zeros around a map, so that it keeps its size")
    winners: int = switch(
        1,
        allowed="[1, inf)",
        prior=Choice((1, 2)),
        row="A12",
        about="of so many places along each side only a filter's largest answer is kept; 1: all are",
    )
    tied: bool = switch(
        True, allowed=(False, True), prior=Choice((False, True)), row="A3", about="decode with the encoder's filters"
    )
    pooling: AbstractPooling = MaxPool()
    activation: AbstractActivation = Rectifier()
    initial: AbstractInitial = Glorot()
    dimensions: int = switch(2, allowed=(1, 2), row="A12", about="2: pictures; 1: series")

    def __check_init__(self) -> None:
        check_whole(self, "units", "kernel", "stride", "winners")

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> ConvolutionalAutoEncoderNetwork:
        sides, channels = check_example(inputs, self.dimensions, "ConvolutionalAutoEncoder", "MlpAutoEncoder")
        moves = {"kernel": self.kernel, "stride": self.stride, "padding": self.padding}
        if min(count_places(side, **moves) for side in sides) < 1:  # type: ignore[arg-type]
            raise RequestError(
                f"`ConvolutionalAutoEncoder.kernel` {self.kernel} does not fit into examples of shape {inputs}. Use "
                "`padding='same'`, or a smaller kernel."
            )
        window = self.kernel ** len(sides)
        fans = (max(1, self.units * window // self.stride ** len(sides)), channels * window)
        shape = (self.units, channels * window)

        def draw(name: str) -> Array:
            return self.initial.draw(*fans, self.activation.gain(), key=keys.named(key, name), shape=shape)

        layer = ConvolutionLayer(
            weight=draw("filters"),
            bias=jnp.zeros(self.units),
            norm=None,
            activation=self.activation,
            pooling=self.pooling,
            dropout=None,
            residual=False,
            **moves,  # type: ignore[arg-type]
        )
        own = None if self.tied else draw("decoder")
        return ConvolutionalAutoEncoderNetwork(layer, own, jnp.zeros(channels), (*sides, channels), self.winners)

    def pooled_shape(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what the next layer reads, of examples of this shape."""
        sides, _ = check_example(inputs, self.dimensions, "ConvolutionalAutoEncoder", "MlpAutoEncoder")
        moves = {"kernel": self.kernel, "stride": self.stride, "padding": self.padding}
        places = (self.pooling.count(count_places(side, **moves)) for side in sides)  # type: ignore[arg-type]
        return (*places, self.units)
