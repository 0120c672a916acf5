"""Column statistics for scalers, in bounded memory: dense or sparse, with missing values.

They use NumPy alone, since importing scikit-learn would take longer than most fits here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..runtime.memory import copy_in_blocks
from ..specs.dataset import Column
from ..specs.sequences import Sequences
from ..specs.sparse.rows import canonical

BLOCK = 2**22  # numbers worked on at once: 32 MB
EXACT = 2048  # principal components of more rows and columns than this are found iteratively


def is_sparse(inputs: Any) -> bool:
    return hasattr(inputs, "toarray")


def column_names(columns: Sequence[Column], picked: Sequence[int]) -> str:
    """A few columns by name, or by index if they have none."""
    named = [f"`{columns[j].name}`" if columns else f"X[:, {j}]" for j in picked[:5]]
    return ", ".join(named) + (f" and {len(picked) - 5} more" if len(picked) > 5 else "")


def constant_note(constant: np.ndarray, columns: Sequence[Column]) -> tuple[str, ...]:
    picked = np.flatnonzero(constant).tolist()
    if not picked:
        return ()
    words = ("is", "becomes") if len(picked) == 1 else ("are", "become")
    return (f"{column_names(columns, picked)} {words[0]} constant in the training set and {words[1]} 0",)


def notes_on_missing(
    missing: np.ndarray, is_category: np.ndarray, rows: int, columns: Sequence[Column]
) -> Iterator[str]:
    """How the missing values of each column are filled in."""
    for j in np.flatnonzero(missing).tolist():
        start = f"{column_names(columns, [j])} is missing in {missing[j]} of {rows} training rows: "
        if is_category[j]:
            yield start + "missing is treated as a category"
        elif missing[j] == rows:
            yield start + "the column becomes 0"
        else:
            yield start + "imputed with the column's centre, with an indicator column"


def refuse_infinite(infinite: np.ndarray, columns: Sequence[Column], start: int = 0) -> None:
    """Raises if columns (the first is number `start`) hold infinite values."""
    if infinite.any():
        names = column_names(columns, (start + np.flatnonzero(infinite)).tolist())
        raise RequestError(
            f"{names} contains infinite values. Replace them, or leave them empty to mark them as missing."
        )


def blocks(inputs: Any, columns: Sequence[Column]) -> Iterator[np.ndarray]:
    """All rows of a few columns at a time, in 64 bits: memory stays bounded for any shape, dense or sparse."""
    for kind, what in (("category", "categories"), ("text", "words")):
        picked = [j for j, column in enumerate(columns) if column.kind == kind]
        if not picked:
            continue
        raise RequestError(
            f"{column_names(columns, picked)} contains {what}, which cannot be scaled as numbers. "
            "Wrap the scaler: `Columns(numbers=...)`, or use `Automatic()`."
        )
    if isinstance(inputs, Sequences):
        raise RequestError(
            "sequences are scaled step by step. Wrap the scaler, a chain of them as a whole: "
            "`Steps(Standardise())`, or use `Automatic()`."
        )
    sparse = is_sparse(inputs)
    table = inputs.tocsc() if sparse else inputs.reshape(inputs.shape[0], -1)
    width = max(1, BLOCK // inputs.shape[0])
    for start in range(0, table.shape[1], width):
        block = table[:, start : start + width]
        block = np.asarray(block.toarray(), np.float64) if sparse else copy_in_blocks(block, np.float64)
        refuse_infinite(np.isinf(block).any(0), columns, start)
        yield block


def measure_in_blocks(
    inputs: Any, columns: Sequence[Column], statistic: Callable[[np.ndarray], tuple[np.ndarray, ...]]
) -> list[np.ndarray]:
    """Statistics by column, each of shape (..., columns)."""
    pieces = [statistic(block) for block in blocks(inputs, columns)]
    return [np.concatenate(piece, axis=-1) for piece in zip(*pieces, strict=True)]


def _ranges_of_entries(inputs: Any, columns: Sequence[Column]) -> list[np.ndarray]:
    """Those of a sparse matrix, by its entries alone; each range holds 0."""
    count, width = inputs.shape
    matrix = inputs.tocsr()
    values, places = np.asarray(matrix.data, np.float64), matrix.indices
    low, high = np.zeros(width), np.zeros(width)
    np.fmin.at(low, places, values)
    np.fmax.at(high, places, values)
    refuse_infinite(np.isinf(low) | np.isinf(high), columns)
    missing = np.isnan(values)
    present = count - np.bincount(places, missing, minlength=width)
    total = np.bincount(places, np.where(missing, 0.0, values), minlength=width)
    return [low, high, np.clip(total / np.maximum(present, 1), low, high)]


def range_of(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest value of each column, 0 and 0 if all are missing."""
    return np.nan_to_num(np.fmin.reduce(block, axis=0)), np.nan_to_num(np.fmax.reduce(block, axis=0))


