"""The power law: found again from its own values, as SciPy finds it from noisy ones, with an interval that covers."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from gradwise.checking.learning.power_law import extrapolate, fit_law, power_law

COUNTS = np.array([100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0])
KNOWN = (0.05, 3.0, 0.6)
NONE = np.zeros(6)


def _errors(counts: np.ndarray) -> np.ndarray:
    return power_law(np.asarray(KNOWN), counts)


def test_a_law_is_found_again_from_its_own_values() -> None:
    assert _errors(np.array([1.0, 32.0]))[1] == pytest.approx(0.05 + 3.0 / 8)  # 32^0.6 = 8
    seen = extrapolate(COUNTS, _errors(COUNTS), NONE)
    assert seen is not None
    assert seen.law == pytest.approx(KNOWN, rel=0.02)
    assert seen.predicted == pytest.approx(float(_errors(np.array([6400.0]))[0]), rel=1e-3)
    assert seen.interval == pytest.approx((seen.predicted, seen.predicted), rel=0.02)  # powers on a grid


def test_noisy_errors_are_fitted_as_scipy_fits_them() -> None:
    shares = COUNTS / COUNTS[-1]
    noise = np.full(6, 0.01)
    errors = _errors(COUNTS) + noise * np.random.default_rng(0).normal(size=6)
    ours = fit_law(shares, errors, noise)
    bounds = ([0.0, 0.0, 0.02], [np.inf, np.inf, 2.0])
    theirs, _ = curve_fit(lambda n, a, b, c: a + b * n**-c, shares, errors, p0=(0.05, 0.05, 0.5), bounds=bounds)
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)


def test_the_interval_covers_and_is_wider_for_more_noise() -> None:
    truth = float(_errors(np.array([6400.0]))[0])
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        seen = extrapolate(COUNTS, _errors(COUNTS) + 0.005 * generator.normal(size=6), np.full(6, 0.005))
        assert seen is not None
        covered += seen.interval[0] < truth < seen.interval[1]
    assert covered >= 45  # 90 % are asked for
    widths = [np.ptp(extrapolate(COUNTS, _errors(COUNTS), np.full(6, noise)).interval) for noise in (1e-3, 1e-2)]
    assert widths[1] > 3 * widths[0]


def test_nothing_is_said_of_too_few_errors_of_flat_ones_or_of_no_numbers() -> None:
    assert extrapolate(COUNTS[:3], _errors(COUNTS[:3]), NONE[:3]) is None
    assert extrapolate(COUNTS, np.full(6, 0.3), NONE) is None
    assert extrapolate(COUNTS, np.where(COUNTS == 400, np.nan, _errors(COUNTS)), NONE) is None


def test_an_error_is_not_predicted_below_0_but_a_loss_may_be() -> None:
    steep = power_law(np.array([0.0, 1.0, 1.0]), COUNTS / 100)
    seen = extrapolate(COUNTS, steep, np.full(6, 0.02))
    assert seen is not None
    assert 0.0 <= seen.interval[0] <= 1 / 64 <= seen.interval[1]
    below = extrapolate(COUNTS, steep - 2.0, NONE)
    assert below is not None
    assert below.predicted == pytest.approx(1 / 64 - 2.0, rel=1e-3)
