"""From a part of the data to examples on the device."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.criteria.supervised import Supervised
from gradwise.data.scaling import Columns, Pixels, Standardise
from gradwise.data.splits import Fold, GivenParts, HoldOut, TimeHoldOut
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Column, Dataset, InputLayout, Labels, Numbers
from gradwise.training.prepare import place_examples, split_labelled, target_units, weights_of_classes

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 3))
Y = np.minimum(DRAW.integers(0, 6, 40), 2)
CLASSES = Dataset(X, Y, Classes(np.array(["a", "b", "c"])))
SCALER = Standardise().fit(X, ())
NO_UNITS = (np.zeros(1), np.ones(1))


def test_balanced_weights_are_scikit_learns() -> None:
    expected = compute_class_weight("balanced", classes=np.arange(3), y=Y)
    np.testing.assert_allclose(weights_of_classes("balanced", CLASSES), expected)


def test_a_class_that_is_not_there_weighs_nothing() -> None:
    part = CLASSES.take(np.flatnonzero(Y != 1))
    weights = weights_of_classes("balanced", part)
    assert weights is not None
    assert weights[1] == 0.0
    assert (weights[part.targets]).sum() == pytest.approx(len(part))


def test_given_weights_go_by_the_class_as_it_came() -> None:
    np.testing.assert_array_equal(weights_of_classes({"c": 5, "a": 0.5}, CLASSES), [0.5, 1.0, 5.0])
    numbered = dataclasses.replace(CLASSES, task=Classes(np.array([3, 5, 7])))
    np.testing.assert_array_equal(weights_of_classes({7: 2.0, "5": 3.0}, numbered), [1.0, 3.0, 2.0])
    alone = Dataset(X, np.zeros(40, int), Classes(np.array(["only"])))
    np.testing.assert_array_equal(weights_of_classes({"only": 2.0}, alone), [2.0, 1.0])
    assert weights_of_classes(None, CLASSES) is None


@pytest.mark.parametrize(
    ("chosen", "dataset", "words"),
    [
        ("equal", CLASSES, '"balanced" or a mapping'),
        ({"d": 1.0}, CLASSES, "'d', which is not a class"),
        ("balanced", Dataset(X, X[:, :1], Numbers()), "needs classes, but the target holds numbers"),
    ],
)
def test_weights_of_classes_that_cannot_be_are_refused(chosen: Any, dataset: Dataset, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        weights_of_classes(chosen, dataset)


def test_weights_multiply_and_their_mean_is_one() -> None:
    own = DRAW.random(40)
    by_class = np.array([1.0, 2.0, 0.0])
    weights = np.asarray(place_examples(dataclasses.replace(CLASSES, weights=own), SCALER, NO_UNITS, by_class).weights)
    assert weights.dtype == np.float32
    assert weights.mean() == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(weights, own * by_class[Y] / (own * by_class[Y]).mean(), rtol=1e-6)
    assert place_examples(CLASSES, SCALER, NO_UNITS, None).weights is None


@pytest.mark.parametrize(
    ("own", "by_class", "words"),
    [
        (np.full(40, -1.0), None, "at least 0"),
        (np.full(40, np.nan), None, "finite"),
        (np.full(40, np.inf), None, "finite"),
        (np.zeros(40), None, "some must be positive"),
        (np.ones(40), np.array([-1.0, 1.0, 1.0]), "at least 0"),
        (np.ones(40), np.zeros(3), "some must be positive"),
    ],
)
def test_weights_that_cannot_be_are_refused(own: np.ndarray, by_class: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        place_examples(dataclasses.replace(CLASSES, weights=own), SCALER, NO_UNITS, by_class)


def test_numbers_are_told_in_units_of_the_training_part() -> None:
    targets = np.stack([1e6 + 1e5 * X[:, 0], np.full(40, 7.0)], axis=1)
    part = Dataset(X, targets, Numbers(("a", "b")))
    shift, scale = target_units(part)
    np.testing.assert_allclose(shift, targets.mean(0))
    np.testing.assert_allclose(scale, [targets[:, 0].std(), 1.0])  # a constant has no unit of its own
    placed = np.asarray(place_examples(part, SCALER, (shift, scale), None).targets)
    np.testing.assert_allclose(placed[:, 0].std(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(placed * scale + shift, targets, rtol=1e-5)
    assert target_units(CLASSES) == (np.zeros(1), np.ones(1))


@pytest.mark.parametrize(
    ("dataset", "dtype"),
    [
        (CLASSES, jnp.int32),
        (Dataset(X, (X > 0).astype(int), Labels(("a", "b", "c"))), jnp.float32),
        (Dataset(X, X, Numbers(("a", "b", "c"))), jnp.float32),
    ],
)
def test_examples_are_on_the_device_in_32_bits(dataset: Dataset, dtype: Any) -> None:
    placed = place_examples(dataset, SCALER, NO_UNITS, None)
    assert isinstance(placed.inputs, jax.Array)
    assert (placed.inputs.dtype, placed.targets.dtype) == (jnp.float32, dtype)
    assert len(placed) == 40
    np.testing.assert_allclose(np.asarray(placed.inputs).std(0), 1.0, rtol=1e-5)


def test_examples_know_which_inputs_are_numbers_and_which_are_flags() -> None:
    raw = np.column_stack([X[:, 0], Y])
    raw[3, 0] = np.nan
    columns = (Column("a"), Column("b", "category", ("x", "y", "z")))
    mixed = Dataset(raw, Y, CLASSES.task, columns)
    scaler = Columns().fit(raw, columns)
    train, valid = (place_examples(mixed.take(rows), scaler, NO_UNITS, None) for rows in np.split(np.arange(40), 2))
    assert train.layout == InputLayout(numbers=1, flags=4)
    assert jax.tree.structure(train) == jax.tree.structure(valid)  # the layout asks for no second program
    assert place_examples(CLASSES, SCALER, NO_UNITS, None).layout == InputLayout(numbers=3)
    images = dataclasses.replace(CLASSES, inputs=X.reshape(40, 3, 1))
    assert place_examples(images, Pixels().fit(images.inputs), NO_UNITS, None).layout is None


# --- examples without a target

BLIND = np.arange(40) % 4 == 0
PARTLY = dataclasses.replace(CLASSES, targets=np.where(BLIND, -1, Y), times=np.arange(40))


@pytest.mark.parametrize(
    "split", [HoldOut(0.2, 0.2), Fold(1, 3), TimeHoldOut(0.2, 0.2), GivenParts(20, 10)], ids=lambda s: type(s).__name__
)
def test_examples_without_a_target_are_learned_from_and_judge_nothing(split: Any) -> None:
    """Every part knows where its rows stood, also those of a data set that is itself a part."""
    whole = dataclasses.replace(PARTLY, rows=np.arange(40) + 100)
    train, valid, test = split_labelled(split, SemiSupervised(), whole, key=keys.from_seed(0))
    assert test is not None
    assert train.rows is not None
    assert set(np.flatnonzero(BLIND) + 100) <= set(train.rows)
    assert valid.labelled.all()
    assert test.labelled.all()
    parts = (train, valid, test)
    together = np.concatenate([part.rows for part in parts])  # type: ignore[misc]
    assert len(set(together)) == len(together) >= 39  # folds of uneven sizes leave one out
    for part in parts:
        np.testing.assert_array_equal(part.inputs, X[part.rows - 100])  # type: ignore[operator]
        np.testing.assert_array_equal(part.targets, PARTLY.targets[part.rows - 100])  # type: ignore[operator]
    assert train.notes[-1].startswith(f"{train.labelled.sum()} of {len(train)} training rows have a target")
    if isinstance(split, GivenParts):
        assert set(train.rows) == set(range(100, 120)) | set(np.flatnonzero(BLIND) + 100)
        assert len(valid) == (~BLIND[20:30]).sum()


@pytest.mark.parametrize("dataset", [CLASSES, PARTLY], ids=["labelled", "partly"])
def test_a_test_set_whose_rows_all_weigh_nothing_is_refused_before_training(dataset: Dataset) -> None:
    weighted = dataclasses.replace(dataset, weights=np.arange(40) < 30)
    with pytest.raises(RequestError, match="all sample weights of the test set are 0: some must be positive"):
        split_labelled(GivenParts(20, 10), SemiSupervised(), weighted, key=keys.from_seed(0))
    assert split_labelled(GivenParts(15, 10), SemiSupervised(), weighted, key=keys.from_seed(0))[2] is not None


def test_only_a_criterion_that_takes_them_gets_them() -> None:
    line = r"missing in 10 of 40 rows, first in data row 1: Supervised needs one for each\. Leave those rows out"
    for criterion, words in ((Supervised(SoftmaxLoss()), line), (None, "the criterion needs one")):
        with pytest.raises(RequestError, match=words):
            split_labelled(HoldOut(), criterion, PARTLY, key=keys.from_seed(0))
    none = dataclasses.replace(PARTLY, targets=np.full(40, -1))
    with pytest.raises(RequestError, match="missing in every row"):
        split_labelled(HoldOut(), SemiSupervised(), none, key=keys.from_seed(0))
    tested = dataclasses.replace(CLASSES, test=PARTLY)
    with pytest.raises(RequestError, match="data row 1 of the test set"):
        split_labelled(HoldOut(), SemiSupervised(), tested, key=keys.from_seed(0))
    with pytest.raises(RequestError, match="no validation row of `GivenParts` has a target"):
        split_labelled(GivenParts(20, 1), SemiSupervised(), PARTLY, key=keys.from_seed(0))


def test_classes_and_units_are_those_of_the_labelled() -> None:
    expected = compute_class_weight("balanced", classes=np.arange(3), y=Y[~BLIND])
    by_class = weights_of_classes("balanced", PARTLY)
    np.testing.assert_allclose(by_class, expected)
    weights = np.asarray(place_examples(PARTLY, SCALER, NO_UNITS, by_class).weights)
    np.testing.assert_allclose(weights, np.where(BLIND, 1.0, expected[Y]), rtol=1e-6)  # whose mean is 1 already
    numbers = Dataset(X, np.where(BLIND[:, None], np.nan, X[:, :1]), Numbers())
    shift, scale = target_units(numbers)
    assert (shift[0], scale[0]) == (pytest.approx(X[~BLIND, 0].mean()), pytest.approx(X[~BLIND, 0].std()))
    assert np.isnan(place_examples(numbers, SCALER, (shift, scale), None).targets).sum() == 10
