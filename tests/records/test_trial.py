"""Trials: which of them count, which is better, and their written form."""

import json
import math

import pytest

from gradwise import defaults
from gradwise.models.mlp import Mlp
from gradwise.records.trial import Trial, best_of, better, trial_from_plain, trial_to_plain
from gradwise.specs.contracts import AbstractModel
from gradwise.specs.knobs import switch
from gradwise.specs.recipe import Recipe


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return defaults.classification(model=Mlp(widths=(8, 4)))


@pytest.mark.parametrize(
    ("outcome", "score", "ok"),
    [
        ("finished", 0.5, True),
        ("patience", 0.0, True),
        ("out_of_time", 0.5, True),
        ("finished", math.nan, False),
        ("finished", math.inf, False),
        ("diverged", 0.5, False),
        ("failed", 0.5, False),
    ],
)
def test_what_counts_is_what_left_a_model(recipe: Recipe, outcome: str, score: float, ok: bool) -> None:
    assert Trial(0, recipe, {}, outcome, score).ok is ok


def test_better_is_by_score_then_loss_then_number(recipe: Recipe) -> None:
    first, second = Trial(0, recipe, {}, "finished", 0.1, 0.5), Trial(1, recipe, {}, "finished", 0.1, 0.4)
    third, fourth = Trial(2, recipe, {}, "finished", 0.05, 0.9), Trial(3, recipe, {}, "finished", 0.1, 0.4)
    assert better(third, second)
    assert better(second, first)
    assert better(second, fourth)
    assert not better(fourth, second)
    assert best_of([fourth, first, second]) is second
    assert best_of([Trial(4, recipe, {}, "diverged", 0.0)]) is None
    assert best_of([]) is None


def test_a_continued_trial_shares_the_randomness_of_the_first(recipe: Recipe) -> None:
    assert Trial(7, recipe, {}, "finished").randomness == 7
    assert Trial(9, recipe, {}, "finished", continues=7).randomness == 7


def test_a_trial_says_how_it_ended(recipe: Recipe) -> None:
    assert str(Trial(3, recipe, {}, "diverged", age_examples=1200)) == "trial 3 diverged at age 1,200 examples"
    assert str(Trial(3, recipe, {}, "failed", reason="no room")) == "trial 3 failed: no room"


def _same(one: object, other: object) -> bool:
    """Equal, where not-a-number equals itself."""
    return repr(one) == repr(other)


def test_a_trial_survives_json_with_what_is_not_a_number(recipe: Recipe) -> None:
    trial = Trial(
        5,
        recipe,
        {"model.widths.each": 8, "optimiser.learning_rate": 0.125, "model.activation": "Tanh()"},
        "diverged",
        score=math.nan,
        loss=math.inf,
        train_loss=0.25,
        age_examples=640,
        best_age=320,
        seconds=1.5,
        parameters=99,
        curve={"age_examples": [320.0, 640.0], "valid_score": [0.5, math.nan]},
        reason="why",
        examples=1000,
        continues=2,
        phase="refine",
    )
    text = json.dumps(trial_to_plain(trial), allow_nan=False)  # strict JSON: others can read it
    back = trial_from_plain(json.loads(text))
    assert math.isnan(back.loss)  # no model either way
    assert math.isnan(back.curve["valid_score"][1])
    assert back.recipe == recipe
    assert _same([back.number, back.values, back.outcome, back.score], [5, trial.values, "diverged", math.nan])
    for name in ("age_examples", "best_age", "seconds", "parameters", "reason", "examples", "continues", "phase"):
        assert getattr(back, name) == getattr(trial, name)


class Own(AbstractModel):
    units: int = switch(4, row="D1", about="units of a model of the user's own")

    def build(self, inputs, outputs, *, key):
        raise NotImplementedError


def test_a_part_of_ones_own_is_read_back_when_its_class_is_given() -> None:
    trial = Trial(0, defaults.classification(model=Own(7)), {}, "finished", 0.5, 0.5, 0.5)
    plain = json.loads(json.dumps(trial_to_plain(trial)))
    assert trial_from_plain(plain, classes=(Own,)).recipe.model == Own(7)
    with pytest.raises(ValueError, match="Own"):
        trial_from_plain(plain)
