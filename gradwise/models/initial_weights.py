"""Initial weights (row D8). Biases start at 0, so units begin in the middle of their non-linearity.

    Glorot()                 uniform, +-sqrt(6 / (fan_in + fan_out)) times the non-linearity's gain
    FanIn()                  uniform, +-sqrt(1 / fan_in) times the gain
    GaussianWeights(0.01)    for Boltzmann machines
    SparseWeights(15)        few strong weights per unit, the others 0: for very deep networks, second-order optimisers
    ZeroWeights()            for output weights only, which have no symmetry to break

Every unit draws from its own key, so its draws do not depend on the number of units in the layer; only Glorot's
scale does, through fan_out. So a layer can be drawn in an array larger than itself (`shape`): the weights of its own
units and inputs stay the same, and its fans, which set the scale, may be known only at run time.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..specs.knobs import Spec, knob, switch
from ..specs.priors import LogInteger, LogUniform

_SCALE: dict[str, Any] = {"allowed": "(0, inf)", "prior": LogUniform(0.1, 10.0), "row": "D8", "kind": "model"}
_TIMES = "multiplies the recommended scale of the initial weights"


Shape = tuple[int, int] | None
Weights = Float[Array, "out in"]


class AbstractInitial(Spec):
    @abc.abstractmethod
    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        """The initial weights of a layer whose non-linearity has this gain, in an array of its size or of `shape`."""


def _units(key: Key[Array, ""], count: int) -> Key[Array, " count"]:
    return jax.vmap(lambda unit: jr.fold_in(key, unit))(jnp.arange(count))


def uniform(shape: tuple[int, int], key: Key[Array, ""]) -> Float[Array, "out in"]:
    """Uniform in [-1, 1], one key per unit."""
    return jax.vmap(lambda unit: jr.uniform(unit, (shape[1],), minval=-1.0, maxval=1.0))(_units(key, shape[0]))


def normal(shape: tuple[int, int], key: Key[Array, ""]) -> Float[Array, "out in"]:
    """Standard normal, one key per unit."""
    return jax.vmap(lambda unit: jr.normal(unit, (shape[1],)))(_units(key, shape[0]))


class Glorot(AbstractInitial):
    """Keeps the variance of activations and gradients constant from layer to layer (Glorot and Bengio 2010)."""

    scale: float = knob(1.0, **_SCALE, about=_TIMES)

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        limit = gain * (6.0 / (fan_in + fan_out)) ** 0.5
        return self.scale * limit * uniform(shape or (fan_out, fan_in), key)


class FanIn(AbstractInitial):
    """Scaled by the number of inputs only, so that no unit saturates at the start."""

    scale: float = knob(1.0, **_SCALE, about=_TIMES)

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        return self.scale * gain * fan_in**-0.5 * uniform(shape or (fan_out, fan_in), key)


class GaussianWeights(AbstractInitial):
    """A normal distribution of the given standard deviation, whatever the layer's size."""

    deviation: float = knob(
        0.01, allowed="(0, inf)", prior=LogUniform(0.001, 0.1), row="D8", kind="model", about="standard deviation"
    )

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        return self.deviation * normal(shape or (fan_out, fan_in), key)


class SparseWeights(AbstractInitial):
    """Each unit has `connections` non-zero weights, normal with standard deviation `scale`.

    A unit's input then keeps its size however many inputs there are, units of a layer differ from one another, and
    none saturates (Martens 2010). A unit with fewer inputs uses all of them.
    """

    connections: int = switch(
        15, allowed="[1, inf)", prior=LogInteger(3, 100), row="D8", about="non-zero weights per unit"
    )
    scale: float = knob(1.0, **_SCALE, about="standard deviation of the weights that are not 0")

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        shape = shape or (fan_out, fan_in)
        chosen, strengths = jr.split(key)
        # The inputs with the lowest lots; places beyond the layer's own inputs come last, so they never push one out.
        lots = jnp.where(jnp.arange(shape[1]) < fan_in, uniform(shape, chosen), jnp.inf)
        ranks = jnp.argsort(jnp.argsort(lots, axis=1), axis=1)
        heard = (ranks < self.connections) & jnp.isfinite(lots)
        return jnp.where(heard, self.scale * normal(shape, strengths), 0.0)


class ZeroWeights(AbstractInitial):
    """All weights 0. For output layers only: hidden units that start alike stay alike."""

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        return jnp.zeros(shape or (fan_out, fan_in))
