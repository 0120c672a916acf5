"""Figures and tables made from records."""

import dataclasses

import numpy as np
import pytest

from gradwise.evaluation.metrics import wilson
from gradwise.records.data_read import DataRead, SetSizes
from gradwise.records.evidence.fit_evidence import (
    ClassEvidence,
    ErrorRate,
    FitEvidence,
    NumberEvidence,
    PhaseTime,
    Profile,
)
from gradwise.reporting import wording
from gradwise.reporting.captioned_figures import run_figures


def names(figures):
    return [figure.name for figure in figures]


def with_evidence(record, **evidence):
    return dataclasses.replace(record, evidence=dataclasses.replace(record.evidence, **evidence))


def of_size(record, size):
    """The same run with so many classes, each confused with the next once in five times."""
    counts = 8 * np.eye(size, dtype=int) + 2 * np.roll(np.eye(size, dtype=int), 1, axis=1)
    labels = tuple(f"class {k}" for k in range(size))
    rates = tuple(ErrorRate(label, 10, 2, 0.2, *wilson(2, 10)) for label in labels)
    return with_evidence(record, classes=ClassEvidence(labels, tuple(map(tuple, counts.tolist())), rates))


def test_curves_come_with_the_numbers_behind_them(classes_record):
    score, loss = run_figures.run_curve_figures(classes_record)
    assert (score.name, loss.name) == ("score", "loss")
    assert len(score.table.rows) == 30
    assert [row[4] for row in score.table.rows].count("kept") == 1
    best = next(row for row in score.table.rows if row[4] == "kept")
    assert best[3] in score.description
    assert best[0] in score.description


def test_a_first_score_that_stays_the_best_is_told_once(classes_record):
    history = {**classes_record.history, "best": [True] + [False] * 29}
    history["valid_score"] = [min(history["valid_score"]), *history["valid_score"][1:]]
    score, _ = run_figures.run_curve_figures(dataclasses.replace(classes_record, history=history))
    assert score.description.startswith("Validation error was best, ")


def test_a_long_history_is_thinned_but_keeps_first_best_and_last(classes_record):
    history = {name: [values[i % 30] for i in range(1000)] for name, values in classes_record.history.items()}
    history["age_examples"] = [10 * (i + 1) for i in range(1000)]
    history["best"] = [i in (0, 777) for i in range(1000)]
    score, _ = run_figures.run_curve_figures(dataclasses.replace(classes_record, history=history))
    ages = [row[0] for row in score.table.rows]
    assert len(ages) <= 61
    assert {"10", "7,780", "10,000"} <= set(ages)
    assert "history.parquet" in score.table.note


def test_numbers_are_told_in_standard_deviations(numbers_record):
    score, _ = run_figures.run_curve_figures(numbers_record)
    lowest = min(numbers_record.history["valid_score"]) ** 0.5
    assert f"{lowest:.3g}" in score.description
    assert "standard deviation" in score.description


def test_an_unchanging_rate_is_not_drawn(classes_record):
    assert names(run_figures.optimiser_figures(classes_record)) == ["learning-rate"]
    still = {**classes_record.history, "learning_rate": [0.1] * 30}
    assert names(run_figures.optimiser_figures(dataclasses.replace(classes_record, history=still))) == []


@pytest.mark.parametrize(
    ("size", "expected"),
    [(2, ["confusion"]), (30, ["confusion"]), (60, ["confusion", "pairs"]), (1000, ["pairs"])],
)
def test_the_confusion_figure_follows_the_number_of_classes(classes_record, size, expected):
    assert names(run_figures.confusion_figures(of_size(classes_record, size).evidence)) == expected


def test_the_confusion_is_told_in_words(classes_record):
    (figure,) = run_figures.confusion_figures(of_size(classes_record, 10).evidence)
    assert "20 of 100 test examples" in figure.description
    assert "class 0 for class 1: 2 of 10" in figure.description


def test_many_classes_show_the_worst(classes_record):
    figure = next(run_figures.error_rate_figures(of_size(classes_record, 1000).evidence, 0.1))
    assert "The 20 worst of 1,000" in figure.description
    assert len(figure.table.rows) == 300


def test_one_class_needs_no_picture_of_each(classes_record):
    assert names(run_figures.error_rate_figures(of_size(classes_record, 1).evidence, 0.1)) == []


def test_labels_are_drawn_as_labels(classes_record):
    rates = tuple(ErrorRate(name, 3, 2, 0.1, *wilson(2, 20)) for name in ("red", "blue"))
    labels = dataclasses.replace(
        classes_record,
        task="labels",
        evidence=FitEvidence(labels=rates),
        data=DataRead(rows=SetSizes(test=20)),
    )
    (figure,) = run_figures.error_rate_figures(labels.evidence, None)
    assert figure.title == "Error of each label"
    assert "95 % confidence interval" in figure.table.header


def test_calibration_is_told_before_and_after(classes_record):
    (figure,) = run_figures.reliability_figures(classes_record.evidence)
    for bins in (classes_record.evidence.classes.before, classes_record.evidence.classes.after):
        assert f"{100 * bins.error:.1f}\u202f%" in figure.description


