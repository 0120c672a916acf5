"""How well classes are told apart at every threshold on their probability: what ROC and precision-recall curves show.

ranking = Ranking(targets == k, probabilities[:, k])      one class against the rest
ranking.auc(weights), ranking.average_precision(weights)
gather_curves(names, targets_of_each, probabilities)      the points to draw, few enough to be kept
"""

import math
from collections.abc import Sequence

import numpy as np

from ..records.evidence.fit_evidence import ThresholdCurve

_CURVES = 10  # beyond it lines cannot be told apart, and a record should stay small
_POINTS = 120  # of a curve: a picture is about 300 pixels wide


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Part / whole; nothing of nothing is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


class Ranking:
    """The examples of one class or label among all, in the order of their scores."""

    def __init__(self, positive: np.ndarray, scores: np.ndarray):
        self._positive = positive
        self._rank = np.unique(scores, return_inverse=True)[1]

    def counts(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weight of the positive and of the other examples at each score, the lowest first."""
        positive = np.bincount(self._rank, weights * self._positive)
        return positive, np.bincount(self._rank, weights * ~self._positive)

    def auc(self, weights: np.ndarray) -> float:
        """Probability that a positive example outranks a negative one, ties counted half, each pair by its weights."""
        positive, negative = self.counts(weights)
        pairs = positive.sum() * negative.sum()
        below = np.cumsum(negative) - negative / 2
        return float((positive * below).sum() / pairs) if pairs > 0 else math.nan

    def average_precision(self, weights: np.ndarray) -> float:
        """The mean over positive examples of the precision among all that score at least as high."""
        positive, negative = (each[::-1] for each in self.counts(weights))
        found = np.cumsum(positive)
        precision = ratio(found, found + np.cumsum(negative))
        return float((positive * precision).sum() / found[-1]) if found[-1] > 0 else math.nan


def _thinned(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Which points to keep: the ends, and between them points about equally far apart along all curves together."""
    count = len(columns[0])
    if count <= _POINTS:
        return np.arange(count)
    length = np.append(0.0, np.cumsum(sum(np.abs(np.diff(values)) for values in columns)))
    wanted = np.searchsorted(length, np.linspace(0.0, length[-1], _POINTS - 2))
    return np.unique([0, *np.minimum(wanted, count - 1), count - 1])


def _curve(name: str, positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> ThresholdCurve:
    ranking = Ranking(positive, scores)
    found, taken = (np.cumsum(each[::-1]) for each in ranking.counts(weights))
    true, false = found / found[-1], taken / taken[-1]
    precision = ratio(found, found + taken)
    kept = _thinned((false, true, precision))
    false, true, precision = (np.round(values[kept], 4) for values in (false, true, precision))
    return ThresholdCurve(
        name,
        count=int(positive.sum()),
        false_positive=tuple(false.tolist()),
        true_positive=tuple(true.tolist()),
        precision=tuple(precision.tolist()),
        auc=ranking.auc(weights),
        average_precision=ranking.average_precision(weights),
    )


def gather_curves(
    names: Sequence[str], positive: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> tuple[ThresholdCurve, ...]:
    """A curve for each class or label against the rest; of many, of those with the lowest AUC.

    `positive` (n, k) says which examples are of which class. Classes that all examples have, or none, have no curve.
    """
    counted = np.ones(len(positive)) if weights is None else np.asarray(weights, np.float64)
    if not np.isfinite(probabilities).all():
        return ()
    drawn = [k for k in range(len(names)) if 0 < counted @ positive[:, k] < counted.sum()]
    curves = [_curve(names[k], positive[:, k], probabilities[:, k], counted) for k in drawn]
    worst = sorted(range(len(curves)), key=lambda place: curves[place].auc)[:_CURVES]
    return tuple(curves[place] for place in sorted(worst))
