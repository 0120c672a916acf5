"""Data that are already in memory, in the form that files are read into.

    load_at_hand(frame)                        a pandas or Polars frame, an Arrow table, a list of dictionaries
    load_at_hand(frame, frame_of_targets)      the targets apart: a series, a frame, an array or a list
    load_at_hand((X, y))                       arrays: NumPy, JAX or SciPy's sparse matrices
    load_at_hand(["(+ 1 (* 2 3))", ...], y)    trees in brackets, or as nested tuples
    load_at_hand([first, second, ...], y)      sequences: arrays (steps, channels) of different lengths
    load_at_hand(["one text", "another"], y)   texts: a table of one column

Columns are recognised as in a file: text, categories, dates and missing values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ...specs.dataset import Dataset
from ...specs.sequences import Sequences, is_list_of_sequences
from ...specs.trees.container import Trees, is_list_of_trees
from .columns import fields_of_frame
from .files import Loaded

NAME = "data"  # what messages call it, since it has no name of its own
TEXT = "text"  # the column of a list of texts
_TAKEN = "a path, a named set, a data frame, a list of texts, arrays (X, y) or a Dataset"


def texts_as_table(data: Any) -> Any:
    """Texts, a list, array or series of them, as an Arrow table of one column; None if the data are something else."""
    import pandas as pd
    import pyarrow as pa

    if getattr(data, "ndim", 1) != 1 or not (isinstance(data, list | tuple) or hasattr(data, "dtype")):
        return None
    known = isinstance(data, list | tuple) or getattr(data.dtype, "kind", "O") not in "biufcmM"
    values = list(data) if known else []
    if not values or not any(isinstance(one, str) for one in values):
        return None
    odd = [one for one in values if not (isinstance(one, str) or pd.isna(one) is True)]
    if odd:
        raise RequestError(f"the texts contain {odd[0]!r:.40}, which is no text: give strings, or None if missing.")
    texts = [one if isinstance(one, str) else None for one in values]
    return pa.table({str(getattr(data, "name", None) or TEXT): pa.array(texts, pa.string())})


def _as_table(data: Any) -> Any:
    """The data as an Arrow table, or None if they have no named columns."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "to_arrow"):  # Polars
        return data.to_arrow()
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        import pandas as pd

        data = pd.DataFrame(data)
    if isinstance(data, Mapping) and data:
        import pandas as pd

        data = pd.DataFrame(data)
    if not (hasattr(data, "columns") and hasattr(data, "iloc")):
        return None
    return pa.table({name: field.array for name, field in fields_of_frame(data).items()})


def _inputs(data: Any) -> Any:
    """Inputs without column names."""
    if isinstance(data, Sequences):
        return data
    if is_list_of_trees(data):
        return Trees.from_list(data)
    if is_list_of_sequences(data):
        return Sequences.from_list(data)
    if hasattr(data, "tocsr"):
        return data.tocsr()
    try:
        inputs = np.asarray(data)
        inputs = inputs.astype(np.float64) if inputs.dtype == object and inputs.ndim > 1 else inputs
    except (TypeError, ValueError):  # rows of different lengths, or values that are no numbers
        inputs = np.asarray(None)
    if inputs.ndim == 0 or inputs.dtype == object:
        raise RequestError(f"cannot read a {type(data).__name__} as data: pass {_TAKEN}.")
    return inputs


def _targets(targets: Any, count: int) -> dict[str, np.ndarray]:
    """Targets by name: those of a frame or a series, else `y`, or `y1`, `y2`, ... of several columns."""
    if hasattr(targets, "columns"):
        named = {str(name): np.asarray(targets[name]) for name in targets.columns}
    else:
        values = np.asarray(targets)
        name = str(getattr(targets, "name", None) or "y")
        if values.ndim == 2 and values.shape[1] > 1:
            named = {f"{name}{number + 1}": values[:, number] for number in range(values.shape[1])}
        else:
            named = {name: values.reshape(-1)}
    for name, values in named.items():
        if len(values) != count:
            raise RequestError(f"there are {count} rows of inputs, but target `{name}` has {len(values)} values.")
    return named


def load_at_hand(data: Any, targets: Any = None, name: str = NAME) -> Loaded:
    """A table or arrays, with the names of the targets that were given apart."""
    if isinstance(data, tuple) and len(data) == 2 and targets is None:
        data, targets = data
    texts = texts_as_table(data)
    table = _as_table(data) if texts is None else texts
    if table is None:
        inputs = _inputs(data)
        if targets is None:
            return Loaded(name, arrays={"X": inputs}, targetless=True)
        named = _targets(targets, inputs.shape[0])
        return Loaded(name, arrays={"X": inputs, **named}, targets=tuple(named))
    named = {} if targets is None else _targets(targets, table.num_rows)
    import pandas as pd

    for column, field in fields_of_frame(pd.DataFrame(named)).items():
        if column in table.column_names:
            raise RequestError(f"the target `{column}` is also an input column: rename one of them.")
        table = table.append_column(column, field.array)
    kinds = {} if texts is None else dict.fromkeys(texts.column_names, "text")
    return Loaded(name, table=table, targets=tuple(named), kinds=kinds)


def use_dataset(dataset: Dataset, asked: Mapping[str, Any], *, test: Any, unsupervised: bool) -> Dataset:
    """A data set that is already one; raises on what was asked of its columns, and on a test set of another form."""
    for name, value in asked.items():
        if value is not None and len(value):
            raise RequestError(f"`{name}` has no effect on a Dataset, which says all about its columns: leave it out.")
    if test is not None:
        if not isinstance(test, Dataset):
            raise RequestError("the test set of a Dataset must be a Dataset too.")
        dataset = replace(dataset, test=test)
    return dataset.without_targets() if unsupervised and dataset.task.kind != "inputs" else dataset
