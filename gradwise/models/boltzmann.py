"""Restricted Boltzmann machines (row A2): binary hidden units, and visible units of several kinds.

    Rbm(units=500)                                binary visible units, or probabilities in [0, 1]
    Rbm(units=500, visible=GaussianVisible())     real inputs of deviation 1

The energy of a state is E(v, h) = visible part - b'v - c'h - h'Wv. Summing over h gives the free energy F(v), and
p(v) is proportional to exp(-F(v)). Training lowers the free energy of examples and raises that of the model's own
states: `gradwise.criteria.divergence`. Called on an example the network gives the means of its hidden units.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, Scalar

from ..core.knob import Spec, switch
from ..core.parts import AbstractStarting
from ..core.prior import LogInteger
from .activation import Sigmoid
from .initial import AbstractInitial, Gaussian
from .mlp import Layer

_EDGE = 0.01  # a pixel that is never lit gets the log-odds of one lit in 1 of 100 examples, not minus infinity


class AbstractVisible(Spec):
    """The kind of the visible units: the part of the energy that they have alone, and how they are drawn."""

    @abc.abstractmethod
    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        """The energy of visible states without the hidden units."""

    @abc.abstractmethod
    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """The means of the visible units given b + W'h."""

    @abc.abstractmethod
    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        """A sample of the visible units given b + W'h."""

    @abc.abstractmethod
    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        """The biases under which, without weights, the units have this mean: log-odds for binary units (row D8)."""


class BinaryVisible(AbstractVisible):
    """Units that are 0 or 1; inputs between are taken for probabilities."""

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return -bias @ v

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return jax.nn.sigmoid(activation)

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        return bernoulli(jax.nn.sigmoid(activation), key)

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        held = jnp.clip(mean, _EDGE, 1.0 - _EDGE)
        return jnp.log(held) - jnp.log1p(-held)


class GaussianVisible(AbstractVisible):
    """Real units of deviation 1 around b + W'h: scale the inputs to deviation 1 first."""

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return 0.5 * jnp.sum((v - bias) ** 2)

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return activation

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        return activation + jr.normal(key, activation.shape)

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        return mean


def bernoulli(probability: Float[Array, "..."], key: Key[Array, ""]) -> Float[Array, "..."]:
    """Independent 0/1 draws with these probabilities, as floats."""
    from ..core.keys import coins

    flat = jnp.ravel(probability)
    return coins(key, flat, flat.shape[0]).reshape(probability.shape).astype(probability.dtype)


class RbmNetwork(eqx.Module):
    """Weights between hidden and visible units, and a bias for each unit. Methods take one state or many."""

    weight: Float[Any, "hidden visible"]
    hidden_bias: Float[Any, " hidden"]
    visible_bias: Float[Any, " visible"]
    visible: AbstractVisible

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " hidden"]:
        return self.hidden_mean(jnp.ravel(x))

    def hidden_activation(self, v: Float[Array, "... visible"]) -> Float[Array, "... hidden"]:
        return v @ self.weight.T + self.hidden_bias

    def visible_activation(self, h: Float[Array, "... hidden"]) -> Float[Array, "... visible"]:
        return h @ self.weight + self.visible_bias

    def hidden_mean(self, v: Float[Array, "... visible"]) -> Float[Array, "... hidden"]:
        return jax.nn.sigmoid(self.hidden_activation(v))

    def visible_mean(self, h: Float[Array, "... hidden"]) -> Float[Array, "... visible"]:
        return self.visible.mean(self.visible_activation(h))

    def draw_hidden(self, v: Float[Array, "... visible"], *, key: Key[Array, ""]) -> Float[Array, "... hidden"]:
        return bernoulli(self.hidden_mean(v), key)

    def draw_visible(self, h: Float[Array, "... hidden"], *, key: Key[Array, ""]) -> Float[Array, "... visible"]:
        return self.visible.draw(self.visible_activation(h), key=key)

    def free_energy(self, v: Float[Array, " visible"]) -> Scalar:
        """-log of the sum over h of exp(-E(v, h))."""
        return self.visible.energy(v, self.visible_bias) - jnp.sum(jax.nn.softplus(self.hidden_activation(v)))

    def decode(self, code: Float[Array, " hidden"]) -> Float[Array, " visible"]:
        """b + W'h, from which the mean of the visible units is made: the mirror of a tied auto-encoder."""
        return self.visible_activation(code)

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The way from an input to the hidden means, as a layer of a perceptron."""
        return (Layer(self.weight, self.hidden_bias, None, Sigmoid(), None, residual=False),)


class Rbm(AbstractStarting):
    """A restricted Boltzmann machine. Small Gaussian weights, visible biases at the inputs' own means (row D8)."""

    units: int = switch(
        256, allowed="[1, inf)", prior=LogInteger(64, 1024), row="A2", kind="capacity", about="hidden units"
    )
    visible: AbstractVisible = BinaryVisible()
    initial: AbstractInitial = Gaussian(0.01)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> RbmNetwork:
        size = math.prod(inputs)
        weight = self.initial.draw(self.units, size, 1.0, key=key)
        return RbmNetwork(weight, jnp.zeros(self.units), jnp.zeros(size), self.visible)

    def started(self, network: RbmNetwork, inputs: Float[Array, "n ..."]) -> RbmNetwork:
        mean = jnp.mean(inputs.reshape(inputs.shape[0], -1), axis=0)
        return eqx.tree_at(lambda one: one.visible_bias, network, self.visible.bias(mean))
