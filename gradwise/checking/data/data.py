"""Checks of the data: leakage, units, labels, order, and sets with different distributions.

    measured = measure_data((x, y), None, (x_test, y_test), task="classes", outputs=10, key=key)
    measured = measure_data(**from_dataset(dataset, HoldOut()(dataset, key=key)), key=key)
    find_data(measured)                                        GW201 to GW213

Large sets are sampled with a seed (all rows for copies, labels, NaN and infinite values). No network is involved: the
findings hold whatever is trained.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ...data.text.summaries import summarise_texts
from ...records.evidence.check_evidence import CopiedRows, DataEvidence
from ...records.finding import Finding, worst_first
from ...records.score_scale import percent
from ...runtime.keys import generator, named
from ...specs.dataset import Column, Dataset, text_places
from ...specs.sequences import Sequences, as_rows
from ..codes import found
from .columns import ColumnsMeasured, find_columns, measure_columns
from .example_order import Order, find_order, measure_order
from .leakage import ColumnLeak, Overlap, find_column_leaks, find_overlap, marks, measure_column_leaks, measure_overlap
from .predictability import Part, Signal, as_part, find_signal, measure_signal, ridge, standardised, widest

_SAMPLE = 1000
_FEWEST = 10  # rows of a set from which its distribution can be compared
_FAR = 4.0  # training standard deviations by which the mean of another set cannot differ by chance


@dataclass(frozen=True)
class PartShift:
    """How well a classifier separates training from another set (area under the curve), and by which column most."""

    part: str
    area: float
    deviations: float
    column: int
    difference: float  # of the column's means, in training standard deviations


@dataclass(frozen=True)
class DataMeasured:
    """All measurements of the data; None or empty if not available.

    `counts` are the classes of each set with their numbers of examples; `shared` the groups that training shares with
    a set: how many groups, and the share of the set's rows in them.
    """

    task: str
    rows: dict[str, int]
    names: tuple[str, ...]
    columns: ColumnsMeasured
    outputs: int | None = None
    scores: bool = True
    counts: Mapping[str, Mapping[int, int]] | None = None
    marked: int = 0  # unlabelled examples, where they are allowed
    overlaps: tuple[Overlap, ...] = ()
    shared: Mapping[str, tuple[int, float]] | None = None
    giving: ColumnLeak | None = None
    signal: Signal | None = None
    order: Order | None = None
    elsewhere: tuple[PartShift, ...] = ()

    def evidence(self) -> DataEvidence:
        giving, signal = self.giving, self.signal
        return DataEvidence(
            counts={part: {str(k): n for k, n in each.items()} for part, each in (self.counts or {}).items()},
            copied=tuple(CopiedRows(one.part, one.rows, one.copied, one.expected) for one in self.overlaps),
            shared_groups={part: groups for part, (groups, _) in (self.shared or {}).items()},
            constant=int(np.sum(self.columns.constant)),
            best_input=math.nan if giving is None else giving.score,
            exact=giving is not None and giving.exact,
            conflicting=math.nan if signal is None else signal.conflicting,
            denied=math.nan if signal is None else signal.denied,
            separable={one.part: one.area for one in self.elsewhere},
        )


def from_dataset(dataset: Dataset, parts: Sequence[Dataset | None]) -> dict[str, Any]:
    """The arguments of `measure_data` for the split of a data set: raw inputs, which may have missing values.

    Of sequences and texts their summaries are looked at: two recordings with the same ones are copies of one another.
    """
    chosen = [*parts, None, None, None][:3]
    pairs = [None if part is None else (as_rows(part.inputs), part.targets) for part in chosen]
    columns = dataset.columns
    if isinstance(dataset.inputs, Sequences):
        columns = tuple(Column(name) for name in dataset.inputs.summary_names())
    elif text_places(columns):
        pairs = [None if pair is None else (summarise_texts(pair[0], columns)[0], pair[1]) for pair in pairs]
        columns = summarise_texts(dataset.inputs[:1], columns)[1]
    groups = None if dataset.groups is None else tuple(None if part is None else part.groups for part in chosen)
    return {
        "train": pairs[0],
        "valid": pairs[1],
        "test": pairs[2],
        "columns": columns,
        "groups": groups,
        "outputs": dataset.task.outputs if dataset.task.kind == "classes" else None,
        "task": dataset.task.kind,
        "missing_allowed": True,
        "scaled": False,
        "readable": not text_places(dataset.columns),
    }


def _guessed_task(targets: Any) -> str:
    """Integers in one column are classes, unless there are as many as rows; floats are numbers."""
    if targets is None or np.size(targets) == 0:
        return "inputs"
    values = np.asarray(targets)
    few = len(np.unique(values)) <= max(2, len(values) // 4)
    return "numbers" if values.dtype.kind == "f" else "classes" if values.ndim == 1 and few else ""


def _measure_elsewhere(train: Part, part: Part, random: np.random.Generator) -> PartShift | None:
    """Ridge regression on values and squares separates the sets, evaluated on held-out rows."""
    size = min(len(train), len(part), _SAMPLE)
    if size < _FEWEST:
        return None
    columns = widest(train)
    ours, theirs = (each.table(random.permutation(len(each))[:size], columns) for each in (train, part))
    one, two = standardised(ours), standardised(theirs, ours)
    means = two.mean(0) - one.mean(0)
    worst = int(np.abs(means).argmax())
    if size < 50 or len(train) + len(part) < 200:  # too few to learn from: only large differences show
        return PartShift(part.name, math.nan, math.nan, int(columns[worst]), float(means[worst]))
    half = size // 2
    features = [np.concatenate([each, each**2 - 1], 1) for each in (one, two)]
    learned = np.concatenate([each[:half] for each in features])
    sides = np.repeat([[-1.0], [1.0]], half, axis=0)
    guess = ridge(learned, sides, np.concatenate([each[half:] for each in features]))[:, 0]
    rest = size - half
    ranks = np.argsort(np.argsort(guess, kind="stable"), kind="stable") + 1.0
    area = float((ranks[rest:].sum() - rest * (rest + 1) / 2) / rest**2)
    deviation = math.sqrt((2 * rest + 1) / (12 * rest**2))  # of the area, if both came from one source
    return PartShift(part.name, area, (area - 0.5) / deviation, int(columns[worst]), float(means[worst]))


def _shared(parts: Sequence[Part]) -> dict[str, tuple[int, float]]:
    """Training groups that recur in another set."""
    told = {}
    for part in parts[1:]:
        if parts[0].groups is not None and part.groups is not None:
            inside = np.isin(part.groups, parts[0].groups)
            told[part.name] = (len(np.unique(part.groups[inside])), float(inside.mean()))
    return told


def _counts(parts: Sequence[Part], missing_allowed: bool) -> tuple[dict[str, dict[int, int]], int]:
    told, marked = {}, 0
    for part in parts:
        if part.targets is None or part.targets.ndim != 1 or part.targets.dtype.kind == "f":
            continue
        values, numbers = np.unique(part.targets, return_counts=True)
        counted = {int(value): int(number) for value, number in zip(values, numbers, strict=True)}
        marked += counted.pop(-1, 0) if missing_allowed else 0
        told[part.name] = counted
    return told, marked


def _names_rows(part: Part, task: str) -> bool:
    """Whether the targets merely number the examples, as in instance discrimination: there is nothing to predict."""
    if part.targets is None or task == "numbers" or part.targets.dtype.kind == "f" or part.targets.size > len(part):
        return False
    return len(np.unique(part.targets)) > max(len(part) // 2, 10)


def _conflicting(train: Part) -> float:
    """The share of rows whose exact inputs occur more often with another class."""
    ours = np.unique(marks(train.inputs, train.inputs.dtype.kind in "biu"), return_inverse=True)[1]
    pairs, counts = np.unique(np.stack([ours, np.asarray(train.targets)]), axis=1, return_counts=True)
    most = np.zeros(len(ours), int)
    np.maximum.at(most, pairs[0], counts)
    return 1.0 - float(most.sum()) / len(ours)


def measure_data(
    train: tuple[Any, Any],
    valid: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    *,
    columns: Sequence[str | Column] = (),
    groups: Sequence[Any] | None = None,
    outputs: int | None = None,
    batches: Iterable[Any] = (),
    task: str = "",
    missing_allowed: bool = False,
    scaled: bool = True,
    scores: bool = True,
    readable: bool = True,
    key: Key[Array, ""],
) -> DataMeasured:
    """Measures the sets, each a pair (inputs, targets or None) with the examples along the first axis.

    `groups` holds the groups of training, validation and test rows; `batches` the targets of successive training
    batches. `scaled` means that these are the network's inputs, `missing_allowed` that NaN means missing,
    `scores` that there is one output for each class (otherwise they may be coordinates, as in metric learning),
    `readable` that simple models can learn from these inputs, as they cannot from summaries of texts.
    """
    task = task or _guessed_task(train[1])
    beside = [*(groups or ()), None, None, None]
    pairs = zip(("training", "validation", "test"), (train, valid, test), beside, strict=False)
    made = [as_part(name, pair, task=task, groups=group) for name, pair, group in pairs]
    parts = [part for part in made if part is not None]
    first = parts[0]
    task = "labels" if task == "classes" and first.targets is not None and first.targets.ndim > 1 else task
    names = tuple(column.name if isinstance(column, Column) else str(column) for column in columns)
    dates = {number for number, column in enumerate(columns) if isinstance(column, Column) and column.kind == "date"}
    draws = ("columns", "overlap", "giving", "signal", "order", "else")
    randoms = {name: generator(named(key, name)) for name in draws}
    counts, marked = _counts(parts, missing_allowed) if task == "classes" else ({}, 0)
    asked = replace(first, targets=None) if _names_rows(first, task) else first
    signal = measure_signal(asked, task, randoms["signal"]) if readable else None
    if signal is not None and counts:
        signal = replace(signal, conflicting=_conflicting(first))
    apart = [_measure_elsewhere(first, part, randoms["else"]) for part in parts[1:]]
    return DataMeasured(
        task=task,
        rows={part.name: len(part) for part in parts},
        names=names,
        columns=measure_columns(
            tuple(parts), randoms["columns"], names=names, seen=scaled, missing_allowed=missing_allowed, dates=dates
        ),
        outputs=outputs,
        scores=scores,
        counts=counts,
        marked=marked,
        overlaps=tuple(measure_overlap(first, part, randoms["overlap"]) for part in parts[1:]),
        shared=_shared(parts),
        giving=measure_column_leaks(asked, task, randoms["giving"]),
        signal=signal,
        order=measure_order(asked.targets, batches if asked is first else (), task, randoms["order"]),
        elsewhere=tuple(each for each in apart if each is not None),
    )


def _find_range(counts: Mapping[str, Mapping[int, int]], outputs: int | None, scores: bool) -> tuple[Finding, ...]:
    """GW211: classes without an output."""
    labels = sorted({label for part in counts.values() for label in part})
    if outputs is None or outputs < 2 or not labels:
        return ()
    outside = [label for label in labels if not 0 <= label < outputs]
    many = sum(part.get(label, 0) for part in counts.values() for label in outside)
    told: dict[str, Any] = {"outputs": outputs, "labels": labels[:50], "examples": many}
    if outside == [outputs] and labels[0] == 1:
        what = f"labels run from 1 to {outputs}, but outputs are numbered from 0: label {outputs} has no output."
        return (found("GW211", what, where="targets", next="targets = targets - 1", **told),)
    if outside:
        # One value far outside the range often marks examples to ignore; then the loss must ignore them.
        mark = len(outside) == 1 and outside[0] != outputs
        what = f"{many:,} examples have labels outside 0 to {outputs - 1} ({', '.join(map(str, outside[:5]))})"
        what += ": if it marks examples to ignore, the loss must ignore them." if mark else "."
        step = f"give the network {labels[-1] + 1} outputs, or correct them: np.unique(targets, return_counts=True)"
        level = "error" if scores and not mark else "warning"
        return (found("GW211", what, where="targets", next=step, level=level, **told),)
    if labels[0] > 0 and outputs == labels[-1] + 1 and len(labels) == labels[-1]:
        what = f"labels start at {labels[0]}: output 0 never has an example."
        return (found("GW211", what, where="targets", next="targets = targets - 1", level="note", **told),)
    return ()


def _find_classes(counts: Mapping[str, Mapping[int, int]]) -> tuple[Finding, ...]:
    """GW207 and GW212."""
    train = counts.get("training", {})
    if len(train) < 2:
        return ()
    findings = []
    total = sum(train.values())
    rare, common = min(train, key=train.__getitem__), max(train, key=train.__getitem__)
    if train[rare] < min(0.01, 0.1 / len(train)) * total or train[common] > 0.95 * total:
        what = f"class {common} has {percent(train[common] / total)} of the training examples, class {rare} "
        what += f"{percent(train[rare] / total)} ({train[rare]:,}): always predicting {common} has an error rate of "
        what += f"only {percent(1 - train[common] / total)}."
        step = 'weight the classes: fit(..., metric="balanced_error_rate", class_weight="balanced")'
        findings.append(found("GW207", what, where=f"class {rare}", next=step, rare=train[rare], total=total))
    for name, part in counts.items():
        size = sum(part.values())
        unseen = sorted(set(part) - set(train))
        # A small set may well have no example of a rare class.
        lost = sorted(label for label in set(train) - set(part) if train[label] / total * size >= 5)
        if unseen or lost:
            what = f"{len(unseen)} classes of the {name} set have no training example"
            what = what if unseen else f"{len(lost)} training classes are missing from the {name} set"
            what += f" ({', '.join(str(label) for label in (unseen or lost)[:5])})."
            step = "use a stratified split: gradwise.data.HoldOut()"
            findings.append(found("GW212", what, where=name, next=step, unseen=unseen[:50], lost=lost[:50]))
    return tuple(findings)


def _find_parts(measured: DataMeasured) -> tuple[Finding, ...]:
    """GW203 for given groups, and GW213."""
    findings = []
    for part, (groups, share) in (measured.shared or {}).items():
        if groups:
            what = f"{groups:,} groups are in both the training and the {part} set, with {share:.0%} of its rows: "
            what += f"the {part} error shows how well known groups are recognised, not new ones."
            step = "split by whole groups: gradwise.data.GroupHoldOut()"
            findings.append(found("GW203", what, where=part, next=step, groups=groups, share=share))
    for each in measured.elsewhere:
        far = abs(each.difference) > _FAR
        if far or (each.area > 0.75 and each.deviations > 6):
            name = measured.names[each.column] if each.column < len(measured.names) else f"column {each.column}"
            told = f" (area under the curve {each.area:.2f}; 0.5 if they did not differ)"
            what = f"training and {each.part} rows can be told apart{'' if math.isnan(each.area) else told}: "
            what += f"`{name}` differs most, by {each.difference:+.2f} standard deviations in the mean."
            step = "shuffle before splitting, and scale both with the training set's statistics."
            findings.append(found("GW213", what, where=name, next=step, area=each.area, difference=each.difference))
    return tuple(findings)


def find_data(measured: DataMeasured) -> tuple[Finding, ...]:
    """GW201 to GW213, worst first."""
    counts = measured.counts or {}
    parts = _find_parts(measured)
    known = {finding.where for finding in parts if finding.code == "GW203"}  # groups explain clusters of rows
    copies = [each for overlap in measured.overlaps for each in find_overlap(overlap, measured.rows["training"])]
    findings = [each for each in copies if each.code != "GW203" or each.where not in known]
    findings += find_column_leaks(measured.giving, measured.names)
    findings += parts
    findings += find_columns(measured.columns, measured.names)
    findings += find_signal(measured.signal)
    findings += _find_classes(counts)
    findings += find_order(measured.order)
    findings += _find_range(counts, measured.outputs, measured.scores)
    return worst_first(findings)
