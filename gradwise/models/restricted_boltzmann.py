"""Restricted Boltzmann machines (row A2): binary hidden units, and visible units of several kinds.

    Rbm(units=500)                                binary visible units, or probabilities in [0, 1]
    Rbm(units=500, visible=GaussianVisible())     real inputs of standard deviation 1, or of learned precisions
    LabelRbm(units=500)                           inputs and their class together: p(x, y), and p(y | x) in closed form

The energy of a state is E(v, h) = visible part - b'v - c'h - h'Wv. Summing over h gives the free energy F(v), and
p(v) is proportional to exp(-F(v)). Training lowers the free energy of examples and raises that of the model's own
samples (`gradwise.criteria.ContrastiveDivergence`). Called on an example, the network returns the means of its hidden
units.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar, UInt32

from ..specs.contracts import AbstractModel
from ..specs.knobs import switch
from ..specs.networks import Network
from ..specs.priors import LogInteger
from .activations import Sigmoid
from .initial_weights import AbstractInitial, GaussianWeights
from .mlp import Layer
from .visible_units import AbstractVisible, BinaryVisible, LabelledVisible, bernoulli

_ALL = 2**14  # visible x hidden units up to which a pseudo-likelihood takes every unit in turn
_SOME = 2**12  # beyond, as many units as fit into this share of them, another choice for each example
_GOLDEN = 0x9E3779B9  # 2**32 over the golden ratio: its multiples are spread evenly, however many are taken


class RbmNetwork(Network):
    """Weights between hidden and visible units, and a bias for each unit. Methods take one state or many."""

    offers = ("free_energy", "draw_visible", "decode")
    weight: Float[Any, "hidden visible"]
    hidden_bias: Float[Any, " hidden"]
    visible_bias: Float[Any, " visible"]
    visible: AbstractVisible

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " hidden"]:
        return self.hidden_mean(jnp.ravel(x))

    def hidden_activation(self, v: Float[Array, "... visible"]) -> Float[Array, "... hidden"]:
        return self.visible.seen(v) @ self.weight.T + self.hidden_bias

    def visible_activation(self, h: Float[Array, "... hidden"]) -> Float[Array, "... visible"]:
        return self.visible.moved(h @ self.weight) + self.visible_bias

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

    def pseudo_loss(
        self,
        v: Float[Array, "n visible"],
        *,
        units: int | None = None,
        turn: UInt32[Array, ""] | int = 0,
        activation: Float[Array, "n hidden"] | None = None,
    ) -> Float[Array, " n"]:
        """-sum over visible units of log p(v_i | all others), the negative log pseudo-likelihood, of each state.

        With fewer `units` than there are, that many are evaluated in each state and the sum is scaled up; by default as
        many as are cheap. They are spread evenly over the units, different for each state, and depend only on `turn`.
        `activation` may be given if it is known. `visible.score` is the name of
        what it is: of real units the score of score matching.
        """
        hidden, width = self.weight.shape
        cheap = width if width * hidden <= _ALL else max(1, _SOME // hidden)
        some = min(width, cheap if units is None else units)
        activation = self.hidden_activation(v) if activation is None else activation
        if some == width:
            return self.visible.pseudo_loss(self, v, activation, None)
        spin = jnp.arange(v.shape[0], dtype=jnp.uint32) * jnp.uint32(_GOLDEN) + jnp.asarray(turn, jnp.uint32)
        start = (spin >> 8).astype(jnp.float32)[:, None] * 2.0**-24
        places = ((start + jnp.arange(some)) * (width / some)).astype(jnp.int32)
        return self.visible.pseudo_loss(self, v, activation, jnp.minimum(places, width - 1))

    def decode(self, code: Float[Array, " hidden"]) -> Float[Array, " visible"]:
        """b + W'h, which determines the mean of the visible units, like the decoder of a tied auto-encoder."""
        return self.visible_activation(code)

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The map from an input to the hidden means, as a layer of a perceptron."""
        return (Layer(self.visible.seen(self.weight), self.hidden_bias, None, Sigmoid(), None, residual=False),)


class LabelRbmNetwork(Network):
    """A machine over inputs and their class together. Called on an input, it returns -F(x, y) for every class y.

    The softmax of these is p(y | x); their log-sum-exp is -F(x), which scores inputs without a class.
    """

    offers = ("joined",)
    joint: RbmNetwork

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " k"]:
        joint, v = self.joint, jnp.ravel(x)
        (into, label), (bias, label_bias) = self.kind.parted(joint.weight), self.kind.parted(joint.visible_bias)
        activation = (into @ self.kind.inputs.seen(v) + joint.hidden_bias)[:, None] + label
        hidden = jnp.sum(jax.nn.softplus(activation), axis=0)
        return hidden + label_bias - self.kind.inputs.energy(v, bias)

    @property
    def kind(self) -> LabelledVisible:
        assert isinstance(self.joint.visible, LabelledVisible)
        return self.joint.visible

    def joined(self, x: Float[Array, "n ..."], y: Int[Array, " n"]) -> Float[Array, "n visible"]:
        """Inputs and classes as visible states; for an unknown class (-1), all are equally likely."""
        flat = x.reshape(x.shape[0], -1)
        known = jax.nn.one_hot(y, self.kind.classes, dtype=flat.dtype)
        return jnp.concatenate([flat, jnp.where(y[:, None] < 0, 1.0 / self.kind.classes, known)], axis=1)

    def draw_hidden(
        self, v: Float[Array, "n ..."], y: Int[Array, " n"], *, key: Key[Array, ""]
    ) -> Float[Array, "n hidden"]:
        """Hidden states given inputs and classes."""
        return self.joint.draw_hidden(self.joined(v, y), key=key)

    def draw_visible(self, h: Float[Array, "... hidden"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        """Inputs given hidden states; with a fixed class and redrawn hidden states, samples of that class."""
        return self.kind.inputs.draw(self.kind.parted(self.joint.visible_activation(h))[0], key=key)

    def visible_mean(self, h: Float[Array, "... hidden"]) -> Float[Array, "... d"]:
        return self.kind.inputs.mean(self.kind.parted(self.joint.visible_activation(h))[0])

    def draw_label(self, h: Float[Array, "... hidden"], *, key: Key[Array, ""]) -> Int[Array, "..."]:
        """Classes given hidden states."""
        return self.kind.draw_label(self.kind.parted(self.joint.visible_activation(h))[1], key=key)


class _Machine(AbstractModel):
    """What both machines share: hidden units, the kind of visible units, and how weights are drawn."""

    units: int = switch(
        256, allowed="[1, inf)", prior=LogInteger(64, 1024), row="A2", kind="capacity", about="hidden units"
    )
    visible: AbstractVisible = BinaryVisible()
    initial: AbstractInitial = GaussianWeights(0.01)

    def made(self, size: int, visible: AbstractVisible, key: Key[Array, ""]) -> RbmNetwork:
        """A machine of `size` visible units of this kind, its biases 0."""
        weight = self.initial.draw(self.units, size, 1.0, key=key)
        return RbmNetwork(weight, jnp.zeros(self.units), jnp.zeros(size), visible.units(size))

    def input_bias(self, inputs: Float[Array, "n ..."]) -> Float[Array, " d"]:
        return self.visible.bias(jnp.mean(inputs.reshape(inputs.shape[0], -1), axis=0))

    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        """Rejects inputs outside the range of the visible units."""
        self.visible.check_range(float(jnp.min(inputs)), float(jnp.max(inputs)))


class Rbm(_Machine):
    """A restricted Boltzmann machine. Small Gaussian weights, visible biases at the inputs' own means (row D8)."""

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> RbmNetwork:
        return self.made(math.prod(inputs), self.visible, key)

    def started(self, network: RbmNetwork, inputs: Float[Array, "n ..."]) -> RbmNetwork:
        visible = network.visible.started(inputs.reshape(inputs.shape[0], -1))
        return dataclasses.replace(network, visible_bias=self.input_bias(inputs), visible=visible)


class LabelRbm(_Machine):
    """A Boltzmann machine over inputs and their class (row A2; Larochelle and Bengio 2008); `visible` is the inputs'.

    It learns by `JointDivergence`, classifies by p(y | x), and draws inputs of a class.
    """

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> LabelRbmNetwork:
        kind = LabelledVisible(self.visible, outputs)
        return LabelRbmNetwork(self.made(math.prod(inputs) + outputs, kind, key))

    def started(self, network: LabelRbmNetwork, inputs: Float[Array, "n ..."]) -> LabelRbmNetwork:
        bias = jnp.concatenate([self.input_bias(inputs), jnp.zeros(network.kind.classes)])
        units = network.kind.inputs.started(inputs.reshape(inputs.shape[0], -1))
        kind = dataclasses.replace(network.kind, inputs=units)
        return LabelRbmNetwork(dataclasses.replace(network.joint, visible_bias=bias, visible=kind))
