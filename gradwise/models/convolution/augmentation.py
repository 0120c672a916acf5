"""Augmentation: each time an example is visited it is changed a little, in a way that leaves its class as it was.

    Convolutional(augmentation=Shift(2))                                  digits: up to two pixels in each direction
    Convolutional(augmentation=Augmentations((Crop(4), Flip())))          photographs

It is part of the network and of the compiled program, so nothing is stored, and it acts only in training: a network
that is called without a key changes nothing. Off, it leaves no trace in the program.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...runtime.errors import RequestError
from ...specs.knobs import Spec, check_whole, switch
from ...specs.priors import Choice


class AbstractAugmentation(Spec):
    @abc.abstractmethod
    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        """The example, changed at random, of the same shape."""

    def check_sides(self, sides: Sequence[int]) -> None:
        """Raises if examples with these sides are too small for it."""


class NoAugmentation(AbstractAugmentation):
    """Examples as they are."""

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        return x


def _moved(x: Float[Array, "*sides c"], pixels: int, mode: str, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
    """The example with a border of so many pixels, then cut out at a place drawn evenly from all."""
    sides = x.ndim - 1
    starts = jr.randint(key, (sides,), 0, 2 * pixels + 1)
    wide = jnp.pad(x, [(pixels, pixels)] * sides + [(0, 0)], mode=mode)
    return jax.lax.dynamic_slice(wide, (*(starts[side] for side in range(sides)), 0), x.shape)


def _check_border(name: str, pixels: int, sides: Sequence[int]) -> None:
    if pixels >= min(sides):
        size = " x ".join(map(str, sides))
        raise RequestError(
            f"`{name}.pixels` must be smaller than each side of the pictures ({size}); got {pixels}. "
            f"At most {min(sides) - 1}."
        )


def _pixels(default: int, *choices: int) -> Any:
    return switch(
        default, allowed="[1, inf)", prior=Choice(choices), row="A12", about="the most pixels along each side"
    )


class Shift(AbstractAugmentation):
    """Moved along each side by up to so many pixels, all shifts equally likely; the pixels at the edge are repeated."""

    pixels: int = _pixels(2, 1, 2, 3, 4)

    def __check_init__(self) -> None:
        check_whole(self, "pixels")

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        return _moved(x, self.pixels, "edge", key)

    def check_sides(self, sides: Sequence[int]) -> None:
        _check_border("Shift", self.pixels, sides)


class Crop(AbstractAugmentation):
    """A border of so many pixels that mirrors the picture, then a part of the old size cut out anywhere."""

    pixels: int = _pixels(4, 2, 4)

    def __check_init__(self) -> None:
        check_whole(self, "pixels")

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        return _moved(x, self.pixels, "reflect", key)

    def check_sides(self, sides: Sequence[int]) -> None:
        _check_border("Crop", self.pixels, sides)


class Flip(AbstractAugmentation):
    """Left and right exchanged (a series: its time reversed), half of the times. Not for letters and digits."""

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        return jnp.where(jr.bernoulli(key), jnp.flip(x, axis=x.ndim - 2), x)


class Augmentations(AbstractAugmentation):
    """Several, one after another, each with randomness of its own."""

    steps: tuple[AbstractAugmentation, ...] = eqx.field(default=(Crop(), Flip()), converter=tuple)

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""]) -> Float[Array, "*sides c"]:
        for number, step in enumerate(self.steps):
            x = step(x, key=jr.fold_in(key, number))
        return x

    def check_sides(self, sides: Sequence[int]) -> None:
        for step in self.steps:
            step.check_sides(sides)
