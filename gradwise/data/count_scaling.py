"""Scaling counts, such as those of the words of a text (row G2): zeros stay zeros, so sparse rows stay sparse.

    TfIdf()                        rare words count more, and every text the same, however long
    TfIdf("raw", length="any")     n * idf for a count n, where the default is 1 + log n in rows of length 1
    Binary(), LogCounts()          1 for any count; log(1 + n)

With T training rows, of which df hold a word, its weight is idf = 1 + log((1 + T) / (1 + df)), as in scikit-learn's
`TfidfTransformer`. A row that is empty stays so, and a missing count is 0.
"""

from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..runtime.memory import row_blocks
from ..specs.contracts import AbstractScaler
from ..specs.dataset import Column
from ..specs.fitted_scaler import FittedScaler
from ..specs.knobs import switch
from ..specs.priors import Choice
from .column_statistics import column_names, is_sparse
from .fitted_scalers import WeightedCounts


def _check_counts(scaler: AbstractScaler, inputs: Any, columns: tuple[Column, ...]) -> None:
    """Raises unless all numbers are finite and at least 0, or missing."""
    name = type(scaler).__name__
    if len(inputs.shape) != 2:
        raise RequestError(f"{name} scales rows of counts; got examples of shape {tuple(inputs.shape[1:])}.")
    for _, block in row_blocks(inputs):
        values = np.asarray(block.data if is_sparse(block) else block)
        wrong = (values < 0) | np.isinf(values)
        if wrong.any():
            places = block.indices[wrong] if is_sparse(block) else np.nonzero(wrong)[1]
            raise RequestError(
                f"{name} scales counts, finite and at least 0; {column_names(columns, [int(places[0])])} holds "
                f"{values[wrong][0]:.4g}. Use `MaxAbs` or `Standardise` instead."
            )


def are_counts(matrix: Any) -> bool:
    """Whether a sparse matrix holds counts: whole numbers of at least 0, some of them more than 1."""
    values = matrix.data
    return bool(values.size and values.max() > 1 and values.min() >= 0 and np.array_equal(values, np.floor(values)))


def _present(inputs: Any) -> np.ndarray:
    """In how many rows each column holds a count."""
    if is_sparse(inputs):
        return np.bincount(inputs.indices[inputs.data > 0], minlength=inputs.shape[1])
    found = np.zeros(inputs.shape[1], np.int64)
    for _, block in row_blocks(inputs):
        found += np.count_nonzero(block > 0, axis=0)
    return found


class Binary(AbstractScaler):
    """1 where there is a count, 0 elsewhere."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        _check_counts(self, inputs, columns)
        return WeightedCounts(np.ones(()), "binary", 0.0)


class LogCounts(AbstractScaler):
    """log(1 + n) for a count n."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        _check_counts(self, inputs, columns)
        return WeightedCounts(np.ones(()), "log1p", 0.0)


class TfIdf(AbstractScaler):
    """Counts times the inverse document frequency of their column, then each row to one length.

    With raw counts it is scikit-learn's `TfidfTransformer`; `counts="log"` is its `sublinear_tf`. With the length
    "typical", the root of the mean number of words in a row, a usual entry is about 1.
    """

    counts: str = switch(
        "log",
        allowed=("log", "raw", "binary"),
        prior=Choice(("log", "raw", "binary")),
        row="G2",
        about='how a count n enters: "log": 1 + log n; "raw": n; "binary": 1',
    )
    length: str = switch(
        "one", allowed=("one", "typical", "any"), row="G2", about='the length of a row; "any": as it comes'
    )

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        _check_counts(self, inputs, columns)
        present, rows = _present(inputs), inputs.shape[0]
        weights = 1.0 + np.log((1.0 + rows) / (1.0 + present))
        typical = float(np.sqrt(max(1.0, present.sum() / rows)))
        return WeightedCounts(weights, self.counts, {"typical": typical, "one": 1.0, "any": 0.0}[self.length])
