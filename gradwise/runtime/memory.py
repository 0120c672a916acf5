"""Memory (row G1): how much is free, whether the data will fit, and arrays too large to be held several times.

    array = make_room((rows, columns), np.float32)      in memory, or beyond 64 MiB in a file that is mapped
    for start, block in row_blocks(array): ...          a few megabytes at a time; what was read is let go of
    some = take_rows(array, rows)                       a copy that may itself be a file

A mapped array is an ordinary NumPy array. The system reads its pages when they are touched, and `let_go` gives them
back: they stay in the file, and in the memory that nobody else wants. The files lie in the folder for temporary files
(`TMPDIR`); they have no name, so nobody else changes them, and nothing is left when the process ends.
"""

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .errors import RequestError

_GROUP = Path("/sys/fs/cgroup")
LARGE = 2**26  # bytes: smaller arrays are not worth a file
_BLOCK = 2**24  # bytes worked on at once
_ALIGNED = 64  # bytes: from here JAX takes an array for its own, without a copy
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def _number_in(file: Path, name: str = "") -> int | None:
    """The number that follows a name in a file of the system, or the file's only one; None where there is none."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next((int(words[bool(name)]) for words in lines if words and (not name or words[0] == name)), None)
    except (OSError, ValueError, IndexError):  # another system, or "max": no limit
        return None


def available_bytes() -> float:
    """Memory that can be taken without harm: the system's word, or the control group's if it is less."""
    kilobytes = _number_in(Path("/proc/meminfo"), "MemAvailable:")
    free = math.inf if kilobytes is None else 1024.0 * kilobytes
    limit, used = _number_in(_GROUP / "memory.max"), _number_in(_GROUP / "memory.current")
    if limit is None or used is None:
        return free
    files = _number_in(_GROUP / "memory.stat", "inactive_file") or 0  # counted as used, but given back when asked for
    return min(free, max(0, limit - used + files))


def give_back() -> None:
    """Returns to the system what the C library (glibc) keeps for itself of memory that was freed."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def require_memory(needed: float, what: str, remedy: str, *, share: float = 1.0, free: float | None = None) -> None:
    """Refuses what needs more bytes than this share of the free memory: better than being killed half way.

    `what` begins the sentence, with its verb: "the inputs need". `free` is a device's own memory.
    """
    free = available_bytes() if free is None else free
    if needed > share * free:
        least = f"{share:.0%} of the " if needed <= free else ""
        raise RequestError(f"{what} {needed / 2**30:.1f} GiB, more than {least}{free / 2**30:.1f} GiB free. {remedy}")


def check_memory(inputs: Any) -> None:
    """Refuses inputs whose dense 32-bit form would not fit."""
    sparse = "sparse " if hasattr(inputs, "indptr") else ""
    what = f"the {sparse}inputs {tuple(inputs.shape)}, as dense 32-bit numbers, need"
    require_memory(4 * math.prod(map(int, inputs.shape)), what, "Use fewer rows or columns.", share=0.8)


def _map_new_file(size: int) -> mmap.mmap | None:
    """A new file without a name, mapped; None where there is no room for it, or no such thing."""
    if not hasattr(os, "posix_fallocate") or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    try:
        with tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error now, and not when a page is written
            return mmap.mmap(file.fileno(), size)
    except OSError:
        return None


def is_large(array: Any) -> bool:
    """Whether an array is one of those that a process should hold once at the most."""
    return isinstance(array, np.ndarray) and array.nbytes > LARGE


def make_room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array to be filled, in memory or in a file, by its size."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    mapped = _map_new_file(size) if size > LARGE else None
    if mapped is None:
        return np.empty(shape, kind)
    _maps.add(mapped)
    return np.ndarray(shape, kind, buffer=mapped)


def make_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array in memory to be filled, which JAX need not copy to use it on a processor."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    room = np.empty(size + _ALIGNED, np.uint8)
    start = -room.ctypes.data % _ALIGNED
    return room[start : start + size].view(kind).reshape(shape)


def let_go() -> None:
    """Takes the pages of all mapped arrays out of this process's memory; they are read again when they are touched."""
    for mapped in list(_maps):
        mapped.madvise(mmap.MADV_DONTNEED)


def _rows_at_once(array: Any, numbers: int) -> int:
    """How many rows make a block; a few columns of a table count as whole rows, whose pages they are in."""
    width = max(1, int(np.prod(array.shape[1:], dtype=np.int64)))
    if numbers:
        return max(16, numbers // width)
    touched = max(abs(array.strides[0]) if isinstance(array, np.ndarray) else 0, width * array.dtype.itemsize)
    return max(16, _BLOCK // touched)


def row_blocks(array: Any, numbers: int = 0) -> Iterator[tuple[int, Any]]:
    """The first row and the rows of each block, of so many `numbers` at the most where that is given."""
    rows = _rows_at_once(array, numbers)
    for start in range(0, array.shape[0], rows):
        yield start, array[start : start + rows]
        let_go()


def copy_in_blocks(array: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy in memory, for a few columns of a mapped table: each of its pages holds all columns."""
    copied = np.empty(array.shape, dtype)
    for start, rows in row_blocks(array):
        copied[start : start + len(rows)] = rows
    return copied


def take_rows(inputs: Any, rows: np.ndarray) -> Any:
    """The rows of an array or a sparse matrix at these places, or where these marks are true."""
    if not is_large(inputs):
        return inputs[rows]
    places = np.arange(len(inputs))[rows]
    taken = make_room((len(places), *inputs.shape[1:]), inputs.dtype)
    order = np.argsort(places, kind="stable")  # the large array is passed over once, from its beginning to its end
    ordered = places[order]
    for start, block in row_blocks(inputs):
        first, last = np.searchsorted(ordered, [start, start + len(block)])
        taken[order[first:last]] = block[ordered[first:last] - start]
    return taken
