"""How a score is named, converted and written: one scale for the terminal, reports, findings and statistics.

>>> percent(0.0222), number(1234.5), in_metric("auc", 0.91)
('2.2\\u202f%', '1,234', '0.910')
>>> ScoreScale("squared", unit=10.0).say(0.04)
'2'

A score is what training minimises on the validation set: an error rate as a share of one, a loss, or the squared or
absolute error of standardised numbers. People read an error rate in percent and an error in the target's unit.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..specs.knobs import Spec
from ..specs.paths import knobs
from ..specs.recipe import Recipe

NOTHING = "–"
_THIN = "\u202f"  # a narrow space that does not break: "2.2 %" stays on one line

METRICS = {
    "error_rate": "error",
    "accuracy": "accuracy",
    "balanced_error_rate": "balanced error",
    "subset_error_rate": "subset error",
    "f1_macro": "macro F1",
    "precision_macro": "macro precision",
    "recall_macro": "macro recall",
    "log_loss": "log-loss",
    "auc": "AUC",
    "average_precision": "average precision",
    "relative_error": "relative error",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "pseudo_likelihood": "negative pseudo-log-likelihood",
    "score_matching": "score-matching loss",
    "nats_per_word": "loss per word, in nats",
    "probe_error_rate": "error of a linear probe",
    "probe_rmse": "RMSE of a linear probe",
}
_TO_THREE_PLACES = {"auc", "f1_macro", "precision_macro", "recall_macro", "average_precision"}
_KINDS = {"relative": "relative score", "error": "error", "squared": "RMSE", "absolute": "absolute error"}
_STANDARDISED = {"squared": "standardised error", "absolute": "standardised absolute error"}
_SCORED = {"error_rate": "error", "rmse": "squared", "mae": "absolute", "log_loss": "loss"}  # metrics that are scores
_PROBES = {"probe_error_rate": "error", "probe_rmse": "squared"}


def is_missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def percent(share: float | None) -> str:
    """A fraction in percent, with as many decimals as it takes to tell it from zero."""
    if share is None or is_missing(share):
        return NOTHING
    hundredths = 100.0 * share
    if hundredths == 0:
        return f"0{_THIN}%"
    decimals = 1 if abs(hundredths) >= 0.1 else 2
    return f"{hundredths:.{decimals}f}{_THIN}%"


def short_percent(share: float) -> str:
    """A fraction in percent on an axis."""
    return f"{100 * share:.3g}{_THIN}%"


def number(value: float | None) -> str:
    """Three significant digits; very large and very small numbers as powers of ten, and a true minus sign."""
    if value is None or is_missing(value):
        return NOTHING
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e7:
        digits, _, power = f"{value:.2e}".partition("e")
        text = f"{digits.rstrip('0').rstrip('.')} × 10{_superscript(int(power))}"
    else:
        text = f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}"
    return text.replace("-", "−")


def tick(value: float) -> str:
    """A number on an axis, where there is room for a few characters only: 0.25, 1,500, 2.5e29."""
    return number(value) if value == 0 or 1e-4 <= abs(value) < 1e5 else re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.3g}")


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def metric_name(name: str) -> str:
    """How a metric is called; one of several targets names that too: `price.rmse` is "RMSE of price"."""
    target, _, own = name.rpartition(".")
    if target and own in METRICS:
        return f"{METRICS[own]} of {target}"
    return METRICS.get(name, name.replace("_", " "))


def is_in_percent(name: str) -> bool:
    """Whether the metric counts examples, which people read in percent."""
    return name.endswith("error_rate") or name.rpartition(".")[2] == "accuracy"


def in_metric(name: str, value: float | None) -> str:
    """A value of this metric: rates in percent, AUC, F1 and their like to three places, all others as a number."""
    if name.rpartition(".")[2] in _TO_THREE_PLACES and value is not None and not is_missing(value):
        return f"{value:.3f}"
    return percent(value) if is_in_percent(name) else number(value)


def confidence_interval(name: str, ends: tuple[float, float]) -> str:
    """A 95 % confidence interval of this metric in words; nothing where it is not known."""
    if any(map(is_missing, ends)):
        return ""
    low, high = (in_metric(name, end) for end in ends)
    return f"95{_THIN}% confidence interval {low.removesuffix(f'{_THIN}%')} – {high}"


def score_kind(recipe: Recipe, task: str, metric: str = "") -> str:
    """What a recipe's score is: the "error", the "loss", or the "squared" or "absolute" error of a number.

    Of several targets it is "relative": a mean of errors, each relative to that of the best constant.
    """
    if metric in _PROBES:
        return _PROBES[metric]
    if task == "inputs":
        return "loss"  # a criterion without targets is measured in its own units
    if task == "several":
        return "relative"
    for path, _, value in knobs(recipe):
        if path.startswith("criterion.") and path.endswith("score_by"):
            return str(value)
    if callable(recipe.criterion) and not isinstance(recipe.criterion, Spec):
        return "loss"  # a plain loss function is its own score
    return "squared" if task == "numbers" else "error"


@dataclass(frozen=True)
class ScoreScale:
    """The scale of validation scores of one kind; `unit` is the target's, `title` the name of a score of features."""

    kind: str = "error"
    unit: float = 1.0
    title: str = ""

    @staticmethod
    def of(recipe: Recipe, task: str, metric: str = "", unit: float = 1.0) -> "ScoreScale":
        """The scale of the scores of this recipe on this task."""
        kind = score_kind(recipe, task, metric)
        title = metric_name(metric) if task == "inputs" or metric in _PROBES else ""
        return ScoreScale(kind, unit if kind in {"squared", "absolute"} else 1.0, title)

    @staticmethod
    def of_run(recipe: Recipe, task: str) -> "ScoreScale":
        """The scale of a run's history, which holds errors of standardised numbers."""
        kind = score_kind(recipe, task)
        return ScoreScale(kind, title=_STANDARDISED.get(kind, ""))

    @staticmethod
    def of_metric(name: str) -> "ScoreScale":
        """The scale of values of a metric, which need no conversion."""
        return ScoreScale("error" if is_in_percent(name) else "loss", title=metric_name(name))

    @property
    def quantity(self) -> str:
        return self.title or _KINDS.get(self.kind, "loss")

    @property
    def name(self) -> str:
        return f"validation {self.quantity}"

    @property
    def is_share(self) -> bool:
        return self.kind == "error"

    def is_in(self, metric: str) -> bool:
        """Whether converted scores and values of the metric are the same quantity."""
        return _SCORED.get(metric) == self.kind

    def shown(self, score: float) -> float:
        """The score as people read it: a squared error as its root, in the target's unit; an error rate as it is."""
        return self.unit * (math.sqrt(score) if self.kind == "squared" and score >= 0 else score)

    def on(self, scores: Any) -> np.ndarray:
        return np.array([self.shown(float(score)) for score in np.ravel(scores)], dtype=float)

    def say(self, score: float | None) -> str:
        return NOTHING if score is None else self.write(self.shown(float(score)))

    def write(self, value: float) -> str:
        """A value that is converted already."""
        return percent(value) if self.is_share else number(value)

    def precise(self, score: float) -> str:
        """A score with one digit more, where neighbours must differ."""
        value = self.shown(score)
        if is_missing(value):
            return NOTHING
        return f"{100 * value:.2f}{_THIN}%" if self.is_share else f"{value:.4g}"

    def tick(self, value: float) -> str:
        return short_percent(value) if self.is_share else tick(value)

    def gap(self, *differences: float) -> str:
        """Differences of converted values, with their unit behind the last."""
        size, unit = (100.0, " points") if self.is_share else (1.0, "")
        return " to ".join(f"{size * one:.2g}" for one in differences) + unit
