"""The numbers behind the pictures of one run, against its *age* in examples (row C12): computed here, drawn elsewhere.

    learning_curves(record, "score").best        # (age, value) of the kept parameters
    confusion(record).pairs(10)                  # the ten commonest confusions

Every function takes a record, in memory or read from its folder, and returns plain data. What the record does not
hold (no test set, one class, a run that diverged at once) gives empty data, never an exception: a report on a
failed run is the one that is needed most.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records.fit import Fit
from ..records.score_scale import score_kind
from .metrics import wilson


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One quantity against age; points that could not be measured are left out."""

    age: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.age)


@dataclasses.dataclass(frozen=True, eq=False)
class LearningCurves:
    """One quantity on the training and validation sets, and the point whose parameters were kept.

    `kind` says what the values are: "error" (a share of the examples), "loss", "squared" (shown as its square root) or
    "absolute", the last two in standard deviations of the target.
    """

    quantity: str  # "score" or "loss"
    kind: str
    train: Curve
    valid: Curve
    best: tuple[float, float] | None
    end_examples: int
    diverged: bool


@dataclasses.dataclass(frozen=True, eq=False)
class ClassCurves:
    """The validation score of each class against age; `worst` indexes the classes to point out, worst first."""

    kind: str
    classes: tuple[str, ...]
    curves: tuple[Curve, ...]
    worst: tuple[int, ...]


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


