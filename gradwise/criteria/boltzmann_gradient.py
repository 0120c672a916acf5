"""The gradient of a Boltzmann machine's log-likelihood, from states of the examples and of the machine itself (row A2).

plain = phase_gradient(v, weights, phases)                     a difference of statistics <h v'>
with_precisions(network, plain, v, weights, phases)            where visible units have precisions
enhanced_gradient(plain, visible, hidden)                      that of Cho et al. 2011
with_gradient(boltzmann_parameters(network), value, gradient)  a scalar with this gradient
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar


class Parameters(NamedTuple):
    """Those of a machine, or a gradient in them."""

    weight: Float[Array, "hidden visible"]
    hidden_bias: Float[Array, " hidden"]
    visible_bias: Float[Array, " visible"]
    log_precision: Float[Array, " inputs"] | None = None  # of visible units that have any


class Phases(NamedTuple):
    """Visible states and the activations of the hidden units: of the examples, then of the machine's own states.

    `weights` are how much each of the latter counts.
    """

    activation: Float[Array, "n hidden"]
    own: Float[Array, "m visible"]
    own_activation: Float[Array, "m hidden"]
    weights: Float[Array, " m"]


@jax.custom_jvp
def with_gradient(parameters: Parameters, value: Scalar, gradient: Parameters) -> Scalar:
    """`value`, whose derivative in the parameters is taken to be `gradient`: nothing is differentiated twice."""
    return value


@with_gradient.defjvp
def _with_gradient_jvp(primals: Any, tangents: Any) -> tuple[Scalar, Scalar]:
    _, value, gradient = primals
    slopes = jax.tree.map(lambda slope, move: jnp.sum(slope * move), gradient, tangents[0])
    return value, sum(jax.tree.leaves(slopes), start=jnp.zeros_like(value))


def boltzmann_parameters(network: PyTree) -> Parameters:
    return Parameters(network.weight, network.hidden_bias, network.visible_bias, network.visible.log_precisions)


def with_parameters(network: PyTree, parameters: Parameters) -> PyTree:
    """The network with other parameters."""
    return eqx.tree_at(lambda one: jax.tree.leaves(boltzmann_parameters(one)), network, jax.tree.leaves(parameters))


def phase_gradient(v: Float[Array, "n visible"], weights: Float[Array, " n"], phases: Phases) -> Parameters:
    """The gradient of units of precision 1: statistics of the machine's own states less those of the examples."""
    visible = jnp.concatenate([v, phases.own])
    signs = jnp.concatenate([-weights, phases.weights])
    hidden = jax.nn.sigmoid(jnp.concatenate([phases.activation, phases.own_activation])) * signs[:, None]
    return Parameters(hidden.T @ visible, jnp.sum(hidden, axis=0), signs @ visible)


def with_precisions(
    network: PyTree, plain: Parameters, v: Float[Array, "n visible"], weights: Float[Array, " n"], phases: Phases
) -> Parameters:
    """The gradient where visible units have precisions: that of weights and biases scaled, and that of their own."""
    kind = network.visible
    if kind.log_precisions is None:
        return plain
    visible = jnp.concatenate([v, phases.own])
    down = jax.nn.sigmoid(jnp.concatenate([phases.activation, phases.own_activation])) @ network.weight
    signs = jnp.concatenate([weights, -phases.weights])
    own = signs @ kind.precision_slopes(visible, network.visible_bias, down)
    return Parameters(kind.seen(plain.weight), plain.hidden_bias, kind.seen(kind.seen(plain.visible_bias)), own)


def enhanced_gradient(
    plain: Parameters, visible: Float[Array, " visible"], hidden: Float[Array, " hidden"]
) -> Parameters:
    """The enhanced gradient of Cho et al. 2011, from the plain one and the units' means, averaged over both phases.

    dW <- dW - dc v' - h db',   dc <- dc - dW v,   db <- db - h'dW (with the new dW): the first is a difference of
    covariances, so it does not hear of the biases, and which state of a unit is called 1 does not matter.
    """
    weight = plain.weight - jnp.outer(plain.hidden_bias, visible) - jnp.outer(hidden, plain.visible_bias)
    return Parameters(weight, plain.hidden_bias - weight @ visible, plain.visible_bias - hidden @ weight)
