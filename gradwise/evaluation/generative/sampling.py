"""Samples of what a network has learned (row F13): Markov chains whose stationary distribution is, or is near, its own.

    gibbs(rbm, start, 1000, key=key)                              a restricted Boltzmann machine
    gibbs_of_class(joint, labels, start, 1000, key=key)           a joint model of labels and inputs, the label held
    rates_fpcd(rbm, rates_of(rbm, train), start, 1000, key=key)   the same, driven out of its modes by fast weights
    deep_gibbs(dbm, start, 1000, key=key)                         a deep Boltzmann machine
    walk_back(network, corrupt, link, start, 1000, key=key)       a denoising auto-encoder
    tangent_walk(network, link, start, 100, key=key)              a contractive auto-encoder

Networks are arguments of which only methods are used. Every row of `start` begins a chain of its own, in the
network's own (scaled) units; all run together, on the device. Of each chain `kept` states are returned, `steps` steps
apart, each with the mean it was drawn from: the mean is what pictures usually show. A deep belief net
samples by itself: `gradwise.pretraining.belief_nets`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key

from ...runtime.errors import RequestError
from ...runtime.keys import coins

_CHUNK = 4096


class Samples(NamedTuple):
    """Kept states of all chains, earliest first: the means they were drawn from, and the draws."""

    means: Float[Array, "kept chains inputs"]
    samples: Float[Array, "kept chains inputs"]


class Rates(NamedTuple):
    """Averages over a training set: of v, of h, and of their products."""

    visible: Float[Array, " visible"]
    hidden: Float[Array, " hidden"]
    products: Float[Array, "hidden visible"]


def _rows(start: Any) -> Float[Array, "chains inputs"]:
    """The start as rows of 32 bits: one row is one chain."""
    start = jnp.asarray(start, jnp.float32)
    return start.reshape(start.shape[0], -1) if start.ndim > 1 else start[None]


def _walk(
    step: Callable[[Any, Key[Array, ""]], tuple[Any, Array, Array]],
    state: Any,
    like: Float[Array, "chains inputs"],
    steps: int,
    kept: int,
    key: Key[Array, ""],
) -> tuple[Any, Samples]:
    """`kept` times `steps` steps; a step gives the new state, and its mean and draw of the inputs."""
    if steps < 1 or kept < 1:
        raise RequestError(f"`steps` and `kept` must be at least 1; got {steps} and {kept}.")

    def stretch(carry: Any, number: Any) -> tuple[Any, Samples]:
        def one(index: Any, here: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
            return step(here[0], jr.fold_in(jr.fold_in(key, number), index))

        carry, mean, drawn = jax.lax.fori_loop(0, steps, one, (carry, like, like))
        return carry, Samples(mean, drawn)

    return jax.lax.scan(stretch, state, jnp.arange(kept))


def _block_gibbs(network: Any, start: Any, labels: tuple[Array, ...], steps: int, kept: int, key: Any) -> Samples:
    def step(v: Array, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        up, down = jr.split(key)
        hidden = network.draw_hidden(v, *labels, key=up)
        drawn = network.draw_visible(hidden, key=down)
        return drawn, network.visible_mean(hidden), drawn

    rows = _rows(start)
    return _walk(step, rows, rows, steps, kept, key)[1]


@eqx.filter_jit
def gibbs(network: Any, start: Any, steps: int, *, key: Key[Array, ""], kept: int = 1) -> Samples:
    """Block Gibbs sampling of a restricted Boltzmann machine: h given v, then v given h.

    The network has `draw_hidden(v, key=)`, `draw_visible(h, key=)` and `visible_mean(h)`.
    """
    return _block_gibbs(network, start, (), steps, kept, key)


@eqx.filter_jit
def gibbs_of_class(network: Any, labels: Any, start: Any, steps: int, *, key: Key[Array, ""], kept: int = 1) -> Samples:
    """Class-conditional samples of a joint model of inputs and labels: Gibbs steps with a fixed label for each chain.

    The network has `draw_hidden(v, y, key=)`, `draw_visible(h, key=)` and `visible_mean(h)`; `labels` has one label for
    each chain.
    """
    return _block_gibbs(network, start, (jnp.asarray(labels),), steps, kept, key)


@eqx.filter_jit
def _sums(network: Any, rows: Array, used: Array) -> Rates:
    hidden = network.hidden_mean(rows) * used[:, None]
    return Rates(used @ rows, hidden.sum(0), hidden.T @ rows)


def rates_of(network: Any, inputs: Any) -> Rates:
    """The averages of v, h and hv' over a training set, h at its means: what `rates_fpcd` drives its chains by."""
    total: Any = None
    for begin in range(0, len(inputs), _CHUNK):
        rows = _rows(inputs[begin : begin + _CHUNK])
        missing = _CHUNK - len(rows) if len(inputs) > _CHUNK else 0
        used = jnp.concatenate([jnp.ones(len(rows)), jnp.zeros(missing)])
        part = _sums(network, jnp.pad(rows, ((0, missing), (0, 0))), used)
        total = part if total is None else optax.tree.add(total, part)
    return Rates(*(leaf / len(inputs) for leaf in total))


