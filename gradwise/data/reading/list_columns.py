"""Tables whose columns hold lists of numbers: a row is one sequence, with its target beside it.

    {"pen": [[0.1, 0.2], [0.3, 0.1]], "letter": "a"}         a list of steps, each a list of channels
    {"left": [0.1, 0.3], "right": [0.2, 0.1], "word": "no"}  one list for each channel

So a JSON-lines file has one object to a line, and a Parquet file columns of lists.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ...specs.sequences import Sequences


def list_kind(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def list_columns(table: Any) -> list[str]:
    """The names of the columns of an Arrow table that hold lists."""
    return [name for name in table.column_names if list_kind(table.schema.field(name).type)]


def _numbers(values: Any, name: str, label: str) -> np.ndarray:
    """A flat Arrow array of numbers; a missing one is NaN."""
    import pyarrow as pa

    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise RequestError(
            f"{label}: the lists of column `{name}` hold {values.type}; expected numbers. Leave "
            f"the column out with --drop {name}."
        )
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _steps(column: Any, name: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    """All steps (steps, channels) of one column, and the number of steps of each row."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    empty = np.isnan(lengths) | (lengths == 0) if lengths.dtype.kind == "f" else lengths == 0
    if empty.any():
        raise RequestError(f"{label}: column `{name}` has no steps in data row {int(np.argmax(empty)) + 1}.")
    values = pc.list_flatten(column).combine_chunks()
    if not list_kind(values.type):
        return _numbers(values, name, label).reshape(-1, 1), lengths.astype(np.int64)
    channels = np.unique(pc.list_value_length(values).to_numpy(zero_copy_only=False))
    if len(channels) != 1 or not channels[0] > 0:
        raise RequestError(f"{label}: every step of column `{name}` must have the same number of channels, at least 1.")
    flat = _numbers(pc.list_flatten(values), name, label)
    return flat.reshape(-1, int(channels[0])), lengths.astype(np.int64)


def sequences_of_table(table: Any, names: list[str], label: str) -> dict[str, Any]:
    """Arrays by name: the sequences of the columns of lists under "X", side by side, and the other columns."""
    several = [_steps(table.column(name), name, label) for name in names]
    lengths = several[0][1]
    for name, (_, others) in zip(names, several, strict=True):
        if not np.array_equal(others, lengths):
            row = int(np.argmax(others != lengths))
            raise RequestError(
                f"{label}: column `{name}` has {others[row]} steps in data row {row + 1}, but `{names[0]}` has "
                f"{lengths[row]}."
            )
    inputs = Sequences(np.hstack([values for values, _ in several]), np.concatenate([[0], np.cumsum(lengths)]))
    beside = {name: table.column(name).to_numpy() for name in table.column_names if name not in names}
    text = {name: values.astype(str) if values.dtype == object else values for name, values in beside.items()}
    return {"X": inputs, **text}


def read_json_lines(path: Path) -> Any:
    """The Arrow table in a file with one JSON object to a line."""
    import pyarrow as pa
    from pyarrow import json

    try:
        return json.read_json(path)
    except (pa.ArrowException, OSError) as problem:
        reason = " ".join(str(problem).split())[:120]
        raise RequestError(f"{path} is not a valid JSON-lines file ({reason}): write one object to a line.") from None
