"""Reads large files so that their numbers never lie in memory as a whole: NumPy's by blocks, Parquet by columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.memory import LARGE, let_go, make_room, row_blocks


def _header_of(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the array that follows in NumPy's format."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0}.get(version, np.lib.format.read_array_header_2_0)
    return read(file)


def read_array(file: Any) -> np.ndarray | None:
    """A large array in NumPy's format, a few megabytes at a time; None of any other array, for NumPy to read."""
    try:
        shape, by_columns, kind = _header_of(file)
    except ValueError:  # another version, or damaged
        return None
    if kind.hasobject or int(np.prod(shape, dtype=np.int64)) * kind.itemsize <= LARGE:
        return None
    array = make_room(shape[::-1] if by_columns else shape, kind)
    for _, rows in row_blocks(array):
        left = memoryview(rows).cast("B")
        while len(left):
            count = file.readinto(left)
            if not count:
                raise ValueError("the file ends within the array")
            left = left[count:]
    return array.T if by_columns else array


@contextmanager
def _memory_of_the_system() -> Iterator[None]:
    """Arrow takes memory from the system: its own pool would keep what is done with."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)


def _table_of(file: Any) -> Any:
    import pyarrow as pa

    names, count = file.schema_arrow.names, file.metadata.num_rows
    if len(set(names)) < len(names):
        return None
    room = make_room((len(names), count), np.float64)  # which has the space of any number
    columns = []
    for name, numbers in zip(names, room, strict=True):
        column = file.read([name]).column(0)
        if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            numbers = numbers.view(column.type.to_pandas_dtype())[:count]
            numbers[:] = column.to_numpy()
            column = pa.chunked_array([pa.array(numbers)])
            let_go()
        columns.append(column)
    return pa.table(columns, names=names)


def read_by_columns(path: Path) -> Any:
    """The table of a Parquet file, decoded one column at a time, numbers outside of Arrow's memory; None if two columns
    have one name."""
    import pyarrow.parquet as parquet

    with _memory_of_the_system(), parquet.ParquetFile(path) as file:
        return _table_of(file)
