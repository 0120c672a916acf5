"""Drawings: what is on the axes is what the data says."""

import dataclasses
import math

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from gradwise.evaluation.run_figure_data import (
    Confusion,
    Curve,
    Pair,
    class_curves,
    confusion,
    learning_curves,
    residuals,
)
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate, ErrorRate
from gradwise.reporting.plots import axes as shared
from gradwise.reporting.plots import run_plots


def axes():
    return Canvas().add_subplot()


def line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_learning_curves_draw_both_parts_and_mark_the_best_point(classes_record):
    curves = learning_curves(classes_record)
    ax = axes()
    assert run_plots.draw_learning_curves(curves, ax=ax) is ax
    np.testing.assert_equal(line(ax, "validation").get_xydata()[:, 1], classes_record.history["valid_score"])
    np.testing.assert_equal(line(ax, "training").get_xydata()[:, 0], classes_record.history["age_examples"])
    assert any(tuple(each.get_xydata()[0]) == curves.best for each in ax.get_lines() if len(each.get_xydata()) == 1)
    assert any(text.get_text().startswith("saved ") for text in ax.texts)


def test_without_axes_a_drawing_makes_its_own(classes_record):
    assert run_plots.draw_confusion(confusion(classes_record.evidence)).figure is not None


def test_a_diverged_run_says_so_on_the_picture(classes_record):
    curves = dataclasses.replace(learning_curves(classes_record), diverged=True)
    assert "diverged" in [text.get_text() for text in run_plots.draw_learning_curves(curves).texts]


def test_one_point_is_a_dot(classes_record):
    point = Curve(np.array([10.0]), np.array([0.5]))
    curves = dataclasses.replace(learning_curves(classes_record), train=point, valid=point, best=None)
    assert line(run_plots.draw_learning_curves(curves), "training").get_marker() == "o"


def test_words_beside_a_point_keep_clear_of_the_curves():
    age = np.linspace(0, 100, 50)
    curve = Curve(age, np.where(age < 50, 1.0, 0.5 + (age - 50) / 100))  # rises to the right of the point
    ax = axes()
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 2)
    shared.label_point(ax, "best 0.5", (50.0, 0.5), [curve])
    assert ax.texts[0].xyann[1] < 0  # below, where nothing is


def test_confusion_colours_grow_with_the_share_and_empty_cells_have_none():
    data = Confusion(("a", "b", "c"), np.array([[90.0, 9, 1], [0, 5, 5], [0, 0, 0]]))
    strength = run_plots.strength(data)
    assert strength[1, 0] == strength[2, 2] == 0
    assert 0 < strength[0, 2] < strength[0, 1] < strength[1, 2] <= 1


@pytest.mark.parametrize(("size", "numbers"), [(2, True), (30, True), (31, False), (60, False)])
def test_cells_are_numbered_while_numbers_can_be_read(size, numbers):
    data = Confusion(tuple(f"class {k}" for k in range(size)), np.eye(size) * 7)
    shown = [text for text in run_plots.draw_confusion(data).texts if text.get_text() == "7"]
    assert len(shown) == (size if numbers else 0)


def test_names_with_dollars_are_not_mathematics():
    names = (r"$\frac{", "$$", "a_b^c$")
    data = Confusion(names, np.ones((3, 3)))
    ax = run_plots.draw_confusion(data)
    ax.figure.draw_without_rendering()  # matplotlib parses here, and would raise
    assert [label.get_text() for label in ax.get_yticklabels()] == list(names)


def test_rates_stand_worst_on_top_with_their_intervals():
    rates = [
        ErrorRate("bad", 10, 5, 0.5, 0.2, 0.8),
        ErrorRate("good", 10, 1, 0.1),
    ]
    ax = run_plots.draw_rates(rates, overall=0.3)
    assert ax.get_yticklabels()[0].get_text() == "bad"
    assert ax.get_yticks()[0] > ax.get_yticks()[1]
    (interval,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(interval[:, 0], [0.2, 0.8])


def test_predictions_share_one_scale_on_both_axes(numbers_record):
    (data,) = residuals(numbers_record.evidence)
    ax = run_plots.draw_predicted(data)
    assert ax.get_xlim() == ax.get_ylim()
    dots = ax.get_lines()[-1].get_xydata()
    np.testing.assert_allclose(dots[:, 0], data.target)


def test_errors_are_drawn_around_zero(numbers_record):
    (data,) = residuals(numbers_record.evidence)
    low, high = run_plots.draw_errors(data).get_ylim()
    assert low < 0 < high


def test_a_quantity_over_many_orders_gets_a_logarithmic_axis():
    age = np.arange(1.0, 6.0)
    assert run_plots.draw_one_curve(Curve(age, 10.0**-age), name="rate").get_yscale() == "log"
    assert run_plots.draw_one_curve(Curve(age, age), name="rate").get_yscale() == "linear"
    assert run_plots.draw_one_curve(Curve(age, -age), name="rate").get_yscale() == "linear"


def test_folds_show_every_value():
    data = CrossValidationEstimate("error_rate", (0.1, 0.2, math.nan), 0.15, (0.12, 0.18))
    dots = run_plots.draw_folds(data, metric="error_rate").get_lines()[-1].get_xydata()
    np.testing.assert_allclose(dots[:, 0], [0.1, 0.2])


def test_pairs_are_named_true_to_predicted():
    ax = run_plots.draw_pairs([Pair("cat", "dog", 5, 20), Pair("dog", "cat", 2, 20)])
    assert ax.get_yticklabels()[0].get_text() == "cat → dog"
    assert [bar.get_width() for bar in ax.patches] == [5, 2]


def test_reliability_draws_before_and_after(classes_record):
    data = classes_record.evidence.classes
    ax = run_plots.draw_reliability(data)
    np.testing.assert_equal(line(ax, "calibrated").get_xydata()[:, 0], data.after.confidence)
    np.testing.assert_equal(line(ax, "as trained").get_xydata()[:, 1], data.before.accuracy)


def test_every_class_has_a_curve_and_the_worst_a_name(classes_record):
    data = class_curves(classes_record)
    ax = run_plots.draw_class_curves(data)
    assert len(ax.get_lines()) == 10 + len(data.worst)  # those with a name have their training curve beside them
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [data.classes[k] for k in data.worst]
    for k, thin in zip(data.worst, ax.get_lines()[-2 * len(data.worst) + 1 :: 2], strict=True):
        np.testing.assert_array_equal(thin.get_ydata(), data.train[k].value)


@pytest.mark.parametrize("easy", [2, 99])
def test_the_class_with_the_highest_error_is_in_the_picture(classes_record, easy):
    """Beside ninety-nine classes that are nearly always right, too."""
    age = np.arange(40) * 100.0
    curves = (Curve(age, np.full(40, 0.62)), *(Curve(age, np.full(40, 0.002 * (1 + k % 3))) for k in range(easy)))
    names = tuple(f"class {k}" for k in range(easy + 1))
    data = dataclasses.replace(class_curves(classes_record), classes=names, curves=curves, worst=(0, 1, 2))
    ax = run_plots.draw_class_curves(data)
    assert ax.get_ylim()[1] > 0.62
    assert ax.get_legend().get_texts()[0].get_text() == "class 0"
