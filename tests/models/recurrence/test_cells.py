"""Each cell is its equations, step by step in NumPy."""

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


def test_a_memory_begins_by_remembering() -> None:
    bias = np.asarray(Lstm().initial_bias(3))
    np.testing.assert_array_equal(bias, [[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3])
    assert not np.asarray(Gru().initial_bias(3)).any()
