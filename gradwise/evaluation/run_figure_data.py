"""The numbers behind the pictures of one run, against its *age* in examples (row C12): computed here, drawn elsewhere.

    learning_curves(record, "score").best        # (age, value) of the kept parameters
    confusion(record.evidence).pairs(10)                 # the ten commonest confusions

Every function takes a record, in memory or read from its folder, and returns plain data. What the record does not
hold (no test set, one class, a run that diverged at once) gives empty data, never an exception: a report on a
failed run is the one that is needed most.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records.evidence.fit_evidence import ErrorRate, FitEvidence
from ..records.fit import Fit
from ..records.score_scale import ScoreScale


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One quantity against age; points that could not be measured are left out."""

    age: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.age)


@dataclasses.dataclass(frozen=True, eq=False)
class LearningCurves:
    """One quantity on the training and validation sets, converted to its scale; the parameters at `best` were kept."""

    quantity: str  # "score" or "loss"
    scale: ScoreScale
    train: Curve
    valid: Curve
    best: tuple[float, float] | None
    end_examples: int
    diverged: bool


@dataclasses.dataclass(frozen=True, eq=False)
class ClassCurves:
    """One quantity of each class against age on the validation set, in `train` on the training set.

    `worst` indexes the classes to point out, worst first.
    """

    scale: ScoreScale
    classes: tuple[str, ...]
    curves: tuple[Curve, ...]
    worst: tuple[int, ...]
    train: tuple[Curve, ...] = ()


@dataclasses.dataclass(frozen=True)
class Pair:
    """One kind of confusion: how often one class was taken for another, of how many of that class."""

    true: str
    predicted: str
    errors: int
    count: int


