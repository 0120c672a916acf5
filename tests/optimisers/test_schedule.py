"""Learning-rate schedules: exact values (row C2), and the one that sets its own tau (row C3) on scripted criteria."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.core.errors import RequestError
from gradwise.optimisers.schedule import AbstractSchedule, Constant, InverseTime, SelfTimed, present_rate, scale_by_rate


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
