"""A data set for training: inputs and targets as numbers, and the names to convert them back.

Inputs are raw: numeric columns as they were read, missing values as NaN, categories as their index in
`Column.categories`. Nothing here is fitted; imputation and scaling are fitted on the training set alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..runtime.memory import take_rows
from .sequences import Sequences


@dataclass(frozen=True)
class Column:
    """One column of inputs. `kind` is "number", "category", "date", "text" or "pixel".

    A date of a table becomes one column for each of its parts (`when:year`), a text one for each place of a word
    (`review:1`); the first of these holds all words in its `categories`.

    `decimal` is the decimal mark of numbers that were written with a currency, a percent sign or thousands separators;
    it is empty for plain numbers.
    """

    name: str
    kind: str = "number"
    categories: tuple[str, ...] = ()
    decimal: str = ""


def places_of_columns(columns: Sequence[Column]) -> dict[str, list[int]]:
    """The places of each column in a row, by its name: several for a text, one for any other."""
    places: dict[str, list[int]] = {}
    for place, column in enumerate(columns):
        name = column.name.rpartition(":")[0] if column.kind == "text" else column.name
        places.setdefault(name, []).append(place)
    return places


def text_places(columns: Sequence[Column]) -> dict[str, list[int]]:
    """The places of the texts among these columns, by name."""
    return {name: own for name, own in places_of_columns(columns).items() if columns[own[0]].kind == "text"}


@dataclass(frozen=True)
class InputLayout:
    """Which of a network's inputs are numbers, flags, codes of categories and words of texts, in this order.

        numbers | flags | codes | words

    A flag is 0 or 1: one-hot categories, then indicators of missing values. `categories` has one entry for each code,
    the number of values that its column has in the training set. A code runs from 0 to size - 1; it is `size` for a
    value that is missing or not in the training set, so that an embedding table has size + 1 rows.

    `texts` has a pair for each text: its places, and the size of its vocabulary. A word is a number from 0 to size - 1;
    it is `size` for a word that is not in the vocabulary, and size + 1 beyond the end of the text.

    With `sparse` an example is a `SparseRows`, whose inputs are all numbers.
    """

    numbers: int
    flags: int = 0
    categories: tuple[int, ...] = ()
    sparse: bool = False
    texts: tuple[tuple[int, int], ...] = ()

    @property
    def width(self) -> int:
        """The number of inputs."""
        return self.numbers + self.flags + len(self.categories) + sum(places for places, _ in self.texts)


@dataclass(frozen=True)
class Classes:
    """One of several classes for each example; `labels` holds them as they came."""

    labels: np.ndarray
    name: str = "class"

    kind = "classes"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def outputs(self) -> int:
        return max(2, len(self.labels))


@dataclass(frozen=True)
class Labels:
    """Any number of labels at once for each example (multi-label)."""

    names: tuple[str, ...]

    kind = "labels"

    @property
    def outputs(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Numbers:
    """One or several real numbers for each example."""

    names: tuple[str, ...] = ("y",)

    kind = "numbers"

    @property
    def outputs(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Inputs:
    """No target: features of the inputs are learned."""

    names: tuple[str, ...] = ()

    kind = "inputs"

    @property
    def outputs(self) -> int:
        return 0


@dataclass(frozen=True)
class Piece:
    """One task among several: its columns of the targets, and its part of the outputs."""

    name: str
    task: Classes | Labels | Numbers
    targets: slice
    outputs: slice

    def of(self, targets: np.ndarray) -> np.ndarray:
        """Its own targets as a data set of this task alone has them, with -1 or NaN where one is missing."""
        own: np.ndarray = targets[:, self.targets]
        if self.task.kind != "classes":
            return own
        return np.where(np.isnan(own[:, 0]), UNLABELLED, own[:, 0]).astype(np.int64)


@dataclass(frozen=True)
class Several:
    """Several tasks, of one kind or of different kinds, that one network learns together.

    Targets are numbers (n, width): the index of a class, a label, or a number. NaN stands for one that is missing; an
    example may have only some of its targets. The outputs of the tasks stand side by side in one vector.
    """

    tasks: tuple[Classes | Labels | Numbers, ...]

    kind = "several"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for task in self.tasks for name in task.names)

    @property
    def outputs(self) -> int:
        return sum(task.outputs for task in self.tasks)

    @property
    def width(self) -> int:
        """The columns of the targets."""
        return sum(len(task.names) for task in self.tasks)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The tasks, each with its place among targets and outputs."""
        found, column, output = [], 0, 0
        for task in self.tasks:
            places = slice(column, column + len(task.names)), slice(output, output + task.outputs)
            found.append(Piece("+".join(task.names), task, *places))
            column, output = places[0].stop, places[1].stop
        return tuple(found)


Task = Classes | Labels | Numbers | Inputs | Several


def refuse_several(task: Task, asker: str) -> None:
    """Raises, in the asker's name, if the targets are of several kinds."""
    if task.kind == "several":
        raise RequestError(
            f"{asker} needs targets of one kind, but {', '.join(f'`{name}`' for name in task.names)} are of several. "
            "Name one with --target, or train one network for all with gradwise fit."
        )


