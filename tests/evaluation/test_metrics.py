"""Metrics against scikit-learn's, and intervals against their formulas."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as oracle

from gradwise.evaluation.metrics import (
    HIGHER_IS_BETTER,
    METRICS,
    bootstrap_interval,
    check_metric,
    effective_count,
    measure,
    metric_interval,
    metrics_of,
    shown_metrics,
    wilson,
)
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Labels, Numbers, Several

N = 211


def _weights(kind: str) -> np.ndarray | None:
    draw = np.random.default_rng(7)
    return {"none": None, "random": draw.random(N), "zeros": draw.integers(0, 3, N).astype(float)}[kind]


def _probabilities(width: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(width)
    targets = draw.integers(0, width, N)
    raw = draw.random((N, width)) + np.eye(width)[targets] * 0.6
    raw = np.round(raw, 2)  # so that there are ties
    return raw / raw.sum(1, keepdims=True), targets


def _labels() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 2, (N, 3)).astype(float)
    return np.clip(np.round(0.5 * targets + 0.6 * draw.random((N, 3)), 2), 0.01, 0.99), targets


@pytest.mark.parametrize("kind", ["none", "random", "zeros"])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_metrics_of_classes_equal_scikit_learns(width: int, kind: str) -> None:
    probabilities, targets = _probabilities(width)
    weights = _weights(kind)
    got = measure(Classes(np.arange(width)), probabilities, targets, weights)
    chosen = probabilities.argmax(1)
    labels = np.arange(width)
    if width == 2:
        auc = oracle.roc_auc_score(targets, probabilities[:, 1], sample_weight=weights)
    else:
        auc = oracle.roc_auc_score(targets, probabilities, multi_class="ovr", sample_weight=weights)
    expected = {
        "error_rate": 1 - oracle.accuracy_score(targets, chosen, sample_weight=weights),
        "balanced_error_rate": 1 - oracle.balanced_accuracy_score(targets, chosen, sample_weight=weights),
        "log_loss": oracle.log_loss(targets, probabilities, labels=labels, sample_weight=weights),
        "auc": auc,
        "accuracy": oracle.accuracy_score(targets, chosen, sample_weight=weights),
        "f1_macro": oracle.f1_score(targets, chosen, average="macro", sample_weight=weights),
        "precision_macro": oracle.precision_score(targets, chosen, average="macro", sample_weight=weights),
        "recall_macro": oracle.recall_score(targets, chosen, average="macro", sample_weight=weights),
        "average_precision": oracle.average_precision_score(
            np.eye(width)[targets], probabilities, average="macro", sample_weight=weights
        ),
    }
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["none", "random", "zeros"])
def test_metrics_of_labels_equal_scikit_learns(kind: str) -> None:
    probabilities, targets = _labels()
    weights = _weights(kind)
    got = measure(Labels(("a", "b", "c")), probabilities, targets, weights)
    chosen = probabilities > 0.5
    each = range(3)
    expected = {
        "error_rate": np.mean(
            [1 - oracle.accuracy_score(targets[:, k], chosen[:, k], sample_weight=weights) for k in each]
        ),
        "subset_error_rate": 1 - oracle.accuracy_score(targets, chosen, sample_weight=weights),
        "log_loss": np.mean([oracle.log_loss(targets[:, k], probabilities[:, k], sample_weight=weights) for k in each]),
        "auc": oracle.roc_auc_score(targets, probabilities, average="macro", sample_weight=weights),
        "accuracy": np.mean([oracle.accuracy_score(targets[:, k], chosen[:, k], sample_weight=weights) for k in each]),
        "f1_macro": oracle.f1_score(targets, chosen, average="macro", sample_weight=weights),
        "average_precision": oracle.average_precision_score(
            targets, probabilities, average="macro", sample_weight=weights
        ),
    }
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["none", "random", "zeros"])
@pytest.mark.parametrize("width", [1, 3])
def test_metrics_of_numbers_equal_scikit_learns(width: int, kind: str) -> None:
    draw = np.random.default_rng(width)
    targets = draw.normal(size=(N, width)) * np.arange(1, width + 1)
    predictions = targets + draw.normal(size=(N, width)) * 0.3
    weights = _weights(kind)
    got = measure(Numbers(tuple("abc"[:width])), predictions, targets, weights)
    expected = {
        "rmse": math.sqrt(oracle.mean_squared_error(targets, predictions, sample_weight=weights)),
        "mae": oracle.mean_absolute_error(targets, predictions, sample_weight=weights),
        "r2": oracle.r2_score(targets, predictions, sample_weight=weights),
    }
    assert got == pytest.approx(expected, rel=1e-9)


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 3)), min_size=2, max_size=30
    )
)
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[bool, float, int]]) -> None:
    targets, scores, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if weights.sum() == 0:
        weights = np.ones(len(weights))
    good = total = 0.0
    for i in np.flatnonzero(targets == 1):
        for j in np.flatnonzero(targets == 0):
            share = weights[i] * weights[j]
            good += share * ((scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]))
            total += share
    probabilities = np.stack([1 - scores, scores], axis=1)
    got = measure(Classes(np.arange(2)), probabilities, targets.astype(int), weights)["auc"]
    assert got == pytest.approx(good / total if total else math.nan, nan_ok=True)


def test_probabilities_of_zero_give_a_large_but_finite_loss() -> None:
    got = measure(Classes(np.arange(2)), np.array([[1.0, 0.0]]), np.array([1]), None)
    assert 80 < got["log_loss"] < 100
    assert math.isnan(got["auc"])


def test_what_cannot_be_measured_is_not_a_number() -> None:
    for task in (Classes(np.arange(2)), Labels(("a",)), Numbers()):
        empty = measure(task, np.zeros((0, task.outputs)), np.zeros(0, int), None)
        assert set(empty) == set(METRICS[task.kind])
        assert all(math.isnan(value) for value in empty.values())
    constant = measure(Numbers(), np.ones((3, 1)), np.ones((3, 1)), None)
    assert (constant["rmse"], constant["mae"]) == (0.0, 0.0)
    assert math.isnan(constant["r2"])


def test_weights_that_are_all_zero_count_for_nothing() -> None:
    probabilities, targets = _probabilities(3)
    task = Classes(np.arange(3))
    assert measure(task, probabilities, targets, np.zeros(N)) == measure(task, probabilities, targets, None)


@pytest.mark.parametrize(("errors", "count"), [(0, 1), (0, 50), (3, 50), (25, 50), (50, 50), (7, 1000)])
def test_wilson_solves_its_equation(errors: int, count: int) -> None:
    # Wilson's ends are the rates p at which the observed rate lies exactly z standard errors of p away.
    low, high = wilson(errors, count)
    rate = errors / count
    for end in (low, high):
        assert (rate - end) ** 2 == pytest.approx(stats.norm.ppf(0.975) ** 2 * end * (1 - end) / count, abs=1e-12)
    assert 0 <= low <= rate <= high <= 1


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == wilson(math.nan, 9) == (0.0, 1.0)


def test_the_interval_of_an_error_rate_is_wilsons() -> None:
    probabilities, targets = _probabilities(3)
    errors = int((probabilities.argmax(1) != targets).sum())
    assert metric_interval("error_rate", Classes(np.arange(3)), probabilities, targets) == wilson(errors, N)


def test_rows_of_weight_zero_narrow_no_interval() -> None:
    """Five right answers that count are five, beside however many that do not."""
    task, targets = Classes(np.arange(2)), np.zeros(40, int)
    predictions, weights = np.tile([0.9, 0.1], (40, 1)), np.repeat([0.0, 3.0], [35, 5])
    assert metric_interval("error_rate", task, predictions, targets, weights) == pytest.approx(wilson(0, 5))
    assert metric_interval("accuracy", task, predictions, targets, weights)[1] == 1.0
    for name in ("error_rate", "log_loss"):
        ends = metric_interval(name, task, predictions, targets, np.zeros(40))
        assert all(math.isnan(end) for end in ends)
    only = np.eye(40)[0]
    assert all(math.isnan(end) for end in metric_interval("log_loss", task, predictions, targets, only))


def test_weights_make_an_interval_as_wide_as_it_is() -> None:
    """95 of 100 intervals hold the true rate, for weights that make 60 examples worth far fewer."""
    draw, task = np.random.default_rng(4), Classes(np.arange(2))
    weights, held = draw.exponential(size=60) ** 2, []
    assert 8 < effective_count(weights) < 30
    assert effective_count(np.full(7, 1e-200)) == 7
    for _ in range(2000):
        wrong = (draw.random(60) < 0.3).astype(int)
        low, high = metric_interval("error_rate", task, np.eye(2)[wrong], np.zeros(60, int), weights)
        held.append(low < 0.3 < high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.025)


def test_the_bootstrap_gives_the_width_that_theory_gives() -> None:
    draw = np.random.default_rng(1)
    targets = draw.normal(size=(400, 1))
    predictions = targets + draw.normal(size=(400, 1))
    low, high = metric_interval("mae", Numbers(), predictions, targets)
    errors = np.abs(predictions - targets)
    half = 1.96 * errors.std() / math.sqrt(400)
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)
    assert low < errors.mean() < high
    assert metric_interval("mae", Numbers(), predictions, targets) == (low, high)  # the same resamples every time


@pytest.mark.parametrize("kind", ["none", "zeros"])
@pytest.mark.parametrize("name", METRICS["classes"])
def test_every_metric_has_an_interval_around_it(name: str, kind: str) -> None:
    probabilities, targets = _probabilities(3)
    weights = _weights(kind)
    low, high = metric_interval(name, Classes(np.arange(3)), probabilities, targets, weights)
    assert low < measure(Classes(np.arange(3)), probabilities, targets, weights)[name] < high


@pytest.mark.parametrize("kind", ["none", "zeros"])
@pytest.mark.parametrize("name", ["auc", "f1_macro", "average_precision", "log_loss"])
def test_the_bootstrap_weights_rows_as_if_it_had_drawn_them(name: str, kind: str) -> None:
    probabilities, targets = _probabilities(3)
    weights, task = _weights(kind), Classes(np.arange(3))

    def drawn(rows: np.ndarray) -> float:
        return measure(task, probabilities[rows], targets[rows], None if weights is None else weights[rows])[name]

    resamples = 1000 if name in {"f1_macro", "log_loss"} else 200
    expected = bootstrap_interval(drawn, np.arange(N), resamples=resamples)
    assert metric_interval(name, task, probabilities, targets, weights) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", METRICS["labels"])
def test_every_metric_of_labels_has_an_interval(name: str) -> None:
    probabilities, targets = _labels()
    task = Labels(("a", "b", "c"))
    low, high = metric_interval(name, task, probabilities, targets)
    assert low < measure(task, probabilities, targets, None)[name] < high


def test_the_interval_of_accuracy_mirrors_that_of_the_error_rate() -> None:
    task, given = Classes(np.arange(3)), _probabilities(3)
    low, high = metric_interval("error_rate", task, *given)
    assert metric_interval("accuracy", task, *given) == pytest.approx((1 - high, 1 - low))


def test_only_what_is_asked_for_is_measured() -> None:
    probabilities, targets = _probabilities(3)
    task = Classes(np.arange(3))
    every = measure(task, probabilities, targets, None)
    assert measure(task, probabilities, targets, None, ("f1_macro",)) == {"f1_macro": every["f1_macro"]}


def test_a_class_that_is_never_seen_counts_as_in_scikit_learn() -> None:
    # Class 3 is in neither targets nor predictions, class 2 only in predictions, class 1 is never predicted.
    targets = np.array([0, 0, 1, 1])
    probabilities = np.eye(4)[[0, 2, 0, 2]]
    got = measure(Classes(np.arange(4)), probabilities, targets, None)
    options = {"average": "macro", "zero_division": 0}
    chosen = probabilities.argmax(1)
    assert got["f1_macro"] == pytest.approx(oracle.f1_score(targets, chosen, **options))
    assert got["precision_macro"] == pytest.approx(oracle.precision_score(targets, chosen, **options))
    assert got["recall_macro"] == pytest.approx(oracle.recall_score(targets, chosen, **options))
    assert got["balanced_error_rate"] == pytest.approx(0.75)  # of the classes that there are: 50 and 100 %
    ranked = [oracle.average_precision_score(targets == k, probabilities[:, k]) for k in (0, 1)]
    assert got["average_precision"] == pytest.approx(np.mean(ranked))


def test_where_there_is_little_room_the_chosen_metric_is_among_the_usual() -> None:
    assert shown_metrics(METRICS["classes"], "accuracy") == METRICS["classes"][:5]
    assert shown_metrics(METRICS["classes"], "average_precision") == (*METRICS["classes"][:5], "average_precision")
    assert shown_metrics(METRICS["numbers"], "r2") == METRICS["numbers"]


@pytest.mark.parametrize(
    ("name", "task", "predictions", "targets"),
    [
        ("auc", Classes(np.arange(2)), np.full((5, 2), 0.5), np.zeros(5, int)),
        ("r2", Numbers(), np.ones((1, 1)), np.ones((1, 1))),
        ("rmse", Numbers(), np.zeros((0, 1)), np.zeros((0, 1))),
        ("rmse", Numbers(), np.zeros((1, 1)), np.ones((1, 1))),
    ],
)
def test_where_nothing_can_be_measured_there_is_no_interval(
    name: str, task: Any, predictions: Any, targets: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(math.isnan(end) for end in metric_interval(name, task, predictions, targets))


def test_names_are_checked_against_the_task() -> None:
    assert check_metric("auc", "classes") == "auc"
    with pytest.raises(RequestError, match=r"unknown metric `rmse` for classes"):
        check_metric("rmse", "classes")
    with pytest.raises(RequestError, match=r"Did you mean 'log_loss'"):
        check_metric("logloss", "labels")
    with pytest.raises(RequestError, match=r"Did you mean 'f1_macro'"):
        check_metric("f1", "classes")
    assert {name for names in METRICS.values() for name in names} >= HIGHER_IS_BETTER


# --- several kinds of targets (row G7)

SEVERAL = Several((Numbers(("price",)), Classes(np.arange(3), "colour"), Labels(("old", "new"))))


def _several() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    chances, classes = _probabilities(3)
    labels = draw.integers(0, 2, (N, 2)).astype(float)
    price = draw.normal(size=(N, 1))
    targets = np.concatenate([price, classes[:, None].astype(float), labels], axis=1)
    targets[draw.random(N) < 0.3, 1] = np.nan
    targets[draw.random(N) < 0.5, 0] = np.nan
    guesses = [price + 0.5 * draw.normal(size=(N, 1)), chances, np.clip(labels + 0.7 * draw.normal(size=(N, 2)), 0, 1)]
    return np.concatenate(guesses, axis=1), targets


@pytest.mark.parametrize("kind", ["none", "random", "zeros"])
def test_each_target_is_measured_where_it_is_known(kind: str) -> None:
    """As if it were alone; the relative error is scikit-learn's error over that of its best constant, averaged."""
    predictions, targets = _several()
    weights = _weights(kind)
    got = measure(SEVERAL, predictions, targets, weights)
    assert tuple(got) == metrics_of(SEVERAL)
    assert list(got)[:4] == ["relative_error", "price.rmse", "colour.error_rate", "old+new.error_rate"]
    relative = []
    for piece in SEVERAL.pieces:
        own = piece.of(targets)
        known = own >= 0 if own.ndim == 1 else ~np.isnan(own[:, 0])
        alone = None if weights is None else weights[known]
        expected = measure(piece.task, predictions[known, piece.outputs], own[known], alone)
        assert {name: got[f"{piece.name}.{name}"] for name in expected} == pytest.approx(expected, rel=1e-12)
        aim = own[known]
        if piece.task.kind == "numbers":
            constant = np.full_like(aim, np.average(aim[:, 0], weights=alone))
            relative.append(expected["rmse"] / math.sqrt(oracle.mean_squared_error(aim, constant, sample_weight=alone)))
        elif piece.task.kind == "classes":
            each = [oracle.zero_one_loss(aim, np.full_like(aim, k), sample_weight=alone) for k in range(3)]
            relative.append(expected["error_rate"] / min(each))
        else:
            shares = np.average(aim, axis=0, weights=alone)
            relative.append(expected["error_rate"] / np.minimum(shares, 1 - shares).mean())
    assert got["relative_error"] == pytest.approx(np.mean(relative), rel=1e-9)
    low, high = metric_interval("relative_error", SEVERAL, predictions, targets, weights)
    assert low < got["relative_error"] < high


def test_a_target_without_a_constant_to_beat_is_left_out_of_the_mean() -> None:
    predictions, targets = _several()
    targets[:, 1] = 2.0  # one class alone
    got = measure(SEVERAL, predictions, targets, None)
    without = Several((SEVERAL.tasks[0], SEVERAL.tasks[2]))
    some = measure(without, np.delete(predictions, [1, 2, 3], axis=1), np.delete(targets, 1, axis=1), None)
    assert got["relative_error"] == pytest.approx(some["relative_error"])
    with pytest.raises(RequestError, match="unknown metric `rmse` for several"):
        check_metric("rmse", "several")