def test_residuals_of_one_output_get_two_pictures_and_of_many_one_each(numbers_record):
    assert names(run_figures.residual_figures(numbers_record.evidence)) == ["predicted-0", "errors-0"]
    rows = np.random.default_rng(0).normal(size=(50, 9))
    names_of_outputs = tuple(f"y{k}" for k in range(9))
    predictions = (rows * np.linspace(0.1, 1, 9)).tolist()
    many = with_evidence(numbers_record, numbers=NumberEvidence(names_of_outputs, rows.tolist(), predictions))
    figures = list(run_figures.residual_figures(many.evidence))
    assert len(figures) == 6
    assert figures[0].title.endswith("y0")
    assert "The 6 of 9 outputs with the lowest R²" in figures[0].description


def test_the_metric_table_has_every_metric_of_every_part(numbers_record):
    table = run_figures.metric_tables(numbers_record)[0]
    assert table.header == ("", "training", "validation", "test")
    assert [row[0] for row in table.rows] == ["RMSE (chosen)", "MAE", "R²"]
    train, test = (f"{numbers_record.metrics[part]['rmse']:.3g}" for part in ("train", "test"))
    assert table.note.startswith(f"Training {train} is optimistic")
    assert table.note.endswith(f"quote the test, {test}.")


def test_missing_metrics_are_dashes(numbers_record):
    metrics = {**numbers_record.metrics, "test": {"rmse": None, "mae": float("nan")}}
    table = run_figures.metric_tables(dataclasses.replace(numbers_record, metrics=metrics))[0]
    assert [row[3] for row in table.rows] == ["–", "–", "–"]


def test_quantiles_of_errors_are_shares(numbers_record):
    table = run_figures.residual_table(numbers_record.evidence)
    assert table is not None
    assert [row[0] for row in table.rows] == ["5\u202f%", "25\u202f%", "50\u202f%", "75\u202f%", "95\u202f%"]
    assert table.header == ("quantile", "progression")


def test_the_worst_examples_are_listed(classes_record, numbers_record):
    table = run_figures.worst_table(classes_record.evidence)
    assert table is not None
    first = classes_record.evidence.classes.worst[0]
    assert table.rows[0][:3] == (str(first.row), first.true, first.predicted)
    assert run_figures.worst_table(numbers_record.evidence) is not None
    assert run_figures.worst_table(FitEvidence()) is None


def test_folds_are_drawn_where_there_are_some(numbers_record, classes_record):
    (figure,) = run_figures.fold_figures(numbers_record)
    assert "5-fold" in figure.title
    assert names(run_figures.fold_figures(classes_record)) == []


def test_error_and_loss_of_each_class_have_a_figure_with_both_sets(classes_record):
    error, loss = run_figures.class_curve_figures(classes_record)
    assert (error.name, loss.name) == ("class-curves", "class-losses")
    last = {row[0]: row[4] for row in loss.table.rows}
    own = classes_record.history["train_loss_by_class"][-1]
    classes = classes_record.evidence.classes.classes
    assert last == {name: wording.number(value) for name, value in zip(classes, own, strict=True)}
    of_error_alone = {name: rows for name, rows in classes_record.history.items() if "loss_by_class" not in name}
    assert names(run_figures.class_curve_figures(dataclasses.replace(classes_record, history=of_error_alone))) == [
        "class-curves"
    ]


def test_nothing_to_show_gives_no_figures(classes_record):
    empty = dataclasses.replace(classes_record, evidence=FitEvidence(), history={}, metrics={})
    of_record = (run_figures.run_curve_figures, run_figures.optimiser_figures, run_figures.class_curve_figures)
    for make in (*of_record, run_figures.fold_figures):
        assert names(make(empty)) == []
    for make in (run_figures.confusion_figures, run_figures.reliability_figures, run_figures.residual_figures):
        assert names(make(FitEvidence())) == []
    assert names(run_figures.error_rate_figures(FitEvidence(), None)) == []


PHASES = Profile(8.0, (PhaseTime("reading", 1.0), PhaseTime("updates", 5.0, 3), PhaseTime("other", 2.0)))


def test_the_bars_follow_one_another_and_fill_the_whole() -> None:
    (figure,) = run_figures.profile_figures(PHASES)
    assert "8.0 s in all" in figure.description
    assert "updates took most, 5.0 s (62.5\u202f%)" in figure.description
    axes = figure.draw()
    bars = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches)
    assert bars == [(0.0, 1.0), (1.0, 5.0), (6.0, 2.0)]
    assert axes.get_xlim() == (0.0, 8.0)
    assert [row[0] for row in figure.table.rows] == ["reading", "updates", "other", "in all"]
    assert figure.table.rows[-1][1:] == ("8.00", "100.0\u202f%")


def test_a_run_without_a_profile_has_no_figure() -> None:
    assert list(run_figures.profile_figures(None)) == []
    assert list(run_figures.profile_figures(Profile(0.0))) == []
