"""Examples that are sequences of steps, each of its own length: recordings, series, strokes of a pen.

    Sequences.from_list([first, second, ...])     arrays (steps, channels), or (steps,) for one channel
    Sequences(values, offsets)                    all steps one after another, and where each sequence begins and ends

Rows are taken as from an array: `sequences[3]` is one array, `sequences[2:9]` and `sequences[marks]` are `Sequences`.
On a device a set of sequences is one dense array (n, longest, channels) whose steps beyond the end are NaN. So whatever
reads them by mistake shows as NaN, and everything that gathers, splits or stores examples works on sequences too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..runtime.errors import RequestError


def _check_offsets(offsets: np.ndarray, steps: int) -> None:
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise RequestError(
            f"`offsets` must be whole numbers, one more than there are sequences; got {offsets.dtype} of shape "
            f"{offsets.shape}."
        )
    if offsets[0] != 0 or offsets[-1] != steps:
        raise RequestError(
            f"`offsets` must begin with 0 and end with the number of steps, {steps}; got {offsets[0]} and "
            f"{offsets[-1]}."
        )
    empty = np.diff(offsets.astype(np.int64)) < 1
    if empty.any():
        raise RequestError(f"sequence {int(np.argmax(empty))} has no steps: leave it out.")


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of different lengths: sequence i is `values[offsets[i]:offsets[i + 1]]`, shape (steps, channels).

    `longest` is the number of steps that the dense array gives each sequence: by default those of the longest one.
    Rows that are taken keep it, so that training and validation sets have one shape.
    """

    values: np.ndarray
    offsets: np.ndarray
    longest: int = 0

    def __post_init__(self) -> None:
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        values = values.reshape(-1, 1) if values.ndim == 1 else values
        if values.ndim != 2 or values.dtype.kind not in "biuf" or values.shape[1] == 0:
            raise RequestError(
                f"the values of sequences must be numbers (all steps, channels); got {values.dtype} of shape "
                f"{values.shape}."
            )
        _check_offsets(offsets, len(values))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets.astype(np.int64))
        object.__setattr__(self, "longest", max(int(self.longest), int(self.lengths.max())))

    @classmethod
    def from_list(cls, arrays: Iterable[Any]) -> Sequences:
        """One sequence from each array (steps, channels), or (steps,) for one channel."""
        try:
            several = [np.asarray(one) for one in arrays]
        except (TypeError, ValueError):
            raise RequestError("every sequence must be an array of numbers (steps, channels).") from None
        several = [one.reshape(-1, 1) if one.ndim == 1 else one for one in several]
        if not several:
            raise RequestError("there are no sequences.")
        for place, one in enumerate(several):
            if one.ndim != 2 or one.shape[1] != several[0].shape[-1]:
                raise RequestError(
                    f"every sequence must have shape (steps, {several[0].shape[-1]}), as the first has; sequence "
                    f"{place} has {one.shape}."
                )
        return cls(np.concatenate(several), np.cumsum([0, *map(len, several)]))

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of steps of each sequence."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the dense array: sequences, steps of the longest, channels."""
        return len(self), self.longest, int(self.values.shape[1])

    @property
    def ndim(self) -> int:
        return 3

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: Any) -> Any:
        """One sequence as an array for a number; for a slice, places or marks those `Sequences`."""
        if isinstance(rows, int | np.integer):
            row = range(len(self))[rows]
            return self.values[self.offsets[row] : self.offsets[row + 1]]
        places = np.arange(len(self))[rows]
        if len(places) == 0:
            raise RequestError("no sequences are left: choose at least one.")
        lengths = self.lengths[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if isinstance(rows, slice) and rows.step in (None, 1):  # neighbours: nothing is copied
            start = self.offsets[places[0]]
            return replace(self, values=self.values[start : start + offsets[-1]], offsets=offsets)
        steps = np.repeat(self.offsets[places] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return replace(self, values=self.values[steps], offsets=offsets)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """The dense array, NaN beyond the end of each sequence."""
        kind = dtype or (self.dtype if self.dtype.kind == "f" else np.float64)
        dense = np.full(self.shape, np.nan, kind)
        dense[np.arange(self.longest) < self.lengths[:, None]] = self.values
        return dense

    def __repr__(self) -> str:
        least, most = int(self.lengths.min()), int(self.lengths.max())
        return f"Sequences({len(self)} of {least} to {most} steps, {self.values.shape[1]} channels)"

    def with_longest(self, longest: int) -> Sequences:
        """The same sequences with room for so many steps each."""
        return replace(self, longest=longest)

    def like(self, others: Sequences) -> Sequences:
        """The same examples in the terms of others, where those have some."""
        return self

    def summaries(self) -> np.ndarray:
        """One row for each sequence: its length, then the mean and the deviation of each channel.

        Simple models and checks of the data look at these. A channel without a value has mean and deviation NaN.
        """
        values = np.asarray(self.values, np.float64)
        present = ~np.isnan(values)
        count = np.add.reduceat(present, self.offsets[:-1], axis=0, dtype=np.float64)
        count = np.where(count > 0, count, np.nan)
        mean = np.add.reduceat(np.where(present, values, 0.0), self.offsets[:-1], axis=0) / count
        apart = np.where(present, values - np.repeat(mean, self.lengths, axis=0), 0.0)
        deviation = np.sqrt(np.add.reduceat(apart**2, self.offsets[:-1], axis=0) / count)
        return np.hstack([self.lengths[:, None], mean, deviation])

    def summary_names(self) -> tuple[str, ...]:
        """What the columns of `summaries` are called."""
        channels = range(1, self.shape[2] + 1)
        return ("length", *(f"{what} of channel {number}" for what in ("mean", "deviation") for number in channels))


def is_list_of_sequences(data: Any) -> bool:
    """Whether a list holds arrays that differ in length and so make no array."""
    if not isinstance(data, list | tuple) or len(data) < 2:
        return False
    shapes: list[tuple[int, ...]] = [getattr(one, "shape", ()) for one in data]
    return all(len(shape) in (1, 2) for shape in shapes) and len({shape[0] for shape in shapes}) > 1


def as_rows(inputs: Any) -> Any:
    """Inputs for what reads one row of numbers for each example: of sequences, their summaries."""
    return inputs.summaries() if isinstance(inputs, Sequences) else inputs


def stack_sequences(pieces: Sequence[Sequences]) -> Sequences:
    """One set after the other."""
    pieces = [piece.like(pieces[0]) for piece in pieces]
    lengths = np.concatenate([piece.lengths for piece in pieces])
    values = np.concatenate([piece.values for piece in pieces])
    longest = max(piece.longest for piece in pieces)
    return replace(pieces[0], values=values, offsets=np.concatenate([[0], np.cumsum(lengths)]), longest=longest)


def with_steps_of(rows: Sequences, shape: tuple[int, ...]) -> Sequences:
    """New sequences in the dense shape of those trained on, or twice, four times, ... as long: few shapes in all."""
    longest = shape[0]
    while longest < rows.lengths.max():
        longest *= 2
    return rows.with_longest(longest)
