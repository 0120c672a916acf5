"""The rows that layers are pre-trained on: training rows, and rows without a target (row A1).

    pool = pool_of(train, [valid, test], spare, others)
    pool.rows                      training rows with their targets, then the others, theirs not known
    pool.findings(layers)          how many rows without a target serve which layers

No validation or test row is ever among them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..data.splits import stack_rows
from ..records.finding import Finding
from ..specs.adapters import as_criterion
from ..specs.dataset import UNLABELLED, Dataset
from ..specs.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Pool:
    """The rows that layers learn from: the training rows, and under them `spare` ones without a target."""

    rows: Dataset
    spare: int = 0
    left_out: int = 0

    def findings(self, layers: Sequence[Recipe]) -> tuple[Finding, ...]:
        """How many rows without a target serve which layers."""
        found = []
        learns_from = [as_criterion(one.criterion).learns_from for one in layers]
        level = [number + 1 for number, name in enumerate(learns_from) if name == "targets"]
        if self.spare and len(level) == len(layers):
            what = f"{self.spare:,} rows without a target are not used: supervised layers learn from the target."
            step = "put unsupervised layers below, such as denoising:100,supervised:100, or leave those rows out."
            found.append(Finding("warning", what, row="A1", next=step, where="model.layers"))
        elif self.spare:
            but = f", not of layer {', '.join(map(str, level))}, which learns from the target" if level else ""
            what = f"{self.spare:,} rows without a target served the pre-training alone{but}."
            found.append(Finding("note", what, row="A1", where="model.layers"))
        if self.left_out:
            what = (
                f"{self.left_out:,} rows without a target are not used: they belong to the groups of validation and "
                "test rows, or are not earlier than these."
            )
            found.append(Finding("note", what, row="A1", where="model.layers.split"))
        return tuple(found)


def _apart(spare: Dataset, train: Dataset, judged: Sequence[Dataset]) -> np.ndarray:
    """Which rows without a target may be learned from, where the split keeps groups or times apart.

    Not those of a group that is judged by, and none from the time on at which judging begins.
    """
    kept = np.ones(len(spare), bool)
    others = [part for part in judged if part is not train]
    if spare.groups is not None and train.groups is not None:
        names = np.concatenate([part.groups for part in others if part.groups is not None] or [train.groups[:0]])
        if not np.isin(names.astype(str), train.groups.astype(str)).any():
            kept &= ~np.isin(spare.groups.astype(str), names.astype(str))
    times = [part.times.min() for part in others if part.times is not None]
    if spare.times is not None and train.times is not None and times and train.times.max() < min(times):
        kept &= spare.times < min(times)  # a time that is not known is not before
    return kept


def _unknown(train: Dataset, count: int) -> np.ndarray:
    """So many targets that are not known."""
    if train.task.kind == "classes":
        return np.full(count, UNLABELLED, train.targets.dtype)
    return np.full((count, *train.targets.shape[1:]), np.nan)


def pool_of(train: Dataset, judged: Sequence[Dataset], spare: Dataset | None, others: Dataset | None) -> Pool:
    """The training rows, those of the same data without a target, and others, whose targets are not looked at."""
    left_out = 0
    if spare is not None:
        kept = _apart(spare, train, judged)
        left_out = int((~kept).sum())
        spare = spare.take(np.flatnonzero(kept)) if kept.any() else None
    parts = [one for one in (spare, others) if one is not None]
    if not parts:
        return Pool(train, 0, left_out)
    count = sum(map(len, parts))
    weights = None
    if train.weights is not None:
        usual = np.full(count, train.weights.mean())
        known = [one.weights for one in parts if one.weights is not None]
        weights = np.concatenate([train.weights, np.concatenate(known) if len(known) == len(parts) else usual])
    rows = Dataset(
        stack_rows([train.inputs, *(one.inputs for one in parts)]),
        np.concatenate([train.targets, _unknown(train, count)]),
        train.task,
        train.columns,
        weights,
    )
    return Pool(rows, count, left_out)
