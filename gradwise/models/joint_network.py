"""Features and outputs in one network, to learn from labelled and unlabelled examples at once (row A8).

    Joint()                                        outputs from the code of an auto-encoder of 256 units
    Joint(MlpAutoEncoder(widths=(500, 250)))       from that of a deeper one
    Joint(Rbm(units=500))                          from the hidden means of a restricted Boltzmann machine

Called on an example, the network returns its outputs, linear in the code; `features` is the feature learner, whose
parameters the supervised and the unsupervised term share (`gradwise.criteria.semi_supervised`).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..specs.contracts import AbstractModel
from ..specs.networks import Network, apply
from .activations import Identity
from .auto_encoder import MlpAutoEncoder
from .initial_weights import AbstractInitial, Glorot
from .mlp import Layer, Linear


class JointNetwork(Network):
    """A feature learner, and outputs computed from its code."""

    offers = ("features", "decode")
    features: Any
    output: Linear

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " outputs"]:
        return self.output(jnp.ravel(apply(self.features, x, key)))

    def code(self, x: Float[Array, "..."]) -> Float[Array, " code"]:
        """The features of an example."""
        return apply(self.features, x, None)

    def decode(self, code: Float[Array, " code"]) -> Float[Array, " inputs"]:
        """The code decoded, as the features' own loss expects it."""
        return self.features.decode(code)

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The encoder, as layers of a perceptron."""
        return tuple(self.features.hidden_layers)


class Joint(AbstractModel):
    """A feature model with a linear output layer on its code; `initial` draws that layer."""

    features: AbstractModel = MlpAutoEncoder()
    initial: AbstractInitial = Glorot()

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> JointNetwork:
        below, above = jr.split(key)
        features = self.features.build(inputs, outputs, key=below)
        example = jax.ShapeDtypeStruct(inputs, jnp.float32)
        code = eqx.filter_eval_shape(lambda network, x: apply(network, x, None), features, example).size
        weight = self.initial.draw(outputs, code, 1.0, key=above)
        return JointNetwork(features, Linear(weight, jnp.zeros(outputs), Identity()))

    def started(self, network: JointNetwork, inputs: Float[Array, "n ..."]) -> JointNetwork:
        return JointNetwork(self.features.started(network.features, inputs), network.output)
