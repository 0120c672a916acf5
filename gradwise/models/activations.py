"""Non-linearities (row D6), each with the gain its initial weights need (row D8).

| name | value | gain on Glorot's scale | why |
|---|---|---|---|
| Tanh | tanh a | 1 | the case Glorot's formula was made for |
| Sigmoid | 1/(1+e^-a) | 4 | its slope at 0 is a quarter of tanh's |
| Rectifier | max(0, a) | sqrt 2 | half of its units are off |
| HardTanh | a clipped to [-1, 1] | 1 | |
| Softsign | a/(1+abs a) | 2 | its slope falls fast: over five layers a gain of 1 loses a factor 44, of 2 a factor 7 |
| Identity | a | 1 | linear outputs |
"""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..specs.knobs import Spec


class AbstractActivation(Spec):
    """A non-linearity: works on any array, element by element."""

    @abc.abstractmethod
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        """The unit's output for the activation a."""

    @abc.abstractmethod
    def gain(self) -> float:
        """The factor on Glorot's initial scale that keeps the variance of activations and gradients."""


class Tanh(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.tanh(a)

    def gain(self) -> float:
        return 1.0


class Sigmoid(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.sigmoid(a)

    def gain(self) -> float:
        return 4.0


class Rectifier(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.relu(a)

    def gain(self) -> float:
        return 2.0**0.5


class HardTanh(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.clip(a, -1.0, 1.0)

    def gain(self) -> float:
        return 1.0


class Softsign(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return a / (1.0 + jnp.abs(a))

    def gain(self) -> float:
        return 2.0


class Identity(AbstractActivation):
    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return a

    def gain(self) -> float:
        return 1.0
