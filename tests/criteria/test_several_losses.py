"""Several tasks that share lower layers (row G7): the sum of what each alone would be, over the targets present."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.several_losses import SeveralLosses
from gradwise.criteria.supervised import Supervised
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Labels, Numbers, Several

RNG = np.random.default_rng(0)
ROWS = 60
TASK = Several((Numbers(("price",)), Classes(np.array(["blue", "green", "red"]), "colour"), Labels(("old", "new"))))
OUTPUTS = RNG.normal(size=(ROWS, 6)).astype(np.float32)
NUMBERS = RNG.normal(size=(ROWS, 1))
CLASSES = RNG.choice(3, ROWS, p=[0.5, 0.3, 0.2])
LABELS = (RNG.random((ROWS, 2)) < [0.3, 0.9]).astype(float)
WHOLE = np.concatenate([NUMBERS, CLASSES[:, None], LABELS], axis=1).astype(np.float32)
ALONE = (
    np.asarray(jax.vmap(GaussianLoss().loss)(OUTPUTS[:, :1], NUMBERS.astype(np.float32))),
    np.asarray(jax.vmap(SoftmaxLoss().loss)(OUTPUTS[:, 1:4], CLASSES)),
    np.asarray(jax.vmap(SigmoidLoss().loss)(OUTPUTS[:, 4:], LABELS.astype(np.float32))),
)


def bound(**options: object) -> SeveralLosses:
    return SeveralLosses(**options).for_targets(TASK, WHOLE)


def test_the_loss_is_the_weighted_sum_of_each_alone() -> None:
    for weights, each in (((1.0,), (1.0, 1.0, 1.0)), ((0.5, 2.0, 0.0), (0.5, 2.0, 0.0))):
        found = jax.vmap(bound(weights=weights).loss)(OUTPUTS, WHOLE)
        expected = sum(w * loss for w, loss in zip(each, ALONE, strict=True))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_predictions_are_those_of_each_task() -> None:
    link = np.asarray(jax.vmap(bound().link)(OUTPUTS))
    np.testing.assert_array_equal(link[:, :1], OUTPUTS[:, :1])
    np.testing.assert_allclose(link[:, 1:4], jax.nn.softmax(OUTPUTS[:, 1:4]), rtol=1e-6)
    np.testing.assert_allclose(link[:, 4:], jax.nn.sigmoid(OUTPUTS[:, 4:]), rtol=1e-6)


def test_a_missing_target_contributes_nothing() -> None:
    """Infinity stands for one that is missing beside others: its outputs get no gradient, the others their own."""
    target = jnp.where(jnp.arange(4) == 1, jnp.inf, WHOLE[0])
    output, full = jnp.asarray(OUTPUTS[0]), jnp.asarray(WHOLE[0])
    loss = bound(weights=(1.0, 3.0, 1.0))
    slope, whole = (np.asarray(jax.grad(loss.loss)(output, aim)) for aim in (target, full))
    np.testing.assert_array_equal(slope[1:4], 0.0)
    np.testing.assert_array_equal(slope[[0, 4, 5]], whole[[0, 4, 5]])
    assert float(loss.loss(output, target)) == pytest.approx(ALONE[0][0] + ALONE[2][0], rel=1e-5)
    assert np.isfinite(float(loss.score(output, target)))


def test_the_score_of_the_best_constants_is_one() -> None:
    """Mean, most frequent class, more frequent value of each label: also where half of the targets are missing."""
    holes = np.where(RNG.random(WHOLE.shape) < [0.0, 0.6, 0.3, 0.3], np.nan, WHOLE)
    holes[:, 2:] = np.where(np.isnan(holes[:, 2:3]), np.nan, WHOLE[:, 2:])
    for targets in (WHOLE, holes):
        known = [targets[:, 0], targets[~np.isnan(targets[:, 1]), 1].astype(int), targets[~np.isnan(targets[:, 2]), 2:]]
        likely = np.bincount(known[1]).argmax()
        constant = np.array([0.0, *(10.0 * (np.arange(3) == likely)), *(10.0 * (known[2].mean(0) > 0.5) - 5.0)])
        placed = targets.copy()
        placed[:, 0] = (targets[:, 0] - known[0].mean()) / known[0].std()
        placed = np.where(np.isnan(placed), np.inf, placed)
        loss = SeveralLosses(weights=(1.0, 2.0, 0.5)).for_targets(TASK, targets)
        scores = jax.vmap(lambda t, loss=loss, c=constant: loss.score(jnp.asarray(c), t))(jnp.asarray(placed))
        assert float(scores.mean()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("score_by", ["loss", "absolute"])
def test_other_scores_are_relative_to_the_best_constant_too(score_by: str) -> None:
    loss = SeveralLosses(
        classes=SoftmaxLoss(score_by="loss" if score_by == "loss" else "error"),
        labels=SigmoidLoss(score_by="loss" if score_by == "loss" else "error"),
        numbers=GaussianLoss(score_by="absolute" if score_by == "absolute" else "squared"),
    ).for_targets(TASK, WHOLE)
    shares = np.bincount(CLASSES) / ROWS
    centred = (NUMBERS[:, 0] - NUMBERS.mean()) / NUMBERS.std()
    middle = np.median(centred) if score_by == "absolute" else 0.0
    odds = np.log(LABELS.mean(0) / (1 - LABELS.mean(0)))
    constant = jnp.asarray(np.array([middle, *np.log(shares), *odds]), jnp.float32)
    placed = np.concatenate([centred[:, None], WHOLE[:, 1:]], axis=1)
    scores = jax.vmap(lambda t: loss.score(constant, t))(jnp.asarray(placed, jnp.float32))
    assert float(scores.mean()) == pytest.approx(1.0, abs=1e-5)


def test_the_root_of_the_curvature() -> None:
    output, whole = jnp.asarray(OUTPUTS[3]), jnp.asarray(WHOLE[3])
    loss = bound(weights=(1.0, 2.0, 0.5))
    for aim in (whole, whole.at[0].set(jnp.inf)):
        root = np.stack([loss.root(output, aim, unit) for unit in jnp.eye(6)], axis=1)
        np.testing.assert_allclose(root @ root.T, jax.hessian(loss.loss)(output, aim), atol=1e-5)


def test_without_shared_layers_each_task_learns_as_it_would_alone() -> None:
    """A linear network has no shared parameters: the gradient of each row of weights is that of its own task."""
    network = Mlp(widths=()).build((4,), 6, key=jax.random.key(0))
    inputs = jnp.asarray(RNG.normal(size=(ROWS, 4)), jnp.float32)
    ones, total = jnp.ones(ROWS), jnp.asarray(float(ROWS))
    key = jax.random.key(1)

    def slopes(criterion: Supervised, targets: np.ndarray, outputs: slice) -> np.ndarray:
        def value(weight: jax.Array) -> jax.Array:
            def cut(x: jax.Array) -> jax.Array:
                return (weight @ x + network.output.bias)[outputs]

            return criterion(cut, Batch(inputs, jnp.asarray(targets), ones, ones, total), key=key)[0]

        return np.asarray(jax.grad(value)(network.output.weight))

    together = slopes(Supervised(bound()), WHOLE, slice(None))
    singles = ((GaussianLoss(), NUMBERS.astype(np.float32)), (SoftmaxLoss(), CLASSES), (SigmoidLoss(), LABELS))
    for (loss, targets), piece in zip(singles, TASK.pieces, strict=True):
        alone = slopes(Supervised(loss), targets, piece.outputs)
        np.testing.assert_allclose(together[piece.outputs], alone[piece.outputs], atol=1e-6)


def test_smoothing_reaches_the_tasks_that_have_it() -> None:
    smooth = bound(classes=SoftmaxLoss(label_smoothing=0.2))
    found = jax.vmap(smooth.loss)(OUTPUTS, WHOLE)
    own = jax.vmap(SoftmaxLoss(label_smoothing=0.2).loss)(OUTPUTS[:, 1:4], CLASSES)
    np.testing.assert_allclose(found, ALONE[0] + own + ALONE[2], rtol=1e-5)
    assert smooth.at(jnp.asarray(3)) is smooth


def test_wrong_weights_and_empty_targets_are_refused() -> None:
    with pytest.raises(RequestError, match="2 entries for 3 targets"):
        bound(weights=(1.0, 2.0))
    with pytest.raises(RequestError, match="not all of them 0"):
        SeveralLosses(weights=(0.0, 0.0))
    with pytest.raises(RequestError, match="`colour` is missing in every training row"):
        SeveralLosses().for_targets(TASK, np.where(np.arange(4) == 1, np.nan, WHOLE))
    with pytest.raises(RequestError, match="does not know its tasks"):
        SeveralLosses().loss(jnp.asarray(OUTPUTS[0]), jnp.asarray(WHOLE[0]))
    assert SeveralLosses().for_targets(Numbers(("price",)), NUMBERS) == SeveralLosses()
    assert dataclasses.replace(bound(), pieces=()) == SeveralLosses()
