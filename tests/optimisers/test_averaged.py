"""Averages of the parameters (rows C9, J6): equal to means by hand, and as good as theory says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.core.parts import AbstractOptimiser
from gradwise.optimisers.averaged import MovingAverage, PolyakAverage
from gradwise.optimisers.schedule import InverseTime
from gradwise.optimisers.sgd import HeavyBall, Sgd

NOISE = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)


@eqx.filter_jit
def run(optimiser: AbstractOptimiser):
    """All points and all averages on a noisy quadratic, the start not counted."""

    def body(carry, noise):
        point, state = carry
        moves, state = optimiser.build().update(point - 1.0 + noise, state, point, value=jnp.zeros(()))
        point = optax.apply_updates(point, moves)
        return (point, state), (point, optimiser.judged(point, state), optimiser.rate(state))

    start = jnp.asarray([50.0, -50.0])  # far away, so that a remembered start would show
    points, averages, rates = jax.lax.scan(body, (start, optimiser.build().init(start)), jnp.asarray(NOISE))[1]
    return points, averages, rates


@pytest.mark.parametrize("start", [0, 1, 7])
def test_polyak_is_the_mean_of_the_points_after_the_start(start: int) -> None:
    points, averages, rates = map(np.asarray, run(PolyakAverage(Sgd(0.2), start_updates=float(start))))
    for update in range(30):
        expected = points[update] if update < start else points[start : update + 1].mean(0)
        np.testing.assert_allclose(averages[update], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(points, run(Sgd(0.2))[0])  # training itself is not changed
    np.testing.assert_allclose(rates, 0.2, rtol=1e-6)


def test_a_moving_average_is_a_plain_mean_at_first_and_exponential_then() -> None:
    points, averages, _ = map(np.asarray, run(MovingAverage(HeavyBall(0.05), decay=0.9)))
    for update in range(10):  # the first 1/(1 - decay) updates
        np.testing.assert_allclose(averages[update], points[: update + 1].mean(0), rtol=1e-5, atol=1e-5)
    for update in range(10, 30):
        expected = 0.9 * averages[update - 1] + 0.1 * points[update]
        np.testing.assert_allclose(averages[update], expected, rtol=1e-5, atol=1e-5)


def test_without_decay_the_average_is_the_last_point() -> None:
    points, averages, _ = run(MovingAverage(Sgd(0.2), decay=0.0))
    np.testing.assert_allclose(averages, points, rtol=1e-6, atol=1e-6)


def test_averages_nest() -> None:
    inner = run(PolyakAverage(Sgd(0.2)))
    outer = run(MovingAverage(PolyakAverage(Sgd(0.2)), decay=0.9))
    np.testing.assert_array_equal(inner[0], outer[0])
    np.testing.assert_allclose(outer[2], 0.2, rtol=1e-6)


def test_polyak_reaches_the_best_rate_on_a_noisy_quadratic() -> None:
    """Polyak and Juditsky: t E|mean - optimum|^2 tends to trace(H^-1 S H^-1), the least that any method can reach.

    Rates fall as t^-1/2, 600 runs, curvatures 1, 1/4 and 1/10, noise of variance 1: 1 + 16 + 100 = 117.
    """
    curvature = jnp.asarray([1.0, 0.25, 0.1])
    updates = 4000
    optimiser = PolyakAverage(Sgd(1.0, schedule=InverseTime(tau_updates=1.0, exponent=0.5)), start_updates=400.0)

    @eqx.filter_jit
    def errors(optimiser: AbstractOptimiser):
        def body(carry, key):
            point, state = carry
            slope = curvature * point + jr.normal(key, point.shape)
            moves, state = optimiser.build().update(slope, state, point, value=jnp.zeros(()))
            return (optax.apply_updates(point, moves), state), None

        start = jnp.ones((600, 3))
        keys = jr.split(jr.key(0), updates)
        (point, state), _ = jax.lax.scan(body, (start, optimiser.build().init(start)), keys)
        judged = optimiser.judged(point, state)
        return jnp.mean(jnp.sum(judged**2, 1)), jnp.mean(jnp.sum(point**2, 1))

    averaged, last = map(float, errors(optimiser))
    best = float(jnp.sum(curvature**-2.0))
    assert averaged * (updates - 400) == pytest.approx(best, rel=0.15)
    assert last > 2 * averaged