FEW_ROWS = 20  # fewer rows than this are too few to spare some: a validation set of 3 rows tells nothing
LARGEST_TARGET = 1e30  # predictions are numbers of single precision, which end at 3e38, and may overshoot
UNLABELLED = -1  # the class of an example whose class is not known; a number or label that is not known is NaN


def is_labelled(targets: np.ndarray, task: Task) -> np.ndarray:
    """Which of these targets are known."""
    if task.kind == "several":  # one target is enough
        known: np.ndarray = ~np.isnan(targets).all(axis=1)
        return known
    return targets != UNLABELLED if task.kind == "classes" else ~np.isnan(targets).any(axis=1)


def _check_targets(targets: np.ndarray, task: Task) -> None:
    """Raises if the targets do not fit the task; a wrong shape would broadcast silently later."""
    width = task.width if isinstance(task, Several) else task.outputs
    expected = (len(targets),) if task.kind == "classes" else (len(targets), width)
    if targets.shape != expected:
        raise RequestError(f"targets of {task.kind} must have shape {expected}; got {targets.shape}.")
    if task.kind == "classes":
        if targets.dtype.kind not in "iu":
            raise RequestError(f"targets of classes must be integer indices into `labels`; got {targets.dtype}.")
        if targets.min() < UNLABELLED or targets.max() >= task.outputs:
            raise RequestError(
                f"targets of classes must be indices into `labels`, from 0 to {task.outputs - 1}, "
                f"or {UNLABELLED} if the class is unknown."
            )
    elif np.any(np.isinf(targets)):
        row = int(np.argmax(np.isinf(targets).any(axis=1)))
        raise RequestError(f"the target of row {row} is infinite. Remove such rows.")
    elif np.any(np.abs(targets) > LARGEST_TARGET):
        row = int(np.argmax((np.abs(targets) > LARGEST_TARGET).any(axis=1)))
        raise RequestError(
            f"the target of row {row} is {np.nanmax(np.abs(targets[row])):.3g} in size, too large to predict in single "
            f"precision: at most {LARGEST_TARGET:.0e}. Divide the target by a power of ten, or take its logarithm."
        )
    for piece in task.pieces if isinstance(task, Several) else ():
        own = targets[:, piece.targets]
        if piece.task.kind == "classes" and np.any((own % 1 != 0) & ~np.isnan(own)):
            raise RequestError(f"target `{piece.name}` must hold indices of classes, or NaN where one is missing.")
        _check_targets(piece.of(targets), piece.task)


@dataclass(frozen=True)
class Dataset:
    """Examples with their targets.

    `inputs` has one row per example: an array of 2 to 4 dimensions, a SciPy CSR matrix, or `Sequences`. `targets` holds
    class indices (n,), or 0/1 labels (n, k), or numbers (n, k), or those of `Several` tasks; an example without a
    target has the class -1, or NaN, and only criteria that learn from inputs accept it. Without a target they are
    (n, 0). `groups` and `times` are for splits; `test` is an official test set, used as it is; `rows` are the indices
    of a subset in the whole. `notes` say how the data were read; `warnings` what the user should know, such as empty
    columns that were dropped.
    """

    inputs: Any
    targets: np.ndarray
    task: Task
    columns: tuple[Column, ...] = ()
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    test: Dataset | None = None
    rows: np.ndarray | None = None
    name: str = "data"
    notes: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = self.inputs.shape[0]
        if len(self.targets) != count:
            raise RequestError(f"{count} rows of inputs but {len(self.targets)} targets: give one target per row.")
        if count == 0:
            raise RequestError("the data set has no examples.")
        if not 2 <= len(self.inputs.shape) <= 4:
            raise RequestError(f"inputs must have 2 to 4 dimensions, rows first; got shape {self.inputs.shape}.")
        _check_targets(self.targets, self.task)
        for name in ("weights", "groups", "times", "rows"):
            beside = getattr(self, name)
            if beside is not None and len(beside) != count:
                raise RequestError(f"`{name}` has {len(beside)} entries for {count} rows: give one per row.")
        if self.test is not None and self._of_example(self.test) != self._of_example(self):
            raise RequestError(f"test examples have shape {self.test.shape}, training examples {self.shape}.")

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.inputs.shape[1:])

    @staticmethod
    def _of_example(dataset: Dataset) -> tuple[int, ...]:
        """The shape that other examples must have; sequences may have any length."""
        return dataset.shape[1:] if isinstance(dataset.inputs, Sequences) else dataset.shape

    @property
    def labelled(self) -> np.ndarray:
        """Which examples have a target."""
        return is_labelled(self.targets, self.task)

    def without_targets(self) -> Dataset:
        """The same examples without their target."""
        test = None if self.test is None else self.test.without_targets()
        return replace(self, targets=np.zeros((len(self), 0)), task=Inputs(), test=test)

    def take(self, rows: np.ndarray) -> Dataset:
        """The examples at these rows, without the official test set."""
        return replace(
            self,
            inputs=take_rows(self.inputs, rows),
            targets=self.targets[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
            times=None if self.times is None else self.times[rows],
            rows=np.arange(len(self))[rows] if self.rows is None else self.rows[rows],
            test=None,
        )
