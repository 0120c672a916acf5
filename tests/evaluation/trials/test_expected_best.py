"""The expected best of N trials against brute force, and the advice against planted distributions."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from gradwise.evaluation.trials.expected_best import (
    LEAST_TRIALS,
    advice,
    best_so_far,
    expected_best,
    expected_of_best,
    noise_of,
    scores_of,
    worth_going_on,
)
from gradwise.records.score_scale import ScoreScale, percent
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError


def _trials(scores: Any, **fields: Any) -> list[Trial]:
    """Trials with these scores; what is not finite diverged."""
    return [
        Trial(n, None, {}, "finished" if math.isfinite(score) else "diverged", float(score), **fields)  # type: ignore[arg-type]
        for n, score in enumerate(scores)
    ]


def test_the_expected_best_equals_brute_force_over_all_subsets() -> None:
    scores = np.array([0.3, 0.1, np.nan, 0.25, 0.1, 0.7, 0.05, np.inf])
    curve = expected_best(scores, worst=0.9)
    filled = np.where(np.isfinite(scores), scores, 0.9)
    assert curve.sizes.tolist() == list(range(1, 9))
    for size, mean, deviation in zip(curve.sizes, curve.mean, curve.deviation, strict=True):
        bests = [min(subset) for subset in itertools.combinations(filled, int(size))]
        assert mean == pytest.approx(np.mean(bests), abs=1e-12)
        assert deviation == pytest.approx(np.std(bests), abs=1e-9)


def test_the_test_score_of_the_winner_averages_over_ties() -> None:
    scores = np.array([0.2, 0.1, 0.2, 0.1, 0.1, 0.4])
    others = np.array([0.21, 0.30, 0.12, 0.18, 0.15, 0.44])
    curve = expected_of_best(scores, others, worst=0.9)
    for size, mean, deviation in zip(curve.sizes, curve.mean, curve.deviation, strict=True):
        winners = []  # each subset counts once, shared among its tied winners
        for subset in itertools.combinations(range(6), int(size)):
            best = min(scores[i] for i in subset)
            tied = [others[i] for i in subset if scores[i] == best]
            winners.append((np.mean(tied), np.mean(np.square(tied))))
        first, second = np.mean(winners, axis=0)
        assert mean == pytest.approx(first, abs=1e-12)
        assert deviation == pytest.approx(math.sqrt(second - first**2), abs=1e-9)
    assert curve.mean[-1] == pytest.approx(np.mean([0.30, 0.18, 0.15]))


def test_ten_thousand_trials_are_exact() -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1, 10_001, dtype=np.float64))
    curve = expected_best(scores, worst=1.0)
    assert curve.sizes[0] == 1
    assert curve.sizes[-1] == 10_000
    assert len(curve.sizes) < 250
    # The smallest of s numbers drawn out of 1 ... S has mean (S+1)/(s+1) and a known variance.
    s, total = curve.sizes, 10_000
    np.testing.assert_allclose(curve.mean, (total + 1) / (s + 1), rtol=1e-8)
    variance = s * (total + 1) * (total - s) / ((s + 1.0) ** 2 * (s + 2))
    np.testing.assert_allclose(curve.deviation, np.sqrt(variance), rtol=1e-6, atol=1e-6)


def test_best_so_far_waits_for_the_first_model() -> None:
    found = best_so_far(np.array([np.nan, np.inf, 0.4, 0.5, np.nan, 0.2]))
    np.testing.assert_array_equal(found, [np.nan, np.nan, 0.4, 0.4, 0.4, 0.2])


def test_a_diverged_trial_counts_as_the_worst_even_if_it_had_a_score() -> None:
    diverged = Trial(0, None, {}, "diverged", 0.1)  # type: ignore[arg-type]
    assert scores_of([diverged, *_trials([0.3])], 0.9).tolist() == [0.9, 0.3]


def test_noise_is_that_of_simulated_scores() -> None:
    draw = np.random.default_rng(1)
    errors = (draw.random((4000, 500)) < 0.1).mean(1)
    assert noise_of(0.1, 500) == pytest.approx(errors.std(), rel=0.06)
    normal = draw.normal(0.0, 0.7, (4000, 500))
    assert noise_of(0.49, 500, "squared") == pytest.approx((normal**2).mean(1).std(), rel=0.06)
    absolute = np.abs(normal).mean(1)
    assert noise_of(float(absolute.mean()), 500, "absolute") == pytest.approx(absolute.std(), rel=0.06)
    assert noise_of(2.0, 500, "loss") == pytest.approx(draw.exponential(2.0, (4000, 500)).mean(1).std(), rel=0.06)
    assert noise_of(0.0, 500) > 0  # no error seen is not no error
    with pytest.raises(RequestError, match="'accuracy'"):
        noise_of(0.1, 500, "accuracy")


def test_the_stop_rule_ends_where_a_doubling_gains_half_the_noise() -> None:
    # The best of s uniform numbers is 1/(s+1) on average: doubling to S gained about 1/S, so 0.5 · 0.01 is at S = 200.
    ends = []
    for seed in range(20):
        scores = np.random.default_rng(seed).random(1000)
        trials = _trials(scores)
        ends.append(next(s for s in range(16, 1000, 4) if not worth_going_on(trials[:s], worst=1.0, noise=0.01)))
    assert 60 < np.median(ends) < 400
    assert min(ends) >= LEAST_TRIALS


def test_the_advice_compares_the_expected_gain_with_the_noise() -> None:
    scores = np.random.default_rng(0).uniform(0.02, 0.5, 64)
    trials = _trials(scores)
    half = expected_best(scores, 0.9, (32,)).mean[0]
    found = advice(trials, worst=0.9, noise=0.001, scale=ScoreScale("error"))
    assert found.go_on
    assert found.trials == 64
    assert found.expected_gain == pytest.approx(half - scores.min())
    assert f"32 trials reach {percent(half)} on average" in found.sentence
    assert "±0.1 points" in found.sentence
    assert not advice(trials, worst=0.9, noise=0.1).go_on
    assert "hardly worth it" in advice(trials, worst=0.9, noise=0.1).sentence


def test_trials_that_look_back_are_judged_by_the_best_so_far() -> None:
    falling = np.linspace(0.5, 0.1, 40)
    found = advice(_trials(falling), worst=0.9, noise=0.001, independent=False)
    assert found.go_on
    assert "not independent draws" in found.sentence
    assert "at trial 40, 0 trials ago" in found.sentence
    stuck = np.concatenate([falling[:12], np.full(28, falling[11] - 1e-4)])  # the last step is too small to be seen
    found = advice(_trials(stuck), worst=0.9, noise=0.001, independent=False)
    assert not found.go_on
    assert "at trial 12, 28 trials ago" in found.sentence
    # A trial that continues another is no draw either, whatever the strategy says.
    continued = [*_trials(stuck)[:-1], Trial(39, None, {}, "finished", 0.3, continues=3)]  # type: ignore[arg-type]
    assert "not independent draws" in advice(continued, worst=0.9, noise=0.001).sentence


def test_the_advice_knows_when_it_cannot_judge() -> None:
    few = advice(_trials([0.2, 0.3, 0.4]), worst=0.9, noise=0.01)
    assert few.go_on
    assert "too few" in few.sentence
    none = advice(_trials([math.nan] * 20), worst=0.9, noise=0.01)
    assert not none.go_on
    assert "none of the 20 trials produced a model" in none.sentence
    perfect = advice(_trials([0.0, *[0.2] * 20]), worst=0.9, noise=0.01)
    assert not perfect.go_on
    assert "cannot improve on that" in perfect.sentence
    later = [*_trials([0.2] * 20), Trial(20, None, {}, "finished", 0.01, phase="finalist")]  # type: ignore[arg-type]
    assert advice(later, worst=0.9, noise=0.01).trials == 20


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(RequestError, match="no trials"):
        expected_best(np.array([]), 0.9)
    with pytest.raises(RequestError, match="1 to 3"):
        expected_best(np.array([0.1, 0.2, 0.3]), 0.9, (4,))
    with pytest.raises(RequestError, match="expected paired scores"):
        expected_of_best(np.array([0.1, 0.2]), np.array([0.1]), 0.9)
    with pytest.raises(RequestError, match="no trial has a score"):
        expected_best(np.array([np.nan]), math.nan)
