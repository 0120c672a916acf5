"""Convolutional networks (row A12): `Convolutional` is the spec of networks for pictures and series.

    Convolutional()                                                     three layers of 3 x 3 filters, each pooled
    Convolutional(channels=(32, 64), repeats=2, residual=True, normalisation=BatchNorm())
    Convolutional(channels=(8, 16), kernel=5, dimensions=1)             series: (time,) or (time, channels)
    Convolutional(shared=False)                                         local receptive fields
    Convolutional(augmentation=Shift(2))                                pictures moved a little at each visit

An example is a picture (h, w) or (h, w, c), channels last; `jax.vmap` makes the batch.
"""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractModel
from ...specs.knobs import check_whole, switch
from ...specs.priors import Choice
from ...specs.schedules import AbstractSchedule, Constant, dropout_knob
from ..activations import AbstractActivation, Identity, Rectifier
from ..initial_weights import AbstractInitial, Glorot
from ..mlp import AbstractNormalisation, Mlp, NoNorm, as_widths, check_widths, dropout_of, layer_widths
from .augmentation import AbstractAugmentation, NoAugmentation
from .network import ConvolutionalNetwork, ConvolutionLayer
from .patches import SAME, VALID, count_places
from .pooling import AbstractPooling, MaxPool, NoPool


def _flag(default: bool, row: str, about: str) -> Any:
    return switch(default, allowed=(default, not default), prior=Choice((default, not default)), row=row, about=about)


