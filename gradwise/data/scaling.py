"""Scaling raw columns to inputs of similar scale (row D10): fitted on the training set, saved with the network.

    fitted = Automatic().fit(train.inputs, train.columns)
    inputs = fitted.apply(valid.inputs)                    # 32-bit, ready for the network
    spectrum = Chain((Logarithm(), Standardise(), Pca(variance=0.95)))

| scaler         | an input is                                                                      |
|----------------|----------------------------------------------------------------------------------|
| `NoScaling`    | the number itself                                                                |
| `Standardise`  | (x - mean) / deviation of its column                                             |
| `Robust`       | (x - median) / interquartile range of its column, smoothly clipped at a limit    |
| `Uniformise`   | its rank F(x) among the training values, 0 below and 1 above them                |
| `NormalScores` | the normal deviate of its rank, standardised; a straight line beyond the range   |
| `Logarithm`    | sign(x) log(1 + |x|), defined for zero and negative numbers too                  |
| `SquareRoot`   | sign(x) sqrt(|x|)                                                                |
| `Pixels`       | (x - mean) / deviation of all pixels together                                    |
| `UnitRange`    | (x - min) / (max - min), clipped to [0, 1]; per column or over all together      |
| `MaxAbs`       | x / max |x| of its column: zeros stay zeros, so sparse data stay sparse          |
| `Pca`          | principal components, by number or by explained variance                         |
| `OneHot`       | 1 for the row's category, 0 for the others                                       |
| `Categories`   | the same for columns of few values, a code for each of the others                |
| `Steps`        | a step of a sequence, through another scaler                                      |
| `Words`        | the number of each word of a text in a vocabulary                                |
| `Columns`      | one scaler per kind of column, with indicators of missing values                 |
| `Automatic`    | chosen by the kind of data                                                       |

A missing value is imputed with the centre of its column (the mean, the median or rank one half). A column that is
constant in the training set becomes 0 under every scaler that divides by a spread.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import equinox as eqx
import numpy as np

from ..runtime.errors import RequestError
from ..runtime.memory import row_blocks
from ..specs.contracts import AbstractScaler
from ..specs.dataset import Column, text_places
from ..specs.fitted_scaler import FittedScaler
from ..specs.knobs import check_whole, switch
from ..specs.priors import Choice, Uniform
from ..specs.trees.container import VECTOR
from .category_scaling import OneHot, check_table
from .column_statistics import (
    constant_note,
    knots_of,
    measure_in_blocks,
    measure_moments,
    measure_ranges,
    middle_of,
    moments_of,
    notes_on_missing,
    principal_axes,
    quartiles_of,
    spread_of,
)
from .count_scaling import LogCounts, are_counts
from .fitted_scalers import (
    Affine,
    Bounded,
    Chained,
    Interpolated,
    Logarithmic,
    OverNodes,
    OverSteps,
    Projection,
    Rooted,
    SideBySide,
    SmoothlyClipped,
)
from .input_kind import kind_of_inputs
from .text.vocabulary import Words

_KNOTS = 2**22  # most knots kept for all columns together


class NoScaling(AbstractScaler):
    """The numbers as they are, for data that are already scaled."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        middle = measure_ranges(inputs, columns)[2]
        return Affine(np.zeros(()), np.ones(()), middle.reshape(inputs.shape[1:]))


def _divisor(spread: np.ndarray) -> np.ndarray:
    """The divisor: infinity for a constant column, so that new values become 0 too."""
    return np.where(spread > 0, spread, np.inf)


