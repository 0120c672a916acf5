"""Metrics by name, all of them for every part of the data, and an interval around the one that was chosen.

| task | metrics, the default first |
|---|---|
| classes | error_rate, accuracy, f1_macro, log_loss, auc, balanced_error_rate, ... (see `METRICS`) |
| labels | error_rate and accuracy (of the labels one by one), subset_error_rate, f1_macro, log_loss, auc, ... |
| numbers | rmse, mae, r2 |
| several | relative_error, and those of each target, such as price.rmse and colour.error_rate |
| inputs | what the criterion measures; the first chooses |

relative_error is the mean over the targets of their error relative to that of the best constant for the same rows: the
error rate relative to that of the most frequent class (of labels one by one), the RMSE relative to the deviation. It is
0 for a model that is always right, and 1 for one that knows nothing.

f1_macro, precision_macro, recall_macro, auc and average_precision are plain means over all classes or labels, each
against the rest, also of two classes: neither is "the positive one". (Both have the same AUC.) A class without examples
has neither an AUC nor an average precision, so it is no part of their mean.

scikit-learn's metrics give the same numbers (tests compare them), but for some hundred rows they take 10 to 50 times as
long, because each call checks its arguments. A bootstrap measures a thousand times: it weights the rows by how often
they were drawn, so that nothing is sorted twice, and measures only the metric that it is asked for.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..runtime.errors import RequestError, nearest
from ..specs.dataset import Several, Task, is_labelled
from .threshold_curves import Ranking, ratio

# The first is the default, and the first few are those that people look for; the terminal shows no others unasked.
METRICS = {
    "classes": (
        *("error_rate", "accuracy", "f1_macro", "log_loss", "auc"),
        *("balanced_error_rate", "precision_macro", "recall_macro", "average_precision"),
    ),
    "labels": ("error_rate", "subset_error_rate", "f1_macro", "log_loss", "auc", "accuracy", "average_precision"),
    "numbers": ("rmse", "mae", "r2"),
    "several": ("relative_error",),
}
SHOWN_METRICS = 5
HIGHER_IS_BETTER = frozenset(
    ("accuracy", "f1_macro", "precision_macro", "recall_macro", "auc", "average_precision", "r2")
)
# What the mean over classes of their errors decides: to follow them, training counts each class the same.
BALANCED = frozenset(("balanced_error_rate", "recall_macro"))
_RANKED = frozenset(("auc", "average_precision"))
COUNTED = frozenset(("error_rate", "accuracy"))  # of classes: so many of so many examples, hence Wilson's interval


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


def shown_metrics(measured: Sequence[str], chosen: str) -> tuple[str, ...]:
    """Those of the measured metrics to show where there is little room: the usual ones, and the chosen one."""
    usual = measured[:SHOWN_METRICS]
    return tuple(name for name in measured if name in usual or name == chosen)


def _mean_finite(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


class _ClassResults:
    """The metrics of classes, each a method by its name; what does not depend on the weights is computed once."""

    def __init__(self, probabilities: np.ndarray, targets: np.ndarray):
        self._probabilities, self._targets = probabilities, targets
        self._width = probabilities.shape[1]

    @cached_property
    def _chosen(self) -> np.ndarray:
        return np.asarray(self._probabilities.argmax(1))

    @cached_property
    def _wrong(self) -> np.ndarray:
        return np.asarray(self._chosen != self._targets)

    @cached_property
    def _losses(self) -> np.ndarray:
        return -np.log(np.maximum(self._probabilities[np.arange(len(self._targets)), self._targets], 1e-38))

    @cached_property
    def _rankings(self) -> list[Ranking]:
        return [Ranking(self._targets == k, self._probabilities[:, k]) for k in range(self._width)]

    def _by_class(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each class: the weight of its examples, of those taken for it, and of both; only classes that occur."""
        own = np.bincount(self._targets, weights, self._width)
        taken = np.bincount(self._chosen, weights, self._width)
        right = np.bincount(self._targets, weights * ~self._wrong, self._width)
        seen = own + taken > 0
        return own[seen], taken[seen], right[seen]

    def error_rate(self, weights: np.ndarray) -> float:
        return float(np.average(self._wrong, weights=weights))

    def accuracy(self, weights: np.ndarray) -> float:
        return 1.0 - self.error_rate(weights)

    def f1_macro(self, weights: np.ndarray) -> float:
        own, taken, right = self._by_class(weights)
        return float((2 * right / (own + taken)).mean())

    def log_loss(self, weights: np.ndarray) -> float:
        return float(np.average(self._losses, weights=weights))

    def auc(self, weights: np.ndarray) -> float:
        curves = self._rankings[1:] if self._width == 2 else self._rankings
        return _mean_finite([one.auc(weights) for one in curves])

    def balanced_error_rate(self, weights: np.ndarray) -> float:
        own, _, right = self._by_class(weights)
        return float(1.0 - (right[own > 0] / own[own > 0]).mean())

    def precision_macro(self, weights: np.ndarray) -> float:
        _, taken, right = self._by_class(weights)
        return float(ratio(right, taken).mean())

    def recall_macro(self, weights: np.ndarray) -> float:
        own, _, right = self._by_class(weights)
        return float(ratio(right, own).mean())

    def average_precision(self, weights: np.ndarray) -> float:
        return _mean_finite([one.average_precision(weights) for one in self._rankings])