@dataclasses.dataclass(frozen=True)
class Rate:
    """The error rate of one class or label on the test set, with its 95 % confidence interval; NaN if there is none."""

    name: str
    count: int  # examples of this class, or with this label
    errors: float
    rate: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class ClassErrors:
    """Error rates by class (or by label), worst first."""

    of: str  # "class" or "label"
    rates: tuple[Rate, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """Predictions grouped by confidence: how sure the network was, how often it was right, how many there are."""

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against accuracy before and after temperature scaling (row J9)."""

    before: Bins
    after: Bins
    temperature: float
    error_before: float
    error_after: float

    @property
    def empty(self) -> bool:
        return self.before.count.sum() + self.after.count.sum() == 0


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


@dataclasses.dataclass(frozen=True)
class Folds:
    """The estimate by k-fold cross-validation: each fold's value, their mean and its interval."""

    values: tuple[float, ...]
    mean: float
    low: float
    high: float


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
    """Training and validation score or loss against age.

    The score of numbers is recorded as a squared error in standardised units; its square root is what reads as a
    distance, so that is what the curve holds.
    """
    age = column(record.history, "age_examples")
    train, valid = (column(record.history, f"{part}_{quantity}") for part in ("train", "valid"))
    kind = score_kind(record.recipe, record.task) if quantity == "score" else "loss"
    if kind == "squared":
        train, valid = (np.sqrt(np.maximum(values, 0.0)) for values in (train, valid))
    index = best_interval(record)
    point = None if index is None else (float(age[index]), float(valid[index]))
    return LearningCurves(
        quantity,
        kind,
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


def class_curves(record: Fit, most: int = 3) -> ClassCurves:
    """The validation score of each class against age (row F6), pointing out the worst at the best interval."""
    rows = record.history.get("valid_score_by_class") or []
    classes = tuple(str(name) for name in record.evidence.get("classes", ()))
    present = [row for row in rows if row]
    if not classes or not present or any(len(row) != len(classes) for row in present):
        return ClassCurves("", (), (), ())
    values = np.array([row or [None] * len(classes) for row in rows], dtype=np.float64)
    age = column(record.history, "age_examples")
    index = best_interval(record)
    at_best = np.nan_to_num(values[len(values) - 1 if index is None else index], nan=-1.0)
    order = np.argsort(-at_best, kind="stable")[:most]
    return ClassCurves(
        score_kind(record.recipe, record.task),
        classes,
        tuple(_curve(age, values[:, k]) for k in range(len(classes))),
        tuple(int(k) for k in order if at_best[k] > 0),
    )


def confusion(record: Fit) -> Confusion:
    """The confusion matrix of the test set; empty without classes or without a test set."""
    counts = np.array(record.evidence.get("confusion") or np.zeros((0, 0)), dtype=np.float64)
    classes = tuple(str(name) for name in record.evidence.get("classes", ()))
    if counts.shape != (len(classes), len(classes)) or counts.sum() == 0:
        return Confusion((), np.zeros((0, 0)))
    return Confusion(classes, counts)


def _rate(name: str, row: dict[str, Any], total: int) -> Rate:
    """One line of the evidence; `total` is the number of examples that could have been wrong."""
    count, errors, rate = int(row.get("count") or 0), _number(row.get("errors")), _number(row.get("error_rate"))
    low, high = _number(row.get("low")), _number(row.get("high"))
    # Wilson's interval holds for a plain share; a weighted rate is another number, and gets none.
    if math.isnan(low) and total and math.isclose(errors / total, rate, rel_tol=1e-6, abs_tol=1e-9):
        low, high = wilson(errors, total)
    return Rate(name, count, errors, rate, low, high)


def class_errors(record: Fit) -> ClassErrors:
    """The error rate of each class or label on the test set, worst first; what was not measured is left out.

    A class is wrong on its own examples only; a label can be wrong on any example.
    """
    if record.task == "labels":
        tested = record.data.rows.test
        rates = [_rate(str(row.get("label")), row, tested) for row in record.evidence.get("per_label") or ()]
        of = "label"
    else:
        plain = record.evidence.get("per_class") or ()
        rates = [_rate(str(row.get("class")), row, int(row.get("count") or 0)) for row in plain if row.get("count")]
        of = "class"
    seen = [rate for rate in rates if math.isfinite(rate.rate)]
    return ClassErrors(of, tuple(sorted(seen, key=lambda rate: (-rate.rate, -rate.count))))


def _bins(plain: dict[str, Any]) -> Bins:
    table = np.array([plain.get(name) or () for name in ("confidence", "accuracy", "count")], np.float64).reshape(3, -1)
    kept = table[:, np.isfinite(table).all(axis=0) & (table[2] > 0)]
    return Bins(*kept)


def reliability(record: Fit) -> Reliability:
    """How far the probabilities can be believed, before and after temperature scaling."""
    plain = record.evidence.get("reliability") or {}
    errors = record.evidence.get("calibration_error") or {}
    return Reliability(
        _bins(plain.get("before") or {}),
        _bins(plain.get("after") or {}),
        _number(record.evidence.get("temperature")),
        _number(errors.get("before")),
        _number(errors.get("after")),
    )


def residuals(record: Fit) -> tuple[Residuals, ...]:
    """Targets and predictions of each output, the least explained output first."""
    both = (record.evidence.get(name) or () for name in ("targets", "predictions"))
    targets, predictions = (np.array(rows, dtype=np.float64) for rows in both)
    if targets.ndim != 2 or targets.shape != predictions.shape:
        return ()
    names = [str(name) for name in record.evidence.get("names", ())]
    found = []
    for k in range(targets.shape[1]):
        seen = np.isfinite(targets[:, k]) & np.isfinite(predictions[:, k])
        target, prediction = targets[seen, k], predictions[seen, k]
        if not len(target):
            continue
        spread = float(((target - target.mean()) ** 2).sum())
        r2 = 1.0 - float(((prediction - target) ** 2).sum()) / spread if spread > 0 else math.nan
        found.append(Residuals(names[k] if k < len(names) else f"output {k}", target, prediction, r2))
    return tuple(sorted(found, key=lambda item: math.inf if math.isnan(item.r2) else item.r2))


def fold_estimates(record: Fit) -> Folds:
    """The k-fold estimate (row E2), where one was made."""
    plain = record.evidence.get("estimate") or record.evidence
    values = tuple(_number(fold.get("value")) for fold in plain.get("folds") or ())
    finite = [value for value in values if math.isfinite(value)]
    mean = plain.get("mean") if values else None
    low, high = (plain.get("interval") if values else None) or (None, None)
    if mean is None and finite:
        mean = float(np.mean(finite))
    return Folds(values, _number(mean), _number(low), _number(high))
