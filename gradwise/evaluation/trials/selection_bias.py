"""Unbiased estimates after selection (row E2); pure functions on numbers.

    corrected_for_selection(losses)                    the winner's score to expect on new data
    chosen = contenders(*mean_and_variance(losses))    the trials to be tested, once
    weighted_estimate(*valid, *test)                   the test score of "the best trial", whichever that is

`losses` has a row for each trial and a column for each example: 0 or 1 for right or wrong, or squared errors. Lower is
better everywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...records.study_analysis import Difference
from ...records.study_conclusions import WeightedEstimate
from ...runtime.errors import RequestError


@dataclass(frozen=True)
class Corrected:
    """The winner's validation score, and the score to expect on new data."""

    winner: int
    naive: float
    corrected: float
    optimism: float  # corrected - naive
    interval: tuple[float, float]


@dataclass(frozen=True)
class Nested:
    """The estimate of nested cross-validation: the mean over the outer folds with a 95 % confidence interval."""

    mean: float
    deviation: float  # of the mean
    low: float
    high: float
    folds: int


def mean_and_variance(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each trial's mean loss and the variance of that mean; for losses of 0 and 1 they are p and p(1−p)/(n−1)."""
    losses = np.asarray(losses, dtype=np.float64)
    if losses.ndim != 2 or losses.shape[1] < 2:
        raise RequestError(f"losses are (trials, two examples or more); got shape {losses.shape}.")
    return losses.mean(axis=1), losses.var(axis=1, ddof=1) / losses.shape[1]


def corrected_for_selection(scores: np.ndarray, resamples: int = 1000, seed: int = 0) -> Corrected:
    """The winner's mean loss, corrected for selection bias by bootstrapping the selection.

    Each resample draws the examples anew, chooses the best trial on those drawn and scores it on those left out; the
    mean of these scores is the corrected one. The interval is that of the resamples; each is scored on 37 % of the
    examples, so it is on the wide side. Rows that hold a number that is not finite are never chosen.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise RequestError(f"losses are (trials, two examples or more); got shape {scores.shape}.")
    rows = np.flatnonzero(np.isfinite(scores).all(axis=1))
    if not len(rows):
        raise RequestError("nothing to choose from: no trial has a loss for every validation example.")
    losses, examples = scores[rows], scores.shape[1]
    means = losses.mean(axis=1)
    winner = int(means.argmin())
    draw = np.random.default_rng(seed)
    at_once = max(1, 2_000_000 // examples)
    found: list[float] = []
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        places = draw.integers(0, examples, (count, examples)) + examples * np.arange(count)[:, None]
        drawn = np.bincount(places.ravel(), minlength=count * examples).reshape(count, examples).astype(np.float64)
        chosen = (drawn @ losses.T).argmin(axis=1)
        left = drawn == 0
        kept = left.sum(axis=1)
        total = np.where(left, losses[chosen], 0.0).sum(axis=1)
        found.extend((total[kept > 0] / kept[kept > 0]).tolist())
    corrected = float(np.mean(found))
    low, high = np.quantile(found, [0.025, 0.975])
    naive = float(means[winner])
    return Corrected(int(rows[winner]), naive, corrected, corrected - naive, (float(low), float(high)))


def winning_chances(
    valid_mean: np.ndarray, valid_variance: np.ndarray, draws: int = 20_000, seed: int = 0
) -> np.ndarray:
    """w_s = P(Z_s is the smallest), Z_s ~ N(mean, variance) independently, by Monte Carlo; exact ties share."""
    mean, variance = np.asarray(valid_mean, dtype=np.float64), np.asarray(valid_variance, dtype=np.float64)
    if mean.shape != variance.shape or mean.ndim != 1 or not len(mean):
        raise RequestError(f"expected a mean and a variance per trial; got shapes {mean.shape} and {variance.shape}.")
    known = np.isfinite(mean) & np.isfinite(variance)
    if not known.any():
        raise RequestError("nothing to choose from: no trial has a finite validation score.")
    mean, deviation = np.where(known, mean, 0.0), np.sqrt(np.where(known, variance, 0.0))
    draw = np.random.default_rng(seed)
    weights = np.zeros(len(mean))
    at_once = max(1, 1_000_000 // len(mean))
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        z = np.where(known, mean + deviation * draw.standard_normal((count, len(mean))), np.inf)
        least = z == z.min(axis=1, keepdims=True)
        weights += (least / least.sum(axis=1, keepdims=True)).sum(axis=0)
    return weights / draws


def contenders(valid_mean: np.ndarray, valid_variance: np.ndarray, least_weight: float = 1e-3) -> np.ndarray:
    """The trials whose chance of being the best is not negligible, most likely first: those worth a test pass."""
    weights = winning_chances(valid_mean, valid_variance)
    order = np.argsort(-weights, kind="stable")
    return order[weights[order] >= min(least_weight, float(weights.max()))]


def weighted_estimate(
    valid_mean: np.ndarray,
    valid_variance: np.ndarray,
    test_mean: np.ndarray,
    test_variance: np.ndarray,
    draws: int = 20_000,
    seed: int = 0,
) -> WeightedEstimate:
    """Bergstra and Bengio's estimate of the best trial's test score: each counts by its chance of being the best.

    mean μ = Σ w_s μ_s; variance Σ w_s (μ_s² + σ_s²) − μ², so that doubt about which is best widens it. It takes one
    test pass over the contenders, and no decision may follow it.
    """
    weights = winning_chances(valid_mean, valid_variance, draws, seed)
    means, variances = np.asarray(test_mean, dtype=np.float64), np.asarray(test_variance, dtype=np.float64)
    if not means.shape == variances.shape == weights.shape:
        raise RequestError(f"{len(weights)} trials were validated; got {means.shape} test means.")
    used = weights > 0
    mean = float(weights[used] @ means[used])
    spread = float(weights[used] @ ((means[used] - mean) ** 2 + variances[used]))
    return WeightedEstimate(mean, math.sqrt(spread), tuple(weights.tolist()))


def _t(probability: float, degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, degrees))


def paired_difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """First minus second, pair by pair (over seeds, folds or examples), with a 95 % t interval for the mean."""
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise RequestError(f"a paired comparison needs pairs; got shapes {first.shape} and {second.shape}.")
    differences = first - second
    count, mean = len(differences), float(differences.mean())
    if count < 2:
        return Difference(mean, math.nan, math.nan, count)
    half = _t(0.975, count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return Difference(mean, mean - half, mean + half, count)


def nested_estimate(values: Sequence[float], sizes: Sequence[int]) -> Nested:
    """The mean over the outer folds, weighted by their sizes, each value from a search that never saw its fold.

    The folds' training sets overlap, so their values are correlated; the variance of the mean is taken as
    (1/k + 1/(k−1)) times that of the values (Nadeau and Bengio's correction) instead of 1/k.
    """
    found, weights = np.asarray(values, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if found.shape != weights.shape or not len(found) or weights.min() <= 0:
        raise RequestError(f"expected a value and a positive size per fold; got {len(found)} and {len(weights)}.")
    folds, mean = len(found), float(np.average(found, weights=weights))
    if folds < 2:
        return Nested(mean, math.nan, math.nan, math.nan, folds)
    spread = float(np.average((found - mean) ** 2, weights=weights)) * folds / (folds - 1)
    deviation = math.sqrt((1 / folds + 1 / (folds - 1)) * spread)
    half = _t(0.975, folds - 1) * deviation
    return Nested(mean, deviation, mean - half, mean + half, folds)
