"""Semi-supervised embedding (row G4): the labelled loss plus that of pairs, by hand; and labels that spread."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.criteria.embedding.embed_neighbours import EmbedNeighbours
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather, labelled_share
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractCriterion
from gradwise.training.interval import advance
from gradwise.training.state import init

KEY = keys.from_seed(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
CLASS = np.array([0, -1, 1, -1, -1, 1, -1, -1, -1, -1, -1, 0], np.int32)
TRAIN = Examples(jnp.asarray(X), jnp.asarray(CLASS))
NETWORK = Mlp(widths=(4, 3), activation=Tanh(), dropout=0.0).build((3,), 2, key=KEY)


def objective(criterion: AbstractCriterion, rows: np.ndarray) -> Objective:
    memory = criterion.begin(NETWORK, TRAIN.inputs, key=KEY)
    batch = gather(TRAIN, jnp.asarray(rows), jnp.ones(len(rows)), memory)
    _, rest = eqx.partition(NETWORK, eqx.is_inexact_array)
    return Objective(criterion, Reshuffled(size=len(rows)), rest, TRAIN, KEY, jnp.asarray(0), batch)


@pytest.mark.parametrize("layer", ["output", "layers.0", "layers.1"])
def test_it_is_the_labelled_loss_and_that_of_the_pairs_by_hand(layer: str) -> None:
    """And so is its gradient: the pairs that were drawn, one after another in a loop."""
    rows = np.array([1, 0, 5, 9])
    plain = Supervised(SoftmaxLoss(), (L2(0.3),))
    criterion = EmbedNeighbours(plain, coefficient=0.7, margin=1.5, neighbours=3, layer=layer, labelled=5)
    asked = objective(criterion, rows)
    drawn = np.asarray(criterion.beside(asked.batch, TRAIN, key=keys.named(asked.noise, "beside")))
    known, near, far = drawn[:5], drawn[5:9], drawn[9:]
    memory = np.asarray(asked.batch.memory)
    assert all(CLASS[row] >= 0 for row in known)
    assert all(j in memory[i] for i, j in zip(rows, near, strict=True))

    def by_hand(parameters: Any) -> jax.Array:
        model = eqx.combine(parameters, asked.rest)

        first = jnp.tanh(X @ model.layers[0].weight.T + model.layers[0].bias)
        second = jnp.tanh(first @ model.layers[1].weight.T + model.layers[1].bias)
        outputs = second @ model.output.weight.T + model.output.bias
        f = {"layers.0": first, "layers.1": second, "output": outputs}[layer]
        total = -jnp.mean(jax.nn.log_softmax(outputs)[known, CLASS[known]])
        weights = (*(one.weight for one in model.layers), model.output.weight)
        total += 0.3 * sum(jnp.sum(one**2) for one in weights) / (CLASS >= 0).sum()
        for i, j, r in zip(rows, near, far, strict=True):
            total += 0.7 / len(rows) * jnp.sum((f[i] - f[j]) ** 2)
            if r != i and r not in memory[i]:
                distance = jnp.sqrt(jnp.sum((f[i] - f[r]) ** 2))
                total += 0.7 / len(rows) * jnp.maximum(0.0, 1.5 - distance) ** 2
        return total

    parameters = eqx.filter(NETWORK, eqx.is_inexact_array)
    found, expected = (jax.value_and_grad(one)(parameters) for one in (asked, by_hand))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_labelled_examples_are_drawn_by_their_weights() -> None:
    weights = np.array([3.0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1], np.float32)
    train = dataclasses.replace(TRAIN, weights=jnp.asarray(weights))
    criterion = EmbedNeighbours(labelled=4000, neighbours=2)
    asked = objective(criterion, np.arange(4))
    drawn = np.asarray(criterion.beside(asked.batch, train, key=KEY))[:4000]
    counts = np.bincount(drawn, minlength=12) / 4000
    expected = weights * (CLASS >= 0) / (weights * (CLASS >= 0)).sum()
    np.testing.assert_allclose(counts, expected, atol=0.03)
    assert float(labelled_share(train)) == pytest.approx((3 + 1 + 0 + 1) / 12)


def test_a_batch_on_its_own_is_scored_by_its_labelled_examples() -> None:
    plain = Supervised(SoftmaxLoss())
    batch = gather(TRAIN, jnp.arange(12), jnp.ones(12))
    value, terms = EmbedNeighbours(plain)(NETWORK, batch, key=KEY)
    known = np.flatnonzero(CLASS >= 0)
    alone = -jax.nn.log_softmax(jax.vmap(NETWORK)(jnp.asarray(X[known])))[jnp.arange(len(known)), CLASS[known]]
    assert float(value) == pytest.approx(float(alone.mean()), rel=1e-5)
    np.testing.assert_allclose(terms["loss"][known], alone, rtol=1e-5)
    assert np.all(np.asarray(terms["loss"])[CLASS < 0] == 0)


def rings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two rings around one centre."""
    draw = np.random.default_rng(seed)
    kind, angle = np.arange(count) % 2, draw.uniform(0, 2 * np.pi, count)
    radius = np.where(kind == 0, 0.7, 1.8) + 0.07 * draw.normal(size=count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), kind.astype(np.int32)


def error(criterion: AbstractCriterion, seed: int) -> float:
    """On new points, after training on 400 points of two rings of which one in each has a label."""
    x, kind = rings(400, seed)
    known = np.where(np.arange(400) < 2, kind, -1).astype(np.int32)
    train = Examples(jnp.asarray(x), jnp.asarray(known))
    valid = Examples(jnp.asarray(x[:2]), jnp.asarray(kind[:2]))
    recipe = defaults.classification(
        model=Mlp(widths=(32, 32), dropout=0.0), criterion=criterion, optimiser=Adam(5e-3), batches=Reshuffled(size=50)
    )
    problem, state = init(recipe, train, valid, outputs=2, classes=2, key=keys.from_seed(seed))
    state, _ = eqx.filter_jit(advance)(problem, state, 1500)
    new, kinds = rings(500, seed + 100)
    return float((np.asarray(jax.vmap(problem.model(state.parameters))(new)).argmax(1) != kinds).mean())


@pytest.mark.slow
def test_two_labels_are_enough_on_two_rings() -> None:
    """Labels spread along each ring; the network alone draws a line between the two points."""
    for seed in (0, 1):
        pairs = EmbedNeighbours(coefficient=3.0, margin=0.2, labelled=8)
        with_pairs, alone = error(pairs, seed), error(EmbedNeighbours(coefficient=0.0, labelled=8), seed)
        assert with_pairs < 0.02
        assert alone > 0.2


def test_what_cannot_be_embedded_is_refused() -> None:
    with pytest.raises(RequestError, match="mixup"):
        EmbedNeighbours(Supervised(SoftmaxLoss(), mixup=0.2))
    with pytest.raises(RequestError, match="some are NaN"):
        EmbedNeighbours().check_inputs(jnp.full((3, 2), jnp.nan))
    with pytest.raises(RequestError, match="at least two"):
        EmbedNeighbours().check_inputs(jnp.zeros((1, 2)))
    with pytest.raises(RequestError, match="no hidden layer matches"):
        objective(EmbedNeighbours(layer="layers.7", neighbours=2), np.arange(4))(NETWORK)
    with pytest.raises(RequestError, match="the loss SoftmaxLoss learns classes"):
        EmbedNeighbours().check_task(gradwise.Numbers())
