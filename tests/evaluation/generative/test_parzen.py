"""Against SciPy's own densities, and against distributions whose answer is known."""

import numpy as np
import pytest

from gradwise.evaluation.generative.parzen import log_likelihoods, parzen
from gradwise.runtime.errors import RequestError


def test_it_is_the_mean_of_normal_densities():
    """Directly by SciPy, with inputs far from 0, over more rows than one chunk. Measured: equal to 7e-14."""
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal

    random = np.random.default_rng(0)
    samples = random.normal(size=(40, 5)) + 1000.0
    rows = random.normal(size=(300, 5)) + 1000.5
    widths = [0.2, 0.7, 3.0]
    wanted = [
        logsumexp([multivariate_normal.logpdf(rows, one, width**2 * np.eye(5)) for one in samples], axis=0)
        - np.log(len(samples))
        for width in widths
    ]
    assert np.allclose(log_likelihoods(rows, samples, widths), wanted, atol=1e-11)
    far = log_likelihoods(rows + 1e3, samples, [0.1])  # exp of this underflows; its logarithm does not
    assert np.isfinite(far).all()
    assert far.max() < -1e7


def test_sigma_is_the_best_on_validation_and_the_error_that_of_a_mean():
    random = np.random.default_rng(1)
    samples, valid, test = (random.normal(size=(count, 2)) for count in (500, 200, 400))
    found = parzen(samples, test, valid)
    fine = np.geomspace(found.tried[0], found.tried[-1], 200)
    scores = log_likelihoods(valid, samples, fine).mean(axis=1)
    assert found.valid.max() == pytest.approx(scores.max(), abs=0.01)
    assert found.deviation == pytest.approx(fine[scores.argmax()], rel=0.3)
    values = log_likelihoods(test, samples, [found.deviation])[0]
    assert found.log_likelihood == pytest.approx(values.mean())
    assert found.standard_error == pytest.approx(values.std(ddof=1) / 20.0)
    # The truth, -log(2 pi) - 1 in the mean, is above what kernels reach, and not far above.
    truth = -np.log(2 * np.pi) - 1.0
    assert truth - 0.25 < found.log_likelihood < truth + 3 * found.standard_error
    # One sample far away: the best sigma is beyond the first ones tried, and still not at an end of all.
    lonely = parzen([[0.0, 0.0]], test, valid * 3.0)
    assert lonely.deviation == pytest.approx(3.0, rel=0.2)
    given = parzen(samples, test, valid, deviations=[0.9, 0.1])
    assert np.array_equal(given.tried, [0.1, 0.9])


def test_samples_of_the_same_distribution_do_better():
    random = np.random.default_rng(2)

    def ring(count):
        angle = random.uniform(0, 2 * np.pi, count)
        return np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * random.normal(size=(count, 2))

    valid, test = ring(200), ring(300)
    same = parzen(ring(500), test, valid)
    blob = parzen(np.std(valid, axis=0) * random.normal(size=(500, 2)), test, valid)  # the same variance
    half = parzen(np.abs(ring(500)), test, valid)  # a mode of four
    for other in (blob, half):
        assert same.log_likelihood > other.log_likelihood + 5 * np.hypot(same.standard_error, other.standard_error)


def test_what_cannot_be_judged_is_refused():
    rows = np.random.default_rng(3).normal(size=(5, 2))
    with pytest.raises(RequestError, match="every validation row is among the samples"):
        parzen(rows, rows, rows[:3])
    with pytest.raises(RequestError, match="the test rows have 3 inputs, the samples 2"):
        parzen(rows, np.zeros((4, 3)), rows)
    with pytest.raises(RequestError, match="must be positive"):
        parzen(rows, rows, rows, deviations=[0.0, 1.0])
    with pytest.raises(RequestError, match="must be finite"):
        parzen(rows, rows * np.nan, rows)
