"""The rows used to train or choose a network, so that an error measured on them can be flagged as optimistic.

    used = UsedRows.of(train.inputs, valid.inputs)
    used.among(rows)                # which of these rows were used, as far as that is known

A row is identified by a 64-bit hash of its numbers in single precision. Of many rows only those with the smallest
hashes are stored, a reproducible sample: it gives the share of used rows, but not each row.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.memory import row_blocks
from ..specs.sequences import Sequences

_MOST = 32_768  # marks that are kept: a quarter of a megabyte
_CHUNK = 2_000_000  # numbers looked at at once
_EVERY = np.uint64(2**64 - 1)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Every bit depends on every other one (the end of SplitMix64)."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers as words: 0 for either zero, one word for everything that is not a number."""
    single = np.asarray(values, np.float32) + np.float32(0.0)
    return np.where(np.isnan(single), np.uint32(0x7FC00000), single.view(np.uint32)).astype(np.uint64)


def row_marks(inputs: Any) -> np.ndarray:
    """A mark for each row; sparse rows have those of the dense rows that they stand for."""
    rows = inputs.shape[0]
    width = int(np.prod(inputs.shape[1:]))
    factors = _mixed(np.arange(1, width + 1, dtype=np.uint64)) | np.uint64(1)
    sums = np.zeros(rows, np.uint64)
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(inputs, Sequences):  # the same mark, however much room there is for longer ones
            step = np.arange(len(inputs.values)) - np.repeat(inputs.offsets[:-1], inputs.lengths)
            each = _bits(inputs.values) * factors.reshape(-1, inputs.shape[2])[step]
            sums = np.add.reduceat(each.sum(axis=1, dtype=np.uint64), inputs.offsets[:-1])
        elif hasattr(inputs, "tocsr"):
            sparse = inputs.tocoo()
            np.add.at(sums, sparse.row, _bits(sparse.data) * factors[sparse.col])
        else:
            for start, block in row_blocks(np.asarray(inputs), _CHUNK):
                part = block.reshape(-1, width)
                sums[start : start + len(part)] = (_bits(part) * factors).sum(axis=1, dtype=np.uint64)
    return _mixed(sums)


@dataclass(frozen=True, eq=False)
class UsedRows:
    """Marks of rows, in order; `below` is the mark up to which all of them are known."""

    marks: np.ndarray
    below: np.uint64 = _EVERY

    @staticmethod
    def of(*inputs: Any, earlier: "UsedRows | None" = None) -> "UsedRows":
        """The rows of these inputs, and those of an earlier training that was resumed."""
        known = [] if earlier is None else [earlier.marks]
        below = _EVERY if earlier is None else earlier.below
        marks = np.unique(np.concatenate([*known, *map(row_marks, inputs)]))
        if len(marks) > _MOST:
            below = min(below, marks[_MOST - 1])
        return UsedRows(marks[marks <= below], below)

    @property
    def exact(self) -> bool:
        """Whether each row can be told, and not their share alone."""
        return bool(self.below == _EVERY)

    def among(self, inputs: Any) -> np.ndarray:
        """Which rows were used. Where not all can be told, a sample of these rows stands for them."""
        marks = row_marks(inputs)
        return np.isin(marks[marks <= self.below], self.marks)
