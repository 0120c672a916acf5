"""Dual averaging (row C9): equal to a loop by hand, and within its regret bound on a criterion with corners."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradwise
from gradwise.models.mlp import Mlp
from gradwise.optimisers.averaging.dual_averaging import DualAveraging
from gradwise.testing.contracts import check_part
from gradwise.training.stopping import Off

RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(25, 3))
START = np.asarray([4.0, -2.0, 0.5])


def test_contract() -> None:
    check_part(DualAveraging(0.1, averaged=False))


@eqx.filter_jit
def points(optimiser: DualAveraging, slope, start, noises):
    def body(carry, noise):
        point, state = carry
        moves, state = optimiser.build().update(slope(point, noise), state, point, value=jnp.zeros(()))
        point = optax.apply_updates(point, moves)
        return (point, state), (point, optimiser.judged(point, state), optimiser.rate(state))

    return jax.lax.scan(body, (start, optimiser.build().init(start)), noises)[1]


@pytest.mark.parametrize("averaged", [True, False])
def test_equals_a_loop_by_hand(averaged: bool) -> None:
    """x_t = x_0 - s_t / (gamma sqrt t), in 64 bits; the mean is of the points where the gradients were taken."""
    gamma = 2.5
    here, total, visited = START, np.zeros(3), []
    expected, means = [], []
    for t in range(1, 26):
        visited.append(here)
        total = total + 0.7 * here + NOISE[t - 1]
        here = START - total / (gamma * np.sqrt(t))
        expected.append(here)
        means.append(np.mean(visited, 0))
    with jax.enable_x64(True):
        optimiser = DualAveraging(1.0 / gamma, averaged=averaged)
        found, judged, rates = points(optimiser, lambda x, n: 0.7 * x + n, jnp.asarray(START), jnp.asarray(NOISE))
    # The rate is kept in 32 bits.
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(judged, means if averaged else expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rates, 1 / (gamma * np.sqrt(np.arange(1, 26))), rtol=1e-6)


def test_the_rate_before_the_first_update_is_the_initial_one() -> None:
    optimiser = DualAveraging(0.2)
    assert float(optimiser.rate(optimiser.build().init(jnp.zeros(2)))) == pytest.approx(0.2)


CENTRE = np.asarray([3.0, -1.0, 0.0, 2.0])
STEEP = np.asarray([1.0, 0.5, 2.0, 0.1])


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_regret_stays_within_its_bound_on_absolute_values(factor: float) -> None:
    """f = sum of a |x - c|, whose gradient does not shrink near the optimum: for every t > 1

        f(mean) - f* <= mean of f(x_k) - f* <= (gamma D^2/2 + G^2/gamma) / sqrt(t),

    with the best gamma, sqrt(2) G/D, and with a fifth and five times that.
    """
    distance, length = np.linalg.norm(CENTRE), np.linalg.norm(STEEP)
    gamma = factor * np.sqrt(2) * length / distance
    updates = 2000
    centre, steep = jnp.asarray(CENTRE, jnp.float32), jnp.asarray(STEEP, jnp.float32)
    found, judged, _ = points(
        DualAveraging(1 / gamma), lambda x, _: steep * jnp.sign(x - centre), jnp.zeros(4), jnp.zeros(updates)
    )

    def height(x) -> np.ndarray:
        return np.abs(np.asarray(x, np.float64) - CENTRE) @ STEEP

    t = np.arange(1, updates + 1)
    taken_at = np.concatenate([[height(np.zeros(4))], height(found)[:-1]])
    regret = np.cumsum(taken_at) / t
    bound = (gamma * distance**2 / 2 + length**2 / gamma) / np.sqrt(t)
    assert np.all(regret[1:] <= bound[1:])
    assert np.all(height(judged) <= regret + 1e-4)
    # Not by a loose bound alone: between t = 100 and t = 2000 the mean improves as 1/sqrt(t) at least.
    assert height(judged)[-1] <= height(judged)[99] * np.sqrt(100 / 2000) * 1.2


def test_a_parameter_without_gradient_stays_where_it_was() -> None:
    start = jnp.asarray([0.0, 1.0])
    found = points(DualAveraging(0.5), lambda x, _: jnp.asarray([0.0, 1.0]) * x, start, jnp.zeros(5))[0]
    assert np.array_equal(np.asarray(found)[:, 0], np.zeros(5))
    assert np.all(np.asarray(found)[:, 1] < 1.0)


def test_it_learns_iris() -> None:
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    learner = gradwise.Classifier(
        random_state=0, optimiser=DualAveraging(1.0), model=Mlp(widths=(8,), dropout=0.0), stopping=Off(epochs=30)
    )
    assert learner.fit(inputs, targets).score(inputs, targets) > 0.85
