"""ROC and precision-recall curves against scikit-learn's, and that few points show the same."""

import json

import numpy as np
import pytest
from sklearn import metrics as oracle

from gradwise.evaluation.prediction_figure_data import gather_evidence
from gradwise.evaluation.threshold_curves import gather_curves
from gradwise.records.evidence.fit_evidence import FitEvidence
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.dataset import Classes, Labels, Numbers

DRAW = np.random.default_rng(0)


def _scores(count: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    targets = DRAW.integers(0, 2, count).astype(bool)
    return targets[:, None], np.round(0.4 * targets + DRAW.normal(size=count), digits)[:, None]


@pytest.mark.parametrize("weighted", [False, True])
def test_every_point_is_scikit_learns(weighted: bool) -> None:
    positive, scores = _scores(80, 1)  # with ties
    weights = DRAW.random(80) if weighted else None
    (curve,) = gather_curves(("it",), positive, scores, weights)
    options = {"sample_weight": weights}
    false, true, _ = oracle.roc_curve(positive[:, 0], scores[:, 0], drop_intermediate=False, **options)
    np.testing.assert_allclose(curve.false_positive, false[1:], atol=1e-4)  # without the point where none is taken
    np.testing.assert_allclose(curve.true_positive, true[1:], atol=1e-4)
    precision, recall, _ = oracle.precision_recall_curve(positive[:, 0], scores[:, 0], **options)
    np.testing.assert_allclose(curve.precision, precision[-2::-1], atol=1e-4)
    np.testing.assert_allclose(curve.true_positive, recall[-2::-1], atol=1e-4)
    assert curve.auc == pytest.approx(oracle.roc_auc_score(positive[:, 0], scores[:, 0], **options))
    assert curve.average_precision == pytest.approx(
        oracle.average_precision_score(positive[:, 0], scores[:, 0], **options)
    )
    assert curve.count == positive.sum()


def test_a_few_points_of_many_stay_close_to_all() -> None:
    positive, scores = _scores(20_000, 6)
    (curve,) = gather_curves(("it",), positive, scores)
    assert len(curve.precision) <= 120
    false, true, _ = oracle.roc_curve(positive[:, 0], scores[:, 0])
    drawn = np.interp(false, curve.false_positive, curve.true_positive)
    assert np.abs(drawn - true).max() < 0.01
    precision, recall, _ = oracle.precision_recall_curve(positive[:, 0], scores[:, 0])
    drawn = np.interp(recall, curve.true_positive, curve.precision)
    assert np.abs(drawn - precision)[recall > 0.05].max() < 0.02
    assert curve.auc == pytest.approx(oracle.roc_auc_score(positive[:, 0], scores[:, 0]))


def test_of_many_classes_those_told_apart_worst_are_kept_in_their_order() -> None:
    targets = DRAW.integers(0, 14, 700)
    noise = np.linspace(0.1, 3, 14)  # later classes are harder
    scores = (targets[:, None] == np.arange(14)) + noise * DRAW.normal(size=(700, 14))
    curves = gather_curves([str(k) for k in range(14)], targets[:, None] == np.arange(14), scores)
    assert [curve.name for curve in curves] == [str(k) for k in range(4, 14)]


def test_a_class_that_is_missing_or_alone_has_no_curve() -> None:
    positive = np.array([[True, False, False], [True, True, False]])
    (curve,) = gather_curves("abc", positive, np.array([[0.5, 0.2, 0.3], [0.3, 0.4, 0.3]]))
    assert (curve.name, curve.auc) == ("b", 1.0)
    assert gather_curves("abc", positive, np.full((2, 3), np.nan)) == ()


def test_the_evidence_of_a_test_set_has_curves_that_survive_a_file() -> None:
    targets = DRAW.integers(0, 3, 200)
    probabilities = DRAW.dirichlet([1.0] * 3, 200)
    weights = DRAW.random(200)
    task = Classes(np.array(["a", "b", "c"]))
    found = gather_evidence(task, probabilities, probabilities, targets, weights=weights)
    areas = [oracle.roc_auc_score(targets == k, probabilities[:, k], sample_weight=weights) for k in range(3)]
    assert [curve.auc for curve in found.thresholds] == pytest.approx(areas)
    text = json.dumps(to_values(found))
    assert from_values(FitEvidence, json.loads(text)) == found
    assert len(text) < 20_000
    labels = (targets[:, None] == np.arange(2)).astype(float)
    seen = gather_evidence(Labels(("x", "y")), probabilities[:, :2], probabilities[:, :2], labels)
    assert [curve.name for curve in seen.thresholds] == ["x", "y"]
    assert gather_evidence(Numbers(), labels[:, :1], labels[:, :1], labels[:, :1]).thresholds == ()
