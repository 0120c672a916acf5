"""The recommended learners by name: what is read, what is refused, and that each suits the inputs it is made for."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.criteria.reconstruction import CrossEntropy
from gradwise.pretraining.layer_recipes import LEARNERS, kind_of_layer, learner, parse_layers, recipes_of_layers
from gradwise.pretraining.stack import hidden_layers
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.specs.paths import knobs
from gradwise.specs.serialisation import from_json, to_json
from gradwise.training.train import train


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("denoising:1000x3", [("denoising", 1000)] * 3),
        ("plain:5", [("plain", 5)]),
        ("denoising:500, plain:250x2", [("denoising", 500), ("plain", 250), ("plain", 250)]),
    ],
)
def test_words_become_layers(text, expected):
    assert parse_layers(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "denoising", "denoising:", "denoising:0", "denoising:5x", "denoising:5x0", "denoising:-5",
     "denoising:5,,plain:5", "denoising:1.5", "denoising:\u00b2", "denoising:" + "9" * 5000, "denoising:5x" + "9" * 9,
     "unknown:5"],
)  # fmt: skip
def test_other_words_are_refused_at_once(text):
    with pytest.raises(RequestError, match="invalid layer"):
        parse_layers(text)


def test_a_misspelt_learner_is_named():
    with pytest.raises(RequestError, match="Did you mean 'denoising'"):
        learner("denosing", 5)


@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_every_learner_has_a_written_form_and_the_units_asked_for(kind):
    for unit in (True, False):
        recipe = LEARNERS[kind](7, unit)
        assert from_json(to_json(recipe)) == recipe
        sizes = [value for path, _, value in knobs(recipe.model) if path in {"units", "widths"}]
        assert sizes in ([7], [(7,)])


@pytest.mark.parametrize("task", ["classes", "labels", "numbers"])
def test_a_supervised_layer_suits_its_task(task):
    recipe = learner("supervised", 7, task=task)
    assert from_json(to_json(recipe)) == recipe
    assert (kind_of_layer(recipe), recipe.model.widths, recipe.criterion.loss.task()) == ("supervised", (7,), task)
    first, second = recipes_of_layers("supervised:7,plain:3", False, task)
    assert (first, kind_of_layer(second)) == (recipe, "plain")
    assert isinstance(second.criterion.loss, CrossEntropy)  # codes of sigmoid units lie in [0, 1]


def test_a_supervised_layer_without_a_target_is_refused():
    with pytest.raises(RequestError, match="there is none"):
        learner("supervised", 7)
    with pytest.raises(RequestError, match="there is none"):
        recipes_of_layers("plain:3,supervised:7", True, "inputs")


@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_a_recipe_is_known_for_the_learner_it_is(kind):
    assert {kind_of_layer(LEARNERS[kind](7, unit)) for unit in (True, False)} == {kind}


def test_the_rate_of_a_gaussian_machine_is_that_of_its_benchmark():
    """The kept result says which rate was chosen and at how many units; more units take smaller steps in proportion."""
    kept = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "gaussian_rates.json").read_text())
    assert not set(kept["choice"]["sets"]) & set(kept["report"]["sets"])
    assert not set(kept["choice"]["seeds"]) & set(kept["report"]["seeds"])
    real = jnp.asarray([[-1.0, 2.0]])
    rate = kept["rates"]["fixed"]
    for units, expected in ((50, rate), (kept["units"], rate), (4 * kept["units"], rate / 4)):
        assert float(learner("rbm", units, inputs=real).optimiser.learning_rate) == pytest.approx(expected)


@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_every_learner_suits_the_inputs_it_is_made_for(kind):
    """Real inputs are taken by what is made for them; its features are one number for each unit."""
    shape = (2, 3) if kind == "convolutional" else (6,)
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(8, *shape)), jnp.float32)
    recipe = learner(kind, 3, inputs=rows)
    recipe.criterion.check_inputs(rows)
    network = recipe.model.build(shape, 0, key=jax.random.key(0))
    assert jax.vmap(network)(rows).shape == (8, 18 if kind == "convolutional" else 3)  # filters: three for each place
    weights = {"convolutional": (3, 25)}.get(kind, (3, 6))
    assert hidden_layers(network, 0)[0].weight.shape == weights  # so that it can be stacked
    scores = recipe.criterion.measures(network, rows)[recipe.criterion.measured(network)[0]]
    assert scores.shape == (8,)
    assert np.isfinite(scores).all()


def _identity():
    from gradwise.data.scaling import NoScaling

    return NoScaling()


def test_probabilities_are_asked_for_where_they_are_taken():
    rows = np.full((30, 4), 0.5)
    rows[0, 0] = 1.5
    recipe = dataclasses.replace(learner("plain", 3), scaler=_identity())
    with pytest.raises(RequestError, match="UnitRange"):
        train(recipe, Dataset(rows, np.zeros((30, 0)), Inputs()), key=jax.random.key(0))


def test_layers_of_filters_come_first():
    recipes = recipes_of_layers("convolutional:4x2,denoising:5", unit=True, task="classes")
    assert [kind_of_layer(recipe) for recipe in recipes] == ["convolutional", "convolutional", "denoising"]
    losses = [type(recipe.criterion.loss).__name__ for recipe in recipes]
    assert losses == ["CrossEntropy", "SquaredError", "SquaredError"]  # what rectifiers answer is no probability
    with pytest.raises(RequestError, match=r"which a denoising layer does not give: put the convolutional layers"):
        recipes_of_layers("denoising:5,convolutional:4", unit=True, task="classes")
