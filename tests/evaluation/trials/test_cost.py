"""The Pareto front against brute force, rank correlations against SciPy's."""

import math

import numpy as np
import pytest
from scipy import stats

from gradwise.evaluation.trials.cost import cheapest_within, pareto_front, rank_correlation, short_run_correlation
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError


def _trial(number: int, score: float, parameters: int = 0, curve: dict[str, list[float]] | None = None) -> Trial:
    outcome = "finished" if math.isfinite(score) else "diverged"
    return Trial(number, None, {}, outcome, score, parameters=parameters, curve=curve or {})  # type: ignore[arg-type]


def test_the_front_holds_exactly_those_that_none_dominates() -> None:
    draw = np.random.default_rng(0)
    trials = [_trial(n, round(float(draw.random()), 2), int(draw.integers(1, 50))) for n in range(120)]
    trials.append(_trial(120, math.nan, 0))
    found = pareto_front(trials, "parameters")
    assert len(found.scores) == 120
    points = list(zip(found.costs, found.scores, strict=True))
    undominated = {(c, s) for c, s in points if not any((a <= c and b <= s) and (a < c or b < s) for a, b in points)}
    on_front = [points[i] for i in found.front]
    assert set(on_front) == undominated
    assert on_front == sorted(on_front)
    assert len(on_front) == len(undominated)  # of equals one is enough


def test_the_cheapest_within_the_noise_is_chosen() -> None:
    trials = [_trial(3, 0.10, 1000), _trial(4, 0.11, 50), _trial(5, 0.30, 10), _trial(6, 0.105, 60)]
    front = pareto_front(trials, "parameters")
    assert cheapest_within(front, 0.02) == 4
    assert cheapest_within(front, 0.0) == 3
    assert cheapest_within(pareto_front([], "seconds"), 0.1) is None
    with pytest.raises(RequestError, match="Did you mean 'seconds'"):
        pareto_front(trials, "second")


def test_the_rank_correlation_is_scipys_with_an_interval_that_covers() -> None:
    draw = np.random.default_rng(1)
    covered = 0
    true = 6 / math.pi * math.asin(0.7 / 2)  # Spearman's correlation of a normal pair with correlation 0.7
    for seed in range(60):
        x = draw.normal(size=60)
        y = 0.7 * x + math.sqrt(1 - 0.49) * draw.normal(size=60)
        found = rank_correlation(x, y, resamples=300, seed=seed)
        assert found.value == pytest.approx(stats.spearmanr(x, y).statistic)
        covered += found.low < true < found.high
    assert covered >= 51
    tied = rank_correlation(np.array([1.0, 1, 2, 3, np.nan]), np.array([2.0, 1, 2, 5, 0]), resamples=50)
    assert tied.value == pytest.approx(stats.spearmanr([1, 1, 2, 3], [2, 1, 2, 5]).statistic)
    assert tied.count == 4


def test_what_is_not_defined_is_not_a_number() -> None:
    assert math.isnan(rank_correlation(np.array([1.0, 2.0]), np.array([1.0, 2.0])).value)
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)).value)
    with pytest.raises(RequestError, match="needs pairs"):
        rank_correlation(np.ones(5), np.ones(4))


def test_a_short_run_is_the_running_minimum_at_its_age() -> None:
    scores = [[0.9, 0.5, 0.6, 0.10], [0.9, 0.4, 0.3, 0.20], [0.8, 0.3, 0.3, 0.25], [0.7, 0.2, np.nan, np.nan]]
    trials = [
        _trial(n, float(np.nanmin(line)), curve={"age_examples": [0.0, 100, 200, 300], "valid_score": line})
        for n, line in enumerate(scores)
    ]
    trials += [_trial(4, math.nan), _trial(5, 0.4)]  # diverged; without a curve
    found = short_run_correlation(trials, 250, resamples=100)
    assert found.count == 4
    known = stats.spearmanr([0.5, 0.3, 0.3, 0.2], [0.10, 0.20, 0.25, 0.2]).statistic
    assert found.value == pytest.approx(known)
    assert short_run_correlation(trials, 300, resamples=100).value == pytest.approx(1.0)
    assert short_run_correlation(trials, -1).count == 0
