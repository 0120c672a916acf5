"""Where stochastic and batch methods break even (row H9): on one training set, and over sizes of training sets.

    at, until = overtaking((seconds, losses), (batch_seconds, batch_losses))
    at                      from then on the second method's best so far is the lower one, up to `until`
    seconds = time_to(curve_seconds, curve_errors, target)
    found = break_even_size(examples, stochastic_seconds, batch_seconds)
    found.examples          the number of examples from which on the stochastic method gets there first

Batch methods win on small sets, where a pass is cheap and the last digits count; a stochastic method has learned most
of what a redundant set teaches before its first pass is over. Sizes are compared on logarithmic scales.
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


Line = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]  # a clock that increases, and values


def running_minimum(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The lowest value up to each place; what is not a number counts as infinite."""
    found = np.asarray(values, np.float64)
    lowest: np.ndarray = np.minimum.accumulate(np.where(np.isnan(found), np.inf, found))
    return lowest


def overtaking(first: Line, second: Line, stays: tuple[bool, bool] = (False, False)) -> tuple[float, float]:
    """When the second line's best so far falls below the first's for good, and up to when both are known.

    It is infinite if the second is not below at the end of what is known, and 0 if it is never above. A line that
    `stays` keeps its last value beyond its end. Between two points a line is straight.
    """
    for clock, values in (first, second):
        if len(clock) != len(values) or not len(clock) or np.any(np.diff(clock) < 0):
            raise RequestError("a line needs at least one point, a value for each, and a clock that does not go back.")
    lines = [(np.asarray(clock, np.float64), running_minimum(values)) for clock, values in (first, second)]
    ends = [clock[-1] for (clock, _), still in zip(lines, stays, strict=True) if not still]
    until = float(min(ends) if ends else max(clock[-1] for clock, _ in lines))
    grid = np.unique(np.concatenate([*(clock[clock <= until] for clock, _ in lines), [until]]))
    one, two = (np.interp(grid, clock, values) for clock, values in lines)
    with np.errstate(invalid="ignore"):
        lead = np.nan_to_num(two - one, nan=0.0)  # below 0 the second is ahead
    if lead[-1] >= 0:
        return math.inf, until
    behind = np.flatnonzero(lead > 0)
    if not len(behind):
        return 0.0, until
    last = int(behind[-1])
    if not math.isfinite(lead[last]):
        return float(grid[last + 1]), until
    part = lead[last] / (lead[last] - lead[last + 1])
    return float(grid[last] + (grid[last + 1] - grid[last]) * part), until


@dataclass(frozen=True)
class BreakEvenSize:
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


def break_even_size(
    examples: Sequence[float],
    first: Sequence[float],
    second: Sequence[float],
    names: tuple[str, str] = ("stochastic", "batch"),
) -> BreakEvenSize:
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
        return BreakEvenSize(math.nan, winners[-1], winners[-1])
    place = int(turns[-1])
    part = lead[place] / (lead[place] - lead[place + 1])
    crossing = sizes[place] * (sizes[place + 1] / sizes[place]) ** part
    return BreakEvenSize(float(crossing), winners[place], winners[place + 1])