class Standardise(AbstractScaler):
    """Each column to mean 0 and deviation 1."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        mean, deviation = measure_moments(inputs, columns)
        shape = inputs.shape[1:]
        note = constant_note(deviation == 0, columns)
        return Affine(mean.reshape(shape), _divisor(deviation).reshape(shape), np.zeros(()), notes=note)


class Robust(AbstractScaler):
    """The distance from the median in interquartile ranges, smoothly clipped at a limit.

    Outliers neither set the scale nor become large inputs. Where both quartiles are the same number, half of the
    column's range takes the place of the interquartile range. From RealMLP (Holzmueller, Grinsztajn, Steinwart 2024,
    Better by default: strong pre-tuned MLPs and boosted trees on tabular data).
    """

    limit: float = switch(
        3.0,
        allowed="(0, inf]",
        prior=Choice((1.5, 3.0, 6.0)),
        row="D10",
        about="the limit of the smooth clipping; inf: none",
    )

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        least, lower, median, upper, largest = measure_in_blocks(inputs, columns, quartiles_of)
        spread = 2 * spread_of(lower, upper)[1]
        spread = np.where(spread > 0, spread, spread_of(least, largest)[1])
        shape = inputs.shape[1:]
        note = constant_note(spread == 0, columns)
        return SmoothlyClipped(median.reshape(shape), _divisor(spread).reshape(shape), float(self.limit), notes=note)


class MaxAbs(AbstractScaler):
    """Each column divided by its largest absolute value; zeros stay zeros."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        low, high, _ = measure_ranges(inputs, columns)
        largest = np.maximum(np.abs(low), np.abs(high))
        return Affine(np.zeros(()), _divisor(largest).reshape(inputs.shape[1:]), np.zeros(()))


class UnitRange(AbstractScaler):
    """From 0 at the smallest training value to 1 at the largest, as binary units and cross-entropies need (row A7).

    Images share one range (`together`): a border pixel lit once would otherwise be as bright as the centre. The range
    of a sparse column holds 0.
    """

    together: bool = switch(False, allowed=(False, True), row="D10", about="one range for all columns together")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        low, high, middle = measure_ranges(inputs, columns)
        note = constant_note(low == high, columns)
        if self.together:
            low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
        spread = _divisor(high - low)
        shape = inputs.shape[1:]
        middle = (middle - low) / spread
        return Bounded(low.reshape(shape), spread.reshape(shape), middle.reshape(shape), notes=note)


class Pixels(AbstractScaler):
    """All pixels to one common mean 0 and deviation 1.

    A pixel means the same everywhere in the image. Scaled per column, a border pixel that is lit in three training
    images would get the largest inputs of all.
    """

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        means, deviations, present = measure_in_blocks(
            inputs, columns, lambda block: (*moments_of(block), np.count_nonzero(~np.isnan(block), axis=0))
        )
        weights = present / max(1, present.sum())
        mean = (weights * means).sum()
        deviation = np.sqrt((weights * (deviations**2 + (means - mean) ** 2)).sum())
        note = f"all pixels share one mean ({mean:.4g}) and one deviation ({deviation:.4g})"
        return Affine(np.asarray(mean), _divisor(deviation), np.zeros(()), notes=(note,))


class Logarithm(AbstractScaler):
    """sign(x) log(1 + |x|): for numbers over several orders of magnitude. Follow it with `Standardise` in a `Chain`."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        (middle,) = measure_in_blocks(
            inputs, columns, lambda block: (middle_of(np.sign(block) * np.log1p(np.abs(block))),)
        )
        return Logarithmic(middle.reshape(inputs.shape[1:]))


class SquareRoot(AbstractScaler):
    """sign(x) sqrt(|x|): for counts, whose deviation grows as their root. Follow it with `Standardise` in a `Chain`."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        (middle,) = measure_in_blocks(
            inputs, columns, lambda block: (middle_of(np.sign(block) * np.sqrt(np.abs(block))),)
        )
        return Rooted(middle.reshape(inputs.shape[1:]))


