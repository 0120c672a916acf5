"""What the pictures of a finished run need, from its test predictions: plain JSON values."""

from typing import Any

import numpy as np

from ..specs.dataset import Task
from .metrics import wilson

_WORST = 12
_DRAWN = 2000


def _text(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)


def reliability_bins(probabilities: np.ndarray, targets: np.ndarray, bins: int = 10) -> dict[str, list[float]]:
    """Accuracy against confidence, in bins of equal count (row J9)."""
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == targets
    parts = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(targets)))
    return {
        "confidence": [float(confidence[part].mean()) for part in parts],
        "accuracy": [float(right[part].mean()) for part in parts],
        "count": [len(part) for part in parts],
    }


def calibration_error(curve: dict[str, list[float]]) -> float:
    """The mean gap between confidence and accuracy, weighted by count."""
    gaps = np.abs(np.subtract(curve["confidence"], curve["accuracy"]))
    return float(np.average(gaps, weights=curve["count"]))


def _of_classes(task: Any, before: np.ndarray, after: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    width = after.shape[1]
    names = [_text(label) for label in task.labels]
    names += [f"(unused {k})" for k in range(len(names), width)]
    predicted = after.argmax(1)
    confusion = np.zeros((width, width), int)
    np.add.at(confusion, (targets, predicted), 1)
    counts, hits = confusion.sum(1), confusion.diagonal()
    loss = -np.log(np.maximum(after[np.arange(len(targets)), targets], 1e-38))
    curves = {"before": reliability_bins(before, targets), "after": reliability_bins(after, targets)}
    per_class: list[dict[str, Any]] = []
    for name, count, errors in zip(names, counts.tolist(), (counts - hits).tolist(), strict=True):
        low, high = wilson(errors, count)
        rate = errors / count if count else None
        per_class.append(
            {"class": name, "count": count, "errors": errors, "error_rate": rate, "low": low, "high": high}
        )
    wrong = [row for row in np.argsort(-loss, kind="stable")[:_WORST] if predicted[row] != targets[row]]
    return {
        "classes": names,
        "confusion": confusion.tolist(),
        "per_class": per_class,
        "reliability": curves,
        "calibration_error": {name: calibration_error(curve) for name, curve in curves.items()},
        "worst": [
            {
                "row": int(row),
                "true": names[targets[row]],
                "predicted": names[predicted[row]],
                "probability": float(after[row, predicted[row]]),
                "loss": float(loss[row]),
            }
            for row in wrong
        ],
    }


def _of_labels(task: Any, probabilities: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    wrong = (probabilities > 0.5) != (targets > 0.5)
    return {
        "labels": list(task.names),
        "per_label": [
            {
                "label": name,
                "count": int((targets[:, k] > 0.5).sum()),
                "errors": int(wrong[:, k].sum()),
                "error_rate": float(wrong[:, k].mean()),
            }
            for k, name in enumerate(task.names)
        ],
    }


def _of_numbers(task: Any, predictions: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    rows = np.arange(len(targets))
    if len(rows) > _DRAWN:
        rows = np.sort(np.random.default_rng(0).choice(rows, _DRAWN, replace=False))
    error = predictions - targets
    size = np.abs(error).max(1)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    return {
        "names": list(task.names),
        "targets": targets[rows].tolist(),
        "predictions": predictions[rows].tolist(),
        "residual_quantiles": {str(level): np.quantile(error, level, axis=0).tolist() for level in levels},
        "worst": [
            {
                "row": int(row),
                "true": targets[row].tolist(),
                "predicted": predictions[row].tolist(),
                "error": float(size[row]),
            }
            for row in np.argsort(-size, kind="stable")[:_WORST]
        ],
    }


def gather_evidence(
    task: Task, before: np.ndarray, after: np.ndarray, targets: np.ndarray, rows: np.ndarray | None = None
) -> dict[str, Any]:
    """Evidence for the report; `before` and `after` are predictions without and with the temperature.

    `rows` says where each example stands in the data that was read, since that is where a reader will look for it.
    """
    if task.kind == "labels":
        return _of_labels(task, after, targets)
    found = _of_classes(task, before, after, targets) if task.kind == "classes" else _of_numbers(task, after, targets)
    if rows is not None:
        found["worst"] = [{**one, "row": int(rows[one["row"]])} for one in found["worst"]]
    return found
