"""Averages of the parameters (rows C9, J6): equal to means by hand, and as good as theory says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.models.mlp import Mlp
from gradwise.optimisers.averaging.parameter_average import (
    AveragedSgd,
    MovingAverage,
    PolyakAverage,
    TailAverage,
    refuse_averages,
)
from gradwise.optimisers.first_order.schedules import BottouDecay, InverseTime
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.testing.contracts import check_part
from gradwise.training.interval import interval
from gradwise.training.state import init

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


# --- tail averages (row J6)


@pytest.mark.parametrize(("start", "every"), [(0, 1), (7, 1), (0, 4), (5, 3), (29, 5)])
def test_a_tail_average_is_the_mean_of_every_so_many_points_after_the_start(start: int, every: int) -> None:
    points, averages, rates = map(np.asarray, run(TailAverage(Sgd(0.2), float(start), float(every))))
    for update in range(1, 31):
        counted = list(range(start + every, update + 1, every))
        expected = points[np.asarray(counted) - 1].mean(0) if counted else points[update - 1]
        np.testing.assert_allclose(averages[update - 1], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rates, 0.2, rtol=1e-6)
    np.testing.assert_array_equal(points, run(Sgd(0.2))[0])


def test_every_single_point_of_the_tail_is_polyaks_average() -> None:
    np.testing.assert_allclose(
        run(TailAverage(Sgd(0.2), 4.0, 1.0))[1], run(PolyakAverage(Sgd(0.2), 4.0))[1], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("count", [2**24 + 3, 2**24 + 4, 2**30 - 1], ids=["between", "counts", "far-between"])
def test_far_beyond_the_whole_numbers_of_32_bit_floats_the_right_points_count(count: int) -> None:
    """Every fourth of them; 2**24 + 3 is no float of 32 bits, and would be taken for 2**24 + 4."""
    rule = TailAverage(Sgd(1.0), 0.0, 4.0).build()
    state = rule.init(jnp.zeros(()))._replace(update=jnp.asarray(count - 1, jnp.int32))
    state = rule.update(jnp.asarray(-1e9), state, jnp.zeros(()), value=jnp.zeros(()))[1]
    assert (float(state.average) != 0) == (count % 4 == 0)


# --- Bottou's averaged SGD (row C9)


@pytest.mark.parametrize("start", [0, 6])
def test_averaged_sgd_is_bottous_formulas(start: int) -> None:
    rate, decay, exponent = 0.4, 0.5, 0.75
    optimiser = AveragedSgd(rate, decay=decay, exponent=exponent, start_updates=float(start))
    points, averages, rates = run(optimiser)
    here = mean = np.asarray([50.0, -50.0])
    for t in range(30):
        expected = rate / (1 + decay * rate * t) ** exponent
        here = here - expected * (here - 1.0 + NOISE[t])
        mean = mean + (here - mean) / (1 + t - start) if t > start else here
        np.testing.assert_allclose(points[t], here, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(averages[t], mean, rtol=1e-5, atol=1e-5)
        assert float(rates[t]) == pytest.approx(expected, rel=1e-5)


def test_averaged_sgd_is_made_of_the_parts_that_are_there() -> None:
    parts = PolyakAverage(Sgd(0.4, schedule=BottouDecay(pace=0.2, exponent=0.75)), start_updates=6.0)
    whole = run(AveragedSgd(0.4, decay=0.5, start_updates=6.0))
    for one, other in zip(whole, run(parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_averages_covariance_is_the_least_and_the_last_points_is_not() -> None:
    """t Cov(mean) tends to H^-1 S H^-1, correlations included; 2000 runs, whose own error is about 4 %.

    Measured: the mean's covariance is 3.5 % off in the Frobenius norm, the last point's is 9.8 times as large.
    """
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    hessian = turn @ np.diag([1.0, 0.6, 0.3]) @ turn.T
    root = np.asarray([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.3, 0.2, 0.7]])
    updates, start, runs = 3000, 300, 2000
    best = np.linalg.inv(hessian) @ root @ root.T @ np.linalg.inv(hessian)

    @eqx.filter_jit
    def ends(optimiser: AbstractOptimiser):
        def body(carry, key):
            point, state = carry
            noise = jr.normal(key, point.shape) @ jnp.asarray(root.T, jnp.float32)
            slope = point @ jnp.asarray(hessian, jnp.float32) + noise
            moves, state = optimiser.build().update(slope, state, point, value=jnp.zeros(()))
            return (optax.apply_updates(point, moves), state), None

        begin = jnp.zeros((runs, 3)) + 1.0
        (point, state), _ = jax.lax.scan(body, (begin, optimiser.build().init(begin)), jr.split(jr.key(1), updates))
        return point, optimiser.judged(point, state)

    last, mean = (np.asarray(end, np.float64) for end in ends(AveragedSgd(0.5, decay=0.05, start_updates=start)))
    scaled = (updates - start) * mean.T @ mean / runs
    assert np.linalg.norm(scaled - best) < 0.1 * np.linalg.norm(best)
    assert np.linalg.norm((updates - start) * last.T @ last / runs) > 3 * np.linalg.norm(best)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [AveragedSgd(0.1), TailAverage(Sgd(0.1), 4.0, 3.0)], ids=["averaged", "tail"])
def test_contract(optimiser: AbstractOptimiser) -> None:
    check_part(optimiser)


class _Around(AbstractOptimiser):
    """Stands for a wrapper that changes the moves of what it wraps."""

    optimiser: AbstractOptimiser

    def build(self) -> optax.GradientTransformationExtraArgs:
        return self.optimiser.build()

    def rate(self, state):
        return self.optimiser.rate(state)


@pytest.mark.parametrize("inside", [MovingAverage(Sgd()), PolyakAverage(Sgd()), TailAverage(Sgd()), AveragedSgd()])
def test_an_average_of_steps_never_taken_is_refused(inside: AbstractOptimiser) -> None:
    kind = type(inside).__name__
    with pytest.raises(RequestError, match=f"`_Around` around `{kind}` would average steps that were never taken"):
        refuse_averages(_Around(inside))
    refuse_averages(_Around(HeavyBall()))


@pytest.mark.parametrize("optimiser", [AveragedSgd(0.3), TailAverage(Sgd(0.3), 100.0, 10.0)], ids=["averaged", "tail"])
def test_they_learn_iris(optimiser: AbstractOptimiser) -> None:
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    examples = Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.int32))
    recipe = defaults.classification(optimiser=optimiser, model=Mlp(widths=(8,), dropout=0.0))
    problem, state = init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(0))
    _, row = interval(problem, state, 300)
    assert float(row.valid_score) < 0.1
    assert float(row.valid_loss) < 0.25