def _knot_count(quantiles: int, inputs: Any) -> int:
    """At least 2, at most one a row, and no more than memory for very many columns allows."""
    width = max(1, math.prod(inputs.shape[1:]))
    return max(2, min(quantiles, inputs.shape[0], max(16, _KNOTS // width)))


def _interpolated(
    knots: np.ndarray, scores: np.ndarray, middle: float, extend: bool, columns: Sequence[Column]
) -> Interpolated:
    half = spread_of(knots[0], knots[-1])[1]
    constant = half == 0
    rise = (scores[-1] - scores[0]) / 2 if extend else np.zeros(len(half))
    return Interpolated(
        knots,
        np.where(constant, 0.0, scores),
        np.where(constant, 0.0, rise / np.where(constant, 1.0, half)),
        np.where(constant, 0.0, middle),
        notes=constant_note(constant, columns),
    )


def _quantiles() -> Any:
    return switch(1000, allowed="[2, inf)", row="D10", about="knots of the rank function; fewer with fewer rows")


class Uniformise(AbstractScaler):
    """The rank F(x) of a number among the training values: 0 at the least and below, 1 at the largest and above."""

    quantiles: int = _quantiles()

    def __check_init__(self) -> None:
        check_whole(self, "quantiles")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        count = _knot_count(int(self.quantiles), inputs)
        knots, twice = measure_in_blocks(inputs, columns, lambda block: knots_of(block, count))
        return _interpolated(knots, twice / (2 * (count - 1)), 0.5, False, columns)


class NormalScores(AbstractScaler):
    """The normal deviate of a number's rank, to mean 0 and deviation 1: any distribution becomes nearly normal.

    The extremes get half a row's probability. Beyond the training range the score goes on along the line from end to
    end of the range: new extremes remain extremes, and none explodes.
    """

    quantiles: int = _quantiles()
    bend: float = switch(
        2.0,
        allowed="[0, inf)",
        prior=Choice((0.0, 2.0, 3.0, 4.0, 6.0)),
        row="D10",
        about="columns with no value beyond this many standard deviations are only standardised",
    )

    def __check_init__(self) -> None:
        check_whole(self, "quantiles")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        count = _knot_count(int(self.quantiles), inputs)
        knots, twice = measure_in_blocks(inputs, columns, lambda block: knots_of(block, count))
        edge, normal = 0.5 / inputs.shape[0], NormalDist()
        ranks = np.arange(2 * count - 1) / (2 * (count - 1))
        table = np.array([normal.inv_cdf(min(max(rank, edge), 1 - edge)) for rank in ranks])
        scores = table[twice]
        deviation = scores.std(0)
        scores = (scores - scores.mean(0)) / np.where(deviation > 0, deviation, 1.0)
        spread = knots.std(0)
        straight = (knots - knots.mean(0)) / np.where(spread > 0, spread, 1.0)
        tame = np.abs(straight).max(0) <= self.bend
        return _interpolated(knots, np.where(tame, straight, scores), 0.0, True, columns)


class Pca(AbstractScaler):
    """Principal components: `count` of them, or if that is 0, as many as keep this fraction of the `variance`.

    They come to deviation 1 (`whiten`), since a network wants inputs of like scale; otherwise each keeps its own.
    Columns of unlike units want `Standardise` before it, in a `Chain`.
    """

    count: int = switch(0, allowed="[0, inf)", row="D10", kind="capacity", about="components; 0: by variance")
    variance: float = switch(
        0.99, allowed="(0, 1]", prior=Uniform(0.5, 1.0), row="D10", kind="capacity", about="fraction of variance kept"
    )
    whiten: bool = switch(True, allowed=(True, False), row="D10", about="whether components come to deviation 1")

    def __check_init__(self) -> None:
        check_whole(self, "count")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        rows, width = inputs.shape[0], math.prod(inputs.shape[1:])
        mean, values, axes, total = principal_axes(inputs, columns, int(self.count) or min(rows, width))
        # Beyond the rank there is only rounding, which whitening would blow up; one component always remains.
        useful = values > max(rows, width) * np.finfo(float).eps * max(float(values[0]), 0.0)
        share = np.cumsum(values) / (total or 1.0)
        enough = len(values) if self.count else int(np.searchsorted(share, self.variance - 1e-12)) + 1
        number = max(1, min(enough, int(useful.sum())))
        if self.whiten:
            axes = axes / np.sqrt(np.where(useful, values, 1.0) / max(rows - 1, 1))
        axes = np.where(useful, axes, 0.0)[:, :number]
        note = f"{number} principal components keep {100 * share[number - 1]:.4g} % of the variance"
        return Projection(mean, axes, tuple(inputs.shape[1:]), notes=(note,))


class Chain(AbstractScaler):
    """Scalers in sequence, each fitted on the training set as transformed by those before."""

    steps: tuple[AbstractScaler, ...] = eqx.field(converter=tuple)

    def __check_init__(self) -> None:
        if not self.steps:
            raise RequestError("`Chain` needs at least one scaler, as in Chain((Logarithm(), Standardise())).")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        fitted: list[Any] = []
        for step in self.steps:
            fitted.append(step.fit(inputs, columns))
            if len(fitted) < len(self.steps):
                width = inputs.shape[1:]
                inputs = fitted[-1].apply(inputs, np.float64)
                same = inputs.shape[1:] == width
                columns = tuple(Column(column.name) for column in columns) if same else ()
        return Chained(tuple(fitted))


_WORDED = ("category", "text")


class Columns(AbstractScaler):
    """One scaler per kind of column: numbers and dates through one, categories and each text through others.

    A column with missing values in the training set gets an indicator input.
    """

    numbers: AbstractScaler = Standardise()
    categories: AbstractScaler = OneHot()
    texts: AbstractScaler = Words()

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        check_table(self, inputs)
        rows, width = inputs.shape
        is_category, is_text = (np.array([c.kind == k for c in columns] or [False] * width) for k in _WORDED)
        missing = np.zeros(width, int)
        for _, block in row_blocks(inputs) if inputs.dtype.kind == "f" else ():
            missing += np.isnan(block).sum(0)
        if not (is_category.any() or is_text.any() or missing.any()):
            plain: Any = self.numbers.fit(inputs, columns)
            return plain
        picked: list[np.ndarray] = []
        scalers: list[Any] = []
        parts = [(~is_category & ~is_text, self.numbers), (is_category, self.categories)]
        parts += [(np.isin(np.arange(width), own), self.texts) for own in text_places(columns).values()]
        for chosen, scaler in parts:
            if chosen.any():
                picked.append(np.flatnonzero(chosen))
                theirs = tuple(columns[j] for j in picked[-1]) if columns else ()
                scalers.append(scaler.fit(inputs[:, picked[-1]], theirs))
        missing[is_text] = 0  # an empty text has no words
        indicated = np.flatnonzero(~is_category & (missing > 0) & (missing < rows))
        notes = tuple(notes_on_missing(missing, is_category, rows, columns))
        return SideBySide(tuple(picked), tuple(scalers), indicated, notes)


class Automatic(AbstractScaler):
    """The scaler for the kind of data (`kind_of_inputs`).

    | data                           | scaler                         |
    |--------------------------------|--------------------------------|
    | sequences                      | `sequences` of all steps       |
    | trees                          | `sequences` of leaf vectors    |
    | sparse counts, some above 1    | `counts`                       |
    | other sparse data              | `sparse`                       |
    | images                         | `images`                       |
    | table                          | `Columns` of `numbers`, `categories`, `texts` |
    """

    numbers: AbstractScaler = NormalScores()
    categories: AbstractScaler = OneHot()
    texts: AbstractScaler = Words()
    images: AbstractScaler = Pixels()
    sparse: AbstractScaler = MaxAbs()
    sequences: AbstractScaler = Standardise()
    counts: AbstractScaler = LogCounts()  # chosen on sets of reviews: docs/sparse.md

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        kind = kind_of_inputs(inputs, columns)
        if kind == "sequences":
            return OverSteps(self.sequences.fit(inputs.values, ()))
        if kind == "trees":
            vectors = inputs.values[inputs.is_leaf, VECTOR:]
            return OverNodes(self.sequences.fit(vectors, ()) if vectors.shape[1] else None, inputs.symbols)
        sparse = self.counts if kind == "sparse" and are_counts(inputs) else self.sparse
        table = Columns(self.numbers, self.categories, self.texts)
        return {"sparse": sparse, "images": self.images, "table": table}[kind].fit(inputs, columns)
