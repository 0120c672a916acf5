"""Infers the task from the targets: one of several classes, any of several labels, or numbers.

| targets | values | task |
|---|---|---|
| one | words, booleans, integers with at most 20 different values | classes |
| one | anything else that is a number | numbers |
| several | all 0 or 1 | labels |
| several | numbers | numbers |
| several | some of them words or booleans | several: those and whole 0 and 1 are classes, the others numbers |

`--task` overrides the table. Integer targets in an array file mean classes, however many there are. A row with a
missing target is kept, unlabelled: the class -1, or NaN. Only some criteria can learn from it; the others raise. Of
several kinds of targets a row may lack some, and teaches the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.errors import RequestError
from ...specs.dataset import UNLABELLED, Classes, Labels, Numbers, Several, Task
from .columns import Field

TASKS = ("classes", "labels", "numbers")
FEW_VALUES = 20


@dataclass(frozen=True)
class Target:
    """One target: its distinct values, sorted, and for each row the index of its value.

    The index is -1 where the target is missing.
    """

    name: str
    values: np.ndarray
    codes: np.ndarray

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind in "UO"

    @property
    def is_binary(self) -> bool:
        return not self.is_text and bool(np.isin(self.values, (0, 1)).all())

    def numbers(self) -> np.ndarray:
        if self.is_text:
            raise RequestError(
                f"target `{self.name}` contains text such as {str(self.values[0])[:40]!r}, not numbers: for classes, "
                "use one text target."
            )
        return np.append(self.values.astype(np.float64), np.nan)[self.codes]


def _complete(name: str, values: np.ndarray, codes: np.ndarray) -> Target:
    """The target; raises if every value is missing or one is infinite."""
    if len(values) == 0:
        raise RequestError(
            f"target `{name}` is missing in every row (empty, NA and ? count as missing): name another, or learn "
            "features without one (gradwise fit --unsupervised)."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        infinite = np.append(~np.isfinite(values), False)[codes]
        raise RequestError(
            f"target `{name}` is infinite in data row {int(np.argmax(infinite)) + 1}: replace it or remove the row."
        )
    return Target(name, values, codes)


def of_array(name: str, values: np.ndarray) -> Target:
    """A target from an array of one dimension."""
    if values.dtype.kind not in "biufUS":
        raise RequestError(f"target `{name}` contains {values.dtype} values: use numbers, booleans or text.")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    distinct, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    if distinct.dtype.kind == "f" and len(distinct) and np.isnan(distinct[-1]):
        codes[codes == len(distinct) - 1] = -1
        distinct = distinct[:-1]
    return _complete(name, distinct, codes)


def of_field(field: Field, kind: str | None = None) -> Target:
    """A target from a column of a table; `kind` is the user's choice, if any."""
    field = field.plain()
    if kind == "category" or field.nature == "text":
        codes, words = field.words
        if kind == "number" or (kind is None and field.decimal):
            return of_array(field.name, field.numbers())
        return _complete(field.name, np.array(words, dtype=str), codes)
    if field.nature == "boolean":
        codes, words = field.words
        return _complete(field.name, np.array([text == "True" for text in words], dtype=bool), codes)
    if field.nature in ("integer", "real"):
        found = of_array(field.name, field.natural())
        if field.nature == "integer" and found.values.dtype.kind == "f":  # integers that became floats beside NaN
            return Target(found.name, found.values.astype(np.int64), found.codes)
        return found
    raise RequestError(f"target `{field.name}` contains {field.array.type} values: use text, booleans or numbers.")


def _classes(target: Target) -> tuple[Classes, np.ndarray]:
    count, rows = len(target.values), int(np.count_nonzero(target.codes >= 0))
    if count < 2:
        raise RequestError(
            f"target `{target.name}` is {str(target.values[0])[:40]!r} in every row: classes need at least two."
        )
    if count > FEW_VALUES and count > rows / 2:
        remedy = "check that it is the right column." if target.is_text else "for regression, use --task numbers."
        raise RequestError(
            f"target `{target.name}` has {count} distinct values in {rows} rows, too many for classes: {remedy}"
        )
    return Classes(target.values, target.name), target.codes


def _is_class(target: Target) -> bool:
    """Whether a target beside others names a class: words, booleans, whole numbers of 0 and 1."""
    return target.values.dtype.kind in "UOb" or (target.is_binary and target.values.dtype.kind in "iu")


def _default_task(targets: Sequence[Target], integers_are_classes: bool) -> str:
    if len(targets) > 1:
        if all(target.is_binary for target in targets):
            return "labels"
        return "several" if any(target.values.dtype.kind in "UOb" for target in targets) else "numbers"
    kind = targets[0].values.dtype.kind
    few = integers_are_classes or len(targets[0].values) <= FEW_VALUES
    return "classes" if kind in "UOb" or (kind in "iu" and few) else "numbers"


