"""Choices that do not fit: each is found at its line, and its sound twin is silent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise import defaults
from gradwise.checking.subject import Subject
from gradwise.checking.wiring.loss_and_outputs import (
    ChoicesMeasured,
    find_choices,
    find_recipe_choices,
    measure_choices,
)
from gradwise.criteria.code_sparsity import BiasPenalty, KlToTarget, L1Codes
from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.supervised import Supervised
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.pretraining.stack import Pretrained
from tests.marks import parametrize_one_quick

HERE = Path(__file__).name

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(48, 4)).astype(np.float32)
CLASSES = np.argmax(X[:, :3], axis=1)
REAL = (X @ np.array([1.0, -2.0, 0.5, 0.0])).astype(np.float32)


class Net(eqx.Module):
    """One hidden layer, and any function of the outputs."""

    mlp: eqx.nn.MLP
    end: Any = eqx.field(static=True)

    def __init__(self, outputs: int, end: Any = lambda a: a):
        self.mlp = eqx.nn.MLP(4, outputs, 8, 1, jnp.tanh, key=jr.key(0))
        self.end = end

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.end(self.mlp(x))


def cross_entropy(model: Any, batch: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(batch[0]), batch[1]).mean()


def squared(model: Any, batch: Any) -> Any:
    return jnp.mean((jax.vmap(model)(batch[0])[:, 0] - batch[1]) ** 2)


def one_hot(model: Any, batch: Any) -> Any:
    logs = jax.nn.log_softmax(jax.vmap(model)(batch[0]))
    return -jnp.mean(jnp.sum(jax.nn.one_hot(batch[1], logs.shape[1]) * logs, axis=1))


def hinge(model: Any, batch: Any) -> Any:
    return jnp.maximum(0.0, 1.0 - (2 * (batch[1] > 0) - 1) * jax.vmap(model)(batch[0])[:, 0]).mean()


def decayed(coefficient: float) -> Callable[[Any, Any], Any]:
    def loss(model: Any, batch: Any) -> Any:
        leaves = jax.tree.leaves(eqx.filter(model, eqx.is_array))
        return cross_entropy(model, batch) + coefficient * sum(jnp.sum(leaf**2) for leaf in leaves)

    return loss


def _said(loss: Any, model: Any, targets: Any) -> list[tuple[str, str]]:
    subject = Subject.of(loss, model, (X, targets))
    return [(one.level, one.code) for one in find_choices(measure_choices(subject, key=jr.key(1)))]


@parametrize_one_quick(
    ("loss", "model", "targets", "said"),
    [
        (cross_entropy, Net(3, jax.nn.softmax), CLASSES, [("error", "GW702")]),
        (cross_entropy, Net(3), CLASSES, []),
        (squared, Net(1, jax.nn.relu), REAL, [("error", "GW701")]),
        (squared, Net(1, jax.nn.relu), np.abs(REAL), [("warning", "GW701")]),
        (squared, Net(1, jax.nn.softplus), np.abs(REAL), []),
        (squared, Net(1, lambda a: jax.nn.leaky_relu(a)), REAL, []),
        (squared, Net(1, lambda a: jnp.clip(a, -50.0, 50.0)), REAL, []),  # a cut that is never reached
        (squared, Net(1, jnp.tanh), REAL, [("error", "GW709")]),
        (squared, Net(1, lambda a: 20.0 * jnp.tanh(a)), REAL, []),
        (squared, Net(1), REAL, []),
        (squared, Net(1), CLASSES, [("warning", "GW709")]),
        (one_hot, Net(1), CLASSES, [("error", "GW709")]),
        (one_hot, Net(3), CLASSES, []),
        (hinge, Net(1), CLASSES, []),
        (lambda model, batch: -cross_entropy(model, batch), Net(3), CLASSES, [("error", "GW709")]),
        (decayed(1.0), Net(3), CLASSES, [("warning", "GW705")]),
        (decayed(1e-3), Net(3), CLASSES, []),
    ],
)
def test_each_choice_and_its_sound_twin(loss: Any, model: Any, targets: Any, said: list[tuple[str, str]]) -> None:
    assert _said(loss, model, targets) == said


def test_places_and_numbers_are_told() -> None:
    subject = Subject.of(cross_entropy, Net(3, jax.nn.softmax), (X, CLASSES))
    (twice,) = find_choices(measure_choices(subject, key=jr.key(1)))
    assert twice.where.count(f"{HERE}:") == 2
    assert "in __call__" in twice.where
    assert "in cross_entropy" in twice.where
    # Three probabilities: the best is softmax(1, 0, 0), and its first is e/(e + 2).
    assert twice.evidence["least"] == pytest.approx(-np.log(np.e / (np.e + 2)))


@pytest.mark.slow
def test_a_penalty_is_weighed_exactly() -> None:
    subject = Subject.of(decayed(0.5), Net(3), (X, CLASSES))
    seen = measure_choices(subject, key=jr.key(1))
    penalty = 0.5 * sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(subject.parameters))
    assert seen.penalty == pytest.approx(penalty, rel=1e-5)
    assert seen.rest == pytest.approx(float(cross_entropy(Net(3), (X, CLASSES))), rel=1e-4)
    assert seen.kind == "softmax"  # also beside a penalty
    of_rest = jax.grad(lambda p: cross_entropy(subject.model_of(p), (X, CLASSES)))(subject.parameters)
    sizes = [np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(tree))) for tree in (of_rest,)]
    assert seen.pull == pytest.approx(2 * 0.5 * np.sqrt(penalty / 0.5) / sizes[0], rel=1e-3)
    assert seen.outputs == (48, 3)


def test_outputs_of_nought_are_no_blind_loss() -> None:
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, Net(1))

    def logistic(model: Any, batch: Any) -> Any:
        return optax.sigmoid_binary_cross_entropy(jax.vmap(model)(batch[0])[:, 0], batch[1]).mean()

    assert _said(logistic, zeros, (X[:, 0] > 0).astype(np.int32)) == []


def test_a_model_that_wants_more_than_inputs_is_read_all_the_same() -> None:
    def loss(parameters: Any, batch: Any) -> Any:
        chances = jax.nn.softmax(batch[0] @ parameters["w"])
        return optax.softmax_cross_entropy_with_integer_labels(chances, batch[1]).mean()

    assert _said(loss, {"w": jnp.full((4, 3), 0.1)}, CLASSES) == [("error", "GW702")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"link": "softmax", "again": "logaddexp"}, ["GW702"]),
        ({"are_probabilities": True, "kind": "softmax"}, ["GW702"]),
        ({"are_probabilities": True, "kind": ""}, []),
        ({"hard": "relu", "clipped": 0.4}, ["GW701"]),
        ({"end": "logistic", "beyond": 0.5, "kind": "squared"}, ["GW709"]),
        ({"end": "logistic", "beyond": 0.05, "kind": "squared"}, []),
        ({"task": "classes", "outputs": (9, 1), "kind": "squared", "classes": 50}, []),  # counts
        ({"penalty": 3.0, "pull": 1.0}, []),  # at a trained optimum the two pull alike
        ({"penalty": 3.0, "pull": 5.0}, ["GW705"]),
        ({"penalty": 0.1, "pull": 5.0}, []),
    ],
)
def test_findings_follow_from_the_numbers_alone(changes: dict[str, Any], said: list[str]) -> None:
    seen = ChoicesMeasured(**{"loss": 1.0, "rest": 1.0, "outputs": (9, 3), **changes})
    assert [one.code for one in find_choices(seen)] == said


def _features(activation: Any, *penalties: Any) -> Any:
    return defaults.features(
        model=MlpAutoEncoder(widths=(8,), activation=activation), criterion=Reconstruction(on_codes=penalties)
    )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (defaults.classification(), []),
        (defaults.classification(model=Mlp(widths=(8, 8, 8), activation=Sigmoid())), [("warning", "GW703")]),
        (defaults.classification(model=Mlp(output_activation=Rectifier())), [("warning", "GW701")]),
        (defaults.classification(model=Pretrained((), Mlp(widths=(8, 8, 8), activation=Sigmoid()))), []),
        (defaults.classification(criterion=Supervised(SoftmaxLoss(), (L2(1e4),))), [("warning", "GW705")]),
        (defaults.classification(criterion=Supervised(SoftmaxLoss(), (L2(1.0),))), []),
        (defaults.classification(criterion=Supervised(GaussianLoss())), [("error", "GW709")]),
        (_features(Sigmoid(), KlToTarget()), []),
        (_features(Tanh(), L1Codes()), [("warning", "GW704")]),
        (_features(Rectifier(), KlToTarget()), [("error", "GW704")]),
        (_features(Sigmoid(), BiasPenalty()), [("note", "GW704")]),
    ],
)
def test_recipes_tell_their_own_choices(recipe: Any, said: list[tuple[str, str]]) -> None:
    found = find_recipe_choices(recipe, "classes")
    assert [(one.level, one.code) for one in found] == said