@dataclasses.dataclass(frozen=True, eq=False)
class Confusion:
    """Counts of test examples: a row for each true class, a column for each predicted one."""

    classes: tuple[str, ...]
    counts: np.ndarray

    def shares(self) -> np.ndarray:
        """Each row as fractions of its class; a class without examples is a row of zeros."""
        totals = self.counts.sum(axis=1, keepdims=True)
        return self.counts / np.maximum(totals, 1)

    def pairs(self, most: int) -> list[Pair]:
        """The commonest confusions, commonest first; ties in the order of the classes."""
        errors = self.counts.copy()
        np.fill_diagonal(errors, 0)
        order = np.argsort(-errors, axis=None, kind="stable")[:most]
        totals = self.counts.sum(axis=1)
        return [
            Pair(self.classes[i], self.classes[j], int(errors[i, j]), int(totals[i]))
            for i, j in (divmod(int(cell), len(self.classes)) for cell in order)
            if errors[i, j] > 0
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """Targets and predictions of one output on (a sample of) the test set."""

    name: str
    target: np.ndarray
    prediction: np.ndarray
    r2: float

    @property
    def error(self) -> np.ndarray:
        return self.prediction - self.target


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def column(history: dict[str, list[Any]], name: str) -> np.ndarray:
    """A column of numbers; what is missing is NaN, and so is a column that was not recorded."""
    values = history.get(name)
    missing = [None] * len(history.get("age_examples", ()))
    return np.array(missing if values is None else values, dtype=np.float64)


def _curve(age: np.ndarray, value: np.ndarray) -> Curve:
    seen = np.isfinite(age) & np.isfinite(value)
    return Curve(age[seen], value[seen])


def best_interval(record: Fit) -> int | None:
    """The interval whose parameters were kept: the last new minimum, or the lowest score where none was marked."""
    marked = [index for index, best in enumerate(record.history.get("best", ())) if best]
    if marked:
        return marked[-1]
    score = column(record.history, "valid_score")
    return int(np.nanargmin(score)) if np.isfinite(score).any() else None


def learning_curves(record: Fit, quantity: str = "score") -> LearningCurves:
    """Training and validation score or loss against age."""
    age = column(record.history, "age_examples")
    scale = ScoreScale.of_run(record.recipe, record.task) if quantity == "score" else ScoreScale("loss")
    train, valid = (scale.on(column(record.history, f"{part}_{quantity}")) for part in ("train", "valid"))
    index = best_interval(record)
    point = None if index is None else (float(age[index]), float(valid[index]))
    return LearningCurves(
        quantity,
        scale,
        _curve(age, train),
        _curve(age, valid),
        point if point is not None and np.isfinite(point).all() else None,
        record.outcome.age_examples,
        record.outcome.failed,
    )


def window(curves: Sequence[Curve]) -> tuple[float, float]:
    """The range of values worth showing: what the curves do after the first tenth of the run.

    The fall from the initial weights and the rise of a diverging run are steep and tell little; shown in full they
    press everything else flat. They leave the picture at the top instead.
    """
    if not any(len(curve) for curve in curves):
        return (0.0, 1.0)
    end = max(curve.age[-1] for curve in curves if len(curve))
    settled = np.concatenate([curve.value[curve.age >= 0.1 * end] for curve in curves])
    low, high, middle = float(settled.min()), float(settled.max()), float(np.median(settled))
    if middle > 0:
        high = min(high, max(8.0 * middle, low))
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    floor = low - margin
    return (max(0.0, floor) if low >= 0 else floor, high + margin)


def optimiser_curves(record: Fit) -> dict[str, Curve]:
    """The learning rate and the norm of the gradient against age, where they were recorded."""
    age = column(record.history, "age_examples")
    curves = {name: _curve(age, column(record.history, name)) for name in ("learning_rate", "gradient_norm")}
    return {name: curve for name, curve in curves.items() if len(curve)}


def class_curves(record: Fit, quantity: str = "score", most: int = 3) -> ClassCurves:
    """Score or loss of each class against age (row F6), pointing out the worst at the best interval."""
    classes = record.evidence.classes.classes
    values = _of_each_class(record, f"valid_{quantity}_by_class", len(classes))
    if values is None:
        return ClassCurves(ScoreScale(), (), (), ())
    age = column(record.history, "age_examples")
    index = best_interval(record)
    at_best = np.nan_to_num(values[len(values) - 1 if index is None else index], nan=-np.inf)
    order = np.argsort(-at_best, kind="stable")[:most]
    learned = _of_each_class(record, f"train_{quantity}_by_class", len(classes))
    return ClassCurves(
        ScoreScale.of_run(record.recipe, record.task) if quantity == "score" else ScoreScale("loss"),
        classes,
        tuple(_curve(age, values[:, k]) for k in range(len(classes))),
        tuple(int(k) for k in order if at_best[k] > 0),
        () if learned is None else tuple(_curve(age, learned[:, k]) for k in range(len(classes))),
    )


def _of_each_class(record: Fit, name: str, classes: int) -> np.ndarray | None:
    """A column of lists as numbers (intervals, classes); None where it was not recorded for these classes."""
    rows = record.history.get(name) or []
    present = [row for row in rows if row]
    if not classes or not present or any(len(row) != classes for row in present):
        return None
    return np.array([row or [None] * classes for row in rows], dtype=np.float64)


def confusion(evidence: FitEvidence) -> Confusion:
    """The confusion matrix of the test set; empty without classes or without a test set."""
    found = evidence.classes
    counts = np.array(found.confusion, dtype=np.float64).reshape(len(found.confusion), -1 if found.confusion else 0)
    return Confusion(found.classes if len(counts) else (), counts)


def worst_error_rates(evidence: FitEvidence) -> tuple[ErrorRate, ...]:
    """The error rates of classes or labels on the test set, worst first; what was not measured is left out."""
    rates = evidence.labels or evidence.classes.rates
    seen = [rate for rate in rates if math.isfinite(rate.rate)]
    return tuple(sorted(seen, key=lambda rate: (-rate.rate, -rate.count)))


def residuals(evidence: FitEvidence) -> tuple[Residuals, ...]:
    """Targets and predictions of each output, the least explained output first."""
    numbers, found = evidence.numbers, []
    for k, name in enumerate(numbers.names):
        target, prediction = (np.array([row[k] for row in rows]) for rows in (numbers.targets, numbers.predictions))
        seen = np.isfinite(target) & np.isfinite(prediction)
        target, prediction = target[seen], prediction[seen]
        if not len(target):
            continue
        spread = float(((target - target.mean()) ** 2).sum())
        r2 = 1.0 - float(((prediction - target) ** 2).sum()) / spread if spread > 0 else math.nan
        found.append(Residuals(name, target, prediction, r2))
    return tuple(sorted(found, key=lambda item: math.inf if math.isnan(item.r2) else item.r2))
