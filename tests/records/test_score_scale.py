"""One scale for scores: how they are named, converted and written, wherever they appear."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.records.score_scale import ScoreScale, in_metric, number, percent, score_kind, tick

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


def test_nobody_else_writes_a_score() -> None:
    """No other module has a format of its own for shares and scores, which would disagree with this one."""
    root = Path(gradwise.__file__).parent
    own = re.compile(r"def \w*(?:percent|say_score|show_score|show_error|score_words|score_text)\w*\(")
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if own.search(line) and path.name != "score_scale.py"
    ]
    assert found == []
