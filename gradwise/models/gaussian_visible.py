"""Gaussian visible units of a Boltzmann machine (row A2), of precision 1 or of precisions that are learned.

    GaussianVisible()                            real numbers of standard deviation 1
    GaussianVisible(precisions="learned")        the machine's units are `PreciseUnits`

With precisions l = exp(s), one for each unit, the energy is E = sum_i l_i (v_i - b_i)^2 / 2 - c'h - h'W(sqrt(l) v):
given the hidden units the mean is b + W'h / sqrt(l) and the variance 1/l. Weights are in units of the noise, so that
one learning rate suits units of any precision: with h'W(l v), as in Cho, Ilin and Raiko (2011), gradients grow with l.
The parameter s is called `log_precision`, so that a group of parameters or a penalty can name it: `*log_precision`.
"""

import abc
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar

from ..runtime.errors import RequestError
from ..specs.knobs import switch
from .visible_units import AbstractVisible, uniform_numbers

_SHARPEST = 2.0 * math.log(10.0)  # of a log-precision: a column of equal values would be made ever more precise
_STILL = 1e-8  # the variance of an input that does not vary


def normal_of(uniform: Float[Array, "..."]) -> Float[Array, "..."]:
    """Normal numbers from uniform ones in [0, 1), multiples of 2^-24 in 32 bits.

    Only 0 must be kept away: it would be minus infinity. Adding half a step instead would round the largest up to 1.
    """
    return math.sqrt(2.0) * jax.lax.erf_inv(2.0 * jnp.maximum(uniform, 2.0**-25) - 1.0)


class _Gaussian(AbstractVisible):
    """Real units around b + W'h / sqrt(l), l being their precisions.

    One unit's density given the others has no closed form. Score matching replaces the pseudo-likelihood, because it
    needs no normaliser either (Hyvarinen 2005): half the square of d log p/dv, plus its divergence. With the
    mean-field reconstruction r it is sum_i l_i^2 (r_i - v_i)^2 / 2, plus the sum over hidden units of
    |sqrt(l) w_j|^2 s_j (1 - s_j), minus sum_i l_i. The second term penalises the capacity to copy, so numbers of units
    can be compared. It is no likelihood, and says nothing across inputs of different scales.
    """

    score = "score_matching"

    @property
    @abc.abstractmethod
    def precision(self) -> Any:
        """1, or that of each unit."""

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return 0.5 * jnp.sum(self.precision * (v - bias) ** 2)

    def log_normaliser(self, activation: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        free = 0.5 * math.log(2.0 * math.pi) * bias.shape[0] - 0.5 * jnp.sum(jnp.log(self.precision))
        return 0.5 * jnp.sum(self.precision * (activation**2 - bias**2)) + free

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return activation

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        return mean

    def pseudo_loss(
        self,
        network: Any,
        v: Float[Array, "n d"],
        activation: Float[Array, "n hidden"],
        units: Int[Array, "n some"] | None,
    ) -> Float[Array, " n"]:
        code = jax.nn.sigmoid(activation)
        width = v.shape[1]
        slope = self.precision * (self.moved(code @ network.weight[:, :width]) + network.visible_bias[:width] - v)
        bend = (code * (1.0 - code)) @ jnp.sum(self.seen(network.weight[:, :width]) ** 2, axis=1)
        return 0.5 * jnp.sum(slope**2, axis=1) + bend - jnp.sum(jnp.broadcast_to(self.precision, (width,)))

    def states(self, count: int) -> int | None:
        return None

    def state(self, number: Int[Array, ""], count: int) -> Float[Array, " d"]:
        raise RequestError("the states of Gaussian units cannot be counted: enumerate the hidden units instead.")

    def check_range(self, low: float, high: float) -> None:
        pass  # any number will do


class PreciseUnits(_Gaussian):
    """The Gaussian units of one machine, each of a precision that is learned; `GaussianVisible` makes them.

    They begin at the inverse variances of the inputs, those of inputs that never vary at 1, and grow no more precise
    than a deviation of 0.1: scale the inputs to a deviation of about 1.
    """

    log_precision: Float[Any, " d"]

    def started(self, inputs: Float[Array, "n d"]) -> "PreciseUnits":
        variance = jnp.var(inputs, axis=0)
        return PreciseUnits(jnp.where(variance > _STILL, jnp.minimum(-jnp.log(variance), _SHARPEST), 0.0))

    @property
    def log_precisions(self) -> Any:
        return self.log_precision

    @property
    def precision(self) -> Any:
        return jnp.exp(jnp.minimum(self.log_precision, _SHARPEST))

    def seen(self, v: Float[Any, "... d"]) -> Float[Any, "... d"]:
        return v * jnp.sqrt(self.precision)

    def moved(self, down: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return down / jnp.sqrt(self.precision)

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        noise = normal_of(uniform_numbers(key, activation.shape, activation.dtype))
        return activation + noise / jnp.sqrt(self.precision)

    def precision_slopes(
        self, v: Float[Array, "n d"], bias: Float[Array, " d"], down: Float[Array, "n d"]
    ) -> Float[Array, "n d"]:
        held = self.log_precision < _SHARPEST  # beyond, the precision no longer moves
        return jnp.where(held, 0.5 * self.precision * (v - bias) ** 2 - 0.5 * self.seen(v) * down, 0.0)


class GaussianVisible(_Gaussian):
    """Real units of standard deviation 1: scale the inputs to it first. Or of learned precisions."""

    precisions: str = switch(
        "fixed", allowed=("fixed", "learned"), row="A2", about="whether each unit's precision is 1 or learned"
    )

    def units(self, width: int) -> AbstractVisible:
        return self if self.precisions == "fixed" else PreciseUnits(jnp.zeros(width))

    @property
    def precision(self) -> float:
        return 1.0

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        return activation + normal_of(uniform_numbers(key, activation.shape, activation.dtype))
