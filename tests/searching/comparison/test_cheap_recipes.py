"""Cheap estimates (row E15): short runs, random lower layers, and how they rank recipes."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.comparison.cheap_recipes import random_lower_layers, shorten, train_all_layers
from gradwise.specs.paths import named_leaves, replace
from gradwise.specs.recipe import Recipe
from gradwise.specs.serialisation import from_json, to_json
from gradwise.training.interval import advance, judge
from gradwise.training.state import init
from gradwise.training.stopping import Off, Patience, Plus
from tests.marks import parametrize_one_quick

KEY = keys.from_seed(3)


def digits(rows: slice) -> Examples:
    inputs, targets = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))[rows]
    return Examples(jnp.asarray(inputs[order] / 16, jnp.float32), jnp.asarray(targets[order], jnp.int32))


TRAIN, VALID = digits(slice(600)), digits(slice(600, 1000))
SCALES = (0.1, 0.25, 0.63, 1.6, 4.0)
NETS = (
    Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
    Mlp(widths=(64,), activation=Rectifier(), dropout=0.0),
    Mlp(widths=(8, 8, 8), activation=Tanh(), dropout=0.0),
    Mlp(widths=(48, 4), activation=Rectifier(), dropout=0.0),
    Mlp(widths=(32, 32), activation=Sigmoid(), dropout=0.0),
)


def recipe(model: Mlp, optimiser: Any = None) -> Recipe:
    return defaults.classification(batches=Reshuffled(50), model=model, optimiser=optimiser or Adam(0.005))


@eqx.filter_jit
def errors(one: Recipe, scales: jax.Array) -> jax.Array:
    """Validation losses after 120 updates, one for each initial scale."""

    def trained(scale: jax.Array) -> jax.Array:
        chosen = replace(one, "model.initial.scale", scale)
        problem, state = init(chosen, TRAIN, VALID, outputs=10, classes=10, key=KEY)
        return judge(problem, *advance(problem, state, 120))[1].valid_loss

    return jax.vmap(trained)(scales)


@pytest.mark.slow
def test_random_lower_layers_rank_recipes_as_full_runs_do() -> None:
    """Twenty-five recipes of different activation, width, depth and initial scale: the ranks agree roughly."""
    scales = jnp.asarray(SCALES)
    full = np.concatenate([errors(recipe(net), scales) for net in NETS])
    cheap = np.concatenate([errors(random_lower_layers(recipe(net)), scales) for net in NETS])
    told = spearmanr(cheap, full)
    assert told.statistic > 0, (cheap, full)
    assert told.pvalue < 0.05, told
    assert cheap.min() > full.min()  # random features are no substitute for a full run


@parametrize_one_quick(
    "optimiser",
    [
        Sgd(0.1),
        MovingAverage(Adam()),
        Grouped(Sgd(0.1), groups=(ParameterGroup("layers.0.*", Sgd(0.3)), ParameterGroup("*.bias", Sgd(0.2)))),
        MovingAverage(Grouped(Adam(), groups=(ParameterGroup("*.bias", Sgd(0.2)),))),
    ],
    ids=["sgd", "average", "grouped", "average-of-grouped"],
)
def test_frozen_parameters_keep_every_bit_and_the_others_move(optimiser: Any) -> None:
    chosen = random_lower_layers(recipe(Mlp(widths=(6, 5), dropout=0.0), optimiser))
    assert from_json(to_json(chosen)) == chosen
    assert train_all_layers(chosen) == recipe(Mlp(widths=(6, 5), dropout=0.0), optimiser)
    assert train_all_layers(train_all_layers(chosen)) == train_all_layers(chosen)
    problem, state = init(chosen, TRAIN, VALID, outputs=10, classes=10, key=KEY)
    after, _ = eqx.filter_jit(lambda p, s: judge(p, *advance(p, s, 30)))(problem, state)
    judged = problem.recipe.optimiser.judged(after.parameters, after.optimiser)
    for tree in (after.parameters, judged):
        for (name, new), (_, old) in zip(named_leaves(tree), named_leaves(state.parameters), strict=True):
            assert np.array_equal(new, old) == name.startswith("layers."), name


@pytest.mark.slow
def test_gradients_of_frozen_layers_are_not_computed() -> None:
    """The compiler's own count of operations for one update: two products of three fall away below the top."""
    net = Mlp(widths=(128, 128), dropout=0.0)

    def operations(chosen: Recipe) -> float:
        problem, state = init(chosen, TRAIN, VALID, outputs=10, classes=10, key=KEY)
        moving, fixed = eqx.partition((problem, state), eqx.is_array)

        def updated(arrays: Any) -> Any:
            return advance(*eqx.combine(arrays, fixed), 1)[0].parameters

        told = jax.jit(updated).lower(moving).compile().cost_analysis()
        return float((told[0] if isinstance(told, list) else told)["flops"])

    full = operations(recipe(net, Sgd()))
    cheap = operations(random_lower_layers(recipe(net, Sgd())))
    products = 64 * 128 + 128 * 128 + 128 * 10
    assert full > 50 * 2 * (3 * products - 64 * 128)  # forward, weights, activations but those of the inputs
    assert cheap < 50 * 2 * (1.3 * products)


def test_short_multiplies_every_length_of_the_stopping_rule() -> None:
    one = recipe(NETS[0])
    patient = Patience(initial_examples=5000, initial_epochs=20, growth=Plus(1000), significance=0.05, epochs=400)
    cut: Any = shorten(dataclasses.replace(one, stopping=patient), 0.1).stopping
    assert (cut.initial_examples, cut.initial_epochs, cut.growth.examples, cut.epochs) == (500, 2, 100, 40)
    assert cut.significance == 0.05
    assert cut.limit_examples(100) == 4000
    fixed = shorten(dataclasses.replace(one, stopping=Off(epochs=8)), 0.25)
    assert fixed.stopping.limit_examples(100) == 200
    assert fixed.optimiser == one.optimiser
    tiny: Any = shorten(dataclasses.replace(one, stopping=Patience(growth=Plus(2))), 0.01).stopping
    assert tiny.growth.examples == 1  # an interval of less than one example would be refused


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(RequestError, match=r"must lie in \(0, 1\]"):
        shorten(recipe(NETS[0]), share)


def test_a_path_that_leads_nowhere_is_refused_with_the_paths() -> None:
    chosen = random_lower_layers(recipe(Mlp(widths=())))
    with pytest.raises(RequestError, match=r"no parameter matches the group `layers\.\*`"):
        init(chosen, TRAIN, VALID, outputs=10, classes=10, key=KEY)
