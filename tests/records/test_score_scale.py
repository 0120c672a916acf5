"""One scale for scores: how they are named, converted and written, wherever they appear."""

import ast
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.records import score_scale
from gradwise.records.score_scale import ScoreScale, confidence_interval, in_metric, number, percent, score_kind, tick

THIN = "\u202f"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0222, f"2.2{THIN}%"),
        (0.0, f"0{THIN}%"),
        (0.00031, f"0.03{THIN}%"),
        (1.0, f"100.0{THIN}%"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (58.46, "58.5"),
        (-0.123456, "−0.123"),
        (1234.5, "1,234"),
        (999.7, "1,000"),
        (1.5e9, "1.5 × 10⁹"),
        (-2e-7, "−2 × 10⁻⁷"),
        (0.0, "0"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (-1500, "−1,500"), (2.5e29, "2.5e29"), (3e-7, "3e-7"), (1e-10, "1e-10")],
)
def test_tick(value: float, text: str) -> None:
    assert tick(value) == text


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [("error_rate", 0.05, f"5.0{THIN}%"), ("balanced_error_rate", 0.5, f"50.0{THIN}%"), ("auc", 0.99961, "1.000"),
     ("rmse", 58.46, "58.5"), ("auc", None, "–"), ("log_loss", math.nan, "–")],
)  # fmt: skip
def test_a_metric_has_its_own_unit(metric: str, value: float | None, text: str) -> None:
    assert in_metric(metric, value) == text


@pytest.mark.parametrize(
    ("task", "metric", "criterion", "kind", "name"),
    [
        ("classes", "error_rate", Supervised(SoftmaxLoss()), "error", "validation error"),
        ("classes", "log_loss", Supervised(SoftmaxLoss(score_by="loss")), "loss", "validation loss"),
        ("numbers", "rmse", Supervised(GaussianLoss()), "squared", "validation RMSE"),
        ("numbers", "mae", Supervised(GaussianLoss(score_by="absolute")), "absolute", "validation absolute error"),
        ("numbers", "rmse", lambda model, batch, key: 0.0, "loss", "validation loss"),
        ("inputs", "pseudo_likelihood", None, "loss", "validation negative pseudo-log-likelihood"),
        ("inputs", "probe_rmse", None, "squared", "validation RMSE of a linear probe"),
    ],
)
def test_the_kind_of_score_is_read_off_the_recipe(task: str, metric: str, criterion: Any, kind: str, name: str) -> None:
    recipe = defaults.classification()
    recipe = recipe if criterion is None else dataclasses.replace(recipe, criterion=criterion)
    assert score_kind(recipe, task, metric) == kind
    assert ScoreScale.of(recipe, task, metric).name == name


def test_an_error_rate_is_read_in_percent() -> None:
    scale = ScoreScale()
    assert scale.shown(0.0212) == 0.0212
    assert scale.say(0.0212) == f"2.1{THIN}%"
    assert scale.precise(0.0212) == f"2.12{THIN}%"
    assert scale.tick(0.25) == f"25{THIN}%"
    assert scale.gap(0.0123) == "1.2 points"
    assert scale.gap(0.001, 0.02) == "0.1 to 2 points"
    assert scale.say(None) == scale.say(math.nan) == scale.precise(math.nan) == "–"


def test_an_error_of_a_number_is_read_in_its_unit() -> None:
    scale = ScoreScale.of(defaults.regression(), "numbers", "rmse", unit=10.0)
    assert scale.say(0.25) == "5"
    assert scale.precise(0.0256) == "1.6"
    assert scale.gap(0.123, 4.56) == "0.12 to 4.6"
    np.testing.assert_allclose(scale.on([0.25, 1.0]), [5.0, 10.0])
    absolute = ScoreScale.of(defaults.following(defaults.regression(), "mae"), "numbers", "mae", unit=10.0)
    assert absolute.shown(0.25) == 2.5
    assert ScoreScale("loss", unit=1.0).shown(-3.0) == -3.0