@eqx.filter_jit
def rates_fpcd(
    network: Any,
    rates: Rates,
    start: Any,
    steps: int,
    *,
    key: Key[Array, ""],
    kept: int = 1,
    fast_rate: float = 0.01,
    decay: float = 0.95,
) -> tuple[Samples, Rates]:
    """Samples of a restricted Boltzmann machine whose modes trap an ordinary chain (Breuleux, Bengio, Vincent 2011).

    Each Gibbs step is taken under W + W_fast, then W_fast <- decay W_fast + fast_rate (rates - what the chains show),
    and the same for biases: where chains stay too long the energy rises under them. The network's own W does not
    change, and the positive phase is the fixed averages `rates` of the training set. All chains share one W_fast.
    Returns the samples and the final fast weights, as `Rates`.

    The network is one for `gibbs`, with arrays `weight`, `hidden_bias` and `visible_bias`. What is sampled is close to
    the model's distribution, not equal to it; its averages are drawn to those of the training set.
    """

    def parameters(one: Any) -> tuple[Any, ...]:
        return one.visible_bias, one.hidden_bias, one.weight

    def step(state: tuple[Array, Rates], key: Key[Array, ""]) -> tuple[Any, Array, Array]:
        v, fast = state
        driven = eqx.tree_at(parameters, network, tuple(map(jnp.add, parameters(network), fast)))
        up, down = jr.split(key)
        hidden = driven.draw_hidden(v, key=up)
        mean, drawn = driven.visible_mean(hidden), driven.draw_visible(hidden, key=down)
        answered = driven.hidden_mean(drawn)
        seen = Rates(drawn.mean(0), answered.mean(0), answered.T @ drawn / drawn.shape[0])
        fast = jax.tree.map(lambda old, data, now: decay * old + fast_rate * (data - now), fast, rates, seen)
        return (drawn, fast), mean, drawn

    rows = _rows(start)
    (_, fast), found = _walk(step, (rows, optax.tree.zeros_like(rates)), rows, steps, kept, key)
    return found, fast


@eqx.filter_jit
def deep_gibbs(network: Any, start: Any, steps: int, *, key: Key[Array, ""], kept: int = 1) -> Samples:
    """Gibbs sampling of a deep Boltzmann machine, odd and even layers in turn.

    The network has `begin(v, key=)`, a first state, `gibbs(states, key=)`, whose first part is the visible layer, and
    `visible_mean(states)`.
    """
    up, walk = jr.split(key)

    def step(states: Any, key: Key[Array, ""]) -> tuple[Any, Array, Array]:
        states = network.gibbs(states, key=key)
        return states, network.visible_mean(states), states[0]

    rows = _rows(start)
    return _walk(step, network.begin(rows, key=up), rows, steps, kept, walk)[1]


def draw_binary(mean: Float[Array, "..."], *, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Each input 1 with the probability that the reconstruction gives it."""
    return coins(key, jnp.ravel(mean), mean.size).reshape(mean.shape).astype(mean.dtype)


class DrawGaussian(eqx.Module):
    """Normal inputs around the reconstruction, each with this deviation: the root of the mean squared error."""

    deviation: Any

    def __call__(self, mean: Float[Array, "..."], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        return mean + self.deviation * jr.normal(key, mean.shape, mean.dtype)


@eqx.filter_jit
def walk_back(
    network: Any,
    corrupt: Callable[..., Any],
    link: Callable[..., Any],
    start: Any,
    steps: int,
    *,
    key: Key[Array, ""],
    kept: int = 1,
    draw: Callable[..., Any] = draw_binary,
) -> Samples:
    """Samples of a denoising auto-encoder: corrupt the input, reconstruct it, draw from the reconstruction, and again.

    If the reconstruction is the true posterior of the clean input given the corrupted one, the chain's stationary
    distribution is that of the data (Bengio, Yao, Alain and Vincent 2013); the draw is part of it. `corrupt(x, key=)`
    and `link(output)` are those of the training criterion: `criterion.corruption`, `criterion.loss.link`.
    `draw` is `draw_binary` for a cross-entropy, `DrawGaussian(deviation)` for a squared error.
    """

    def step(x: Array, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        noise, choice = jr.split(key)
        spoilt, _ = corrupt(x, key=noise)
        mean = jax.vmap(lambda one: link(network.decode(network(one))))(spoilt)
        drawn = draw(mean, key=choice)
        return drawn, mean, drawn

    rows = _rows(start)
    return _walk(step, rows, rows, steps, kept, key)[1]


def tangent_step(
    network: Callable[..., Any], x: Float[Array, " inputs"], deviation: Any, *, key: Key[Array, ""]
) -> Float[Array, " code"]:
    """The code of x moved within what x can change: h + J J'e, with J = dh/dx and e normal of this deviation.

    In code space the step has the covariance deviation^2 (J J')(J J')'. J itself is never written down.
    """
    code, back = jax.vjp(network, x)
    noise = deviation * jr.normal(key, code.shape, code.dtype)
    _, moved = jax.jvp(network, (x,), back(noise))
    return code + moved


@eqx.filter_jit
def tangent_walk(
    network: Any,
    link: Callable[..., Any],
    start: Any,
    steps: int,
    deviation: float = 1.0,
    *,
    key: Key[Array, ""],
    kept: int = 1,
) -> Samples:
    """Samples of a contractive auto-encoder (Rifai, Bengio, Dauphin and Vincent 2012): h <- f(x) + J J'e, x <- g(h).

    The encoder's Jacobian J is large only along the directions in which examples lie, so noise sent through J J' moves
    along the learned manifold. Means and samples are the same: the decoded inputs.
    """

    def step(x: Array, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        keys = jr.split(key, x.shape[0])
        codes = jax.vmap(lambda one, own: tangent_step(network, one, deviation, key=own))(x, keys)
        new = jax.vmap(lambda code: link(network.decode(code)))(codes)
        return new, new, new

    rows = _rows(start)
    return _walk(step, rows, rows, steps, kept, key)[1]
