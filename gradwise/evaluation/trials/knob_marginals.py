"""One- and two-knob pictures and parallel coordinates of a study, as numbers (row E11).

    marginal(space, trials, "optimiser.learning_rate").minimum        the best score in each tenth of the prior
    pair(space, trials, "optimiser.learning_rate", "model.widths.each").mean

Every dimension is laid out from 0 to 1 in the scale of its prior, so that one picture serves rates, sizes and
categories. The mean over a cell shows what to expect with the other knobs left to chance, the minimum what can be had
once they are tuned; the two often disagree, and the minimum is the one to search by.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...records.trial import Trial
from ...specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from ...specs.search_space import Dimension, Space, label


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension laid out from 0 to 1 in the prior's own scale, cut into cells of equal width.

    Where it is not `numeric` each cell is a category, or one of a few whole numbers. An exact zero (of what may be
    off) is the first cell. `ticks` are places from 0 to 1 with their `tick_labels`; `labels` name the cells.
    """

    path: str
    numeric: bool
    logarithmic: bool
    zero: bool  # whether the first cell is an exact zero
    labels: tuple[str, ...]  # one for each cell
    edges: np.ndarray  # places from 0 to 1: one more than there are cells
    ticks: np.ndarray
    tick_labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Marginal:
    """Score against one knob: each trial where the knob is active, and the mean and minimum by cell.

    `places` lie on the axis from 0 to 1; `scores` are NaN for trials without a model. A cell without scores
    has NaN as mean and minimum; `count` are the trials with a model in it, `failed` those without.
    """

    axis: Axis
    numbers: np.ndarray  # the trials' numbers
    places: np.ndarray
    values: tuple[Any, ...]
    scores: np.ndarray
    mean: np.ndarray
    minimum: np.ndarray
    count: np.ndarray
    failed: np.ndarray


@dataclass(frozen=True, eq=False)
class PairMarginal:
    """Score against two knobs: the trials where both are active, and mean and minimum by cell [first, second]."""

    first: Axis
    second: Axis
    numbers: np.ndarray
    places: np.ndarray  # (trials, 2)
    scores: np.ndarray
    mean: np.ndarray
    minimum: np.ndarray
    count: np.ndarray
    failed: np.ndarray


@dataclass(frozen=True, eq=False)
class Parallel:
    """Each trial as a line across the axes: (trials, axes) places from 0 to 1, NaN where not active.

    `ranks` go from 0 (best) to 1 (worst); trials without a model have NaN.
    """

    axes: tuple[Axis, ...]
    numbers: np.ndarray
    places: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray


def _word(value: Any) -> str:
    """A value as the name of its cell: 64, 64.0 and NumPy's 64 are one."""
    value = label(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _few(dimension: Dimension, values: Sequence[Any], cells: int) -> tuple[str, ...]:
    """The names of the cells where each value is its own: categories, and whole numbers if they are few."""
    scale = dimension.scale
    if isinstance(scale, LogInteger) and scale.high - scale.low < cells:
        known = [str(value) for value in range(scale.low, scale.high + 1)]
    elif isinstance(scale, Choice):
        known = [_word(value) for value in scale.values]
    elif isinstance(scale, (Uniform, LogUniform, LogInteger)):
        return ()
    else:
        known = []  # a prior of the user's own: the values are all that is known of it
    if isinstance(dimension.prior, ZeroOr) and "0" not in known:
        known = ["0", *known]
    # A study that was merged or whose space has changed may hold values that the prior no longer has.
    return (*known, *sorted({_word(value) for value in values} - set(known)))


def _round_numbers(low: float, high: float) -> np.ndarray:
    """About five round numbers in an interval: steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * times for times in (1, 2, 5, 10) if (high - low) / (power * times) <= 6)
    return np.asarray(np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step)


def _decades(low: float, high: float) -> np.ndarray:
    """Powers of ten in an interval, thinned to at most six; with 2 and 5 between them where they are fewer than two."""
    exponents = np.arange(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    if len(exponents) >= 2:
        return np.asarray(10.0 ** exponents[:: math.ceil(len(exponents) / 6)])
    first = math.floor(math.log10(low))
    between = [times * 10.0**power for power in range(first, first + 3) for times in (1, 2, 5)]
    return np.array([value for value in between if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)] or [low, high])


def places_of(dimension: Dimension, values: Sequence[Any], axis: Axis) -> np.ndarray:
    """Where values lie on the axis, from 0 to 1; a category lies in the middle of its cell."""
    count = len(axis.labels)
    if not axis.numeric:
        middle = {name: (place + 0.5) / count for place, name in enumerate(axis.labels)}
        return np.array([middle[_word(value)] for value in values], dtype=np.float64)
    scale, zero = dimension.scale, int(axis.zero)
    places = (
        0.5 / count if zero and value == 0 else (zero + (count - zero) * scale.fraction(value)) / count
        for value in values
    )
    return np.fromiter(places, dtype=np.float64, count=len(values))


def axis_of(dimension: Dimension, values: Sequence[Any] = (), cells: int = 10) -> Axis:
    """The layout of one dimension; `values` are those to be placed on it, in case the prior does not have them all."""
    few = _few(dimension, values, cells)
    if few or not dimension.numeric:
        names = few or ("",)
        edges = np.linspace(0.0, 1.0, len(names) + 1)
        middles = (edges[:-1] + edges[1:]) / 2
        return Axis(dimension.path, False, dimension.logarithmic, False, names, edges, middles, names)
    scale: Any = dimension.scale
    zero = isinstance(dimension.prior, ZeroOr)
    cuts = [scale.quantile(fraction) for fraction in np.linspace(0.0, 1.0, cells + 1)]
    labels = [f"{low:.3g}–{high:.3g}" for low, high in itertools.pairwise(cuts)]
    names = ("0", *labels) if zero else tuple(labels)
    edges = np.linspace(0.0, 1.0, len(names) + 1)
    bare = Axis(dimension.path, True, dimension.logarithmic, zero, names, edges, np.zeros(0), ())
    marks = (_decades if dimension.logarithmic else _round_numbers)(scale.low, scale.high).tolist()
    marks = [0.0, *marks] if zero else marks
    written = tuple(f"{mark:g}" for mark in marks)
    return dataclasses.replace(bare, ticks=places_of(dimension, marks, bare), tick_labels=written)


def _scores(trials: Sequence[Trial]) -> np.ndarray:
    return np.array([trial.score if trial.ok else np.nan for trial in trials], dtype=np.float64)


def _numbers(trials: Sequence[Trial]) -> np.ndarray:
    return np.array([trial.number for trial in trials], dtype=np.int64)


def _cells_of(axis: Axis, places: np.ndarray) -> np.ndarray:
    count = len(axis.labels)
    return np.clip((places * count).astype(np.int64), 0, count - 1)


_Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _by_cell(cells: np.ndarray, scores: np.ndarray, count: int) -> _Table:
    """Mean, minimum, how many have a score and how many have none, in each cell."""
    ok = np.isfinite(scores)
    counted = np.bincount(cells[ok], minlength=count)
    total = np.bincount(cells[ok], scores[ok], minlength=count)
    mean = np.divide(total, counted, out=np.full(count, np.nan), where=counted > 0)
    minimum = np.full(count, np.nan)
    np.fmin.at(minimum, cells[ok], scores[ok])
    return mean, minimum, counted, np.bincount(cells[~ok], minlength=count)


def marginal(space: Space, trials: Sequence[Trial], path: str, *, cells: int = 0) -> Marginal:
    """Score against one knob. Without a number of cells, about the root of the number of trials, 3 to 10."""
    dimension = space[path]
    active = [trial for trial in trials if path in trial.values]
    values = tuple(trial.values[path] for trial in active)
    axis = axis_of(dimension, values, cells or min(10, max(3, round(math.sqrt(len(active))))))
    places, scores = places_of(dimension, values, axis), _scores(active)
    table = _by_cell(_cells_of(axis, places), scores, len(axis.labels))
    return Marginal(axis, _numbers(active), places, values, scores, *table)


def pair(space: Space, trials: Sequence[Trial], first: str, second: str, *, cells: int = 0) -> PairMarginal:
    """Score against two knobs at once, as points and as a table of cells [first, second]."""
    active = [trial for trial in trials if first in trial.values and second in trial.values]
    cells = cells or min(8, max(3, 1 + round(len(active) ** (1 / 3))))
    axes, places = [], []
    for path in (first, second):
        values = [trial.values[path] for trial in active]
        axes.append(axis_of(space[path], values, cells))
        places.append(places_of(space[path], values, axes[-1]))
    shape = (len(axes[0].labels), len(axes[1].labels))
    joint = _cells_of(axes[0], places[0]) * shape[1] + _cells_of(axes[1], places[1])
    scores = _scores(active)
    mean, minimum, count, failed = (part.reshape(shape) for part in _by_cell(joint, scores, shape[0] * shape[1]))
    both = np.stack(places, axis=1)
    return PairMarginal(axes[0], axes[1], _numbers(active), both, scores, mean, minimum, count, failed)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """From 0 for the best to 1 for the worst, ties at their middle; NaN without a score."""
    from scipy.stats import rankdata

    known = np.where(np.isfinite(scores), scores, np.nan)
    return (rankdata(known, nan_policy="omit") - 1) / max(1, int(np.isfinite(scores).sum()) - 1)


def parallel_coordinates(space: Space, trials: Sequence[Trial]) -> Parallel:
    """Each trial as a line across all dimensions."""
    axes = []
    places = np.full((len(trials), len(space.dimensions)), np.nan)
    for column, dimension in enumerate(space.dimensions):
        active = [row for row, trial in enumerate(trials) if dimension.path in trial.values]
        values = [trials[row].values[dimension.path] for row in active]
        axes.append(axis_of(dimension, values))
        places[active, column] = places_of(dimension, values, axes[-1])
    scores = _scores(trials)
    return Parallel(tuple(axes), _numbers(trials), places, scores, _ranks(scores))
