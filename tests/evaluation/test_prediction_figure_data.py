"""What the pictures need, counted again by hand or by scikit-learn."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from gradwise.evaluation.metrics import wilson
from gradwise.evaluation.prediction_figure_data import calibration_error, gather_evidence, reliability_bins
from gradwise.records.evidence.fit_evidence import ClassEvidence
from gradwise.records.plain_values import to_values
from gradwise.specs.dataset import Classes, Labels, Numbers


def _classes(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right: the targets are drawn from them."""
    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet([0.5] * 3, count)
    return probabilities, np.array([draw.choice(3, p=row) for row in probabilities])


def _sharpened(probabilities: np.ndarray, power: float) -> np.ndarray:
    return probabilities**power / (probabilities**power).sum(1, keepdims=True)


@pytest.fixture(scope="module")
def told() -> ClassEvidence:
    probabilities, targets = _classes()
    return gather_evidence(
        Classes(np.array(["a", "b", "c"])), _sharpened(probabilities, 3), probabilities, targets
    ).classes


def test_the_confusion_matrix_is_scikit_learns_and_sums_to_the_test_rows(told: ClassEvidence) -> None:
    probabilities, targets = _classes()
    np.testing.assert_array_equal(told.confusion, confusion_matrix(targets, probabilities.argmax(1)))
    assert np.sum(told.confusion) == 200
    assert told.classes == ("a", "b", "c")


def test_errors_by_class_add_up_with_their_intervals(told: ClassEvidence) -> None:
    probabilities, targets = _classes()
    wrong = probabilities.argmax(1) != targets
    assert sum(one.errors for one in told.rates) == wrong.sum()
    for k, one in enumerate(told.rates):
        assert one.count == (targets == k).sum()
        assert one.rate == pytest.approx(wrong[targets == k].mean())
        assert (one.low, one.high) == wilson(one.errors, one.count)


def test_the_worst_are_wrong_and_the_worst_first(told: ClassEvidence) -> None:
    probabilities, targets = _classes()
    losses = [one.loss for one in told.worst]
    assert losses == sorted(losses, reverse=True)
    assert 0 < len(losses) <= 12
    for one in told.worst:
        row = one.row
        assert one.true == "abc"[targets[row]] != one.predicted == "abc"[probabilities[row].argmax()]
        assert one.probability == probabilities[row].max()
        assert one.loss == pytest.approx(-np.log(probabilities[row, targets[row]]))


def test_reliability_counts_every_row_once_in_bins_of_one_size() -> None:
    probabilities, targets = _classes(203)
    curve = reliability_bins(probabilities, targets)
    assert sum(curve.count) == 203
    assert max(curve.count) - min(curve.count) <= 1
    assert list(curve.confidence) == sorted(curve.confidence)
    right = (probabilities.argmax(1) == targets).mean()
    assert np.average(curve.accuracy, weights=curve.count) == pytest.approx(right)
    assert np.average(curve.confidence, weights=curve.count) == pytest.approx(probabilities.max(1).mean())
    assert len(reliability_bins(probabilities[:3], targets[:3]).count) == 3


def test_the_calibration_error_is_the_weighted_gap_and_grows_with_overconfidence(told: ClassEvidence) -> None:
    assert calibration_error([0.9, 0.5], [0.6, 0.7], [1, 3]) == pytest.approx((0.3 + 3 * 0.2) / 4)
    assert calibration_error([0.5, 0.9], [0.5, 0.9], [2, 2]) == 0
    assert told.before.error > 1.5 * told.after.error


def test_a_class_without_rows_and_one_without_a_name_are_told_as_such() -> None:
    told = gather_evidence(Classes(np.array(["only"])), *[np.array([[0.9, 0.1], [0.2, 0.8]])] * 2, np.array([0, 0]))
    assert told.classes.classes == ("only", "(unused 1)")
    assert told.classes.rates[1].count == 0
    assert math.isnan(told.classes.rates[1].rate)
    json.dumps(to_values(told), allow_nan=False)


def test_labels_are_counted_one_by_one() -> None:
    targets = np.array([[1, 0], [1, 1], [0, 0.0]])
    probabilities = np.array([[0.9, 0.2], [0.3, 0.4], [0.1, 0.6]])
    told = gather_evidence(Labels(("x", "y")), probabilities, probabilities, targets)
    assert [(one.name, one.count, one.errors) for one in told.labels] == [("x", 2, 1), ("y", 1, 2)]
    assert told.labels[1].rate == pytest.approx(2 / 3)
    assert (told.labels[1].low, told.labels[1].high) == wilson(2, 3)  # a label can be wrong on any example
    json.dumps(to_values(told), allow_nan=False)


def test_residuals_are_told_with_their_quantiles_and_the_worst() -> None:
    draw = np.random.default_rng(0)
    targets, noise = draw.normal(size=(5000, 2)), draw.normal(size=(5000, 2))
    told = gather_evidence(Numbers(("u", "v")), targets + noise, targets + noise, targets).numbers
    assert len(told.targets) == len(told.predictions) == 2000
    drawn = np.array(told.predictions) - np.array(told.targets)
    assert {tuple(np.round(row, 9)) for row in drawn} <= {tuple(np.round(row, 9)) for row in noise}
    for one in told.quantiles:
        np.testing.assert_allclose(one.errors, np.quantile(noise, one.level, axis=0))
    sizes = np.abs(noise).max(1)
    assert [one.row for one in told.worst] == np.argsort(-sizes)[:12].tolist()
    assert told.worst[0].error == pytest.approx(sizes.max())
    json.dumps(to_values(told), allow_nan=False)


def test_few_rows_are_all_drawn() -> None:
    values = np.arange(3.0)[:, None]
    told = gather_evidence(Numbers(), values, values, values)
    assert told.numbers.targets == ((0.0,), (1.0,), (2.0,))
