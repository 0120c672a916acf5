"""The exact likelihood of small deep Boltzmann machines, by enumeration: what bounds and samples are held against."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from gradwise.models.deep_boltzmann import DeepBoltzmannNetwork


def _log_sum(network: DeepBoltzmannNetwork, v: Float[Array, " visible"] | None) -> Scalar:
    """log of the sum of exp(-E) over all states, or over those with these inputs.

    Every state of half of the layers is listed; given those the other layers' units sum out one by one.
    """
    sizes = [bias.shape[0] for bias in network.biases]
    free = range(0 if v is None else 1, len(sizes))
    halves = ([layer for layer in free if layer % 2 == side] for side in (0, 1))
    listed = min(halves, key=lambda half: sum(sizes[layer] for layer in half))
    units = sum(sizes[layer] for layer in listed)
    assert units <= 16
    assert max(network.copies) == 1
    bits = jnp.asarray((np.arange(2**units)[:, None] >> np.arange(units)) & 1, network.biases[0].dtype)
    parts = iter(jnp.split(bits, np.cumsum([sizes[layer] for layer in listed])[:-1], axis=1))
    states = tuple(
        next(parts) if layer in listed else jnp.zeros((len(bits), size), bits.dtype) for layer, size in enumerate(sizes)
    )
    if v is not None:
        states = (jnp.broadcast_to(v, (len(bits), sizes[0])), *states[1:])
    total = -network.energy(states)
    for layer in set(free) - set(listed):
        total += jnp.sum(jax.nn.softplus(network.activation(layer, states)), axis=-1)
    return jax.nn.logsumexp(total)


def deep_log_partition(network: DeepBoltzmannNetwork) -> Scalar:
    """log Z exactly, for machines with few units in their odd or in their even layers."""
    return _log_sum(network, None)


def deep_log_likelihood(network: DeepBoltzmannNetwork, inputs: Float[Array, "n visible"]) -> Float[Array, " n"]:
    """log p(v) of each input, exactly, by enumeration; mean-field training only raises a bound on it."""
    return jax.lax.map(lambda v: _log_sum(network, v), inputs) - deep_log_partition(network)
