"""From a part of the data to examples on the device."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from gradwise.core.dataset import Classes, Dataset, Labels, Numbers
from gradwise.core.errors import RequestError
from gradwise.data.scale import Standardise
from gradwise.training.placing import place, target_units, weights_of_classes

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
        ({"d": 1.0}, CLASSES, "'d', which is no class"),
        ("balanced", Dataset(X, X[:, :1], Numbers()), "needs classes, but the target holds numbers"),
    ],
)
def test_weights_of_classes_that_cannot_be_are_refused(chosen: Any, dataset: Dataset, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        weights_of_classes(chosen, dataset)


def test_weights_multiply_and_their_mean_is_one() -> None:
    own = DRAW.random(40)
    by_class = np.array([1.0, 2.0, 0.0])
    weights = np.asarray(place(dataclasses.replace(CLASSES, weights=own), SCALER, NO_UNITS, by_class).weights)
    assert weights.dtype == np.float32
    assert weights.mean() == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(weights, own * by_class[Y] / (own * by_class[Y]).mean(), rtol=1e-6)
    assert place(CLASSES, SCALER, NO_UNITS, None).weights is None


@pytest.mark.parametrize(
    ("own", "by_class", "words"),
    [
        (np.full(40, -1.0), None, "at least 0"),
        (np.full(40, np.nan), None, "finite"),
        (np.full(40, np.inf), None, "finite"),
        (np.zeros(40), None, "nothing to learn from"),
        (np.ones(40), np.array([-1.0, 1.0, 1.0]), "at least 0"),
        (np.ones(40), np.zeros(3), "nothing to learn from"),
    ],
)
def test_weights_that_cannot_be_are_refused(own: np.ndarray, by_class: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        place(dataclasses.replace(CLASSES, weights=own), SCALER, NO_UNITS, by_class)


def test_numbers_are_told_in_units_of_the_training_part() -> None:
    targets = np.stack([1e6 + 1e5 * X[:, 0], np.full(40, 7.0)], axis=1)
    part = Dataset(X, targets, Numbers(("a", "b")))
    shift, scale = target_units(part)
    np.testing.assert_allclose(shift, targets.mean(0))
    np.testing.assert_allclose(scale, [targets[:, 0].std(), 1.0])  # a constant has no unit of its own
    placed = np.asarray(place(part, SCALER, (shift, scale), None).targets)
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
    placed = place(dataset, SCALER, NO_UNITS, None)
    assert isinstance(placed.inputs, jax.Array)
    assert (placed.inputs.dtype, placed.targets.dtype) == (jnp.float32, dtype)
    assert len(placed) == 40
    np.testing.assert_allclose(np.asarray(placed.inputs).std(0), 1.0, rtol=1e-5)
