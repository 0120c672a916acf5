"""The choice of the mini-batch size from what each size took to reach the same score (rows B4, C5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.errors import RequestError
from ..break_even import time_to


@dataclass(frozen=True, eq=False)
class BatchCurve:
    """The validation score of one batch size against seconds and against examples seen."""

    size: int
    seconds: np.ndarray
    examples: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, eq=False)
class BatchSizeCurve:
    """The U-curve: for each batch size, smallest first, what it took to reach the target.

    Where the target was not `reached`, `seconds` and `examples` are what was spent: the truth is more.
    """

    target: float
    sizes: np.ndarray
    seconds: np.ndarray
    examples: np.ndarray
    best: np.ndarray
    reached: np.ndarray
    recommended: int


def _spent(cost: np.ndarray, best: np.ndarray, target: float) -> float:
    """The cost at which a running minimum first meets the target; all that was spent if it never does."""
    return float(cost[-1]) if best[-1] > target else time_to(cost, best, target)


def best_batch_size(curves: Sequence[BatchCurve], target: float | None = None) -> BatchSizeCurve:
    """The batch size that reaches a common validation score in the least time.

    Without a target it is the best score that at least half of the sizes reach: one that all reach would be reached
    early and say little of the end, one that a single size reaches would compare nothing.
    """
    usable = sorted((curve for curve in curves if np.isfinite(curve.scores).any()), key=lambda curve: curve.size)
    if not usable:
        raise RequestError("nothing to compare: no batch size has a validation curve.")
    running = []
    for curve in usable:
        finite = np.where(np.isfinite(curve.scores), curve.scores, np.inf)
        running.append(np.minimum.accumulate(finite))
    best = np.array([line[-1] for line in running])
    aim = float(np.sort(best)[len(best) // 2]) if target is None else float(target)
    reached = best <= aim
    seconds = np.array([_spent(c.seconds, line, aim) for c, line in zip(usable, running, strict=True)])
    examples = np.array([_spent(c.examples, line, aim) for c, line in zip(usable, running, strict=True)])
    sizes = np.array([curve.size for curve in usable])
    # Where none reached the target, the one that came nearest.
    place = int(np.where(reached, seconds, np.inf).argmin()) if reached.any() else int(best.argmin())
    return BatchSizeCurve(aim, sizes, seconds, examples, best, reached, int(sizes[place]))
