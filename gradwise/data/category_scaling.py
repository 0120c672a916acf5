"""Scalers of category columns (row G6): one-hot flags, or codes that a network embeds itself.

    fitted = Categories(one_hot=9).fit(train.inputs, train.columns)
    fitted.layout(shape).categories                        # the number of values of each column that became codes

| scaler       | an input is                                                                            |
|--------------|----------------------------------------------------------------------------------------|
| `OneHot`     | 1 for the row's category, 0 for the others                                             |
| `Categories` | the same for columns of few values; for many values, the index of the row's value      |

A weight matrix applied to one-hot inputs is a table with a row for each category. For a few values the product is as
cheap as looking the row up; for many the code saves the zeros, and the network chooses the embedding size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractScaler
from ..specs.dataset import Column
from ..specs.fitted_scaler import FittedScaler
from ..specs.knobs import switch
from ..specs.priors import Choice
from .column_statistics import column_names, is_sparse
from .fitted_scalers import FlagsAndCodes, OneOfSeveral


def check_table(spec: AbstractScaler, inputs: Any) -> None:
    """Raises unless the inputs are a table."""
    if is_sparse(inputs) or inputs.ndim != 2:
        kind = "a sparse matrix" if is_sparse(inputs) else f"examples of shape {tuple(inputs.shape[1:])}"
        raise RequestError(f"`{type(spec).__name__}` needs a table with columns; got {kind}. Use `Automatic()`.")


def _sorted_values(inputs: Any) -> list[np.ndarray]:
    """The distinct values of each column, sorted; if some are missing, one NaN at the end."""
    return [np.unique(np.asarray(inputs[:, j], np.float64)) for j in range(inputs.shape[1])]


def _present(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _unseen_note(
    values: Sequence[np.ndarray], picked: Sequence[int], columns: Sequence[Column], fate: str
) -> tuple[str, ...]:
    unseen = [j for j in picked if columns and len(columns[j].categories) > len(_present(values[j]))]
    return (f"{column_names(columns, unseen)}: categories not in the training set {fate}",) if unseen else ()


def _one_of_several(values: Sequence[np.ndarray], picked: Sequence[int], columns: Sequence[Column]) -> OneOfSeveral:
    slots = [(j, code) for j in picked for code in values[j].tolist()]
    return OneOfSeveral(
        np.array([j for j, _ in slots], int),
        np.array([code for _, code in slots], float),
        notes=_unseen_note(values, picked, columns, "are encoded as all zeros"),
    )


class OneHot(AbstractScaler):
    """One input for each category of the training set, and one for "missing" if some were. New ones get all zeros:
    an input that was never 1 in training would only add the noise of untrained weights."""

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        check_table(self, inputs)
        return _one_of_several(_sorted_values(inputs), range(inputs.shape[1]), columns)


class Categories(AbstractScaler):
    """Columns of few values become one-hot, as in `OneHot`; each of the others one code, for networks that embed it.

    A code is the index of the value among those of the training set; missing and new values get the next index. Only a
    network that reads the layout of its inputs (`gradwise.InputLayout`) can tell a code from a number.
    """

    one_hot: int = switch(
        9, allowed="[0, inf)", prior=Choice((2, 9, 30)), row="G6", about="columns of more values than this become codes"
    )

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        check_table(self, inputs)
        values = _sorted_values(inputs)
        is_large = np.array([len(_present(one)) > self.one_hot for one in values])
        few, many = np.flatnonzero(~is_large).tolist(), np.flatnonzero(is_large).tolist()
        flags = _one_of_several(values, few, columns)
        if not many:
            return flags
        known = [_present(values[j]) for j in many]
        note = _unseen_note(values, many, columns, "share the code of missing values")
        return FlagsAndCodes(flags, np.array(many), np.concatenate(known), tuple(map(len, known)), note)
