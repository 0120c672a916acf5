"""Simple models beside the network: what they learn, what they see, and when one is clearly better."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from gradwise.evaluation import baselines as module
from gradwise.evaluation.baselines import BOOSTING, LINEAR, compare_with_baselines
from gradwise.evaluation.metrics import gain_interval, measure
from gradwise.records.evidence.fit_evidence import FitEvidence
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.dataset import Classes, Column, Dataset, Labels, Numbers

DRAW = np.random.default_rng(0)
IRIS = load_iris()
ORDER = DRAW.permutation(150)
NAMES = tuple(Column(name) for name in "abcd")


def iris(rows: np.ndarray) -> Dataset:
    return Dataset(IRIS.data[rows], IRIS.target[rows], Classes(IRIS.target_names), NAMES)


TRAIN, TEST = iris(ORDER[:100]), iris(ORDER[100:])
CHANCE = np.full((50, 3), 1 / 3)


def test_the_linear_model_is_scikit_learns() -> None:
    found = {one.name: one for one in compare_with_baselines(TRAIN, TEST, "error_rate", CHANCE)}
    scaler = StandardScaler().fit(TRAIN.inputs)
    learner = LogisticRegression().fit(scaler.transform(TRAIN.inputs), TRAIN.targets)
    probabilities = learner.predict_proba(scaler.transform(TEST.inputs))
    expected = measure(TEST.task, probabilities, TEST.targets, None)
    assert found[LINEAR].metrics == pytest.approx(expected)
    assert found[LINEAR].rows == 100
    assert found[BOOSTING].metrics["error_rate"] < 0.15
    # Against a guess both are clearly better, and better than themselves neither is.
    assert all(one.is_better for one in found.values())
    again = {one.name: one for one in compare_with_baselines(TRAIN, TEST, "error_rate", probabilities)}
    assert again[LINEAR].gain_interval == (0.0, 0.0)
    assert not again[LINEAR].is_better


def test_they_are_the_same_every_time_and_survive_a_file() -> None:
    first, second = (compare_with_baselines(TRAIN, TEST, "auc", CHANCE) for _ in range(2))
    assert first == second
    evidence = FitEvidence(baselines=first)
    assert from_values(FitEvidence, json.loads(json.dumps(to_values(evidence)))) == evidence


def test_trees_see_what_no_line_can_and_missing_values_and_categories_are_no_obstacle() -> None:
    inputs = DRAW.normal(size=(600, 3))
    inputs[:, 2] = DRAW.integers(0, 3, 600)
    targets = 10.0 * (inputs[:, 0] * inputs[:, 1] > 0)[:, None] + 5.0 * (inputs[:, 2:] == 1)
    inputs[::7, 2] = np.nan
    columns = (Column("u"), Column("v"), Column("w", "category", ("x", "y", "z")))
    whole = Dataset(inputs, targets, Numbers(), columns)
    train, test = whole.take(np.arange(400)), whole.take(np.arange(400, 600))
    found = {one.name: one for one in compare_with_baselines(train, test, "r2", np.zeros((200, 1)))}
    assert found[LINEAR].metrics["r2"] < 0.5
    assert found[BOOSTING].metrics["r2"] > 0.8


def test_labels_are_learned_one_by_one() -> None:
    inputs = DRAW.normal(size=(300, 4))
    targets = np.column_stack([inputs[:, 0] > 0, inputs[:, 1] > 0.5, np.ones(300)]).astype(float)
    whole = Dataset(inputs, targets, Labels(("a", "b", "always")), NAMES)
    train, test = whole.take(np.arange(200)), whole.take(np.arange(200, 300))
    for one in compare_with_baselines(train, test, "error_rate", np.zeros((100, 3))):
        assert one.metrics["error_rate"] < 0.05
        assert one.is_better


def test_images_and_sparse_rows_have_no_trees() -> None:
    digits = load_digits()
    pixels = tuple(Column(f"p{k}", "pixel") for k in range(64))
    whole = Dataset(digits.data, digits.target, Classes(np.arange(10)), pixels)
    train, test = whole.take(np.arange(1000)), whole.take(np.arange(1000, 1797))
    guess = np.full((797, 10), 0.1)
    (linear,) = compare_with_baselines(train, test, "error_rate", guess)
    assert 0.02 < linear.metrics["error_rate"] < 0.12
    thin = [dataclasses.replace(one, inputs=sparse.csr_matrix(one.inputs), columns=()) for one in (train, test)]
    (linear,) = compare_with_baselines(*thin, "error_rate", guess)
    assert linear.metrics["error_rate"] < 0.12


def test_rows_without_a_target_and_weights_of_nothing_do_not_count() -> None:
    unknown = dataclasses.replace(TRAIN, targets=np.where(np.arange(100) < 40, TRAIN.targets, -1))
    assert compare_with_baselines(unknown, TEST, "error_rate", CHANCE)[0].rows == 40
    wrong = (TRAIN.targets + 1) % 3
    both = Dataset(
        np.concatenate([TRAIN.inputs] * 2),
        np.concatenate([TRAIN.targets, wrong]),
        TRAIN.task,
        NAMES,
        weights=np.repeat([1.0, 0.0], 100),
    )
    (linear, _) = compare_with_baselines(both, TEST, "error_rate", CHANCE)
    assert linear.metrics["error_rate"] < 0.1


def test_many_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 60)
    monkeypatch.setattr(module, "_WORK_LINEAR", 50 * 4 * 3.0)
    assert [one.rows for one in compare_with_baselines(TRAIN, TEST, "error_rate", CHANCE)] == [50, 60]


def test_the_gain_is_compared_row_by_row() -> None:
    targets = DRAW.integers(0, 2, 400)
    right = np.eye(2)[targets]
    ours, theirs = right.copy(), right.copy()
    ours[:40] = ours[:40, ::-1]  # both wrong on the same 30 rows, the network on ten more
    theirs[:30] = theirs[:30, ::-1]
    task = Classes(np.arange(2))
    low, high = gain_interval("error_rate", task, ours, theirs, targets)
    assert 0 < low < 10 / 400 < high
    assert high - low < 0.04  # that of two sets of rows would be 0.08 wide
    assert gain_interval("accuracy", task, ours, theirs, targets) == pytest.approx((low, high))
    assert gain_interval("error_rate", task, theirs, ours, targets) == pytest.approx((-high, -low))
    wider = gain_interval("error_rate", task, ours, theirs, targets, level=0.99)
    assert wider[0] < low < high < wider[1]


def test_a_column_without_values_among_the_training_rows_is_no_obstacle() -> None:
    empty = np.where(np.arange(4) == 2, np.nan, TRAIN.inputs)
    beside = compare_with_baselines(dataclasses.replace(TRAIN, inputs=empty), TEST, "error_rate", CHANCE)
    assert [one.name for one in beside] == [LINEAR, BOOSTING]
    assert all(one.metrics["error_rate"] < 0.2 for one in beside)


def test_values_that_a_baseline_refuses_cost_that_baseline_alone() -> None:
    huge = np.where(np.arange(4) == 2, 1e300, TRAIN.inputs)
    beside = compare_with_baselines(dataclasses.replace(TRAIN, inputs=huge), TEST, "error_rate", CHANCE)
    assert [one.name for one in beside] in ([BOOSTING], [LINEAR, BOOSTING])
