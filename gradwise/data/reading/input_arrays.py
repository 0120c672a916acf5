"""Inputs that come as arrays, sparse matrices, sequences or trees: whether they can be learned from."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ...runtime.memory import row_blocks
from ...specs.sequences import Sequences
from ...specs.trees.container import Trees
from .files import Loaded
from .list_columns import list_columns, sequences_of_table


def sequences_in(loaded: Loaded, drop: Collection[str] = ()) -> Loaded:
    """What was loaded, a table with columns of lists as sequences; itself where there are none that are not dropped."""
    names = [] if loaded.table is None else [name for name in list_columns(loaded.table) if name not in drop]
    if not names:
        return loaded
    arrays = sequences_of_table(loaded.table, names, loaded.label)
    note = f"each row is a sequence of steps, from {', '.join(f'`{name}`' for name in names)}"
    test = None if loaded.test is None else sequences_in(loaded.test, drop)
    given: dict[str, Any] = {"table": None, "arrays": arrays, "test": test, "integers_are_classes": True}
    return replace(loaded, **given, notes=(*loaded.notes, note))


def _bracketed(values: Any) -> bool:
    """Whether a column of a table holds trees in brackets: text that begins with one, or is a single word."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)) or values.null_count:
        return False
    whole = pc.match_substring_regex(values, r"^\s*(\(.*|[^()\s]+\s*)$")
    return bool(pc.all(whole).as_py()) and bool(pc.any(pc.match_substring(values, "(")).as_py())


def trees_in(loaded: Loaded, drop: Collection[str] = ()) -> Loaded:
    """What was loaded, a table with a column of trees in brackets as trees; itself where there is none."""
    table = loaded.table
    names = [] if table is None else [name for name in table.column_names if _bracketed(table.column(name))]
    names = [name for name in names if name not in drop]
    if len(names) != 1:
        return loaded
    column = table.column(names[0])
    try:
        trees = Trees.from_list(column.to_pylist())
    except RequestError as problem:
        raise RequestError(f"{loaded.label}: column `{names[0]}`, {problem} If it is text, --drop it.") from None
    beside = {name: table.column(name).to_numpy() for name in table.column_names if name != names[0]}
    text = {name: values.astype(str) if values.dtype == object else values for name, values in beside.items()}
    note = f"each row is a tree, from `{names[0]}`"
    test = None if loaded.test is None else trees_in(loaded.test, drop)
    given: dict[str, Any] = {"table": None, "arrays": {"X": trees, **text}, "test": test, "integers_are_classes": True}
    return replace(loaded, **given, notes=(*loaded.notes, note))


def alike(first: Any, second: Any) -> bool:
    """Whether the examples of both have one shape; sequences need the same channels alone."""
    channels = isinstance(first, Sequences) and isinstance(second, Sequences)
    return tuple(first.shape[2:] if channels else first.shape[1:]) == tuple(
        second.shape[2:] if channels else second.shape[1:]
    )


def check_input_array(inputs: Any, label: str) -> Any:
    """Inputs of an array file: finite or missing numbers in 2 to 4 dimensions."""
    if isinstance(inputs, Sequences):
        if inputs.dtype.kind == "f" and np.isinf(inputs.values).any():
            number = int(np.searchsorted(inputs.offsets, np.argmax(np.isinf(inputs.values).any(1)), "right")) - 1
            raise RequestError(f"{label}: sequence {number} contains infinite values: replace them.")
        return inputs
    if not 2 <= inputs.ndim <= 4:
        remedy = " For one input column, use X.reshape(-1, 1)." if inputs.ndim == 1 else ""
        raise RequestError(
            f"{label}: `X` has shape {inputs.shape}; expected 2 to 4 dimensions, examples first.{remedy}"
        )
    if inputs.dtype.kind not in "biuf":
        raise RequestError(f"{label}: `X` contains {inputs.dtype} values; expected numbers.")
    if 0 in inputs.shape[1:]:
        raise RequestError(f"{label}: `X` has shape {inputs.shape}, so there are no inputs.")
    stored = inputs if isinstance(inputs, np.ndarray) else inputs.data
    if stored.dtype.kind == "f" and any(np.isinf(rows).any() for _, rows in row_blocks(stored)):
        if stored is inputs:
            place = tuple(int(axis[0]) for axis in np.nonzero(np.isinf(inputs)))
            raise RequestError(f"{label}: `X` is infinite at index {place}: replace the value, or use NaN for missing.")
        raise RequestError(f"{label}: `X` contains infinite values: replace them.")
    return inputs.view(np.uint8) if inputs.dtype.kind == "b" else inputs
