"""Error against cost, and how far a cheap estimate can be trusted (row E15).

pareto(trials, "parameters").front                 no trial is both smaller and better than these
short_run_correlation(trials, age=50_000).value    would runs of 50 000 examples have ranked the trials alike?
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...records.trial import Trial
from ...runtime.errors import RequestError, nearest

# What a trial costs: time and examples to train it, numbers in the network to use it.
COSTS = ("seconds", "age_examples", "parameters")


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """Every comparable trial by cost and score; `front` indexes those that none beats in both, cheapest first."""

    cost: str  # "seconds", "age_examples" or "parameters"
    numbers: np.ndarray
    costs: np.ndarray
    scores: np.ndarray
    front: np.ndarray


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation with a 95 % bootstrap interval; not-a-number where it is not defined."""

    value: float
    low: float
    high: float
    count: int


def pareto_front(trials: Sequence[Trial], cost: str) -> ParetoFront:
    """The front of score against a cost: from the cheapest trial on, each that is better than all cheaper ones."""
    if cost not in COSTS:
        raise RequestError(f"a trial has no cost `{cost}`.{nearest(cost, COSTS)}")
    ok = [trial for trial in trials if trial.ok]
    costs = np.array([getattr(trial, cost) for trial in ok], dtype=np.float64)
    scores = np.array([trial.score for trial in ok], dtype=np.float64)
    order = np.lexsort((scores, costs))
    below = np.minimum.accumulate(scores[order]) if len(ok) else scores
    first = np.diff(below, prepend=np.inf) < 0
    return ParetoFront(cost, np.array([trial.number for trial in ok], dtype=np.int64), costs, scores, order[first])


def cheapest_within(front: ParetoFront, slack: float) -> int | None:
    """The number of the cheapest trial that is at most `slack` worse than the best; None without trials.

    With the noise of one validation score as slack it is the choice by cost among those that cannot be told apart.
    """
    if not len(front.front):
        return None
    near = front.front[front.scores[front.front] <= front.scores.min() + slack]
    return int(front.numbers[near[0]])


def _spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each row, ties at their middle rank; not-a-number where a row is all alike."""
    from scipy.stats import rankdata

    a, b = (rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2 for rows in (first, second))
    size = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.divide((a * b).sum(axis=1), size, out=np.full(len(size), np.nan), where=size > 0)


def rank_correlation(cheap: np.ndarray, full: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> RankCorrelation:
    """How alike a cheap and a full estimate rank the trials; pairs with a number that is not finite are left out."""
    cheap, full = np.asarray(cheap, dtype=np.float64), np.asarray(full, dtype=np.float64)
    if cheap.shape != full.shape or cheap.ndim != 1:
        raise RequestError(f"a rank correlation needs pairs; got shapes {cheap.shape} and {full.shape}.")
    seen = np.isfinite(cheap) & np.isfinite(full)
    cheap, full = cheap[seen], full[seen]
    count = len(cheap)
    if count < 3:
        return RankCorrelation(np.nan, np.nan, np.nan, count)
    value = float(_spearman(cheap[None], full[None])[0])
    draw = np.random.default_rng(seed)
    found = []
    resamples = min(resamples, max(100, 1_000_000 // count))  # with many trials the interval is narrow anyway
    at_once = max(1, 1_000_000 // count)
    for start in range(0, resamples, at_once):
        rows = draw.integers(0, count, (min(at_once, resamples - start), count))
        found.append(_spearman(cheap[rows], full[rows]))
    values = np.concatenate(found) if found else np.zeros(0)
    values = values[np.isfinite(values)]  # a resample may hold one trial only
    low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (np.nan, np.nan)
    return RankCorrelation(value, float(low), float(high), count)


def _score_at(trial: Trial, age: int) -> float:
    """The best validation score up to an age: what a run of that length would have been given."""
    ages, scores = (np.asarray(trial.curve.get(name, ()), dtype=np.float64) for name in ("age_examples", "valid_score"))
    if len(ages) != len(scores):
        return np.nan
    seen = scores[(ages <= age) & np.isfinite(scores)]
    return float(seen.min()) if len(seen) else np.nan


def short_run_correlation(
    trials: Sequence[Trial], age: int, *, resamples: int = 1000, seed: int = 0
) -> RankCorrelation:
    """Would shorter runs have ranked the trials alike? Read off the curves of the trials that left a model.

    A trial that ended before that age counts with its end: a short run would have been the same run.
    """
    ok = [trial for trial in trials if trial.ok and trial.curve]
    short = np.array([_score_at(trial, age) for trial in ok], dtype=np.float64)
    final = np.array([trial.score for trial in ok], dtype=np.float64)
    return rank_correlation(short, final, resamples=resamples, seed=seed)