class _LabelResults:
    """The metrics of labels, each a method by its name."""

    def __init__(self, probabilities: np.ndarray, targets: np.ndarray):
        self._probabilities, self._targets = probabilities, targets > 0.5

    @cached_property
    def _chosen(self) -> np.ndarray:
        return self._probabilities > 0.5

    @cached_property
    def _wrong(self) -> np.ndarray:
        return np.asarray(self._chosen != self._targets)

    @cached_property
    def _losses(self) -> np.ndarray:
        right = np.where(self._targets, self._probabilities, 1.0 - self._probabilities)
        return np.asarray(-np.log(np.maximum(right, 1e-38)).mean(1))

    @cached_property
    def _rankings(self) -> list[Ranking]:
        each = range(self._targets.shape[1])
        return [Ranking(self._targets[:, k], self._probabilities[:, k]) for k in each]

    def error_rate(self, weights: np.ndarray) -> float:
        return float(np.average(self._wrong.mean(1), weights=weights))

    def accuracy(self, weights: np.ndarray) -> float:
        return 1.0 - self.error_rate(weights)

    def subset_error_rate(self, weights: np.ndarray) -> float:
        return float(np.average(self._wrong.any(1), weights=weights))

    def f1_macro(self, weights: np.ndarray) -> float:
        right = weights @ (self._targets & self._chosen)
        return float(ratio(2 * right, weights @ self._targets + weights @ self._chosen).mean())

    def log_loss(self, weights: np.ndarray) -> float:
        return float(np.average(self._losses, weights=weights))

    def auc(self, weights: np.ndarray) -> float:
        return _mean_finite([one.auc(weights) for one in self._rankings])

    def average_precision(self, weights: np.ndarray) -> float:
        return _mean_finite([one.average_precision(weights) for one in self._rankings])


