"""Metrics by name, all of them for every part of the data, and an interval around the one that was chosen.

| task | metrics | the chosen one by default |
|---|---|---|
| classes | error_rate, balanced_error_rate, log_loss, auc | error_rate |
| labels | error_rate (per label), subset_error_rate, log_loss, auc | error_rate |
| numbers | rmse, mae, r2 | rmse |
| inputs | what the criterion measures | its first: the one that chooses |

scikit-learn's metrics give the same numbers (tests compare them), but for some hundred rows they take 10 to 50 times as
long, because each call checks its arguments; a bootstrap measures a thousand times.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.errors import RequestError, nearest
from ..specs.dataset import Task

METRICS = {
    "classes": ("error_rate", "balanced_error_rate", "log_loss", "auc"),
    "labels": ("error_rate", "subset_error_rate", "log_loss", "auc"),
    "numbers": ("rmse", "mae", "r2"),
}
HIGHER_IS_BETTER = frozenset({"auc", "r2"})


def check_metric(name: str | None, kind: str, measured: tuple[str, ...] = ()) -> str:
    """The name, if it measures this kind of task; without one the usual. `measured` is what a criterion tells itself.

    A criterion that learns the inputs measures itself: nothing else knows what is asked of an input.
    """
    known = measured or METRICS.get(kind, ())
    if not known:
        raise RequestError(f"metrics of {kind} without a target need a criterion that learns them: --unsupervised.")
    name = name or known[0]
    if name not in known:
        raise RequestError(f"unknown metric `{name}` for {kind}.{nearest(name, known)}")
    return name


def _auc(targets: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """Probability that a positive example outranks a negative one, ties counted half, each pair by its weights."""
    _, rank = np.unique(scores, return_inverse=True)
    positive = np.bincount(rank, weights * (targets > 0.5))
    negative = np.bincount(rank, weights * (targets <= 0.5))
    pairs = positive.sum() * negative.sum()
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum() / pairs) if pairs > 0 else math.nan


def _mean_finite(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def _of_classes(probabilities: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    wrong = probabilities.argmax(1) != targets
    counts = np.bincount(targets, weights)
    by_class = (np.bincount(targets, weights * wrong)[counts > 0] / counts[counts > 0]).tolist()
    chosen = probabilities[np.arange(len(targets)), targets]
    width = probabilities.shape[1]
    curves = [1] if width == 2 else list(range(width))
    return {
        "error_rate": float(np.average(wrong, weights=weights)),
        "balanced_error_rate": float(np.mean(by_class)),
        "log_loss": float(np.average(-np.log(np.maximum(chosen, 1e-38)), weights=weights)),
        "auc": _mean_finite([_auc(targets == k, probabilities[:, k], weights) for k in curves]),
    }


def _of_labels(probabilities: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    wrong = (probabilities > 0.5) != (targets > 0.5)
    right = np.where(targets > 0.5, probabilities, 1.0 - probabilities)
    return {
        "error_rate": float(np.average(wrong.mean(1), weights=weights)),
        "subset_error_rate": float(np.average(wrong.any(1), weights=weights)),
        "log_loss": float(np.average(-np.log(np.maximum(right, 1e-38)).mean(1), weights=weights)),
        "auc": _mean_finite([_auc(targets[:, k], probabilities[:, k], weights) for k in range(targets.shape[1])]),
    }


def _of_numbers(predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    error = predictions - targets
    centred = targets - np.average(targets, axis=0, weights=weights)
    residual = np.average(error**2, axis=0, weights=weights)
    spread = np.average(centred**2, axis=0, weights=weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(spread > 0, 1.0 - residual / spread, np.nan)
    return {
        "rmse": float(np.sqrt(residual.mean())),
        "mae": float(np.average(np.abs(error), axis=0, weights=weights).mean()),
        "r2": float(explained.mean()),
    }


def measure(task: Task, predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    """Every metric of the task; predictions (n, k) are probabilities for classes and labels, numbers otherwise."""
    if len(targets) == 0:
        return dict.fromkeys(METRICS[task.kind], math.nan)
    weights = np.ones(len(targets)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.sum() <= 0:
        weights = np.ones(len(targets))
    of: dict[str, Any] = {"classes": _of_classes, "labels": _of_labels, "numbers": _of_numbers}
    return dict(of[task.kind](np.asarray(predictions, np.float64), np.asarray(targets), weights))


def wilson(errors: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval for an error rate: right also when no error was seen."""
    from scipy.stats import binomtest

    if count == 0 or math.isnan(errors):
        return (0.0, 1.0)
    ends = binomtest(round(errors), count).proportion_ci(0.95, "wilson")
    return (float(ends.low), float(ends.high))


def interval_of_mean(values: np.ndarray) -> tuple[float, float]:
    """A 95 % confidence interval for the mean of values of independent examples, by the normal approximation."""
    from scipy.stats import norm, sem

    if len(values) < 2:
        return (math.nan, math.nan)
    mean, half = float(np.mean(values)), float(norm.ppf(0.975) * sem(values))
    return (mean - half, mean + half)


def bootstrap_interval(
    statistic: Callable[..., Any], *columns: np.ndarray, resamples: int, vectorized: bool = False, seed: int = 0
) -> tuple[float, float]:
    """A 95 % interval by the bootstrap: the percentiles of the statistic where it is finite, rows drawn together.

    The interval of a result is part of the result, so the resamples are always the same.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    options: Any = {"n_resamples": resamples, "batch": max(1, 1_000_000 // len(columns[0])), "vectorized": vectorized}
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)  # a resample may hold one class or one value only
        drawn = bootstrap(columns, statistic, paired=True, method="percentile", rng=seed, **options)
    finite = drawn.bootstrap_distribution[np.isfinite(drawn.bootstrap_distribution)]
    low, high = np.quantile(finite, [0.025, 0.975]) if len(finite) else (math.nan, math.nan)
    return (float(low), float(high))


def metric_interval(
    name: str, task: Task, predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, float]:
    """A 95 % confidence interval for one metric: Wilson's for error rates, else the bootstrap (1 000 resamples)."""
    if name == "error_rate" and task.kind == "classes" and weights is None and len(targets):
        return wilson(float((predictions.argmax(1) != targets).sum()), len(targets))
    if len(targets) < 2:
        return (math.nan, math.nan)

    def statistic(rows: np.ndarray) -> float:
        return measure(task, predictions[rows], targets[rows], None if weights is None else weights[rows])[name]

    resamples = 1000 if len(targets) <= 20_000 and name != "auc" else 200
    return bootstrap_interval(statistic, np.arange(len(targets)), resamples=resamples)
