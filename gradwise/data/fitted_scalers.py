"""Fitted scalers: maps from raw examples to the network's inputs, as data that can be saved.

Each `map` is written once for NumPy and for JAX (`library`), on examples with any leading axes. No field is a
function, so a fitted scaler is written with the network and read back to the last bit.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..specs.dataset import InputLayout
from ..specs.fitted_scaler import FittedScaler
from ..specs.trees.container import VECTOR, Trees


class _Noted(FittedScaler):
    """A fitted scaler with notes for the report."""

    notes: tuple[str, ...] = eqx.field(static=True, kw_only=True, default=())

    def describe(self) -> list[str]:
        return list(self.notes)


class Affine(_Noted):
    """(x - shift) / scale."""

    shift: np.ndarray
    scale: np.ndarray
    middle: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        scaled = (examples - self.shift) / self.scale
        return library.where(library.isnan(scaled), self.middle, scaled)

    def keeps_zeros(self) -> bool:
        return not np.any(self.shift)

    def map_entries(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        scaled = values / (self.scale[columns] if np.ndim(self.scale) else self.scale)
        middle = self.middle[columns] if np.ndim(self.middle) else self.middle
        return np.where(np.isnan(scaled), middle, scaled)


class WeightedCounts(_Noted):
    """A function of each count, times the weight of its column; rows then have this `length`, 0 if any.

    `counts` is "raw", "binary" (1), "log" (1 + log n) or "log1p" (log(1 + n)); where there is no count it is 0.
    """

    weights: np.ndarray
    counts: str = eqx.field(static=True)
    length: float = eqx.field(static=True)

    def _weighed(self, counts: Any, weights: Any, library: Any) -> Any:
        there = counts > 0  # false where it is missing
        safe = library.where(there, counts, 1.0)
        value = {
            "raw": lambda: safe,
            "binary": lambda: library.ones_like(safe),
            "log": lambda: 1.0 + library.log(safe),
            "log1p": lambda: library.log1p(safe),
        }[self.counts]()
        return library.where(there, value * weights, 0.0)

    def map(self, examples: Any, library: Any) -> Any:
        found = self._weighed(examples, self.weights, library)
        if not self.length:
            return found
        squares = library.sum(found * found, axis=-1, keepdims=True)
        return self.length * found / library.sqrt(library.where(squares > 0, squares, 1.0))

    def keeps_zeros(self) -> bool:
        return True

    def map_entries(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        weights = self.weights[columns] if np.ndim(self.weights) else self.weights
        found = np.asarray(self._weighed(values, weights, np))
        if not self.length:
            return found
        row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        squares = np.bincount(row, found * found, minlength=len(starts) - 1)
        return self.length * found / np.sqrt(np.where(squares > 0, squares, 1.0))[row]


class SmoothlyClipped(_Noted):
    """z = (x - shift) / scale, then z / sqrt(1 + (z / limit)^2), which never reaches `limit`."""

    shift: np.ndarray
    scale: np.ndarray
    limit: float = eqx.field(static=True)

    def map(self, examples: Any, library: Any) -> Any:
        scaled = (examples - self.shift) / self.scale
        scaled = library.where(library.isnan(scaled), 0.0, scaled)
        if self.limit == math.inf:
            return scaled
        # The sine of the arc tangent is t / sqrt(1 + t^2), and no square overflows on the way.
        return self.limit * library.sin(library.arctan(scaled / self.limit))


class Bounded(_Noted):
    """(x - low) / (high - low), held within [0, 1]."""

    low: np.ndarray
    spread: np.ndarray
    middle: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        scaled = library.clip((examples - self.low) / self.spread, 0.0, 1.0)
        return library.where(library.isnan(scaled), self.middle, scaled)

    def keeps_zeros(self) -> bool:
        return not np.any(self.low)

    def map_entries(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        spread, middle = (each[columns] if np.ndim(each) else each for each in (self.spread, self.middle))
        scaled = np.clip(values / spread, 0.0, 1.0)
        return np.where(np.isnan(scaled), middle, scaled)


class Logarithmic(_Noted):
    """sign(x) log(1 + |x|)."""

    middle: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        scaled = library.sign(examples) * library.log1p(library.abs(examples))
        return library.where(library.isnan(scaled), self.middle, scaled)


class Rooted(_Noted):
    """sign(x) sqrt(|x|)."""

    middle: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        scaled = library.sign(examples) * library.sqrt(library.abs(examples))
        return library.where(library.isnan(scaled), self.middle, scaled)


class Interpolated(_Noted):
    """Each column through its own piecewise linear map, `knots` (Q, columns) to `scores`, extended with `slope`."""

    knots: np.ndarray
    scores: np.ndarray
    slope: np.ndarray
    middle: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        count, width = self.knots.shape
        x = examples.reshape(-1, width)
        knots, scores = library.asarray(self.knots).ravel(), library.asarray(self.scores).ravel()
        # The last knot that is not above x, for all columns at once: a binary search by halving steps, which in
        # NumPy is as fast as `interp` column by column, and needs no second version for JAX.
        columns = np.arange(width)
        place, last = library.zeros(x.shape, int) + columns, (count - 2) * width + columns
        step = 1 << max(0, (count - 2).bit_length() - 1)
        while step:
            ahead = library.minimum(place + step * width, last)
            place = library.where(library.take(knots, ahead) <= x, ahead, place)
            step //= 2
        left, right = library.take(knots, place), library.take(knots, place + width)
        low, high = library.take(scores, place), library.take(scores, place + width)
        part = library.clip((x - left) / library.where(right > left, right - left, 1.0), 0.0, 1.0)
        beyond = x - library.clip(x, self.knots[0], self.knots[-1])
        scaled = low + part * (high - low) + self.slope * beyond
        return library.where(library.isnan(x), self.middle, scaled).reshape(examples.shape)


class Projection(_Noted):
    """(x - mean) @ axes, of examples laid out as one row of this `shape`."""

    mean: np.ndarray
    axes: np.ndarray
    shape: tuple[int, ...] = eqx.field(static=True)

    def map(self, examples: Any, library: Any) -> Any:
        lead = examples.shape[: examples.ndim - len(self.shape)]
        centred = examples.reshape(*lead, len(self.mean)) - self.mean
        return library.where(library.isnan(centred), 0.0, centred) @ self.axes


class OneOfSeveral(_Noted):
    """Slot s is 1 if column `column[s]` equals `code[s]`; the code NaN stands for a missing value."""

    column: np.ndarray
    code: np.ndarray

    def map(self, examples: Any, library: Any) -> Any:
        values = examples[..., self.column]
        same = (values == self.code) | (library.isnan(values) & library.isnan(self.code))
        return same.astype(examples.dtype)

    def layout(self, shape: tuple[int, ...]) -> InputLayout:
        return InputLayout(numbers=0, flags=len(self.code))


class FlagsAndCodes(FittedScaler):
    """The `flags` of some columns, then for each of the others (`column`) the index of its value.

    `values` holds the sorted values, one column after the other; column k has `sizes[k]` of them, and that number is
    also the code of any other value.
    """

    flags: OneOfSeveral
    column: np.ndarray
    values: np.ndarray
    sizes: tuple[int, ...] = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True)

    def map(self, examples: Any, library: Any) -> Any:
        codes, start = [], 0
        for k, size in enumerate(self.sizes):
            values = library.asarray(self.values)[start : start + size]
            found = examples[..., self.column[k]]
            place = library.minimum(library.searchsorted(values, found), size - 1)
            codes.append(library.where(library.take(values, place) == found, place, size))
            start += size
        return library.concatenate(
            [self.flags.map(examples, library), library.stack(codes, axis=-1).astype(examples.dtype)], axis=-1
        )

    def layout(self, shape: tuple[int, ...]) -> InputLayout:
        return InputLayout(numbers=0, flags=len(self.flags.code), categories=self.sizes)

    def describe(self) -> list[str]:
        return [*self.flags.describe(), *self.notes]


class Chained(FittedScaler):
    """One after the other."""

    steps: tuple[FittedScaler, ...]

    def map(self, examples: Any, library: Any) -> Any:
        for step in self.steps:
            examples = step.map(examples, library)
        return examples

    def keeps_zeros(self) -> bool:
        return all(step.keeps_zeros() for step in self.steps)

    def map_entries(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        for step in self.steps:
            values = step.map_entries(values, columns, starts)
        return values

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        return self.steps[-1].layout(shape)

    def describe(self) -> list[str]:
        return list(dict.fromkeys(note for step in self.steps for note in step.describe()))


class OverSteps(FittedScaler):
    """Each step of a sequence through `steps`; beyond the end, NaN.

    The end is the last step with any value: a step within that has none is imputed like any missing value.
    """

    steps: FittedScaler
    over_steps: ClassVar[bool] = True

    def map(self, examples: Any, library: Any) -> Any:
        present = ~library.isnan(examples).all(-1)
        ahead = library.cumsum(present[..., ::-1], axis=-1)[..., ::-1] > 0
        return library.where(ahead[..., None], self.steps.map(examples, library), library.nan)

    def describe(self) -> list[str]:
        return self.steps.describe()


class OverNodes(FittedScaler):
    """The nodes of trees as they are, the vectors at their leaves through `vectors`; beyond the end, NaN.

    Symbols that the training trees lack are unknown: they share the number after the last.
    """

    vectors: FittedScaler | None
    symbols: tuple[str, ...] = eqx.field(static=True)
    over_steps: ClassVar[bool] = True

    def map(self, examples: Any, library: Any) -> Any:
        if self.vectors is None:
            return examples
        beyond = library.isnan(examples[..., :1])
        mapped = library.where(beyond, library.nan, self.vectors.map(examples[..., VECTOR:], library))
        return library.concatenate([examples[..., :VECTOR], mapped], axis=-1)

    def describe(self) -> list[str]:
        return [] if self.vectors is None else self.vectors.describe()

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        return InputLayout(numbers=shape[-1] - VECTOR, categories=(len(self.symbols),))

    def accept(self, inputs: Any) -> Any:
        return inputs.with_symbols(self.symbols) if isinstance(inputs, Trees) else inputs

    def reads_trees(self) -> bool:
        return True


def _row_layout(scaler: FittedScaler, width: int) -> InputLayout:
    return scaler.layout((width,)) or InputLayout(numbers=width)


class SideBySide(FittedScaler):
    """Some columns through each scaler, side by side: numbers, flags, indicators of missing values (for the
    `indicated` columns), codes, words."""

    columns: tuple[np.ndarray, ...]
    scalers: tuple[FittedScaler, ...]
    indicated: np.ndarray
    notes: tuple[str, ...] = eqx.field(static=True)

    def _pieces(self, examples: Any, library: Any) -> list[Any]:
        return [
            scaler.map(examples[..., picked], library)
            for picked, scaler in zip(self.columns, self.scalers, strict=True)
        ]

    def map(self, examples: Any, library: Any) -> Any:
        numbers, flags, codes, words = [], [], [], []
        for scaler, piece in zip(self.scalers, self._pieces(examples, library), strict=True):
            layout = _row_layout(scaler, piece.shape[-1])
            last = layout.numbers + layout.flags
            numbers.append(piece[..., : layout.numbers])
            flags.append(piece[..., layout.numbers : last])
            codes.append(piece[..., last : last + len(layout.categories)])
            words.append(piece[..., last + len(layout.categories) :])
        missing = library.isnan(examples[..., self.indicated]).astype(examples.dtype)
        return library.concatenate([*numbers, *flags, missing, *codes, *words], axis=-1)

    def layout(self, shape: tuple[int, ...]) -> InputLayout:
        # Shapes alone are traced, so that the statistics may be arrays of a compiled program too.
        row = jax.ShapeDtypeStruct((sum(len(picked) for picked in self.columns),), jnp.float32)
        pieces = jax.eval_shape(lambda example: self._pieces(example, jnp), row)
        told = [_row_layout(scaler, piece.shape[-1]) for scaler, piece in zip(self.scalers, pieces, strict=True)]
        return InputLayout(
            sum(one.numbers for one in told),
            sum(one.flags for one in told) + len(self.indicated),
            tuple(size for one in told for size in one.categories),
            texts=tuple(text for one in told for text in one.texts),
        )

    def describe(self) -> list[str]:
        return [*self.notes, *(note for scaler in self.scalers for note in scaler.describe())]
