"""Figures of what is told apart at every threshold, and their words."""

import dataclasses

from gradwise.evaluation.prediction_figure_data import gather_evidence
from gradwise.records.evidence.fit_evidence import FitEvidence
from gradwise.reporting.captioned_figures.threshold_figures import threshold_figures
from gradwise.specs.dataset import Classes
from tests.evaluation.test_metrics import _probabilities


def test_both_figures_have_the_areas_of_every_class(classes_record):
    metrics = classes_record.metrics["test"]
    roc, precision = threshold_figures(classes_record.evidence, metrics)
    assert (roc.name, precision.name) == ("roc", "precision_recall")
    for figure, area in ((roc, "auc"), (precision, "average_precision")):
        assert f"{metrics[area]:.3f} on average" in figure.description
        curves = classes_record.evidence.thresholds
        assert [row[2] for row in figure.table.rows] == [f"{getattr(curve, area):.3f}" for curve in curves]
        worst = min(curves, key=lambda curve: getattr(curve, area))
        assert f"Lowest for class {worst.name}: {getattr(worst, area):.3f}." in figure.description


def test_two_classes_have_one_roc():
    probabilities, targets = _probabilities(2)
    evidence = gather_evidence(Classes(["no", "yes"]), probabilities, probabilities, targets)
    roc, precision = threshold_figures(evidence, {"auc": 0.9})
    assert (roc.title, [row[0] for row in roc.table.rows]) == ("ROC curve", ["yes"])
    assert "Of class yes, at every threshold" in roc.description
    assert "Lowest" not in roc.description
    assert [row[0] for row in precision.table.rows] == ["no", "yes"]


def test_of_many_it_is_told_that_some_are_missing(classes_record):
    evidence = classes_record.evidence
    few = dataclasses.replace(evidence, thresholds=evidence.thresholds[:4])
    (roc, _) = threshold_figures(few, classes_record.metrics["test"])
    assert "Of 10 classes, the 4 with the lowest AUC are shown." in roc.description


def test_without_a_test_set_there_is_none():
    assert list(threshold_figures(FitEvidence(), {})) == []