class _NumberResults:
    """The metrics of numbers, each a method by its name: a mean over the outputs."""

    def __init__(self, predictions: np.ndarray, targets: np.ndarray):
        self._targets, self._error = targets, predictions - targets

    def _residual(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.average(self._error**2, axis=0, weights=weights))

    def rmse(self, weights: np.ndarray) -> float:
        return float(np.sqrt(self._residual(weights).mean()))

    def mae(self, weights: np.ndarray) -> float:
        return float(np.average(np.abs(self._error), axis=0, weights=weights).mean())

    def r2(self, weights: np.ndarray) -> float:
        centred = self._targets - np.average(self._targets, axis=0, weights=weights)
        spread = np.average(centred**2, axis=0, weights=weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = np.where(spread > 0, 1.0 - self._residual(weights) / spread, np.nan)
        return float(explained.mean())


class _SeveralResults:
    """The metrics of several tasks: `relative_error`, and those of each by its name and theirs."""

    def __init__(self, task: Several, predictions: np.ndarray, targets: np.ndarray):
        self._pieces = []
        for piece in task.pieces:
            own = piece.of(targets)
            known = is_labelled(own, piece.task)
            results = _RESULTS[piece.task.kind](predictions[known, piece.outputs], own[known])
            self._pieces.append((piece, known, results, own[known]))

    def _relative(self, kind: str, results: Any, targets: np.ndarray, weights: np.ndarray) -> float:
        """The error relative to that of the best constant; not a number where that makes none."""
        if not weights.sum() > 0:
            return math.nan
        if kind == "numbers":
            explained = results.r2(weights)
            return math.sqrt(max(0.0, 1.0 - explained)) if math.isfinite(explained) else math.nan
        hits = np.eye(int(targets.max()) + 1)[targets] if kind == "classes" else targets
        shares = np.average(hits, axis=0, weights=weights)
        constant = 1.0 - shares.max() if kind == "classes" else float(np.minimum(shares, 1.0 - shares).mean())
        return float(results.error_rate(weights) / constant) if constant > 0 else math.nan

    def relative_error(self, weights: np.ndarray) -> float:
        return _mean_finite(
            [self._relative(piece.task.kind, found, own, weights[known]) for piece, known, found, own in self._pieces]
        )

    def __getattr__(self, name: str) -> Callable[[np.ndarray], float]:
        """The metric of one target: `price.rmse`."""
        target, _, metric = name.rpartition(".")
        for piece, known, results, _ in self._pieces if target else ():
            if piece.name == target:
                method = getattr(results, metric)
                return lambda weights: method(weights[known]) if weights[known].sum() > 0 else math.nan
        raise AttributeError(name)


_RESULTS: dict[str, Any] = {"classes": _ClassResults, "labels": _LabelResults, "numbers": _NumberResults}


def _results(task: Task, predictions: np.ndarray, targets: np.ndarray) -> Any:
    predictions, targets = np.asarray(predictions, np.float64), np.asarray(targets)
    if isinstance(task, Several):
        return _SeveralResults(task, predictions, targets)
    return _RESULTS[task.kind](predictions, targets)


def metrics_of(task: Task) -> tuple[str, ...]:
    """The names of all metrics of a task, the default first; of several tasks then the default of each."""
    each = task.pieces if isinstance(task, Several) else ()
    usual = [f"{one.name}.{METRICS[one.task.kind][0]}" for one in each]
    every = [f"{one.name}.{name}" for one in each for name in METRICS[one.task.kind]]
    return tuple(dict.fromkeys((*METRICS[task.kind], *usual, *every)))


def measure(
    task: Task,
    predictions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    names: Sequence[str] | None = None,
) -> dict[str, float]:
    """Every metric of the task, or those of these names.

    Predictions (n, k) are probabilities for classes and labels, numbers otherwise.
    """
    names = metrics_of(task) if names is None else names
    if len(targets) == 0:
        return dict.fromkeys(names, math.nan)
    weights = np.ones(len(targets)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.sum() <= 0:
        weights = np.ones(len(targets))
    found = _results(task, predictions, targets)
    return {name: getattr(found, name)(weights) for name in names}


def wilson(errors: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % confidence interval for an error rate: right also when no error was seen.

    Neither number needs to be whole: weighted examples are worth an effective number of them.
    """
    from scipy.stats import norm

    if count == 0 or math.isnan(errors):
        return (0.0, 1.0)
    rate, spread = min(1.0, max(0.0, errors / count)), float(norm.ppf(0.975)) ** 2 / count
    centre = rate + spread / 2
    half = math.sqrt(spread * (rate * (1.0 - rate) + spread / 4))
    low, high = (centre - half) / (1.0 + spread), (centre + half) / (1.0 + spread)
    return (max(0.0, low) if rate > 0 else 0.0, min(1.0, high) if rate < 1 else 1.0)


def effective_count(weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2: how many examples of equal weight tell as much; 0 where none has a positive weight."""
    positive = np.asarray(weights, np.float64)[np.asarray(weights) > 0]
    share = positive / positive.max() if len(positive) else positive  # the squares of tiny weights would be 0
    return float(share.sum() ** 2 / (share**2).sum()) if len(share) else 0.0


def interval_of_mean(values: np.ndarray) -> tuple[float, float]:
    """A 95 % confidence interval for the mean of values of independent examples, by the normal approximation."""
    from scipy.stats import norm, sem

    if len(values) < 2:
        return (math.nan, math.nan)
    mean, half = float(np.mean(values)), float(norm.ppf(0.975) * sem(values))
    return (mean - half, mean + half)


def bootstrap_interval(
    statistic: Callable[..., Any],
    *columns: np.ndarray,
    resamples: int,
    vectorized: bool = False,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """An interval by the bootstrap: the percentiles of the statistic where it is finite, rows drawn together.

    The interval of a result is part of the result, so the resamples are always the same.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    options: Any = {"n_resamples": resamples, "batch": max(1, 1_000_000 // len(columns[0])), "vectorized": vectorized}
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)  # a resample may hold one class or one value only
        drawn = bootstrap(columns, statistic, paired=True, method="percentile", rng=seed, **options)
    finite = drawn.bootstrap_distribution[np.isfinite(drawn.bootstrap_distribution)]
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2]) if len(finite) else (math.nan, math.nan)
    return (float(low), float(high))


def metric_interval(
    name: str, task: Task, predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, float]:
    """A 95 % confidence interval for one metric: Wilson's for error rates and accuracy, else the bootstrap.

    Weighted rows count as their effective number, and a row of weight 0 not at all.
    """
    given = np.ones(len(targets)) if weights is None else np.asarray(weights, np.float64)
    if not (given > 0).any():
        return (math.nan, math.nan)
    if name in COUNTED and task.kind == "classes":
        counted = (predictions.argmax(1) == targets) == (name == "accuracy")
        count = effective_count(given)
        return wilson(float(np.average(counted, weights=given)) * count, count)
    if (given > 0).sum() < 2:
        return (math.nan, math.nan)
    return _resampled(getattr(_results(task, predictions, targets), name), name, len(targets), weights, 0.95)


def _resampled(
    measured: Callable[[np.ndarray], float], name: str, count: int, weights: np.ndarray | None, level: float
) -> tuple[float, float]:
    """The bootstrap's interval of what is measured, the rows weighted by how often they are drawn."""
    given = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)

    def statistic(rows: np.ndarray) -> float:
        drawn = given * np.bincount(rows, minlength=count)
        return measured(drawn) if drawn.sum() > 0 else math.nan

    resamples = 1000 if count <= 20_000 and name not in _RANKED else 200
    return bootstrap_interval(statistic, np.arange(count), resamples=resamples, level=level)


def gain_interval(
    name: str,
    task: Task,
    predictions: np.ndarray,
    others: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    level: float = 0.95,
) -> tuple[float, float]:
    """A confidence interval for how much better other predictions of the same rows are by this metric.

    The rows are drawn together: what both get wrong is no difference between them.
    """
    if len(targets) < 2:
        return (math.nan, math.nan)
    ours, theirs = (getattr(_results(task, each, targets), name) for each in (predictions, others))
    sign = -1.0 if name in HIGHER_IS_BETTER else 1.0
    return _resampled(lambda drawn: sign * (ours(drawn) - theirs(drawn)), name, len(targets), weights, level)