def test_a_run_s_errors_of_numbers_are_of_standardised_ones() -> None:
    scale = ScoreScale.of_run(defaults.regression(), "numbers")
    assert (scale.quantity, scale.say(0.25)) == ("standardised error", "0.5")
    assert ScoreScale.of_run(defaults.classification(), "classes") == ScoreScale()


def test_values_of_a_metric_are_written_as_they_are() -> None:
    assert ScoreScale.of_metric("balanced_error_rate").write(0.25) == f"25.0{THIN}%"
    assert ScoreScale.of_metric("balanced_error_rate").gap(0.019) == "1.9 points"
    assert (ScoreScale.of_metric("rmse").quantity, ScoreScale.of_metric("rmse").write(0.25)) == ("RMSE", "0.25")


@pytest.mark.parametrize(("kind", "metric"), [("error", "error_rate"), ("squared", "rmse"), ("loss", "log_loss")])
def test_a_score_is_in_its_own_metric_alone(kind: str, metric: str) -> None:
    assert ScoreScale(kind).is_in(metric)
    assert not ScoreScale(kind).is_in("auc")
    assert not ScoreScale("absolute").is_in(metric)


def test_a_confidence_interval_has_its_unit_once() -> None:
    assert confidence_interval("error_rate", (0.01, 0.023)) == f"95{THIN}% confidence interval 1.0 – 2.3{THIN}%"
    assert confidence_interval("rmse", (1.0, 2.5)) == f"95{THIN}% confidence interval 1 – 2.5"
    assert confidence_interval("rmse", (1.0, math.nan)) == ""


def _names(node: ast.AST) -> set[str]:
    """The functions that an expression names."""
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in ast.walk(node)}


def _second_scales(code: str) -> Iterator[tuple[int, str]]:
    """Where a module formats scores by itself: its line, and what it does."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, [*node.values[1:], None], strict=True):
                if not isinstance(value, ast.FormattedValue):
                    continue
                spec = "" if value.format_spec is None else ast.unparse(value.format_spec)[2:-1]
                hundred = any(isinstance(one, ast.Constant) and one.value == 100 for one in ast.walk(value.value))
                unit = str(after.value).lstrip(" \u202f") if isinstance(after, ast.Constant) else ""
                if (spec.endswith("%") and spec != ".0%") or (hundred and unit[:1] == "%" and spec != ".0f"):
                    yield value.lineno, "writes a fraction in percent with decimals"
                if hundred and unit.startswith("points"):
                    yield value.lineno, "writes a difference in points"
        if isinstance(node, ast.IfExp):
            written, otherwise = _names(node.body), _names(node.orelse)
            if written & {"percent", "short_percent"} and otherwise & {"number", "tick"}:
                yield node.lineno, "chooses between percent and a number"
        if isinstance(node, ast.Call) and "endswith" in _names(node.func) and "error_rate" in ast.unparse(node):
            yield node.lineno, "decides which metrics are read in percent"
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and "'error_rate'" in ast.unparse(node):
            yield node.lineno, "decides which metrics are read in percent"


def test_no_other_module_formats_scores() -> None:
    """One implementation of a score's format; shares that are no scores are written in whole percent."""
    package = Path(score_scale.__file__).parents[1]
    rooms = [path for path in package.iterdir() if path.name not in {"runtime", "data"}]  # which know no scores
    others = [path for room in rooms for path in room.rglob("*.py") if path != Path(score_scale.__file__)]
    assert len(others) > 100
    found = [(str(path.relative_to(package)), *one) for path in others for one in _second_scales(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'f"{error:.1%}"',
        'f"{100 * error:.1f} %"',
        'f"{100 * gain:.1f} points"',
        "percent(x) if share else number(x)",
        "wording.short_percent if share else wording.tick",
        'metric.endswith("error_rate")',
        'metric in ("error_rate", "balanced_error_rate")',
    ],
)
def test_a_second_scale_would_be_found(line: str) -> None:
    assert list(_second_scales(line))
    assert not list(_second_scales('f"{share:.0%} and {100 * share:.0f} % of the rows, {count} points"'))