class Convolutional(AbstractModel):
    """A convolutional network for pictures and series (row A12).

    `channels` are the filters of each stage. A stage is `repeats` layers of which the first moves by `stride`, and
    the last is pooled. `widths` are the dense layers above. `dropout` acts on what they read and on their units.
    """

    channels: tuple[int, ...] = switch(
        (16, 32, 64),
        prior=Choice(((16, 32, 64), (8, 16, 32), (32, 64, 128), (16, 32), (32, 64))),
        row="A12",
        kind="capacity",
        about="filters of each stage",
        convert=as_widths,
    )
    kernel: int = switch(
        3, allowed="[1, inf)", prior=Choice((3, 5)), row="A12", about="places that a filter sees along each side"
    )
    stride: int = switch(
        1, allowed="[1, inf)", prior=Choice((1, 2)), row="A12", about="places that the first filter of a stage moves by"
    )
    padding: str = switch(SAME, allowed=(SAME, VALID), row="A12", about="zeros around a map, so that it keeps its size")
    repeats: int = switch(
        1, allowed="[1, inf)", prior=Choice((1, 2)), row="A12", kind="capacity", about="layers of filters in each stage"
    )
    pooling: AbstractPooling = MaxPool()
    shared: bool = _flag(True, "A12", "one set of filters for all places; else each place has its own")
    residual: bool = _flag(False, "J4", "adds a layer's input to its output where both have the same shape")
    normalisation: AbstractNormalisation = NoNorm()
    activation: AbstractActivation = Rectifier()
    initial: AbstractInitial = Glorot()
    output_initial: AbstractInitial = Glorot()
    output_activation: AbstractActivation = Identity()
    dropout: float = dropout_knob(0.1, "a feature or a dense unit")
    dropout_schedule: AbstractSchedule = Constant()
    widths: tuple[int, ...] = layer_widths(
        (64,), (), (64,), (128,), (256,), row="A12", about="units of the dense layers above the filters"
    )
    dimensions: int = switch(2, allowed=(1, 2), row="A12", about="2: pictures; 1: series")
    augmentation: AbstractAugmentation = NoAugmentation()

    def __check_init__(self) -> None:
        check_widths("Convolutional.channels", self.channels)
        check_widths("Convolutional.widths", self.widths, least=0)
        check_whole(self, "kernel", "stride", "repeats")

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> ConvolutionalNetwork:
        sides, below = check_example(inputs, self.dimensions)
        self.augmentation.check_sides(sides)
        mlp = self.perceptron()
        layers: list[ConvolutionLayer] = []
        for number in range(len(self.channels) * self.repeats):
            layer, sides = self._layer(number, sides, below, mlp, keys.named(key, f"convolution {number}"))
            below = layer.bias.shape[-1]
            layers.append(layer)
        dense = mlp.build((math.prod(sides) * below,), outputs, key=keys.named(key, "dense"))
        augmentation = None if isinstance(self.augmentation, NoAugmentation) else self.augmentation
        return ConvolutionalNetwork(tuple(layers), dense.layers, dense.output, augmentation, self.dimensions)

    def perceptron(self) -> Mlp:
        """The dense layers on what the filters found."""
        same = ("widths", "activation", "initial", "output_initial", "output_activation", "normalisation", "dropout")
        return Mlp(**{name: getattr(self, name) for name in (*same, "dropout_schedule")})

    def _layer(
        self, number: int, sides: tuple[int, ...], below: int, mlp: Mlp, key: Key[Array, ""]
    ) -> tuple[ConvolutionLayer, tuple[int, ...]]:
        """A layer of filters on a map of these sides with so many channels, and the sides of what it gives."""
        stage, place = divmod(number, self.repeats)
        width, stride = self.channels[stage], self.stride if place == 0 else 1
        moves = {"kernel": self.kernel, "stride": stride, "padding": self.padding}
        places = tuple(count_places(side, **moves) for side in sides)  # type: ignore[arg-type]
        if min(places) < 1:
            raise RequestError(
                f"`Convolutional.kernel` {self.kernel} does not fit into the map of {_sides(sides)} below layer "
                f"{number + 1}. Use `padding='same'`, a smaller kernel or fewer `channels`."
            )
        taps, window = below * self.kernel ** len(sides), self.kernel ** len(sides)
        own = () if self.shared else places
        fans = (max(1, width * window // stride ** len(sides)), taps)
        rows = math.prod(own) * width
        weight = self.initial.draw(*fans, self.activation.gain(), key=key, shape=(rows, taps))
        last = place == self.repeats - 1
        pooling: AbstractPooling = self.pooling if last else NoPool()
        features = last and stage == len(self.channels) - 1
        layer = ConvolutionLayer(
            weight=weight.reshape(*own, width, taps),
            bias=jnp.zeros((*own, width)),
            norm=self.normalisation.build(width),
            activation=self.activation.units(width),
            pooling=pooling,
            dropout=dropout_of(mlp) if features else None,
            residual=self.residual and (*places, width) == (*sides, below),
            **moves,  # type: ignore[arg-type]
        )
        return layer, tuple(pooling.count(side) for side in places)


def _sides(sides: tuple[int, ...]) -> str:
    return " x ".join(map(str, sides))


def check_example(
    shape: tuple[int, ...], dimensions: int, model: str = "Convolutional", instead: str = "Mlp"
) -> tuple[tuple[int, ...], int]:
    """The sides and the channels of an example of this shape; raises unless it is a picture, or a series."""
    if len(shape) == dimensions:
        return shape, 1
    if len(shape) == dimensions + 1:
        return shape[:-1], shape[-1]
    edge = math.isqrt(math.prod(shape))
    if dimensions == 1:
        remedy = "Use `dimensions=2` for pictures."
    elif len(shape) == 1 and edge > 1 and edge * edge == shape[0]:
        remedy = f"Give an array of shape (n, {edge}, {edge}), use `dimensions=1` for series, or the model `{instead}`."
    else:
        remedy = f"Give an array of shape (n, h, w) or (n, h, w, c), or use the model `{instead}`."
    meant = "pictures (h, w) or (h, w, c)" if dimensions == 2 else "series (t,) or (t, c)"
    raise RequestError(f"`{model}` needs {meant}, channels last; got examples of shape {shape}. {remedy}")
