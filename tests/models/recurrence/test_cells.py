"""Each cell is its equations, step by step in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.models.recurrence.cells import AbstractCell, Gru, Lstm, SimpleCell


def _logistic(a: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-a))


def _simple(a: np.ndarray, c: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return (np.tanh(a[0] + c[0]),)


def _gru(a: np.ndarray, c: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    r, z = _logistic(a[0] + c[0]), _logistic(a[1] + c[1])
    return ((1 - z) * np.tanh(a[2] + r * c[2]) + z * state[0],)


def _lstm(a: np.ndarray, c: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    i, f, o = (_logistic(a[gate] + c[gate]) for gate in range(3))
    memory = f * state[1] + i * np.tanh(a[3] + c[3])
    return o * np.tanh(memory), memory


STEPS = [(SimpleCell(), _simple), (Gru(), _gru), (Lstm(), _lstm)]


@pytest.mark.parametrize(("cell", "step"), STEPS, ids=lambda one: type(one).__name__)
def test_a_step_is_its_equation(cell: AbstractCell, step) -> None:
    random = np.random.default_rng(0)
    shape = (cell.gates, 5)
    state = tuple(random.normal(size=5) for _ in range(cell.vectors))
    a, c = random.normal(size=shape), random.normal(size=shape)
    found = cell.step(jnp.asarray(a), jnp.asarray(c), tuple(map(jnp.asarray, state)))
    for one, wanted in zip(found, step(a, c, state), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-6)


def test_memories_begin_with_spans_evenly_spaced_in_their_logarithm() -> None:
    spans = np.array([2.0, 8.0, 32.0, 128.0])
    forget = np.asarray(Lstm(span=128.0).initial_bias(4))
    np.testing.assert_allclose(_logistic(forget[1]), 1.0 - 1.0 / spans, rtol=1e-5)  # what a step keeps
    np.testing.assert_allclose(_logistic(forget[0]), 1.0 / spans, rtol=1e-5)  # what it lets in
    assert not forget[2:].any()
    gates = np.asarray(Gru(span=128.0).initial_bias(4))
    np.testing.assert_allclose(_logistic(gates[1]), 1.0 - 1.0 / spans, rtol=1e-5)
    assert not gates[[0, 2]].any()
    alike = np.asarray(Lstm().initial_bias(3))
    np.testing.assert_array_equal(alike, [[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3])
    assert not np.asarray(Gru().initial_bias(3)).any()


@pytest.mark.parametrize(("cell", "place"), [(Gru(span=50.0), 0), (Lstm(span=50.0), 1)], ids=["Gru", "Lstm"])
def test_a_state_decays_with_its_span(cell: AbstractCell, place: int) -> None:
    bias = cell.initial_bias(6)
    state = tuple(jnp.ones(6) for _ in range(cell.vectors))
    for _ in range(20):
        state = cell.step(bias, jnp.zeros_like(bias), state)
    spans = np.geomspace(2.0, 50.0, 6)
    np.testing.assert_allclose(state[place], (1.0 - 1.0 / spans) ** 20, rtol=1e-3)


def test_a_span_is_in_the_biases_and_nowhere_else() -> None:
    for cell in (Gru(span=9.0), Lstm(span=9.0)):
        assert not jax.tree.leaves(eqx.filter(cell.begun(), eqx.is_array))
        assert cell.begun() == type(cell)()
        several = jax.vmap(lambda span, kind=type(cell): kind(span=span).initial_bias(3))(jnp.array([0.0, 9.0]))
        np.testing.assert_allclose(several, [type(cell)().initial_bias(3), cell.initial_bias(3)], rtol=1e-6)