def column_mean(block: np.ndarray) -> np.ndarray:
    """The mean of each column over its present values, 0 if there are none."""
    total = block.sum(0)
    if not np.isnan(total).any():
        return total / block.shape[0]
    present = ~np.isnan(block)
    return np.where(present, block, 0.0).sum(0) / np.maximum(present.sum(0), 1)


def middle_of(block: np.ndarray) -> np.ndarray:
    """The mean clipped to the range: imputing it leaves a constant column exactly constant."""
    return np.clip(column_mean(block), *range_of(block))


def measure_ranges(inputs: Any, columns: Sequence[Column]) -> list[np.ndarray]:
    """The least, the largest and the middle value of each column."""
    if is_sparse(inputs):
        return _ranges_of_entries(inputs, columns)
    return measure_in_blocks(inputs, columns, lambda block: (*range_of(block), middle_of(block)))


def spread_of(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half-width of a range; the latter is 0 if the ends differ only by rounding."""
    centre, half = low / 2 + high / 2, high / 2 - low / 2
    return centre, np.where(half > 8 * np.finfo(float).eps * np.abs(centre), half, 0.0)


def moments_of(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; that of a constant column is exactly 0.

    Columns are first brought into [-1, 1], so that neither 1e200 nor 1e9 + 1e-3 loses its digits.
    """
    centre, half = spread_of(*range_of(block))
    unit = (block - centre) / np.where(half > 0, half, 1.0)
    mean = column_mean(unit)
    return centre + half * mean, half * np.sqrt(column_mean(np.square(unit - mean)))


def measure_moments(inputs: Any, columns: Sequence[Column]) -> list[np.ndarray]:
    """Mean and standard deviation of each column; of a sparse matrix by its entries alone."""
    if not is_sparse(inputs):
        return measure_in_blocks(inputs, columns, moments_of)
    count, width = inputs.shape
    matrix = canonical(inputs)
    low, high, _ = _ranges_of_entries(matrix, columns)
    centre, half = spread_of(*_without_zero(matrix, low, high))
    divisor = np.where(half > 0, half, 1.0)
    places = matrix.indices
    unit = (np.asarray(matrix.data, np.float64) - centre[places]) / divisor[places]
    missing = np.isnan(unit)
    zero, zeros = -centre / divisor, count - np.bincount(places, minlength=width)
    present = np.maximum(count - np.bincount(places, missing, minlength=width), 1)
    mean = (np.bincount(places, np.where(missing, 0.0, unit), minlength=width) + zeros * zero) / present
    squares = np.bincount(places, np.where(missing, 0.0, (unit - mean[places]) ** 2), minlength=width)
    return [centre + half * mean, half * np.sqrt((squares + zeros * (zero - mean) ** 2) / present)]


def _without_zero(matrix: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of columns; those that have an entry in every row need not hold 0."""
    full = np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[1]) == matrix.shape[0])
    if len(full):
        low, high = low.copy(), high.copy()
        low[full], high[full] = range_of(np.asarray(matrix[:, full].toarray(), np.float64))
    return low, high


def _at_even_steps(ordered: np.ndarray, count: int) -> np.ndarray:
    """Quantiles (count, columns) of sorted columns, whose missing values come last; NaN where all are missing."""
    present = np.maximum((~np.isnan(ordered)).sum(0), 1)
    index = np.arange(count)[:, None]
    place, remainder = np.divmod(index * (present - 1), count - 1)  # whole numbers, so that ties stay ties
    lower = np.take_along_axis(ordered, place, 0)
    upper = np.take_along_axis(ordered, np.minimum(place + 1, present - 1), 0)
    return lower + remainder / (count - 1) * (upper - lower)


def quartiles_of(block: np.ndarray) -> tuple[np.ndarray, ...]:
    """The least value, the lower quartile, the median, the upper quartile and the largest; 0 if all are missing."""
    return tuple(np.nan_to_num(_at_even_steps(np.sort(block, axis=0), 5)))


def knots_of(block: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of each column at `count` even steps, and twice the mid-rank of each: ties share the middle of theirs.

    Ten rows per quantile suffice: of more rows, evenly spaced ones are sorted, and the ends are those of all rows.
    """
    low, high = range_of(block)
    index = np.arange(count)[:, None]
    knots = _at_even_steps(np.sort(block[:: max(1, block.shape[0] // (10 * count))], axis=0), count)
    knots = np.where(np.isnan(knots), low, knots)
    knots[0], knots[-1] = low, high
    knots = np.maximum.accumulate(knots, axis=0)
    new = np.vstack([np.ones((1, knots.shape[1]), bool), knots[1:] > knots[:-1]])
    ends = np.vstack([new[1:], np.ones((1, knots.shape[1]), bool)])
    first = np.maximum.accumulate(np.where(new, index, 0), axis=0)
    last = np.minimum.accumulate(np.where(ends, index, count)[::-1], axis=0)[::-1]
    return knots, first + last


def _centred_blocks(inputs: Any, columns: Sequence[Column]) -> Iterator[np.ndarray]:
    for block in blocks(inputs, columns):
        centred = block - middle_of(block)
        yield np.where(np.isnan(centred), 0.0, centred)


def _centred_rows(inputs: Any, mean: np.ndarray) -> Iterator[np.ndarray]:
    size = max(1, BLOCK // len(mean))
    for start in range(0, inputs.shape[0], size):
        rows = inputs[start : start + size]
        centred = np.asarray(rows.toarray() if is_sparse(rows) else rows, np.float64).reshape(-1, len(mean)) - mean
        yield np.where(np.isnan(centred), 0.0, centred)


def _largest(matrix: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:kept], vectors[:, ::-1][:, :kept]


def _by_rows(inputs: Any, columns: Sequence[Column], kept: int) -> tuple[np.ndarray, np.ndarray, float]:
    """From the products of rows with rows: for fewer rows than columns."""
    products = sum((block @ block.T for block in _centred_blocks(inputs, columns)), np.zeros((inputs.shape[0],) * 2))
    values, vectors = _largest(products, kept)
    lengths = np.sqrt(np.maximum(values, 0.0))
    axes = np.concatenate([block.T @ vectors for block in _centred_blocks(inputs, columns)])
    return values, axes / np.where(lengths > 0, lengths, 1.0), float(np.trace(products))


def _by_columns(inputs: Any, mean: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray, float]:
    """From the products of columns with columns: for fewer columns than rows."""
    products = sum((rows.T @ rows for rows in _centred_rows(inputs, mean)), np.zeros((len(mean),) * 2))
    return *_largest(products, kept), float(np.trace(products))


def _by_lanczos(inputs: Any, mean: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The largest components alone, by products with vectors: for many rows and many columns."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    size = len(mean)

    def product(vector: np.ndarray) -> np.ndarray:
        return sum((rows.T @ (rows @ vector) for rows in _centred_rows(inputs, mean)), np.zeros(vector.shape))

    total = sum(float((rows**2).sum()) for rows in _centred_rows(inputs, mean))
    operator: Any = LinearOperator((size, size), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)  # any start will do; the same one gives the same axes
    values, vectors = eigsh(operator, k=min(kept, 512, size - 1), v0=start)
    return values[::-1], vectors[:, ::-1], total


def principal_axes(
    inputs: Any, columns: Sequence[Column], kept: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Mean of the columns, sums of squares along the first axes, the axes themselves as columns, and the sum of all.

    No matrix of all columns by all columns is formed unless there are few of them.
    """
    (mean,) = measure_in_blocks(inputs, columns, lambda block: (middle_of(block),))
    if inputs.shape[0] < len(mean) and inputs.shape[0] <= EXACT:
        values, axes, total = _by_rows(inputs, columns, kept)
    elif len(mean) <= EXACT:
        values, axes, total = _by_columns(inputs, mean, kept)
    else:
        values, axes, total = _by_lanczos(inputs, mean, kept)
    # The largest entry of an axis is positive, so that the sign does not depend on the way it was found.
    return mean, values, axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]), total
