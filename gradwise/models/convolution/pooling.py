"""Pooling: neighbouring places of a map become one, so that a feature may move a little and maps shrink.

    MaxPool(2)     the largest of each 2 x 2
    MeanPool(2)    their mean
    NoPool()       the map as it is

Windows do not overlap; places at the end that fill no window are left out. A side shorter than the window is one.
"""

import abc
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...specs.knobs import Spec, check_whole, switch
from ...specs.priors import Choice


class AbstractPooling(Spec):
    @abc.abstractmethod
    def __call__(self, h: Float[Array, "*sides c"]) -> Float[Array, "*places c"]:
        """The smaller map."""

    def count(self, side: int) -> int:
        """The places along a side that has this many before."""
        return side


def _size() -> Any:
    return switch(2, allowed="[1, inf)", prior=Choice((2, 3)), row="A12", about="places along a side that become one")


def _count(side: int, size: int) -> int:
    return side // min(size, side)


def _windows(h: Float[Array, "*sides c"], size: int) -> tuple[Float[Array, "..."], tuple[int, ...]]:
    """The map cut into windows, and the axes within them."""
    sides = h.shape[:-1]
    whole = tuple(slice(0, _count(side, size) * min(size, side)) for side in sides)
    shape = [part for side in sides for part in (_count(side, size), min(size, side))]
    return h[whole].reshape(*shape, h.shape[-1]), tuple(range(1, 2 * len(sides), 2))


def keep_largest(h: Float[Array, "*sides c"], size: int) -> Float[Array, "*sides c"]:
    """The map with 0 wherever a channel has a larger value among `size` places along each side; 1 keeps all."""
    if size == 1:
        return h
    sides = len(h.shape) - 1
    gaps = [(0, -side % size) for side in h.shape[:-1]]
    wide = jnp.pad(h, [*gaps, (0, 0)], constant_values=-jnp.inf) if any(map(any, gaps)) else h
    windows, within = _windows(wide, size)
    largest = jnp.max(windows, axis=within, keepdims=True)
    kept = jnp.where(windows == largest, windows, 0.0).reshape(wide.shape)
    return kept[tuple(slice(0, side) for side in h.shape[:sides])]


class NoPool(AbstractPooling):
    """The map as it is."""

    def __call__(self, h: Float[Array, "*sides c"]) -> Float[Array, "*places c"]:
        return h


class MaxPool(AbstractPooling):
    """The largest value of each window: whether a feature is there."""

    size: int = _size()

    def __check_init__(self) -> None:
        check_whole(self, "size")

    def __call__(self, h: Float[Array, "*sides c"]) -> Float[Array, "*places c"]:
        windows, within = _windows(h, self.size)
        return jnp.max(windows, axis=within)

    def count(self, side: int) -> int:
        return _count(side, self.size)


class MeanPool(AbstractPooling):
    """The mean of each window: how much of a feature is there."""

    size: int = _size()

    def __check_init__(self) -> None:
        check_whole(self, "size")

    def __call__(self, h: Float[Array, "*sides c"]) -> Float[Array, "*places c"]:
        windows, within = _windows(h, self.size)
        return jnp.mean(windows, axis=within)

    def count(self, side: int) -> int:
        return _count(side, self.size)
