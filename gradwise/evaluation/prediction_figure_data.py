"""What the pictures of a finished run need, from its test predictions."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records.evidence.fit_evidence import (
    ClassEvidence,
    ErrorRate,
    FitEvidence,
    Misclassified,
    Mispredicted,
    NumberEvidence,
    ReliabilityBins,
    ResidualQuantile,
)
from ..specs.dataset import Classes, Labels, Several, Task
from .metrics import wilson
from .threshold_curves import gather_curves

_WORST = 12
_DRAWN = 2000
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def _text(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)


def reliability_bins(probabilities: np.ndarray, targets: np.ndarray, bins: int = 10) -> ReliabilityBins:
    """Accuracy against confidence, in bins of equal count (row J9), and the mean gap between the two."""
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == targets
    parts = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(targets)))
    sure, hits = ([float(values[part].mean()) for part in parts] for values in (confidence, right))
    count = [len(part) for part in parts]
    return ReliabilityBins(tuple(sure), tuple(hits), tuple(count), calibration_error(sure, hits, count))


def calibration_error(confidence: Sequence[float], accuracy: Sequence[float], count: Sequence[int]) -> float:
    """The mean gap between confidence and accuracy, weighted by count."""
    return float(np.average(np.abs(np.subtract(confidence, accuracy)), weights=count))


def _error_rate(name: str, count: int, errors: int, total: int) -> ErrorRate:
    """`total` is the number of examples that could have been wrong."""
    return ErrorRate(name, count, errors, errors / total if total else math.nan, *wilson(float(errors), total))


def _of_classes(task: Classes, before: np.ndarray, after: np.ndarray, targets: np.ndarray, rows: Any) -> ClassEvidence:
    width = after.shape[1]
    names = [_text(label) for label in task.labels]
    names += [f"(unused {k})" for k in range(len(names), width)]
    predicted = after.argmax(1)
    confusion = np.zeros((width, width), int)
    np.add.at(confusion, (targets, predicted), 1)
    counts, hits = confusion.sum(1).tolist(), confusion.diagonal().tolist()
    loss = -np.log(np.maximum(after[np.arange(len(targets)), targets], 1e-38))
    wrong = [k for k in np.argsort(-loss, kind="stable")[:_WORST] if predicted[k] != targets[k]]
    return ClassEvidence(
        classes=tuple(names),
        confusion=tuple(map(tuple, confusion.tolist())),
        rates=tuple(
            _error_rate(name, count, count - right, count)
            for name, count, right in zip(names, counts, hits, strict=True)
        ),
        before=reliability_bins(before, targets),
        after=reliability_bins(after, targets),
        worst=tuple(
            Misclassified(
                int(rows[k]), names[targets[k]], names[predicted[k]], float(after[k, predicted[k]]), float(loss[k])
            )
            for k in wrong
        ),
    )


def _of_labels(task: Labels, probabilities: np.ndarray, targets: np.ndarray) -> tuple[ErrorRate, ...]:
    """A label can be wrong on any example."""
    wrong, present = ((probabilities > 0.5) != (targets > 0.5)).sum(0).tolist(), (targets > 0.5).sum(0).tolist()
    return tuple(
        _error_rate(name, count, errors, len(targets))
        for name, count, errors in zip(task.names, present, wrong, strict=True)
    )


def _of_numbers(names: tuple[str, ...], predictions: np.ndarray, targets: np.ndarray, rows: Any) -> NumberEvidence:
    drawn = np.arange(len(targets))
    if len(drawn) > _DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _DRAWN, replace=False))
    error = predictions - targets
    size = np.abs(error).max(1)
    return NumberEvidence(
        names=tuple(names),
        targets=tuple(map(tuple, targets[drawn].tolist())),
        predictions=tuple(map(tuple, predictions[drawn].tolist())),
        quantiles=tuple(
            ResidualQuantile(level, tuple(np.quantile(error, level, axis=0).tolist())) for level in _LEVELS
        ),
        worst=tuple(
            Mispredicted(int(rows[k]), tuple(targets[k].tolist()), tuple(predictions[k].tolist()), float(size[k]))
            for k in np.argsort(-size, kind="stable")[:_WORST]
        ),
    )


def gather_evidence(
    task: Task,
    before: np.ndarray,
    after: np.ndarray,
    targets: np.ndarray,
    rows: np.ndarray | None = None,
    temperature: float = math.nan,
    weights: np.ndarray | None = None,
) -> FitEvidence:
    """Evidence for the report; `before` and `after` are predictions without and with the temperature.

    `rows` says where each example stands in the data that was read, since that is where a reader will look for it.
    `weights` count in the areas under curves as they do in the metrics; what is a count of examples stays one.
    """
    places = np.arange(len(targets)) if rows is None else rows
    if isinstance(task, Several):
        return FitEvidence()  # the metrics of each target stand in the record
    if isinstance(task, Labels):
        curves = gather_curves(task.names, targets > 0.5, after, weights)
        return FitEvidence(labels=_of_labels(task, after, targets), thresholds=curves)
    if isinstance(task, Classes):
        classes = _of_classes(task, before, after, targets, places)
        curves = gather_curves(classes.classes, targets[:, None] == np.arange(after.shape[1]), after, weights)
        return FitEvidence(dataclasses.replace(classes, temperature=float(temperature)), thresholds=curves)
    return FitEvidence(numbers=_of_numbers(task.names, after, targets, places))
