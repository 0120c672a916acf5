"""From the errors by number of examples to findings (row F2).

    find_growth(subject_growth(subject, key=key))              findings GW402, GW403

With more examples training error should rise gradually, since they are harder to memorise, and validation error
should fall, both by more than their noise.
"""

import math

import numpy as np

from ...records.finding import Finding
from ..codes import found
from .learning_curve import ErrorsBySize


def _find_rise(growth: ErrorsBySize, train: np.ndarray, error: np.ndarray, scale: float, place: str) -> list[Finding]:
    """A fall of training error beyond noise, or a jump of half of chance from one count to the next."""
    counts = growth.counts
    worst, pair = 0.0, (0, 0)
    for i in range(len(train)):
        for j in range(i + 1, len(train)):
            fall = train[i] - train[j] - 3 * math.hypot(error[i], error[j])
            worst, pair = (fall, (i, j)) if fall > worst else (worst, pair)
    step = "train on the added examples alone, one half at a time: some of them do not fit the rest"
    if worst > 0.1 * scale:
        i, j = pair
        what = (
            f"training error falls with more examples, from {train[i]:.3g} with {counts[i]:.0f} to {train[j]:.3g} with "
            f"{counts[j]:.0f}, but fewer should be easier to memorise."
        )
        easier = "train longer, or at a larger rate: a few examples must be memorised before many are"
        return [found("GW402", what, where=place, next=easier, **growth.numbers())]
    steps = np.diff(train) - 3 * np.hypot(error[1:], error[:-1])
    at = int(np.argmax(steps))
    gradual = float(np.log2(counts[at + 1] / counts[at]))  # a step of many doublings may be a large one
    if steps[at] > 0.5 * scale * max(1.0, gradual):
        what = (
            f"training error jumps from {train[at]:.3g} with {counts[at]:.0f} examples to {train[at + 1]:.3g} with "
            f"{counts[at + 1]:.0f}; it should rise gradually."
        )
        return [found("GW402", what, where=place, next=step, **growth.numbers())]
    return []


def find_growth(growth: ErrorsBySize | None, *, place: str = "") -> tuple[Finding, ...]:
    """Training error should rise gradually with more examples, validation error fall, by more than their noise."""
    if growth is None or len(growth.counts) < 2 or not np.isfinite([growth.train, growth.valid]).all():
        return ()
    train, valid = growth.train.mean(axis=1), growth.valid.mean(axis=1)
    of_train, of_valid = growth.errors
    scale = max(float(valid[0]), float(np.max(train)), 1e-30)  # with so few examples: about chance
    told = [*_find_rise(growth, train, of_train, scale, place)]
    fall, error = float(valid[0] - valid[-1]), float(np.hypot(of_valid[0], of_valid[-1]))
    easy = growth.metric == "error_rate" and valid[0] <= 0.05
    if fall <= max(2 * error, 1e-3 * abs(scale)) and not easy:
        what = (
            f"validation error does not fall with more examples: {valid[0]:.3g} with {growth.counts[0]:.0f}, "
            f"{valid[-1]:.3g} with {growth.counts[-1]:.0f} (standard error {error:.1g})."
        )
        step = "shuffle the targets of `train` and check again: if nothing changes, the inputs do not predict them"
        told.append(found("GW403", what, where=place, next=step, **growth.numbers()))
    return tuple(told)
