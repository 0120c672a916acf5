"""Where stochastic and batch methods break even (row H9): time to a given error against the number of examples.

    seconds = time_to(curve_seconds, curve_errors, target)
    found = break_even(examples, stochastic_seconds, batch_seconds)
    found.examples          the number of examples from which on the stochastic method gets there first

Batch methods win on small sets, where a pass is cheap and the last digits count; a stochastic method has learned most
of what a redundant set teaches before its first pass is over. Times are compared on logarithmic scales.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runtime.errors import RequestError


def time_to(seconds: Sequence[float] | np.ndarray, errors: Sequence[float] | np.ndarray, target: float) -> float:
    """When a curve first reaches the target: between two points on a straight line; infinite where it never does."""
    if len(seconds) != len(errors):
        raise RequestError(f"a curve needs one time per error; got {len(seconds)} and {len(errors)}.")
    for place, error in enumerate(errors):
        if error <= target:
            if place == 0 or not math.isfinite(errors[place - 1]):
                return float(seconds[place])
            before, begun = errors[place - 1], seconds[place - 1]
            return float(begun + (seconds[place] - begun) * (before - target) / (before - error))
    return math.inf


@dataclass(frozen=True)
class BreakEven:
    """The number of examples at which both take the same time; `below` and `above` say who wins there.

    `examples` is NaN if one of them always wins.
    """

    examples: float
    below: str
    above: str

    def __str__(self) -> str:
        if math.isnan(self.examples):
            return f"{self.below} is faster at every size that was tried"
        return f"{self.below} is faster below about {self.examples:,.0f} examples, {self.above} above"


def break_even(
    examples: Sequence[float],
    first: Sequence[float],
    second: Sequence[float],
    names: tuple[str, str] = ("stochastic", "batch"),
) -> BreakEven:
    """Where the curves of time to the target cross last; sizes that neither reached the target at are left out."""
    sizes = np.asarray(examples, np.float64)
    if not len(sizes) == len(first) == len(second):
        raise RequestError("give the time of each method for each number of examples.")
    if np.any(np.diff(sizes) <= 0):
        raise RequestError("the numbers of examples must increase.")
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    known = np.isfinite(one) | np.isfinite(two)
    if not known.any():
        raise RequestError("neither method reached the target at any size: choose an easier one.")
    sizes, one, two = sizes[known], one[known], two[known]
    with np.errstate(invalid="ignore"):
        lead = np.clip(np.log(one) - np.log(two), -50.0, 50.0)  # below 0 the first method is faster
    winners = [names[0] if value < 0 else names[1] for value in lead]
    turns = np.flatnonzero(np.sign(lead[:-1]) != np.sign(lead[1:]))
    if len(turns) == 0:
        return BreakEven(math.nan, winners[-1], winners[-1])
    place = int(turns[-1])
    part = lead[place] / (lead[place] - lead[place + 1])
    crossing = sizes[place] * (sizes[place + 1] / sizes[place]) ** part
    return BreakEven(float(crossing), winners[place], winners[place + 1])
