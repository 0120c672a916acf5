"""How likely a Boltzmann machine finds its data (rows A2 and E20): exactly where it is small, estimated elsewhere.

    log_z = log_partition(network)                                       up to 20 units on the smaller side
    log_likelihood(network, v, log_z)                                    log p(v) of each state
    found = annealed_log_partition(network, base, key=key)               annealed importance sampling
    log_likelihood(network, v, found.log_z)                              flattered: log Z is underestimated on average
    pseudo_likelihood(network, v)                                        needs no log Z

A network here is a `models.RbmNetwork`, of any visible units. Everything is computed in the precision of its
parameters: for 64 bits, convert them under `jax.enable_x64(True)`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, Scalar

from ...runtime.errors import RequestError

LIMIT = 20  # units, or a factor of 2**20 states: some seconds of work
_TOGETHER = 2**10  # states looked at together


def _log_sum(term: Callable[[Int[Array, ""]], Scalar], states: int) -> Scalar:
    """log of the sum over states 0, 1, ... of exp(term), some of them at a time."""
    together = min(states, _TOGETHER)

    def part(start: Int[Array, ""]) -> Scalar:
        numbers = start + jnp.arange(together)
        found = jax.vmap(term)(jnp.minimum(numbers, states - 1))
        return jax.nn.logsumexp(jnp.where(numbers < states, found, -jnp.inf))

    return jax.nn.logsumexp(jax.lax.map(part, jnp.arange(-(-states // together)) * together))


def _side(network: Any) -> tuple[str, int]:
    """The side with fewer states, and how many."""
    hidden, visible = network.weight.shape
    states = network.visible.states(visible)
    if states is not None and states < 2**hidden:
        return "visible", states
    return "hidden", 2**hidden


@eqx.filter_jit
def _log_partition(network: Any) -> Scalar:
    side, states = _side(network)
    hidden, visible = network.weight.shape

    def of_hidden(number: Int[Array, ""]) -> Scalar:
        h = ((number >> jnp.arange(hidden)) & 1).astype(network.weight.dtype)
        inside = network.visible.log_normaliser(network.visible_activation(h), network.visible_bias)
        return network.hidden_bias @ h + inside

    def of_visible(number: Int[Array, ""]) -> Scalar:
        return -network.free_energy(network.visible.state(number, visible).astype(network.weight.dtype))

    return _log_sum(of_visible if side == "visible" else of_hidden, states)


def log_partition(network: Any) -> Scalar:
    """log Z, exactly: the states of the side with fewer of them are gone through, the other summed in closed form."""
    side, states = _side(network)
    if states > 2**LIMIT:
        raise RequestError(
            f"log Z is exact only up to 2**{LIMIT} states, but the {side} units, the smaller side, have "
            f"2**{math.log2(states):.0f}. Use `annealed_log_partition`."
        )
    return _log_partition(network)


@eqx.filter_jit
def log_likelihood(network: Any, v: Float[Array, "n visible"], log_z: Any) -> Float[Array, " n"]:
    """log p(v) = -F(v) - log Z, of each state."""
    return -jax.vmap(network.free_energy)(v) - log_z


@eqx.filter_jit
def pseudo_likelihood(network: Any, v: Float[Array, "n visible"]) -> Float[Array, " n"]:
    """The sum over visible units of log p(v_i | all others), of each state; every unit is looked at."""
    units = network.weight.shape[1]
    return jax.lax.map(lambda state: -network.pseudo_loss(state[None], units=units)[0], v)


@dataclasses.dataclass(frozen=True)
class Annealed:
    """An estimate of log Z; `low` and `high` are three deviations of the estimated Z away.

    Z's estimate is right on average, so its logarithm is too low on average: likelihoods are flattered.
    """

    log_z: float
    low: float
    high: float
    log_weights: np.ndarray


def _estimated(log_weights: np.ndarray, log_base: float) -> Annealed:
    """The log of the mean weight, and its interval, times the base's own Z."""
    top = float(log_weights.max())
    weights = np.exp(log_weights - top)
    mean = float(weights.mean())
    spread = 3.0 * float(weights.std(ddof=1)) / math.sqrt(len(weights))
    low = math.log(mean - spread) if mean > spread else -math.inf
    ends = (math.log(mean), low, math.log(mean + spread))
    log_z, low, high = (log_base + top + end for end in ends)
    return Annealed(log_z, low, high, log_weights + log_base)


@eqx.filter_jit
def _anneal(
    network: Any, base: Float[Array, " visible"], betas: Float[Array, " t"], runs: int, key: Key[Array, ""]
) -> tuple[Float[Array, "t runs"], Scalar]:
    """What each temperature adds to each run's log weight, and log Z of the base."""
    visible, own = network.visible, network.visible_bias
    wide = jnp.broadcast_to(base, (runs, base.shape[0]))

    def turn(v: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        before, after, key = step
        activation = network.hidden_activation(v)
        apart = jax.vmap(lambda one: visible.energy(one, base) - visible.energy(one, own))(v)
        # Unit by unit, so that two large and nearly equal sums are never subtracted.
        units = jax.nn.softplus(after * activation) - jax.nn.softplus(before * activation)
        added = (after - before) * apart + jnp.sum(units, axis=1)
        up, down = jr.split(key)
        h = (jr.uniform(up, activation.shape, v.dtype) < jax.nn.sigmoid(after * activation)).astype(v.dtype)
        bias = (1.0 - after) * base + after * own
        return visible.draw(bias + after * visible.moved(h @ network.weight), key=down), added

    first, rest = jr.split(key)
    start = visible.draw(wide, key=first)
    steps = (betas[:-1], betas[1:], jr.split(rest, betas.shape[0] - 1))
    _, added = jax.lax.scan(turn, start, steps)
    hidden = network.weight.shape[0]
    return added, hidden * math.log(2.0) + visible.log_normaliser(base, base)


def annealed_log_partition(
    network: Any,
    base: Float[Any, " visible"] | None = None,
    *,
    temperatures: int | Sequence[float] = 1000,
    runs: int = 100,
    key: Key[Array, ""],
) -> Annealed:
    """log Z by annealed importance sampling (Neal 2001; Salakhutdinov and Murray 2008).

    Runs go from a machine without weights, whose visible biases are `base`, to the network, over inverse temperatures
    0 ... 1: evenly spaced ones, or those given. F_beta(v) = (1 - beta) E_base(v) + beta E(v) - sum of
    softplus(beta (c + Wv)), and a run's weight is the product of exp(F_before - F_after) at the states it passes. The
    best base has the data's own means: `network.visible.bias(mean)`; without one it is the network's visible bias.
    """
    if runs < 2:
        raise RequestError(f"`runs` must be at least 2, to estimate their spread; got {runs}.")
    dtype = network.weight.dtype
    given = np.linspace(0.0, 1.0, temperatures) if isinstance(temperatures, int) else np.asarray(temperatures, float)
    if len(given) < 2 or given[0] != 0.0 or given[-1] != 1.0 or (np.diff(given) < 0).any():
        raise RequestError("`temperatures` must be at least 2, or rise from 0 to 1.")
    start = network.visible_bias if base is None else jnp.asarray(base, dtype)
    added, log_base = _anneal(network, start, jnp.asarray(given, dtype), runs, key)
    return _estimated(np.asarray(added, np.float64).sum(0), float(log_base))
