"""The Pareto front against brute force, rank correlations against SciPy's."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gradwise.evaluation.trials.cost import (
    cheapest_within,
    compare_short_runs,
    pareto_front,
    rank_correlation,
    short_run_correlation,
)
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
    assert cheapest_within(trials, 0.02) is trials[1]
    assert cheapest_within(trials, 0.007) is trials[3]
    assert cheapest_within(trials, 0.0) is trials[0]
    assert cheapest_within([_trial(0, math.nan, 1)], 0.1) is None
    # Of networks of one size the one that took less training.
    ages = [dataclasses.replace(trials[1], number=n, age_examples=age) for n, age in ((7, 900), (8, 300))]
    assert cheapest_within([*trials, *ages, dataclasses.replace(ages[1], number=9, score=0.2)], 0.02) == trials[1]
    assert cheapest_within([trials[0], *ages], 0.02) is ages[1]
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


def _run(number: int, scores: list[float], *, every: int = 100, **fields: Any) -> Trial:
    """A trial validated every so many examples, the best of whose scores is its own."""
    curve = {"age_examples": [every * (place + 1) for place in range(len(scores))], "valid_score": scores}
    known = {"age_examples": every * len(scores), "curve": curve, **fields}
    return Trial(number, None, {}, "finished", min(scores), **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(("noise", "useful", "said"), [(0.0, True, "similar trials"), (9.0, True, "do not identify")])
def test_runs_of_a_third_of_the_length_are_compared_with_full_ones(noise: float, useful: bool, said: str) -> None:
    draw = np.random.default_rng(2)
    ends = draw.permutation(40) / 100 + 0.1
    early = ends + noise * draw.permutation(40) + 0.5
    pairs = zip(early, ends, strict=True)
    trials = [_run(n, [e + 0.2, e, e, end + 0.1, end + 0.05, end]) for n, (e, end) in enumerate(pairs)]
    found = compare_short_runs(trials)
    assert found is not None
    assert found.ages == (60, 120, 200, 300, 400)
    assert found.full_age == 600
    for age, correlation in zip(found.ages, found.correlations, strict=True):
        assert correlation == short_run_correlation(trials, age)
    third = stats.spearmanr(early, ends).statistic
    assert found.correlations[2].value == pytest.approx(third)
    assert f"correlation of {third:.2f}" in found.sentence
    assert said in found.sentence
    assert found.useful is useful
    alike = compare_short_runs(trials, noise=1.0)
    assert alike is not None
    assert not alike.useful
    assert alike.sentence.startswith("the trials differ by less than the uncertainty of one score")
    assert [one.count for one in found.correlations] == [0, 40, 40, 40, 40]  # nobody was validated at 60 examples


def test_the_rungs_of_halving_are_compared_trial_by_trial() -> None:
    draw = np.random.default_rng(3)
    first = draw.random(30)
    trials = [_run(n, [s], examples=100) for n, s in enumerate(first)]
    best = np.argsort(first)[:10]
    later = first[best] + 0.05 * draw.random(10)
    on = zip(best, later, strict=True)
    trials += [_run(30 + k, [1.0, s], examples=300, continues=int(n)) for k, (n, s) in enumerate(on)]
    trials += [_run(40 + k, [1.0, 0.01 * k], examples=900, continues=int(best[k])) for k in range(2)]
    found = compare_short_runs([*trials, _run(50, [0.0], phase="finalist")])
    assert found is not None
    assert (found.ages, found.full_age) == ((100,), 300)  # two at the end are too few to rank
    assert found.correlations[0].count == 10
    assert found.correlations[0].value == pytest.approx(stats.spearmanr(first[best], later).statistic)
    assert found.sentence.startswith("runs of 100 of 300 examples rank 10 trials like full runs")


def test_too_little_to_compare_says_so_or_nothing() -> None:
    assert compare_short_runs([]) is None
    assert compare_short_runs([_trial(0, 0.1, 5)]) is None
    found = compare_short_runs([_run(n, [0.5, 0.4 - n / 10]) for n in range(3)])
    assert found is not None
    assert not found.useful
    assert "too few to tell" in found.sentence
