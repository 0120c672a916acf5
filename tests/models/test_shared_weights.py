"""Members that share their weights (row J3) against as many separate NumPy networks."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import log_softmax

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Parametric, Tanh
from gradwise.models.input_stage import Embedded, PiecewiseLinear
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.models.shared_weights import SharedNetwork, SharedWeights
from gradwise.optimisers.adaptive.vsgd import Vsgd
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order.hessian_free import HessianFree
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import InputLayout
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part
from gradwise.training.interval import interval
from gradwise.training.population import Population, enter
from gradwise.training.state import init
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 5)).astype(np.float32)
TARGETS = RNG.integers(0, 3, 12).astype(np.int32)
MEMBERS = 4
MLP = Mlp(widths=(6, 6, 3), activation=Parametric(Tanh()), dropout=0.0, parametrisation="ntk", residual=True)


@eqx.filter_jit
def built(model: SharedWeights, inputs: int = 5) -> SharedNetwork:
    return model.build((inputs,), 3, key=jr.key(0))


def moved(network: SharedNetwork) -> SharedNetwork:
    """With every parameter away from its first value."""
    parameters, rest = trainable(network)
    leaves, tree = jax.tree.flatten(parameters)
    draw = np.random.default_rng(1)
    leaves = [jnp.asarray(leaf + draw.normal(scale=0.5, size=leaf.shape), jnp.float32) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


@pytest.fixture(scope="module")
def network() -> SharedNetwork:
    return moved(built(SharedWeights(MLP, members=MEMBERS)))


@eqx.filter_jit
def rows_of(network: SharedNetwork, inputs: Any, key: Any = None) -> Any:
    return apply_batch(network, inputs, key)


def member(network: SharedNetwork, k: int, x: np.ndarray) -> np.ndarray:
    """Network k alone: its own matrices are W with rows and columns multiplied by its factors."""
    h = x.astype(np.float64)
    for layer in network.layers:
        into, out = (np.asarray(factors, np.float64)[k] for factors in (layer.input_factors, layer.output_factors))
        weight = out[:, None] * np.asarray(layer.weight, np.float64) * into / np.sqrt(len(into))
        a = h @ weight.T + np.asarray(layer.bias, np.float64)[k]
        units = a + np.asarray(layer.activation.slope, np.float64) * (np.tanh(a) - a)
        h = h + units if units.shape == h.shape else units
    output = network.output
    weight = np.asarray(output.weight, np.float64)[k] / np.sqrt(h.shape[1])
    return h @ weight.T + np.asarray(output.bias, np.float64)[k]


def test_each_row_is_a_network_of_its_own_and_without_a_key_their_mean_answers(network: SharedNetwork) -> None:
    expected = np.stack([member(network, k, X) for k in range(MEMBERS)], axis=1)
    assert [layer.residual for layer in network.layers] == [False, True, False]
    found = np.asarray(rows_of(network, X, jr.key(3)))
    assert found.shape == (12, MEMBERS, 3)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(rows_of(network, X), expected.mean(1), atol=2e-5)
    assert np.std(expected, axis=1).min() > 0.01  # the members disagree


def test_members_begin_with_shared_weights_signs_and_layers_of_their_own() -> None:
    first = built(SharedWeights(MLP, members=MEMBERS))
    assert set(np.unique(first.layers[0].input_factors)) == {-1.0, 1.0}
    assert all(np.all(np.asarray(layer.input_factors) == 1) for layer in first.layers[1:])
    assert all(np.all(np.asarray(layer.output_factors) == 1) for layer in first.layers)
    for drawn in (first.output.weight, first.output.bias, first.layers[0].bias):
        assert len(np.unique(np.asarray(drawn).reshape(MEMBERS, -1), axis=0)) == MEMBERS
    standard = built(SharedWeights(dataclasses.replace(MLP, parametrisation="standard"), members=2))
    assert standard.layers[0].scale is None
    assert not np.any(standard.layers[0].bias)
    limit = np.sqrt(6 / (5 + 6))  # Glorot's, with the gain of tanh
    assert 0.7 * limit < np.abs(standard.layers[0].weight).max() <= limit


def test_units_are_dropped_in_each_member_apart() -> None:
    wide = built(SharedWeights(Mlp(widths=(200,), activation=Tanh(), dropout=0.25), members=3))
    hidden = np.asarray(wide.layers[0](jnp.ones((3, 5)), key=jr.key(1)))
    assert np.mean(hidden == 0) == pytest.approx(0.25, abs=0.06)
    assert not np.array_equal(hidden[0] == 0, hidden[1] == 0)
    kept = np.asarray(wide.layers[0](jnp.ones((3, 5)), key=None))
    np.testing.assert_allclose(hidden[hidden != 0], kept[hidden != 0] / 0.75, rtol=1e-5)


def test_the_criterion_is_the_mean_of_the_members_losses(network: SharedNetwork) -> None:
    """And the score is that of their mean output."""
    batch = Batch(jnp.asarray(X), jnp.asarray(TARGETS), jnp.ones(12), jnp.ones(12), jnp.asarray(12.0))
    criterion = Supervised(SoftmaxLoss(label_smoothing=0.2), penalties=())
    total, terms = eqx.filter_jit(criterion)(network, batch, key=jr.key(0))
    logs = np.stack([log_softmax(member(network, k, X), axis=1) for k in range(MEMBERS)], axis=1)
    exact = -np.take_along_axis(logs, TARGETS[:, None, None], axis=2)[..., 0]
    losses = (0.8 * exact - 0.2 * logs.mean(2)).mean(1)
    np.testing.assert_allclose(terms["loss"], losses, rtol=1e-4)
    assert float(total) == pytest.approx(losses.mean(), rel=1e-5)
    mean = np.mean([member(network, k, X) for k in range(MEMBERS)], axis=0)
    np.testing.assert_array_equal(terms["score"], mean.argmax(1) != TARGETS)


def test_categories_and_bins_reach_every_member() -> None:
    layout = InputLayout(numbers=2, categories=(3,))
    model = SharedWeights(Mlp(widths=(4,), inputs=Embedded(PiecewiseLinear(bins=2, size=1)), dropout=0.0), members=2)
    told = model.for_inputs(layout)
    shared = told.started(built(told, 3), jnp.asarray(X[:, :3]))
    np.testing.assert_allclose(
        shared.inputs.numbers.edges.value, np.quantile(X[:, :2], [0, 0.5, 1], axis=0).T, rtol=1e-5
    )
    assert shared.layers[0].weight.shape == (4, 2 * 2 + 8)
    assert rows_of(shared, jnp.asarray([[0.3, -1.0, 3.0]])).shape == (1, 3)


def test_normalised_members_are_refused() -> None:
    with pytest.raises(RequestError, match="no normalisation"):
        SharedWeights(Mlp(normalisation=BatchNorm()))


@pytest.mark.slow
def test_the_contract_of_a_model_holds() -> None:
    check_part(SharedWeights(MLP, members=2))


# --- in training

EXAMPLES = Examples(jnp.asarray(X), jnp.asarray(TARGETS))


def recipe_of(optimiser: Any, members: int = MEMBERS) -> Any:
    return defaults.classification(
        batches=Fixed(12),
        model=SharedWeights(Mlp(widths=(6,), activation=Tanh(), dropout=0.0), members=members),
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        optimiser=optimiser,
        stopping=Off(epochs=4, spacing=1.0, least_examples=24),
    )


def test_a_population_of_them_trains_as_each_would_alone() -> None:
    alone = []
    for rate in (0.5, 0.1):
        problem, state = init(recipe_of(Sgd(rate)), EXAMPLES, EXAMPLES, outputs=3, key=keys.from_seed(1))
        rows = []
        for _ in range(2):
            state, row = interval(problem, state, 2)
            rows.append(float(row.valid_loss))
        alone.append(rows)
    entries = [enter(recipe_of(Sgd(rate)), EXAMPLES, EXAMPLES, outputs=3, key=keys.from_seed(1)) for rate in (0.5, 0.1)]
    population = Population(*entries[0], EXAMPLES, EXAMPLES, slots=2)
    for slot, entry in enumerate(entries):
        population.fill(slot, *entry)
    together = np.stack([np.asarray(population.interval().valid_loss) for _ in range(2)], axis=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert abs(together[0, 1] - together[1, 1]) > 1e-2


@parametrize_one_quick("members", [2, 3])
def test_optimisers_that_take_the_loss_apart_see_the_mean_over_members(members: int) -> None:
    """Fewer members than classes, and as many, where a wrong axis would go unnoticed."""
    recipe = recipe_of(HessianFree(), members)
    problem, state = init(recipe, EXAMPLES, EXAMPLES, outputs=3, key=keys.from_seed(1))
    losses = []
    for _ in range(3):
        state, row = interval(problem, state, 2)
        losses.append(float(row.valid_loss))
    assert losses[0] > losses[1] > losses[2]


def test_a_diagonal_of_second_derivatives_is_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match="one for each of its members"):
        init(recipe_of(Vsgd()), EXAMPLES, EXAMPLES, outputs=3, key=keys.from_seed(1))
