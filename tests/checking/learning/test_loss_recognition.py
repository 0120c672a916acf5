"""A loss is recognised by its values alone; its chance level is that of scikit-learn's dummy predictors."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from sklearn.metrics import log_loss

from gradwise.checking.learning.loss_recognition import Recognised, orders, recognise

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
OUTPUTS = RANDOM.normal(size=(40, 3)).astype(np.float32)
CLASSES = RANDOM.choice(3, p=(0.6, 0.3, 0.1), size=40)
NUMBERS = RANDOM.normal(2.0, 3.0, size=(40, 3)).astype(np.float32)
LABELS = (RANDOM.random((40, 3)) < 0.2).astype(np.float32)


def _seen(loss: Callable[..., Any], outputs: np.ndarray, targets: np.ndarray) -> Recognised:
    several = orders(targets, len(targets), key=KEY)
    assert several is not None
    return recognise(outputs, several, [float(loss(outputs, one)) for one in several])


def _cross_entropy(outputs: np.ndarray, targets: np.ndarray) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


@pytest.mark.parametrize(("scale", "rest"), [(1.0, 0.0), (40.0, 0.0), (1.0, 0.7)])
def test_a_cross_entropy_is_seen_through_a_sum_or_a_penalty(scale: float, rest: float) -> None:
    seen = _seen(lambda o, t: scale * _cross_entropy(o, t).mean() + rest, OUTPUTS, CLASSES)
    shares = np.bincount(CLASSES) / 40
    assert seen.kind == "classes"
    assert seen.criterion == pytest.approx(float(_cross_entropy(OUTPUTS, CLASSES).mean()), rel=1e-4)
    assert seen.constant == pytest.approx(log_loss(CLASSES, np.tile(shares, (40, 1))), rel=1e-6)
    assert seen.scale == pytest.approx(scale, rel=1e-3)
    assert seen.penalty == pytest.approx(rest / (rest + scale * seen.criterion), abs=2e-3)


def test_probabilities_one_hot_targets_and_sequences_are_classes_too() -> None:
    shares = np.asarray(jax.nn.softmax(OUTPUTS))
    own = float(_cross_entropy(OUTPUTS, CLASSES).mean())
    told = _seen(lambda p, t: -np.log(p[np.arange(40), t]).mean(), shares, CLASSES)
    hot = _seen(lambda o, t: optax.softmax_cross_entropy(o, t).mean(), OUTPUTS, np.eye(3, dtype=np.float32)[CLASSES])
    several = _seen(lambda o, t: _cross_entropy(o, t).mean(), OUTPUTS.reshape(8, 5, 3), CLASSES.reshape(8, 5))
    for seen in (told, hot, several):
        assert seen.kind == "classes"
        assert seen.criterion == pytest.approx(own, rel=1e-3)


def test_labels_squares_and_distances_are_told_apart() -> None:
    labels = _seen(lambda o, t: optax.sigmoid_binary_cross_entropy(o, t).sum(), OUTPUTS, LABELS)
    assert labels.kind == "labels"
    assert labels.scale == pytest.approx(120, rel=1e-3)
    squared_labels = _seen(lambda o, t: np.mean((o - t) ** 2), OUTPUTS, LABELS)
    assert squared_labels.kind == "squared"
    half = _seen(lambda o, t: 0.5 * np.mean((o - t) ** 2), OUTPUTS, NUMBERS)
    assert half.kind == "squared"
    assert half.scale == pytest.approx(0.5, rel=1e-3)
    assert half.constant == pytest.approx(NUMBERS.var(axis=0).mean(), rel=1e-5)
    assert _seen(lambda o, t: np.mean(np.abs(o - t)), OUTPUTS, NUMBERS).kind == "absolute"


def test_what_is_none_of_them_is_not_recognised() -> None:
    assert _seen(lambda o, t: np.mean((o - t) ** 4), OUTPUTS, NUMBERS).kind == ""
    assert _seen(lambda o, t: np.mean(o**2), OUTPUTS, NUMBERS).kind == ""  # does not depend on the targets
    assert orders(np.zeros(5, int), 5, key=KEY) is None
    assert orders(None, 5, key=KEY) is None
