"""Error against cost, and how far a cheap estimate can be trusted (row E15).

pareto_front(trials, "parameters").front           no trial is both smaller and better than these
cheapest_within(trials, slack=0.004)               the cheapest trial that cannot be told from the best
short_run_correlation(trials, age=50_000).value    would runs of 50 000 examples have ranked the trials alike?
compare_short_runs(trials).sentence                the same of a third of the length, or of the rungs of halving
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...records.study_analysis import RankCorrelation, ShortRuns
from ...records.trial import Trial
from ...runtime.errors import RequestError, nearest
from ..metrics import bootstrap_interval

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


def pareto_front(trials: Sequence[Trial], cost: str) -> ParetoFront:
    """The front of score against a cost: from the cheapest trial on, each that is better than all cheaper ones."""
    if cost not in COSTS:
        raise RequestError(f"unknown cost `{cost}` of a trial.{nearest(cost, COSTS)}")
    ok = [trial for trial in trials if trial.ok]
    costs = np.array([getattr(trial, cost) for trial in ok], dtype=np.float64)
    scores = np.array([trial.score for trial in ok], dtype=np.float64)
    order = np.lexsort((scores, costs))
    below = np.minimum.accumulate(scores[order]) if len(ok) else scores
    first = np.diff(below, prepend=np.inf) < 0
    return ParetoFront(cost, np.array([trial.number for trial in ok], dtype=np.int64), costs, scores, order[first])


def cheapest_within(trials: Sequence[Trial], slack: float) -> Trial | None:
    """The cheapest trial whose score lies within `slack` of the best, with `slack` the standard error of the best.

    Cheap to use comes first (`parameters`), cheap to train second (`age_examples`): seconds depend on the machine.
    """
    ok = [trial for trial in trials if trial.ok]
    if not ok:
        return None
    bound = min(trial.score for trial in ok) + slack
    near = (trial for trial in ok if trial.score <= bound)
    return min(near, key=lambda t: (t.parameters, t.age_examples, t.score, t.loss, t.number))


def _spearman(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    """Spearman's correlation along an axis, ties at their middle rank; NaN where all are alike."""
    from scipy.stats import rankdata

    a, b = (rankdata(values, axis=axis) - (values.shape[axis] + 1) / 2 for values in (first, second))
    size = np.sqrt((a**2).sum(axis) * (b**2).sum(axis))
    return np.divide((a * b).sum(axis), size, out=np.full(size.shape, np.nan), where=size > 0)


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
    value = float(_spearman(cheap, full))
    resamples = min(resamples, max(100, 1_000_000 // count))  # with many trials the interval is narrow anyway
    low, high = bootstrap_interval(_spearman, cheap, full, resamples=resamples, vectorized=True, seed=seed)
    return RankCorrelation(value, low, high, count)


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


_SHARES = (0.1, 0.2, 1 / 3, 0.5, 2 / 3)  # of the longest run, where there are no rungs
_ASKED = 2  # of these, the one that the sentence is about
_TRUSTED = 0.7  # a rank correlation from which on the best of short runs are mostly the best of full ones
_LEAST = 8  # trials needed for a rank correlation


def _judge(what: str, found: RankCorrelation, scores: Sequence[float], noise: float) -> tuple[str, bool]:
    """The sentence about an age, and whether its interval decides."""
    if np.std(scores) < noise:
        return "the trials differ by less than the uncertainty of one score, so they cannot be ranked.", False
    if found.count < _LEAST or not np.isfinite(found.value):
        return f"{what}: {found.count} trials are too few to tell whether short runs rank them like full runs.", False
    told = f"{what} rank {found.count} trials like full runs, with a correlation of {found.value:.2f} (95 % confidence "
    told += f"interval {found.low:.2f} to {found.high:.2f})"
    if found.low >= _TRUSTED:
        return f"{told}: they would have chosen similar trials.", True
    if found.high < _TRUSTED:
        return f"{told}: they do not identify the best trial.", True
    return f"{told}: that is too uncertain to rely on.", False


def compare_short_runs(trials: Sequence[Trial], *, noise: float = 0.0) -> ShortRuns | None:
    """The rank correlation of short runs with full ones (row E15); None if no trial has a short and a full score.

    Where trials have several lengths, as the rungs of successive halving, those that went on are compared with their
    own beginnings: the best of them, so that a correlation is lower than among all. Elsewhere every trial's own curve
    is its short run, up to a third of the longest one. `noise` is the standard error of one score.
    """
    searched = [trial for trial in trials if trial.phase == "search" and trial.ok]
    by_rung: dict[int, dict[int, Trial]] = {}
    for trial in searched:
        if trial.examples is not None:
            by_rung.setdefault(trial.examples, {})[trial.randomness] = trial
    if len(by_rung) > 1:
        ages = sorted(by_rung)
        most = max(ages[1:], key=lambda age: len(by_rung[age]))
        full_age = max((age for age in ages[1:] if len(by_rung[age]) >= _LEAST), default=most)
        full = by_rung[full_age]
        ages = [age for age in ages if age < full_age]
        found = []
        for age in ages:
            both = sorted(full.keys() & by_rung[age].keys())
            short, long = (np.array([rung[n].score for n in both]) for rung in (by_rung[age], full))
            found.append(rank_correlation(short, long))
        judged, asked, what = [*full.values()], 0, f"runs of {ages[0]:,} of {full_age:,} examples"
    else:
        curved = [trial for trial in searched if len(trial.curve.get("age_examples", ())) > 1]
        if not curved:
            return None
        full_age = max(trial.age_examples for trial in curved)
        ages = [round(share * full_age) for share in _SHARES]
        found = [short_run_correlation(curved, age) for age in ages]
        judged, asked, what = curved, _ASKED, "runs of a third of the length"
    said = _judge(what, found[asked], [trial.score for trial in judged], noise)
    return ShortRuns(tuple(ages), tuple(found), full_age, *said)
