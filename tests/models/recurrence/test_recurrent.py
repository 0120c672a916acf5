"""Recurrent networks: a loop in NumPy gives the same; nothing depends on the room or the company of a sequence."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise as gw
from gradwise.models.recurrence.cells import AbstractCell, Gru, Lstm, SimpleCell
from gradwise.models.recurrence.pooling import AbstractStatePooling, AttentionPooling, LastState, MeanState
from gradwise.models.recurrence.recurrent import CHUNK, Recurrent, RecurrentNetwork, orthogonal
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import trainable

from .test_cells import STEPS

CELLS = [SimpleCell(), Gru(), Lstm()]
POOLINGS = [LastState(), MeanState(), AttentionPooling(units=3)]
PAIRS = [
    pytest.param(cell, pooling, marks=() if first == second else pytest.mark.slow)
    for first, cell in enumerate(CELLS)
    for second, pooling in enumerate(POOLINGS)
]


def _name(part: Any) -> str:
    return type(part).__name__


def _sequence(steps: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(steps, 3)), jnp.float32)


def _in_room(x: jax.Array, room: int) -> jax.Array:
    return jnp.concatenate([x, jnp.full((room - len(x), x.shape[1]), jnp.nan)])


def _network(cell: AbstractCell, pooling: AbstractStatePooling = LastState(), **fields: Any) -> RecurrentNetwork:
    options = {"units": (4, 5), "directions": "both", "dropout": 0.0, **fields}
    network = Recurrent(cell=cell, pooling=pooling, **options).build((9, 3), 2, key=jr.key(1))
    draws = iter(jr.split(jr.key(2), 100))
    parameters, rest = trainable(network)  # biases and attention begin at 0: away from there
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jr.normal(next(draws), leaf.shape), parameters)
    return eqx.combine(moved, rest)


def _read(x: np.ndarray, one: Any, step: Any) -> tuple[np.ndarray, np.ndarray]:
    """One direction of a layer as a plain loop: h at each step, and the last one."""
    units = one.bias.shape[1]
    state = (np.zeros(units),) * one.cell.vectors
    states = np.zeros((len(x), units))
    for t in reversed(range(len(x))) if one.backward else range(len(x)):
        driven = (np.asarray(one.weights.input) @ x[t]).reshape(-1, units) + np.asarray(one.bias)
        state = step(driven, (np.asarray(one.weights.recurrent) @ state[0]).reshape(-1, units), state)
        states[t] = state[0]
    return states, state[0]


@pytest.mark.parametrize(("cell", "step"), STEPS, ids=_name)
def test_the_network_is_a_loop_over_the_steps(cell: AbstractCell, step: Any) -> None:
    network = _network(cell)
    x = _sequence(CHUNK + 3)
    h, last = np.asarray(x, np.float64), np.zeros(0)
    for layer in network.layers:
        found = [_read(h, one, step) for one in layer.directions]
        h, last = np.concatenate([states for states, _ in found], 1), np.concatenate([end for _, end in found])
    wanted = np.asarray(network.output.weight) @ last + np.asarray(network.output.bias)
    np.testing.assert_allclose(eqx.filter_jit(network)(x), wanted, atol=1e-5)


@pytest.mark.parametrize(("cell", "pooling"), PAIRS, ids=_name)
def test_neither_room_nor_company_changes_a_prediction_or_a_gradient(
    cell: AbstractCell, pooling: AbstractStatePooling
) -> None:
    parameters, rest = trainable(_network(cell, pooling))
    x, long = _sequence(5), _sequence(3 * CHUNK + 2, 1)

    @jax.jit
    def first(parameters: Any, rows: jax.Array) -> Any:
        """The outputs for the first row, and their gradient."""

        def total(parameters: Any) -> Any:
            out = apply_batch(eqx.combine(parameters, rest), rows, None)[0]
            return jnp.sum(out**2), out

        return jax.grad(total, has_aux=True)(parameters)

    alone = first(parameters, x[None])
    beside = first(parameters, jnp.stack([_in_room(x, len(long)), long]))
    for one, two in zip(jax.tree.leaves(alone), jax.tree.leaves(beside), strict=True):
        assert np.isfinite(two).all()
        np.testing.assert_allclose(one, two, atol=1e-6)
    plain = eqx.filter_jit(eqx.combine(parameters, rest))(_in_room(x, 40))  # no axis of a batch
    np.testing.assert_allclose(plain, alone[1], atol=1e-6)


def test_the_input_is_free_of_nan_in_the_gradient_and_beyond_the_end_nothing_is_read() -> None:
    network = _network(Gru(), MeanState())
    slope = jax.grad(lambda x: jnp.sum(network(x) ** 2))(_in_room(_sequence(5), 20))
    assert np.isfinite(slope[:5]).all()
    assert np.abs(slope[:5]).min() > 0
    assert not np.asarray(slope[5:]).any()


def test_a_backward_layer_begins_at_the_true_end() -> None:
    x = _sequence(7)
    forward = _network(Lstm(), directions="forward", units=(4,))
    one = forward.layers[0].directions[0]
    turned = eqx.tree_at(
        lambda net: net.layers[0].directions[0],
        forward,
        dataclasses.replace(one, backward=True),
    )
    np.testing.assert_allclose(turned(_in_room(x[::-1], 30)), forward(x), atol=1e-6)


def test_chunks_beyond_every_end_are_skipped_at_run_time() -> None:
    """The branch is still one in the compiled program of a batch and of a population, forward and backward."""
    parameters, rest = trainable(_network(Gru(), units=(4,), directions="forward"))

    def total(parameters: Any, rows: jax.Array) -> jax.Array:
        return jnp.sum(apply_batch(eqx.combine(parameters, rest), rows, None))

    program = jax.jit(jax.grad(total)).lower(parameters, jnp.zeros((3, 4 * CHUNK, 3))).as_text()
    assert program.count("stablehlo.case") == 2
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), parameters)
    program = jax.jit(jax.vmap(jax.grad(total))).lower(several, jnp.zeros((2, 3, 4 * CHUNK, 3))).as_text()
    assert program.count("stablehlo.case") == 2


@pytest.mark.parametrize("cell", CELLS, ids=_name)
def test_gradients_agree_with_finite_differences_in_64_bits(cell: AbstractCell) -> None:
    with jax.enable_x64(True):
        network = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), _network(cell, MeanState(), units=(3,)))
        rows = jnp.stack([_in_room(_sequence(4), 18), _sequence(18, 1)]).astype(jnp.float64)
        parameters, rest = trainable(network)
        flat, back = jax.flatten_util.ravel_pytree(parameters)

        @jax.jit
        def total(flat: jax.Array) -> jax.Array:
            return jnp.sum(apply_batch(eqx.combine(back(flat), rest), rows, None) ** 2)

        slope = jax.jit(jax.grad(total))(flat)
        ways = np.random.default_rng(0).normal(size=(6, len(flat)))
        for way in ways:
            rise = (total(flat + 1e-5 * way) - total(flat - 1e-5 * way)) / 2e-5
            np.testing.assert_allclose(slope @ way, rise, rtol=1e-6, atol=1e-9)


def test_recurrent_weights_begin_as_rotations() -> None:
    q = np.asarray(orthogonal(6, jr.key(3)))
    np.testing.assert_allclose(q @ q.T, np.eye(6), atol=1e-5)
    network = Recurrent(cell=Gru(), units=(6,)).build((9, 3), 2, key=jr.key(0))
    for gate in np.asarray(network.layers[0].directions[0].weights.recurrent).reshape(3, 6, 6):
        np.testing.assert_allclose(gate @ gate.T, np.eye(6), atol=1e-5)


def test_many_networks_at_once_are_what_each_is_alone() -> None:
    """A population is one more axis: knobs and keys differ, the program is one."""
    spec = Recurrent(units=(4,), directions="both", dropout=0.3)
    rows = jnp.stack([_in_room(_sequence(5), 20), _sequence(20, 1)])

    def value(dropout: jax.Array, key: jax.Array) -> jax.Array:
        network = gw.replace(spec, "dropout", dropout).build((20, 3), 2, key=key)
        return apply_batch(network, rows, jr.fold_in(key, 1))

    dropouts, several = jnp.asarray([0.1, 0.5, 0.3]), jr.split(jr.key(4), 3)
    together = jax.jit(jax.vmap(value))(dropouts, several)
    for place in range(3):
        np.testing.assert_allclose(together[place], jax.jit(value)(dropouts[place], several[place]), atol=1e-6)


def test_dropout_drops_a_unit_for_the_whole_sequence_and_leaves_the_mean() -> None:
    network = _network(Gru(), MeanState(), dropout=0.5, units=(8,), directions="forward")
    x = _sequence(6)
    whole = network.features(x)
    drawn = np.asarray(jax.vmap(lambda key: network.features(x, key=key))(jr.split(jr.key(0), 4000)))
    dropped = drawn == 0.0
    np.testing.assert_allclose(dropped.mean(0), 0.5, atol=0.05)
    np.testing.assert_allclose(drawn.mean(0), whole, atol=0.05)


def test_what_is_no_sequence_is_refused() -> None:
    with pytest.raises(gw.RequestError, match=r"`Recurrent` needs sequences \(steps, channels\)"):
        Recurrent().build((9,), 2, key=jr.key(0))
    with pytest.raises(gw.RequestError, match=r"`Recurrent\.units`"):
        Recurrent(units=())
