"""Non-linearities (row D6), each with the gain its initial weights need (row D8).

| name | value | gain on Glorot's scale | why |
|---|---|---|---|
| Tanh | tanh a | 1 | the case Glorot's formula was made for |
| Sigmoid | 1/(1+e^-a) | 4 | its slope at 0 is a quarter of tanh's |
| Rectifier | max(0, a) | sqrt 2 | half of its units are off |
| HardTanh | a clipped to [-1, 1] | 1 | |
| Softsign | a/(1+abs a) | 2 | its slope falls fast: over five layers a gain of 1 loses a factor 44, of 2 a factor 7 |
| Identity | a | 1 | linear outputs |
| Selu | scaled exponential linear | 1 | keeps mean 0 and variance 1 by itself (Klambauer et al. 2017) |
| Mish | a tanh(log(1+e^a)) | 1.49 | E[f(z)^2] = 0.45 for normal z (Misra 2019) |
| Gelu | a times the normal distribution function of a | 1.53 | E[f(z)^2] = 0.43 for normal z |
| Parametric | a + slope (f(a) - a), a slope per unit | that of f | learned: 0 is linear, 1 is f itself |
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..specs.knobs import Spec


class AbstractActivation(Spec):
    """A non-linearity, applied element-wise."""

    @abc.abstractmethod
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        """The unit's output for the activation a."""

    def gain(self) -> float:
        """The factor on Glorot's initial scale that keeps the variance of activations and gradients."""
        return 1.0

    def units(self, width: int) -> Any:
        """The non-linearity of a layer of this width with its parameters; most have none and return themselves."""
        return self

    def slope_at(self, h: Float[Array, "..."]) -> Float[Array, "..."] | None:
        """f'(a) from h = f(a), where the output tells it: no second product with the weights is needed."""
        return None


class Tanh(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.tanh(a)

    def slope_at(self, h: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 - h**2


class Sigmoid(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.sigmoid(a)

    def gain(self) -> float:
        return 4.0

    def slope_at(self, h: Float[Array, "..."]) -> Float[Array, "..."]:
        return h * (1.0 - h)


class Rectifier(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.relu(a)

    def gain(self) -> float:
        return 2.0**0.5

    def slope_at(self, h: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.where(h > 0, 1.0, 0.0).astype(h.dtype)


class HardTanh(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.clip(a, -1.0, 1.0)


class Softsign(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return a / (1.0 + jnp.abs(a))

    def gain(self) -> float:
        return 2.0


class Identity(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return a

    def slope_at(self, h: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(h)


class Selu(AbstractActivation):
    """Scaled exponential linear units."""

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.selu(a)


class Mish(AbstractActivation):
    """A smooth rectifier that dips below 0."""

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        # tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2), e = exp(a): one exponential instead of three functions.
        power = jnp.exp(jnp.minimum(a, 20.0))
        odds = power * (power + 2.0)
        return a * odds / (odds + 2.0)

    def gain(self) -> float:
        return 1.487


class Gelu(AbstractActivation):
    """Gaussian error linear units (Hendrycks and Gimpel 2016)."""

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.gelu(a, approximate=False)

    def gain(self) -> float:
        return 1.534


class ParametricUnits(eqx.Module):
    """The units of a layer, each interpolating between identity (slope 0) and its activation (slope 1)."""

    activation: AbstractActivation
    slope: Float[Any, " width"]

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return a + self.slope * (self.activation(a) - a)

    def slope_at(self, h: Float[Array, "..."]) -> None:
        return None


class Parametric(AbstractActivation):
    """a + slope (f(a) - a), with a learned slope for each unit, initially 1."""

    activation: AbstractActivation = Selu()

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.activation(a)

    def gain(self) -> float:
        return self.activation.gain()

    def units(self, width: int) -> ParametricUnits:
        return ParametricUnits(self.activation, jnp.ones(width))
