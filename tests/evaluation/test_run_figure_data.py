"""Figure data against numbers worked out by hand."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.evaluation.run_figure_data import (
    Confusion,
    Curve,
    Pair,
    best_interval,
    class_curves,
    column,
    confusion,
    learning_curves,
    optimiser_curves,
    residuals,
    window,
    worst_error_rates,
)
from gradwise.records.data_read import DataRead
from gradwise.records.evidence.fit_evidence import ClassEvidence, ErrorRate, FitEvidence, NumberEvidence
from gradwise.records.fit import Fit
from gradwise.records.outcome import Outcome

HISTORY = {
    "age_examples": [100, 200, 300, 400],
    "train_score": [0.5, 0.3, 0.2, 0.1],
    "valid_score": [0.6, 0.4, 0.35, 0.38],
    "train_loss": [2.0, 1.0, 0.5, 0.25],
    "valid_loss": [2.5, 1.5, None, math.nan],
    "best": [True, True, True, False],
}


def record(task: str = "classes", **changes: Any) -> Fit:
    plain = Fit(
        recipe=defaults.regression() if task == "numbers" else defaults.classification(),
        outcome=Outcome("patience", 400),
        task=task,
        metric="rmse" if task == "numbers" else "error_rate",
        metrics={},
        test_interval=(math.nan, math.nan),
        history=HISTORY,
        evidence=FitEvidence(),
        data=DataRead(),
        findings=(),
        seconds=1.0,
        seed=0,
        version="0",
        machine={},
    )
    return dataclasses.replace(plain, **changes)


def of_classes(*names: str, confusion: Any = ()) -> FitEvidence:
    return FitEvidence(ClassEvidence(names, confusion))


def test_a_column_turns_what_is_missing_into_nan():
    np.testing.assert_equal(column(HISTORY, "valid_loss"), [2.5, 1.5, np.nan, np.nan])
    np.testing.assert_equal(column(HISTORY, "no_such"), [np.nan] * 4)
    assert len(column({}, "valid_loss")) == 0


def test_curves_are_drawn_against_age_in_examples():
    curves = learning_curves(record(), "score")
    np.testing.assert_equal(curves.valid.age, [100, 200, 300, 400])
    np.testing.assert_equal(curves.train.value, [0.5, 0.3, 0.2, 0.1])
    assert curves.best == (300.0, 0.35)
    assert (curves.scale.kind, curves.end_examples, curves.diverged) == ("error", 400, False)


def test_what_was_not_measured_is_left_out_of_a_curve_and_of_the_best_point():
    curves = learning_curves(record(), "loss")
    np.testing.assert_equal(curves.valid.age, [100, 200])
    assert len(curves.train) == 4
    assert curves.best is None  # the loss at the best interval was not recorded


def test_the_score_of_numbers_is_shown_as_a_distance():
    curves = learning_curves(record("numbers"), "score")
    np.testing.assert_allclose(curves.valid.value, np.sqrt([0.6, 0.4, 0.35, 0.38]))
    assert curves.best == (300.0, pytest.approx(math.sqrt(0.35)))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (HISTORY, 2),
        ({**HISTORY, "best": [True, False, False, False]}, 0),
        ({name: values for name, values in HISTORY.items() if name != "best"}, 2),
        ({**HISTORY, "best": [False] * 4, "valid_score": [math.nan] * 4}, None),
        ({}, None),
    ],
)
def test_the_best_interval_is_the_last_new_minimum(history, expected):
    assert best_interval(record(history=history)) == expected


def test_the_window_leaves_out_the_fall_from_the_initial_weights():
    age = np.arange(1.0, 101.0)
    value = np.where(age < 10, 1000.0, 1.0 + 1.0 / age)
    low, high = window([Curve(age, value)])
    assert 0.9 < low < 1.01
    assert 1.1 < high < 1.2


def test_the_window_leaves_out_the_rise_of_a_diverging_run():
    age = np.arange(1.0, 51.0)
    value = np.where(age > 48, 1e30, 0.5)
    assert window([Curve(age, value)])[1] < 10


def test_the_window_of_nothing_and_of_one_value():
    assert window([Curve(np.array([]), np.array([]))]) == (0.0, 1.0)
    low, high = window([Curve(np.array([5.0]), np.array([0.0]))])
    assert low == 0.0 < high


def test_optimiser_curves_hold_what_was_recorded():
    history = {**HISTORY, "learning_rate": [0.1, 0.1, 0.05, 0.05], "gradient_norm": [None] * 4}
    assert list(optimiser_curves(record(history=history))) == ["learning_rate"]


def test_class_curves_point_out_the_worst_at_the_best_interval():
    rows = [[0.9, 0.1, 0.5], None, [0.2, 0.0, math.nan], [0.0, 0.9, 0.9]]
    made = record(history={**HISTORY, "valid_score_by_class": rows}, evidence=of_classes("a", "b", "c"))
    data = class_curves(made)
    assert data.worst == (0,)  # b had no error there, c was not measured
    np.testing.assert_equal(data.curves[2].age, [100, 400])


def test_the_loss_of_each_class_stands_beside_its_score_on_both_sets():
    lost = {"valid_loss_by_class": [[3.0, 1.0]] * 4, "train_loss_by_class": [[1.0, 2.0], None, [0.5, 1.5], [0.4, 1.2]]}
    made = record(history={**HISTORY, **lost}, evidence=of_classes("a", "b"))
    data = class_curves(made, "loss")
    assert data.scale.kind == "loss"
    assert data.worst == (0, 1)
    np.testing.assert_equal(data.train[1].age, [100, 300, 400])
    np.testing.assert_equal(data.train[1].value, [2.0, 1.5, 1.2])
    assert class_curves(made).classes == ()  # a record without scores of classes


def test_class_curves_are_empty_without_classes():
    assert class_curves(record()).classes == ()
    mismatched = record(history={**HISTORY, "valid_score_by_class": [[0.1]] * 4}, evidence=of_classes("a", "b"))
    assert class_curves(mismatched).classes == ()


def test_confusion_shares_and_pairs():
    data = confusion(of_classes("a", "b", "c", confusion=((8, 2, 0), (3, 0, 1), (0, 0, 0))))
    np.testing.assert_allclose(data.shares(), [[0.8, 0.2, 0], [0.75, 0, 0.25], [0, 0, 0]])
    assert data.pairs(2) == [Pair("b", "a", 3, 4), Pair("a", "b", 2, 10)]
    assert len(data.pairs(100)) == 3


def test_no_test_part_gives_an_empty_confusion():
    for evidence in (FitEvidence(), of_classes("a", "b")):
        assert confusion(evidence).classes == ()


def test_pairs_of_a_perfect_network_are_none():
    assert Confusion(("a", "b"), np.diag([3.0, 4.0])).pairs(5) == []


def test_error_rates_are_sorted_and_those_of_no_example_are_left_out():
    rates = (ErrorRate("a", 10, 1, 0.1), ErrorRate("b", 4, 2, 0.5), ErrorRate("unseen", 0, 0, math.nan))
    for found in (FitEvidence(ClassEvidence(rates=rates)), FitEvidence(labels=rates)):
        assert [rate.name for rate in worst_error_rates(found)] == ["b", "a"]


def test_residuals_put_the_least_explained_output_first():
    targets = ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (math.nan, 9.0))
    predictions = ((1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (1.0, math.nan))
    evidence = FitEvidence(numbers=NumberEvidence(("a", "b"), targets, predictions))
    first, second = residuals(evidence)
    assert (first.name, first.r2, second.name, second.r2) == ("b", 0.0, "a", 1.0)
    np.testing.assert_equal(first.error, [1.0, 0.0, -1.0])


def test_residuals_of_a_constant_target_have_no_r2():
    (only,) = residuals(FitEvidence(numbers=NumberEvidence(("y",), ((2.0,), (2.0,)), ((1.0,), (2.0,)))))
    assert math.isnan(only.r2)
    assert residuals(FitEvidence()) == ()
