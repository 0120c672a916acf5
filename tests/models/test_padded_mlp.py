"""Networks in arrays larger than they need: units that are not there change nothing, and stay exactly 0 (row F4)."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Parametric, Rectifier, Sigmoid, Tanh
from gradwise.models.initial_weights import FanIn
from gradwise.models.input_stage import Embedded, Periodic
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp, MlpNetwork
from gradwise.models.padded_mlp import PaddedMlp, bucket, pad, trimmed
from gradwise.optimisers.adaptive.adam import Adam, AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind
from gradwise.runtime import keys
from gradwise.specs.dataset import InputLayout
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import Buffer
from gradwise.specs.recipe import Recipe
from gradwise.training.interval import interval, judged_model
from gradwise.training.state import init
from gradwise.training.stopping import Off

INPUTS, CLASSES, UPDATES = 6, 3, 9
ALL_SIZES = ("rectifier, Sgd",)  # for the others the largest shows most, and each size is a program to compile


@functools.cache
def examples(count: int, seed: int) -> Examples:
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, CLASSES, count)
    centres = np.random.default_rng(0).normal(size=(CLASSES, INPUTS))
    inputs = centres[targets] + draw.normal(size=(count, INPUTS))
    return Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.int32))


def recipe_of(model: Mlp, optimiser: Any, penalties: tuple[Any, ...] = ()) -> Recipe:
    return defaults.classification(
        batches=Fixed(8),
        model=model,
        criterion=Supervised(SoftmaxLoss(), penalties=penalties),
        optimiser=optimiser,
        stopping=Off(epochs=99, spacing=1.0, least_examples=64),
    )


def in_arrays_of(recipe: Recipe, size: int | None) -> Recipe:
    if size is None:
        return recipe
    model = pad(recipe.model, (INPUTS,), lambda width: size)
    assert isinstance(model, PaddedMlp)
    return eqx.tree_at(lambda r: r.model, recipe, model, is_leaf=lambda node: node is recipe.model)


def trained(recipe: Recipe) -> tuple[MlpNetwork, MlpNetwork, float]:
    """The network after one interval, the one that would be judged, and the validation loss."""
    problem, state = init(recipe, examples(30, 1), examples(20, 2), outputs=CLASSES, key=keys.from_seed(3))
    state, row = interval(problem, state, UPDATES)
    return problem.model(state.parameters), judged_model(problem, state), float(row.valid_loss)


def padding(network: MlpNetwork) -> list[np.ndarray]:
    """Whatever is a weight or a bias of units that are not there, or leads out of them."""
    found = []
    below = np.ones(network.layers[0].weight.shape[1], bool)
    for layer in network.layers:
        there = np.asarray(layer.mask.value)
        weight = np.asarray(layer.weight)
        found += [weight[~there], weight[:, ~below], np.asarray(layer.bias)[~there]]
        below = there
    return [*found, np.asarray(network.output.weight)[:, ~below]]


FOR_TABLES = Mlp(
    widths=(17, 9),
    activation=Parametric(Tanh()),
    inputs=Embedded(Periodic(frequencies=3, size=1)),
    parametrisation="ntk",
    dropout=0.2,
)


# Every activation, normalisation, penalty and optimiser at least once, and those together that could hurt each other.
CHOICES = {
    "rectifier, Sgd": (Mlp(widths=(17,), activation=Rectifier(), dropout=0.0), Sgd(0.1), ()),
    "sigmoid, dropout, L1 and L2, momentum": (
        Mlp(widths=(17, 9), activation=Sigmoid(), dropout=0.3),
        HeavyBall(0.1, momentum=0.7),
        (L2(0.3), L1(0.2)),
    ),
    "tanh, layer norm, Adam": (
        Mlp(widths=(17, 9), activation=Tanh(), normalisation=LayerNorm(), dropout=0.0),
        Adam(0.01),
        (L2(0.1),),
    ),
    "sigmoid, layer norm, residual, AdamW": (
        Mlp(widths=(17, 17), activation=Sigmoid(), normalisation=LayerNorm(), residual=True, dropout=0.2),
        AdamW(0.01),
        (),
    ),
    "rectifier, batch norm, residual, moving average": (
        Mlp(widths=(9, 9), activation=Rectifier(), normalisation=BatchNorm(), residual=True, initial=FanIn()),
        MovingAverage(HeavyBall(0.05), decay=0.7),  # under Adam, biases before a batch norm follow rounding alone
        (L1(0.1),),
    ),
    "embedded inputs, learned slopes, ntk, rates by kind": (FOR_TABLES, RatesByKind(AdamW(0.05)), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_growing_the_arrays_changes_nothing(name: str) -> None:
    recipe = recipe_of(*CHOICES[name])
    plain, judged, loss = trained(recipe)
    first = recipe.model.build((INPUTS,), CLASSES, key=keys.named(keys.from_seed(3), "model"))
    assert np.abs(np.asarray(first.layers[0].weight) - np.asarray(plain.layers[0].weight)).max() > 1e-3
    for size in (64, 128, 256) if name in ALL_SIZES else (256,):
        network, seen, padded_loss = trained(in_arrays_of(recipe, size))
        assert network.layers[0].weight.shape == (size, plain.layers[0].weight.shape[1])
        assert padded_loss == pytest.approx(loss, abs=1e-5)
        for padded, expected in ((trimmed(network), plain), (trimmed(seen), judged)):
            assert jax.tree.structure(padded) == jax.tree.structure(expected)
            for mine, theirs in zip(jax.tree.leaves(padded), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
        assert all(not np.any(array) for array in padding(network))
        assert sum(array.size for array in padding(network)) > 100


def test_a_padded_network_for_tables_begins_as_the_plain_one() -> None:
    """The same draws and scales for the units that are there, and zeros for those that are not."""
    build = eqx.filter_jit(lambda model: model.build((INPUTS,), CLASSES, key=jr.key(0)))
    plain, padded = build(FOR_TABLES), build(pad(FOR_TABLES, (INPUTS,), lambda width: 64))
    assert padded.layers[0].weight.shape == (64, 2 * INPUTS)
    assert all(not np.any(array) for array in padding(padded))
    cut = trimmed(padded)
    assert jax.tree.structure(cut) == jax.tree.structure(plain)
    for mine, theirs in zip(jax.tree.leaves(cut), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    run = eqx.filter_jit(lambda network, rows: apply_batch(network, rows, None))
    rows = examples(20, 2).inputs
    for network in (padded, cut):
        np.testing.assert_allclose(run(network, rows), run(plain, rows), atol=1e-5)


def test_a_forgotten_mask_is_caught() -> None:
    """Sigmoids of units that are not there are 1/2: without the mask their outgoing weights learn."""
    recipe = in_arrays_of(recipe_of(*CHOICES["sigmoid, dropout, L1 and L2, momentum"]), 64)
    problem, state = init(recipe, examples(30, 1), examples(20, 2), outputs=CLASSES, key=keys.from_seed(3))
    true = interval(problem, jax.tree.map(jnp.array, state), UPDATES)[1]
    masks = [Buffer(jnp.ones(64, bool)) for _ in problem.rest.layers]
    forgotten = eqx.tree_at(lambda p: [layer.mask for layer in p.rest.layers], problem, masks)
    state, row = interval(forgotten, state, UPDATES)
    assert any(np.any(array) for array in padding(problem.model(state.parameters)))
    assert abs(float(row.valid_loss) - float(true.valid_loss)) > 1e-4


@pytest.mark.parametrize("normalisation", [LayerNorm(), BatchNorm()], ids=["layer", "batch"])
def test_what_absent_units_hold_is_never_seen_by_a_prediction(normalisation: Any) -> None:
    """Their weights, biases, gains and statistics may be not-a-number: no bit of an output changes."""
    model = Mlp(widths=(17,), activation=Sigmoid(), normalisation=normalisation, dropout=0.3)
    network = pad(model, (INPUTS,), lambda width: 64).build((INPUTS,), CLASSES, key=jr.key(0))
    network = network.calibrate(examples(30, 1).inputs)
    absent = ~np.asarray(network.layers[0].mask.value)
    layer = network.layers[0]
    places = [layer.weight, layer.bias, *(leaf for leaf in jax.tree.leaves(layer.norm))]

    def poisoned(leaf: Any) -> Any:
        spoilt = any(leaf is place for place in places)
        return jnp.where(jnp.expand_dims(absent, tuple(range(1, leaf.ndim))), jnp.nan, leaf) if spoilt else leaf

    bad = jax.tree.map(poisoned, network)
    assert np.isnan(np.asarray(bad.layers[0].weight)).sum() == 47 * INPUTS
    run = eqx.filter_jit(lambda network, rows: apply_batch(network, rows, None))
    np.testing.assert_array_equal(run(bad, examples(20, 2).inputs), run(network, examples(20, 2).inputs))
    reading = eqx.tree_at(lambda n: n.layers[0].mask, bad, Buffer(jnp.ones(64, bool)))
    assert np.isnan(np.asarray(run(reading, examples(20, 2).inputs))).all()  # a mistake would show


def test_buckets_are_few_and_little_is_unused() -> None:
    sizes = [bucket(width) for width in range(1, 1025)]
    assert sorted(set(sizes)) == [16, *range(64, 1025, 64)]
    assert all(width <= size for width, size in enumerate(sizes, 1))
    assert all(size < width + 64 for width, size in enumerate(sizes, 1))
    coarse = [bucket(width, coarse=True) for width in range(1, 1025)]
    assert sorted(set(coarse)) == [64, 256, 512, 1024]
    assert all(width <= size for width, size in enumerate(coarse, 1))


def test_widths_of_one_bucket_are_one_shape() -> None:
    def shapes(width: int) -> Any:
        model = pad(Mlp(widths=(width,)), (INPUTS,), lambda width: 64)
        built = eqx.filter_eval_shape(lambda m: m.build((INPUTS,), CLASSES, key=jr.key(0)), model)
        return jax.tree.structure(built), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(built)]

    assert shapes(3) == shapes(64)


def test_what_padding_would_change_is_left_as_it_is() -> None:
    """A residual connection exists where two widths agree: padding must neither make nor break one."""
    for model in (
        Mlp(widths=()),
        Mlp(widths=(17, 9), residual=True),
        Mlp(widths=(INPUTS, INPUTS), residual=True),
    ):
        assert pad(model, (INPUTS,), lambda width: 64) is model
    assert pad(Mlp(widths=(9, 9), residual=True), (64,), lambda width: 64).widths == (9, 9)
    assert isinstance(pad(Mlp(widths=(9, 9), residual=True), (INPUTS,), lambda width: 64), PaddedMlp)


def test_a_network_that_is_not_padded_is_not_trimmed() -> None:
    network = Mlp(widths=(5,)).build((INPUTS,), CLASSES, key=jr.key(0))
    assert trimmed(network) is network
    linear = Mlp(widths=()).build((INPUTS,), CLASSES, key=jr.key(0))
    assert trimmed(linear) is linear


# --- layers that are not there, and activations by number


def in_three_layers(recipe: Recipe, size: int, activations: tuple[Any, ...] = ()) -> Recipe:
    model = pad(recipe.model, (INPUTS,), lambda width: size, deepest=3, activations=activations)
    return eqx.tree_at(lambda r: r.model, recipe, model, is_leaf=lambda node: node is recipe.model)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(
    ("optimiser", "activation", "parametrisation"),
    [
        (MovingAverage(Adam(0.01), decay=0.7), Rectifier(), "standard"),
        (AdamW(0.02, decay=0.1), Parametric(Tanh()), "ntk"),
    ],
    ids=["rectifier, averaged Adam", "learned slopes, ntk, AdamW"],
)
def test_layers_that_are_not_there_change_nothing(
    depth: int, optimiser: Any, activation: Any, parametrisation: str
) -> None:
    model = Mlp(widths=(9,) * depth, activation=activation, dropout=0.2, parametrisation=parametrisation)
    recipe = recipe_of(model, optimiser, (L2(0.3), L1(0.1)))
    plain, judged, loss = trained(recipe)
    network, seen, padded_loss = trained(in_three_layers(recipe, 16))
    assert len(network.layers) == 3
    assert padded_loss == pytest.approx(loss, abs=1e-5)
    for padded, expected in ((trimmed(network), plain), (trimmed(seen), judged)):
        assert jax.tree.structure(padded) == jax.tree.structure(expected)
        for mine, theirs in zip(jax.tree.leaves(padded), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    for layer in network.layers[depth:]:
        assert not np.any(layer.weight)
        assert not np.any(layer.bias)


def test_networks_of_any_depth_and_activation_are_one_shape() -> None:
    def shapes(depth: int, activation: Any) -> Any:
        recipe = recipe_of(Mlp(widths=(9,) * depth, activation=activation), Sgd(0.1))
        model = in_three_layers(recipe, 16, (Tanh(), Sigmoid())).model
        built = eqx.filter_eval_shape(lambda m: m.build((INPUTS,), CLASSES, key=jr.key(0)), model)
        return jax.tree.structure(built), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(built)]

    assert shapes(1, Tanh()) == shapes(2, Sigmoid()) == shapes(3, Tanh())
    assert shapes(1, Rectifier()) != shapes(1, Tanh())  # none of those that are chosen from


def test_an_activation_by_number_trains_as_itself() -> None:
    for activation in (Tanh(), Sigmoid()):
        recipe = recipe_of(Mlp(widths=(9,), activation=activation, dropout=0.0), Sgd(0.1))
        plain, _, loss = trained(recipe)
        network, _, same = trained(in_three_layers(recipe, 16, (Tanh(), Sigmoid())))
        assert same == pytest.approx(loss, abs=1e-5)
        assert trimmed(network).layers[0].activation == activation
        assert jax.tree.structure(trimmed(network)) == jax.tree.structure(plain)


@pytest.mark.parametrize(
    "model",
    [
        Mlp(widths=(9, 5)),
        Mlp(widths=(9, 9), residual=True),
        Mlp(widths=(9, 9), normalisation=LayerNorm()),
        Mlp(widths=(9,) * 4),
    ],
    ids=["widths that differ", "residual", "normalised", "deeper than all"],
)
def test_depth_is_kept_where_a_missing_layer_would_be_seen(model: Mlp) -> None:
    buckets = {9: 16, 5: 8}
    padded = pad(model, (INPUTS,), lambda width: buckets[width], deepest=3)
    assert isinstance(padded, PaddedMlp)
    assert len(padded.mlp.widths) == len(model.widths)
    assert not padded.deeper


def test_a_padded_network_reads_text_as_its_own_does() -> None:
    layout = InputLayout(numbers=1, texts=((3, 4),))
    plain = Mlp(widths=(5,), dropout=0.0, inputs=Embedded()).for_inputs(layout)
    padded = pad(plain, (4,), lambda width: 8).for_inputs(layout)
    assert isinstance(padded, PaddedMlp)
    x = jnp.array([0.3, 2.0, 4.0, 5.0])
    ours, theirs = (each.build((4,), 2, key=jr.key(0)) for each in (plain, padded))
    for key in (None, jr.key(1)):  # with a key some of the words are hidden, the same ones
        np.testing.assert_allclose(ours(x, key=key), theirs(x, key=key), rtol=1e-6)
