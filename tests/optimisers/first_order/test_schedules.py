"""Learning-rate schedules: exact values (rows C2, J2), and the one that sets its own tau (row C3) on scripted criteria.

What a run does with them, its length, its dropout and its smoothing, is in `tests/specs/test_schedules.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwise
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.schedules import (
    BottouDecay,
    Cosine,
    FlatCosine,
    InverseTime,
    OneCycle,
    RepeatedCosine,
    SelfTimed,
    WarmUp,
    WarmUpStableDecay,
    present_rate,
    scale_by_rate,
)
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.schedules import AbstractSchedule, Constant
from gradwise.testing.contracts import check_part
from gradwise.training.stopping import Off


@jax.jit
def _factors(schedule: AbstractSchedule, updates, values):
    def body(state, seen):
        return schedule.step(state, *seen)

    return jax.lax.scan(body, schedule.init(), (updates, values))


def factors(schedule: AbstractSchedule, values, updates=None) -> np.ndarray:
    """The factor of each update, given the criterion on its batch."""
    values = np.asarray(values, np.float32)
    updates = np.arange(len(values)) if updates is None else np.asarray(updates)
    return np.asarray(_factors(schedule, updates.astype(np.int32), values)[1], np.float64)


def test_constant() -> None:
    assert np.array_equal(factors(Constant(), np.ones(5)), np.ones(5))


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("tau", [1.0, 10.0, 100.0])
def test_inverse_time_is_exactly_the_formula(tau: float, alpha: float) -> None:
    updates = np.asarray([0, 1, 2, 9, 10, 11, 20, 99, 100, 101, 1000, 10**6, 10**8])
    found = factors(InverseTime(tau_updates=tau, exponent=alpha), np.ones(len(updates)), updates)
    np.testing.assert_allclose(found, (tau / np.maximum(updates, tau)) ** alpha, rtol=2e-6)
    assert np.all(found[updates <= tau] == 1.0)


def test_an_endless_tau_is_a_constant_rate() -> None:
    updates = np.asarray([0, 10, 10**6, 2**31 - 1])
    assert np.array_equal(factors(InverseTime(tau_updates=1e12), np.ones(4), updates), np.ones(4))


def test_the_exponent_is_at_most_one() -> None:
    with pytest.raises(RequestError, match=r"`InverseTime.exponent` must lie in \(0, 1\]; got 1\.5"):
        InverseTime(exponent=1.5)


@pytest.mark.parametrize("exponent", [1.0, 0.75])
def test_bottous_decay_is_exactly_the_formula(exponent: float) -> None:
    """At rate 0.5 and lambda 0.02 the pace is 0.01."""
    updates = np.asarray([0, 1, 2, 50, 100, 1000, 10**6])
    found = factors(BottouDecay(pace=0.02 * 0.5, exponent=exponent), np.ones(7), updates)
    np.testing.assert_allclose(0.5 * found, 0.5 / (1 + 0.02 * 0.5 * updates) ** exponent, rtol=2e-6)
    assert found[0] == 1.0


# --- row J2

T = np.arange(130)


def rising(warm_up: int) -> np.ndarray:
    return np.minimum((T + 1) / max(warm_up, 1), 1.0)


@pytest.mark.parametrize("warm_up", [0, 1, 10, 200])
def test_warm_up_is_a_line_times_another_schedule(warm_up: int) -> None:
    alone = factors(WarmUp(float(warm_up)), np.ones(130))
    np.testing.assert_allclose(alone, rising(warm_up), rtol=1e-6)
    found = factors(WarmUp(float(warm_up), InverseTime(tau_updates=30.0)), np.ones(130))
    np.testing.assert_allclose(found, rising(warm_up) * 30 / np.maximum(T, 30), rtol=1e-6)


def test_warm_up_hands_the_criterion_on() -> None:
    falls = scripted(8.0, 4.0, 3.99, 3.99, 3.99, 3.99)
    inner = SelfTimed(window_updates=4.0)
    found = factors(WarmUp(6.0, inner), falls)
    np.testing.assert_allclose(found, np.minimum((np.arange(24) + 1) / 6, 1) * factors(inner, falls), rtol=1e-6)
    assert found[-1] < 0.6


@pytest.mark.parametrize(("horizon", "warm_up", "final"), [(100, 0, 0.0), (100, 20, 0.1), (120, 1, 1.0), (10, 40, 0.5)])
def test_cosine_is_exactly_the_formula(horizon: int, warm_up: int, final: float) -> None:
    found = factors(Cosine(float(horizon), float(warm_up), final), np.ones(130))
    done = np.clip((T - warm_up) / max(horizon - warm_up, 1), 0, 1)
    np.testing.assert_allclose(
        found, rising(warm_up) * (final + (1 - final) * (1 + np.cos(np.pi * done)) / 2), atol=5e-7
    )
    if warm_up < horizon:
        np.testing.assert_allclose(found[horizon:], final, atol=1e-7)  # the floor, for good
        assert found[max(warm_up - 1, 0)] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("warm_up", "stable", "decay", "final"), [(10, 60, 30, 0.0), (0, 50, 50, 0.1), (20, 0, 80, 0.01), (5, 50, 0, 0.2)]
)
def test_warm_up_stable_decay_is_exactly_the_formula(warm_up: int, stable: int, decay: int, final: float) -> None:
    found = factors(WarmUpStableDecay(float(warm_up), float(stable), float(decay), final), np.ones(130))
    corners = [-1, max(warm_up, 1) - 1, warm_up + stable, warm_up + stable + max(decay, 1), 130]
    expected = np.interp(T, corners, [0.0, 1.0, 1.0, final, final])
    if warm_up == 0:
        expected[0] = 1.0
    np.testing.assert_allclose(found, expected, atol=5e-7)


@pytest.mark.parametrize("peak", [0.25, 0.5])
def test_one_cycle_is_half_a_cosine_up_and_one_down(peak: float) -> None:
    found = factors(OneCycle(100.0, peak=peak), np.ones(130))
    top = int(100 * peak)
    up = 0.5 - 0.5 * np.cos(np.pi * T[:top] / top)
    down = 0.5 + 0.5 * np.cos(np.pi * (T[top:100] - top) / (100 - top))
    np.testing.assert_allclose(found, np.concatenate([up, down, np.zeros(30)]), atol=1e-6)
    assert (found[0], found[top]) == (0.0, 1.0)


@pytest.mark.parametrize("cycles", [1, 2, 4])
def test_waves_begin_and_end_at_zero_each_twice_as_long_as_the_last(cycles: int) -> None:
    """Over 15 units of time four waves take 1, 2, 4 and 8 of them."""
    unit = 60
    whole = unit * (2**cycles - 1)
    updates = np.arange(whole + 40)
    found = factors(RepeatedCosine(float(whole), cycles=cycles), np.ones(len(updates)), updates)
    expected = 0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + np.minimum(updates, whole) / unit))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    ends = [unit * (2**number - 1) for number in range(cycles + 1)]
    np.testing.assert_allclose(found[ends], 0.0, atol=1e-5)
    # Half a wave in logarithmic time is a factor of sqrt(2).
    tops = [unit * (2**number * np.sqrt(2) - 1) for number in range(cycles)]
    np.testing.assert_allclose(found[np.round(tops).astype(int)], 1.0, atol=2e-3)
    np.testing.assert_allclose(found[whole:], 0.0, atol=1e-5)


@pytest.mark.parametrize("flat", [0.0, 0.5, 0.8])
def test_flat_cosine_stays_and_then_falls_to_zero(flat: float) -> None:
    found = factors(FlatCosine(100.0, flat=flat), np.ones(130))
    fall = np.clip((T / 100 - flat) / (1 - flat), 0, 1)
    np.testing.assert_allclose(found, 0.5 + 0.5 * np.cos(np.pi * fall), atol=2e-6)
    assert np.all(found[: int(100 * flat) + 1] == 1.0)


def test_a_schedule_over_no_run_is_at_its_end_after_one_update() -> None:
    """A horizon of 0 that nobody filled: a stretch of no length is a step."""
    assert factors(Cosine(0.0, final=0.2), np.ones(3)).tolist() == pytest.approx([1.0, 0.2, 0.2])
    assert factors(FlatCosine(), np.ones(3)).tolist() == pytest.approx([1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "schedule",
    [
        BottouDecay(),
        OneCycle(50.0),
        RepeatedCosine(50.0),
        FlatCosine(50.0),
        WarmUp(10.0, SelfTimed(window_updates=3.0)),
        Cosine(50.0, 5.0),
        WarmUpStableDecay(5.0, 20.0, 30.0),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_contract(schedule: AbstractSchedule) -> None:
    check_part(schedule)


@pytest.mark.parametrize(
    ("schedule", "horizon", "floor"),
    [
        (Cosine(3000.0, final=0.05), "update 3,000", "0.05 of the initial"),
        (WarmUpStableDecay(500.0, 8000.0, 1500.0, 0.0), "update 10,000", "0 of the initial"),
    ],
    ids=["cosine", "warm-up-stable-decay"],
)
def test_a_horizon_is_told_against_patience(schedule: AbstractSchedule, horizon: str, floor: str) -> None:
    (note,) = schedule.findings()
    assert (note.level, note.row) == ("note", "J2")
    assert horizon in note.what
    assert floor in note.what
    assert "patience may end the run while the rate is still high" in note.what


@pytest.mark.parametrize("schedule", [Cosine(0.0), OneCycle(), RepeatedCosine()])
def test_one_that_ends_with_the_run_has_nothing_to_tell(schedule: AbstractSchedule) -> None:
    assert schedule.findings() == ()


@pytest.mark.parametrize("schedule", [OneCycle(70.0), RepeatedCosine(70.0)])
def test_a_fixed_horizon_of_a_cycle_is_told(schedule: AbstractSchedule) -> None:
    (note,) = schedule.findings()
    assert "update 70, its horizon" in note.what
    assert "0 of the initial one" in note.what


@pytest.mark.slow
def test_a_fit_tells_the_horizon_and_follows_the_schedule() -> None:
    """After the horizon the recorded rate is the floor."""
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    learner = gradwise.Classifier(
        random_state=0,
        optimiser=Sgd(0.5, schedule=WarmUp(3.0, Cosine(20.0, final=0.1))),
        model=Mlp(widths=(8,), dropout=0.0),
        stopping=Off(epochs=12),
    ).fit(inputs, targets)
    assert sum("its horizon" in finding.what for finding in learner.record_.findings) == 1
    rates, updates = np.asarray(learner.history_["learning_rate"]), np.asarray(learner.history_["updates"])
    t = updates - 1  # the rate of the last update
    expected = 0.5 * np.minimum((t + 1) / 3, 1) * (0.1 + 0.45 * (1 + np.cos(np.pi * np.clip(t / 20, 0, 1))))
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert updates[-1] > 20
    assert rates[-1] == pytest.approx(0.05)


# --- row C3

WINDOW = 4


def scripted(*means: float) -> np.ndarray:
    """A criterion whose windows have these means, each window uneven inside."""
    return np.concatenate([mean + abs(mean) * np.asarray([0.3, -0.1, 0.1, -0.3]) for mean in means])


def set_at(means: tuple[float, ...], **knobs: float) -> int | None:
    """The update at which the rate starts to fall, read off the factors; None where it never does."""
    found = factors(SelfTimed(window_updates=float(WINDOW), **knobs), scripted(*means))
    falling = np.flatnonzero(found < 1.0)
    if len(falling) == 0:
        return None
    tau = falling[0] - 1
    updates = np.arange(len(found))
    np.testing.assert_allclose(found, np.where(updates > tau, tau / np.maximum(updates, 1), 1.0), rtol=1e-6)
    return int(tau)


@pytest.mark.parametrize(
    ("means", "window"),
    [
        ((8.0, 4.0, 2.0, 1.0, 0.5, 0.25), None),  # halves every window
        ((8.0, 4.0, 2.0, 1.99, 1.0, 0.5), 3),  # the fourth window improves by 0.5 %
        ((8.0, 7.93, 7.0, 6.0, 5.0, 4.0), 1),  # by 0.9 %
        ((8.0, 7.91, 7.0, 6.0, 5.0, 4.0), None),  # by 1.1 %
        ((8.0, 4.0, 5.0, 1.0, 0.5, 0.2), 2),  # gets worse
        ((3.0, 3.0, 3.0, 3.0, 3.0, 3.0), 1),  # never improves: the first comparison tells
        ((-4.0, -6.0, -9.0, -9.01, -20.0, -30.0), 3),  # log-densities go below 0
        ((-4.0, -6.0, -9.0, -12.0, -20.0, -30.0), None),
    ],
    ids=str,
)
def test_tau_is_set_exactly_when_the_improvement_falls_below_the_threshold(means, window: int | None) -> None:
    """At the last update of the first window whose mean improved by less than 1 % on the one before."""
    assert set_at(means, threshold=0.01) == (None if window is None else (window + 1) * WINDOW - 1)


def test_tau_is_set_once() -> None:
    """Later stalls change nothing: the checks inside `set_at` compare every factor with tau / t."""
    assert set_at((8.0, 4.0, 3.99, 1.0, 0.999, 0.998)) == 3 * WINDOW - 1


def test_the_threshold_and_the_exponent_are_read() -> None:
    means = (8.0, 7.0, 6.2, 5.5)  # improves by 12.5, 11.4 and 11.3 %
    assert set_at(means, threshold=0.05) is None
    assert set_at(means, threshold=0.12) == 3 * WINDOW - 1
    root = factors(SelfTimed(window_updates=4.0, threshold=0.12, exponent=0.5), scripted(*means))
    np.testing.assert_allclose(root[-1], np.sqrt((3 * WINDOW - 1) / (4 * WINDOW - 1)), rtol=1e-6)


# --- the rate in an optimiser's chain


def test_scale_by_rate_multiplies_counts_and_remembers() -> None:
    rule = scale_by_rate(np.float64(0.5), InverseTime(tau_updates=2.0))
    gradient = {"weight": jnp.asarray([1.0, -2.0])}
    state = rule.init(gradient)
    assert float(present_rate(state)) == 0.5
    for update in range(6):
        moved, state = rule.update(gradient, state, gradient, value=jnp.asarray(1.0))
        rate = 0.5 * 2 / max(update, 2)
        np.testing.assert_allclose(moved["weight"], [-rate, 2 * rate], rtol=1e-6)
        assert float(present_rate({"inner": (state,)})) == pytest.approx(rate)
        assert int(state.update) == update + 1