def _missing_of_several(targets: Sequence[Target]) -> tuple[str, ...]:
    """A note on each target that some rows lack."""
    absent = {target.name: int(np.count_nonzero(target.codes < 0)) for target in targets}
    return tuple(
        f"target `{name}`: missing in {count} of {len(targets[0].codes)} rows, which teach the other targets alone"
        for name, count in absent.items()
        if count
    )


def _several(targets: Sequence[Target]) -> tuple[Task, np.ndarray, tuple[str, ...]]:
    """Classes and numbers side by side, and how each was read."""
    tasks: list[Classes | Numbers] = []
    columns, read = [], []
    for target in targets:
        if _is_class(target):
            task, codes = _classes(target)
            tasks.append(task)
            columns.append(np.where(codes < 0, np.nan, codes))
            read.append(f"`{target.name}` ({len(task.labels)} classes)")
            continue
        if len(target.values) < 2:
            raise RequestError(f"target `{target.name}` is {target.values[0]} in every row: leave it out.")
        tasks.append(Numbers((target.name,)))
        columns.append(target.numbers())
        read.append(f"`{target.name}` (numbers)")
    note = f"several targets share one network: {', '.join(read)}"
    return Several(tuple(tasks)), np.stack(columns, axis=1), (note, *_missing_of_several(targets))


def missing_targets(targets: Sequence[Target]) -> tuple[str, ...]:
    """A note on the rows that have no target, if there are any."""
    absent = np.any([target.codes < 0 for target in targets], axis=0)
    if not absent.any():
        return ()
    names = ", ".join(f"`{target.name}`" for target in targets if np.any(target.codes < 0))
    return (
        f"target {names}: missing in {int(absent.sum())} of {len(absent)} rows, first in data row "
        f"{int(np.argmax(absent)) + 1}; those rows are unlabelled",
    )


def understand(
    targets: Sequence[Target], task: str | None, integers_are_classes: bool = False
) -> tuple[Task, np.ndarray, tuple[str, ...]]:
    """The task, the targets as numbers, and notes on how they were read."""
    if task is not None and task not in TASKS:
        raise RequestError(f"--task {task}: unknown task; choose from {', '.join(TASKS)}.")
    chosen = task or _default_task(targets, integers_are_classes)
    names = tuple(target.name for target in targets)
    first = targets[0]
    if chosen == "several":
        return _several(targets)
    notes = missing_targets(targets)
    if chosen == "classes":
        if len(targets) > 1:
            raise RequestError(f"--task classes takes one target; got {len(targets)}: {', '.join(names[:5])}.")
        if task is None and first.values.dtype.kind in "iu" and not integers_are_classes:
            notes += (f"target `{first.name}`: {len(first.values)} distinct integers, treated as classes",)
        return *_classes(first), notes
    if chosen == "labels":
        for target in targets:
            if not target.is_binary:
                raise RequestError(f"--task labels needs targets of 0 and 1; `{target.name}` has other values.")
        return Labels(names), np.stack([target.numbers() for target in targets], axis=1), notes
    if all(len(target.values) < 2 for target in targets):
        raise RequestError(f"target `{first.name}` is {first.values[0]} in every row: there is nothing to learn.")
    numbers = np.stack([target.numbers() for target in targets], axis=1)
    whole = len(targets) == 1 and first.values.dtype.kind == "f" and bool(np.all(first.values % 1 == 0))
    if task is None and whole and len(first.values) <= FEW_VALUES:
        notes += (
            f"target `{first.name}`: {len(first.values)} distinct numbers; --task classes treats them as classes",
        )
    return Numbers(names), numbers, notes


def under(task: Task, targets: Sequence[Target]) -> np.ndarray:
    """The targets of a test set as numbers, under the task of the training set."""
    if isinstance(task, Several):
        several = [(one, under(one, [target])) for one, target in zip(task.tasks, targets, strict=True)]
        return np.stack(
            [np.where(own < 0, np.nan, own) if one.kind == "classes" else own[:, 0] for one, own in several], axis=1
        )
    if not isinstance(task, Classes):
        return np.stack([target.numbers() for target in targets], axis=1)
    (target,) = targets
    same = (task.labels.dtype.kind in "UO") == target.is_text
    known = {label if same else str(label): index for index, label in enumerate(task.labels.tolist())}
    places = [known.get(value if same else str(value), -1) for value in target.values.tolist()]
    if -1 in places:
        odd = target.values[places.index(-1)]
        raise RequestError(
            f"the test set has the class {str(odd)[:40]!r} in `{target.name}`, which the training set does not have."
        )
    return np.array([*places, UNLABELLED], np.int64)[target.codes]
