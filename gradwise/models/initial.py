"""Initial weights (row D8). Biases start at 0, so units begin in the middle of their non-linearity.

    Glorot()          uniform, +-sqrt(6 / (fan_in + fan_out)) times the non-linearity's gain
    FanIn()           uniform, +-sqrt(1 / fan_in) times the gain
    Gaussian(0.01)    for Boltzmann machines
    Zeros()           allowed for output weights: nothing to break the symmetry of

Every unit draws from a key of its own, so its draws do not depend on how many units stand beside it; only Glorot's
scale does, through fan_out.
"""

import abc

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..core.knob import Spec, knob
from ..core.prior import LogUniform

_SCALE = "multiplies the recommended scale of the initial weights"


class AbstractInitial(Spec):
    @abc.abstractmethod
    def draw(self, fan_out: int, fan_in: int, gain: float, *, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
        """The initial weights of a layer whose non-linearity has this gain."""


def _uniform(fan_out: int, fan_in: int, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
    """Uniform in [-1, 1], one key a unit."""
    units = jax.vmap(lambda unit: jr.fold_in(key, unit))(jnp.arange(fan_out))
    return jax.vmap(lambda unit: jr.uniform(unit, (fan_in,), minval=-1.0, maxval=1.0))(units)


class Glorot(AbstractInitial):
    """Keeps the variance of activations and of gradients alike from layer to layer (Glorot and Bengio 2010)."""

    scale: float = knob(1.0, allowed="(0, inf)", prior=LogUniform(0.1, 10.0), row="D8", kind="model", about=_SCALE)

    def draw(self, fan_out: int, fan_in: int, gain: float, *, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
        limit = gain * (6.0 / (fan_in + fan_out)) ** 0.5
        return self.scale * limit * _uniform(fan_out, fan_in, key)


class FanIn(AbstractInitial):
    """Scaled by the number of inputs alone, so that no unit saturates at the start."""

    scale: float = knob(1.0, allowed="(0, inf)", prior=LogUniform(0.1, 10.0), row="D8", kind="model", about=_SCALE)

    def draw(self, fan_out: int, fan_in: int, gain: float, *, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
        return self.scale * gain * fan_in**-0.5 * _uniform(fan_out, fan_in, key)


class Gaussian(AbstractInitial):
    """A normal distribution of the given deviation, whatever the layer's size."""

    deviation: float = knob(
        0.01, allowed="(0, inf)", prior=LogUniform(0.001, 0.1), row="D8", kind="model", about="standard deviation"
    )

    def draw(self, fan_out: int, fan_in: int, gain: float, *, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
        units = jax.vmap(lambda unit: jr.fold_in(key, unit))(jnp.arange(fan_out))
        return self.deviation * jax.vmap(lambda unit: jr.normal(unit, (fan_in,)))(units)


class Zeros(AbstractInitial):
    """All weights 0. For output layers only: hidden units that start alike stay alike."""

    def draw(self, fan_out: int, fan_in: int, gain: float, *, key: Key[Array, ""]) -> Float[Array, "fan_out fan_in"]:
        return jnp.zeros((fan_out, fan_in))
