"""Corruptions of a denoising auto-encoder's input (row A5). The target stays the clean input.

    Masking(0.25)         a quarter of the inputs set to 0
    GaussianNoise(0.3)    Gaussian noise of this standard deviation added
    SaltAndPepper(0.25)   a quarter of the inputs set to 0 or 1 at random

Each draws from the key it is given and reports which inputs it changed, so that a loss can use those alone.
"""

import abc
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from ..runtime.keys import coins
from ..specs.knobs import Spec, knob
from ..specs.priors import LogUniform, Uniform

Corrupted = tuple[Float[Array, "n ..."], Bool[Array, "n ..."]]  # the inputs, and which of them were changed


class AbstractCorruption(Spec):
    # True: a 0 stays 0 and each input is changed by itself, so that the non-zeros of sparse rows may be given alone.
    keeps_zeros: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> Corrupted:
        """The corrupted inputs, and which of them were changed."""


def _coins(key: Key[Array, ""], probability: Any, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """One stream for all: a key for each example would cost more than the coins."""
    return coins(key, probability, math.prod(shape)).reshape(shape)


def _level(about: str) -> Any:
    return knob(0.25, allowed="[0, 1)", prior=Uniform(0.1, 0.6), row="A5", kind="capacity", about=about)


class Clean(AbstractCorruption):
    """No corruption."""

    keeps_zeros = True

    def __call__(self, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> Corrupted:
        return inputs, jnp.zeros(inputs.shape, bool)


class Masking(AbstractCorruption):
    """Sets some inputs to 0."""

    keeps_zeros = True
    level: float = _level("the share of inputs that are set to 0")

    def __call__(self, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> Corrupted:
        touched = _coins(key, self.level, inputs.shape)
        return jnp.where(touched, 0.0, inputs), touched


class GaussianNoise(AbstractCorruption):
    """Adds Gaussian noise to all inputs."""

    deviation: float = knob(
        0.3,
        allowed="[0, inf)",
        prior=LogUniform(0.05, 1.0),
        row="A5",
        kind="capacity",
        about="standard deviation of the noise, in units of the scaled inputs",
    )

    def __call__(self, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> Corrupted:
        noise = jr.normal(key, inputs.shape, inputs.dtype)
        return inputs + self.deviation * noise, jnp.ones(inputs.shape, bool)


class SaltAndPepper(AbstractCorruption):
    """Sets some inputs to 0 or 1, with equal probability."""

    level: float = _level("the share of inputs that are set to 0 or 1")

    def __call__(self, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> Corrupted:
        which, what = jr.split(key)
        touched = _coins(which, self.level, inputs.shape)
        return jnp.where(touched, _coins(what, 0.5, inputs.shape).astype(inputs.dtype), inputs), touched
