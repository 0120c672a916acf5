"""From the states of all steps to one vector for the whole sequence; steps beyond the end count nothing.

| pooling            | the vector                                                       |
|--------------------|------------------------------------------------------------------|
| `LastState`        | the state after the last step, of a backward layer the first one |
| `MeanState`        | the mean of the states                                           |
| `AttentionPooling` | their mean with weights softmax(v . tanh(W h + b)), learned      |
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from ...specs.knobs import Spec, switch
from ...specs.priors import Choice
from ..initial_weights import AbstractInitial, Glorot

States = Float[Array, "steps width"]
Mask = Bool[Array, " steps"]


class AbstractStatePooling(Spec):
    @abc.abstractmethod
    def build(self, width: int, *, key: Key[Array, ""]) -> Any:
        """What maps states (steps, width), their mask and the last state (width,) to one vector (width,)."""


class LastOfStates(eqx.Module):
    """The last state."""

    def __call__(self, states: States, mask: Mask, last: Float[Array, " width"]) -> Float[Array, " width"]:
        return last


class MeanOfStates(eqx.Module):
    """The mean over the steps of the sequence."""

    def __call__(self, states: States, mask: Mask, last: Float[Array, " width"]) -> Float[Array, " width"]:
        return jnp.sum(jnp.where(mask[:, None], states, 0.0), axis=0) / jnp.maximum(jnp.sum(mask), 1)


class AttentionOverStates(eqx.Module):
    """The mean with learned weights: e_t = v . tanh(W h_t + b), weights softmax(e)."""

    weight: Float[Any, "units width"]
    bias: Float[Any, " units"]
    score: Float[Any, " units"]

    def weights(self, states: States, mask: Mask) -> Float[Array, " steps"]:
        """The weight of each step: 0 beyond the end."""
        energies = jnp.tanh(states @ self.weight.T + self.bias) @ self.score
        energies = jnp.where(mask, energies, -jnp.inf)
        highest = jnp.max(energies, initial=-1e30)  # finite even where there is no step
        powers = jnp.where(mask, jnp.exp(jnp.where(mask, energies - highest, 0.0)), 0.0)
        return powers / jnp.maximum(jnp.sum(powers), 1e-30)

    def __call__(self, states: States, mask: Mask, last: Float[Array, " width"]) -> Float[Array, " width"]:
        return self.weights(states, mask) @ states


class LastState(AbstractStatePooling):
    """The state after the last step: what the cell itself carried to the end."""

    def build(self, width: int, *, key: Key[Array, ""]) -> LastOfStates:
        return LastOfStates()


class MeanState(AbstractStatePooling):
    """The mean of the states: short ways for the gradient, to every step."""

    def build(self, width: int, *, key: Key[Array, ""]) -> MeanOfStates:
        return MeanOfStates()


class AttentionPooling(AbstractStatePooling):
    """A mean whose weights are learned, so that few steps may decide (Bahdanau, Cho and Bengio 2015).

    Training begins with equal weights: the vector v is 0.
    """

    units: int = switch(
        32, allowed="[1, inf)", prior=Choice((16, 32, 64)), row="A12", kind="capacity", about="units that score a step"
    )
    initial: AbstractInitial = Glorot()

    def build(self, width: int, *, key: Key[Array, ""]) -> AttentionOverStates:
        weight = self.initial.draw(self.units, width, 1.0, key=jr.fold_in(key, 0))
        return AttentionOverStates(weight, jnp.zeros(self.units), jnp.zeros(self.units))
