"""Honest estimates against simulations whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from gradwise.evaluation.trials.batch_size_curve import best_batch_size
from gradwise.evaluation.trials.selection_bias import (
    contenders,
    corrected_for_selection,
    mean_and_variance,
    nested_estimate,
    paired_difference,
    weighted_estimate,
    winning_chances,
)
from gradwise.runtime.errors import RequestError


def test_the_correction_removes_the_optimism_of_choosing_among_equals() -> None:
    # 30 trials that are all wrong on every fifth example, at random: the best of them looks better than it is.
    draw = np.random.default_rng(0)
    naive, corrected = [], []
    for seed in range(30):
        losses = (draw.random((30, 200)) < 0.2).astype(np.float64)
        found = corrected_for_selection(losses, resamples=200, seed=seed)
        assert found.optimism == pytest.approx(found.corrected - found.naive)
        assert found.interval[0] < found.corrected < found.interval[1]
        naive.append(found.naive)
        corrected.append(found.corrected)
    # The expected minimum of 30 such means, simulated apart.
    known = 0.2 - (draw.binomial(200, 0.2, (20_000, 30)) / 200).min(axis=1).mean()
    error = np.std(corrected, ddof=1) / math.sqrt(30)
    assert 0.2 - np.mean(naive) == pytest.approx(known, abs=0.005)
    assert known > 0.05
    assert abs(np.mean(corrected) - 0.2) < 3 * error


def test_there_is_nothing_to_correct_where_one_trial_is_truly_better() -> None:
    draw = np.random.default_rng(1)
    rates = np.full(20, 0.5)
    rates[7] = 0.1
    losses = (draw.random((20, 2000)) < rates[:, None]).astype(np.float64)
    losses[3] = np.nan  # a trial that diverged is never chosen
    found = corrected_for_selection(losses, resamples=300)
    assert found.winner == 7
    assert abs(found.optimism) < 0.002


def test_resampling_in_chunks_is_the_bootstrap_written_out() -> None:
    draw = np.random.default_rng(2)
    losses = draw.random((6, 40))
    found = corrected_for_selection(losses, resamples=4000, seed=5)
    slow = []
    for _ in range(4000):
        rows = draw.integers(0, 40, 40)
        left = np.setdiff1d(np.arange(40), rows)
        slow.append(losses[losses[:, rows].mean(axis=1).argmin(), left].mean())
    assert found.corrected == pytest.approx(np.mean(slow), abs=4 * np.std(slow) / math.sqrt(4000))
    assert found.interval == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.02)
    assert found == corrected_for_selection(losses, resamples=4000, seed=5)


def test_the_variance_of_right_and_wrong_is_binomial() -> None:
    losses = np.array([[1.0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    mean, variance = mean_and_variance(losses)
    np.testing.assert_allclose(mean, [0.4, 0.0])
    np.testing.assert_allclose(variance, [0.4 * 0.6 / 4, 0.0])


def test_the_chance_of_being_best_is_the_known_one_for_two() -> None:
    weights = winning_chances(np.array([0.10, 0.12, np.nan]), np.array([1e-4, 3e-4, 1e-4]))
    known = stats.norm.cdf((0.12 - 0.10) / math.sqrt(4e-4))
    np.testing.assert_allclose(weights, [known, 1 - known, 0.0], atol=0.01)
    np.testing.assert_allclose(winning_chances(np.array([0.0, 0.0, 0.5]), np.zeros(3)), [0.5, 0.5, 0.0])


def test_contenders_are_those_that_can_matter() -> None:
    mean = np.array([0.30, 0.10, 0.11, 0.10])
    assert contenders(mean, np.full(4, 1e-4)).tolist()[-1] == 2
    assert set(contenders(mean, np.full(4, 1e-4)).tolist()) == {1, 2, 3}
    assert contenders(mean, np.full(4, 1e-12)).tolist() in ([1, 3], [3, 1])


def test_the_weighted_estimate_is_the_mixture_it_stands_for() -> None:
    valid, variance = np.array([0.10, 0.105, 0.2]), np.array([2e-5, 2e-5, 2e-5])
    test, doubt = np.array([0.12, 0.10, 0.30]), np.array([1e-5, 2e-5, 1e-5])
    found = weighted_estimate(valid, variance, test, doubt, draws=50_000)
    draw = np.random.default_rng(3)
    winner = (valid + np.sqrt(variance) * draw.standard_normal((200_000, 3))).argmin(axis=1)
    drawn = test[winner] + np.sqrt(doubt[winner]) * draw.standard_normal(200_000)
    assert found.mean == pytest.approx(drawn.mean(), abs=2e-4)
    assert found.deviation == pytest.approx(drawn.std(), rel=0.02)
    assert sum(found.weights) == pytest.approx(1.0)
    assert found.weights[2] == 0.0
    w = np.array(found.weights)
    assert found.deviation**2 == pytest.approx(w @ (test**2 + doubt) - found.mean**2)


def test_a_trial_that_was_not_tested_and_cannot_win_does_not_spoil_the_estimate() -> None:
    found = weighted_estimate(
        np.array([0.1, 0.9]), np.full(2, 1e-6), np.array([0.12, np.nan]), np.array([1e-6, np.nan])
    )
    assert found.mean == pytest.approx(0.12)


def test_a_paired_difference_is_scipys_t_interval() -> None:
    draw = np.random.default_rng(4)
    first, second = draw.normal(0.2, 0.1, 12), draw.normal(0.1, 0.1, 12)
    found = paired_difference(first, second)
    known = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert found.count == 12
    assert math.isnan(paired_difference(first[:1], second[:1]).low)


def test_a_nested_estimate_weighs_folds_by_their_size() -> None:
    found = nested_estimate([0.1, 0.2, 0.3], [10, 10, 20])
    assert found.mean == pytest.approx(0.225)
    equal = nested_estimate([0.1, 0.2, 0.3, 0.2], [10] * 4)
    spread = np.var([0.1, 0.2, 0.3, 0.2], ddof=1)
    assert equal.deviation == pytest.approx(math.sqrt((1 / 4 + 1 / 3) * spread))
    assert equal.high - equal.mean == pytest.approx(stats.t.ppf(0.975, 3) * equal.deviation)
    assert math.isnan(nested_estimate([0.1], [10]).low)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(RequestError, match="two examples"):
        corrected_for_selection(np.zeros((3, 1)))
    with pytest.raises(RequestError, match="nothing to choose from"):
        corrected_for_selection(np.full((3, 4), np.nan))
    with pytest.raises(RequestError, match="needs pairs"):
        paired_difference(np.zeros(3), np.zeros(2))
    with pytest.raises(RequestError, match="a positive size per fold"):
        nested_estimate([0.1, 0.2], [3, 0])
    with pytest.raises(RequestError, match="no batch size"):
        best_batch_size([])
