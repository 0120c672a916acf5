"""A trial as text: nothing is lost, and only what differs is written."""

import dataclasses
import json
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.trial import Trial, trial_to_plain
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.trial_codec import apply_differences, read_trial, recipe_differences, write_trial
from gradwise.specs.paths import replace
from gradwise.specs.search_space import Space, read_space
from gradwise.specs.serialisation import to_json

BASE = defaults.classification()
SPACE = Space(BASE, read_space(BASE))


@pytest.mark.slow
@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=len(SPACE.paths), max_size=len(SPACE.paths)))
@settings(max_examples=40, deadline=None)
def test_a_recipe_is_its_base_and_its_differences(fractions: list[float]) -> None:
    recipe = SPACE.recipe_at(dict(zip(SPACE.paths, fractions, strict=True)))
    written = json.loads(json.dumps(dict(recipe_differences(BASE, recipe))))
    back = apply_differences(BASE, written)
    assert to_json(back) == to_json(recipe)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(recipe), strict=True):
        assert type(one) is type(other)  # a knob that is off is a plain float, any other is NumPy's
        assert one == other
    assert jax.tree.structure(back) == jax.tree.structure(recipe)


def test_only_what_differs_is_written() -> None:
    changed = replace(replace(BASE, "batches.size", 7), "criterion.penalties.1.coefficient", 0.5)
    assert dict(recipe_differences(BASE, changed)) == {"batches.size": 7, "criterion.penalties.1.coefficient": 0.5}
    assert dict(recipe_differences(BASE, defaults.classification())) == {}


def test_another_part_is_written_whole_and_its_base_is_left_alone() -> None:
    before = to_json(BASE)
    other = defaults.classification(optimiser=Sgd(learning_rate=0.3), model=Mlp(widths=(5, 6), activation=Tanh()))
    written = dict(recipe_differences(BASE, other))
    assert written["optimiser"]["class"].endswith(":Sgd")
    assert apply_differences(BASE, written) == other
    assert apply_differences(other, dict(recipe_differences(other, BASE))) == BASE
    assert to_json(BASE) == before
    assert dict(recipe_differences(other, 3)) == {"": 3}
    assert apply_differences(BASE, dict(recipe_differences(Rectifier(), BASE))) == BASE


def test_a_number_is_not_taken_for_its_equals() -> None:
    class Odd(eqx.Module):
        value: Any

    assert dict(recipe_differences(Odd(1), Odd(True))) == {"value": True}
    assert dict(recipe_differences(Odd(1), Odd(1.0))) == {"value": 1.0}
    assert list(recipe_differences(Odd(0.0), Odd(-0.0))) == [("value", -0.0)]
    assert dict(recipe_differences(Odd((1, 2)), Odd((1, 2)))) == {}


def test_a_model_that_is_already_built_need_not_be_written() -> None:
    """Its arrays have no text; they stand in the base, and are the same object in every trial."""
    built = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    base = defaults.classification(model=built)
    trial = Trial(1, replace(base, "batches.size", 9), {}, "patience", score=0.5)
    back = read_trial(write_trial(trial, base), base)
    assert back.recipe.model is built
    assert back.recipe.batches.size == 9


def test_every_field_comes_back() -> None:
    values = {"a": np.float64(0.5), "b": (4, 4), "c": "Tanh()", "d": True, "e": np.int64(3)}
    curve = {"age_examples": [1.0, np.float32(2.0)], "valid_score": [0.5, math.nan]}
    scores = (np.float64(0.25), 0.5, math.inf)
    trial = Trial(np.int64(7), BASE, values, "out_of_time", *scores, 10, 9, 1.5, 33, curve, "why", 100, 3, "x")
    back = read_trial(write_trial(trial, BASE), BASE)
    assert back.values == {"a": 0.5, "b": (4, 4), "c": "Tanh()", "d": True, "e": 3}
    assert math.isnan(back.train_loss)
    assert math.isnan(back.curve["valid_score"][1])
    kept = [f.name for f in dataclasses.fields(Trial) if f.name not in {"values", "train_loss", "curve", "recipe"}]
    assert [getattr(back, name) for name in kept] == [getattr(trial, name) for name in kept]
    assert type(back.number) is int
    assert trial_to_plain(back)["recipe"] == trial_to_plain(trial)["recipe"]
    assert dataclasses.replace(back, number=8).recipe == BASE


@pytest.mark.parametrize(
    "line",
    ["{", "3", "{}", '{"recipe": {"nowhere.at.all": 1}, "values": {}}', '{"recipe": {}, "values": {}, "odd": 1}'],
)
def test_what_is_no_trial_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(RequestError, match="not written by gradwise") as caught:
        read_trial(line, BASE)
    assert "\n" not in str(caught.value)


def test_a_class_from_outside_is_passed_in() -> None:
    class Bent(Rectifier):
        pass

    recipe = replace(BASE, "model.activation", Bent())
    line = write_trial(Trial(0, recipe, {}, "patience", score=0.1), BASE)
    with pytest.raises(RequestError, match="is not part of gradwise"):
        read_trial(line, BASE)
    assert read_trial(line, BASE, (Bent,)).recipe == recipe
