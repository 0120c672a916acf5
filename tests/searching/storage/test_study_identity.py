"""What makes a study this study: written, read back, compared."""

import dataclasses
import json

import pytest

from gradwise import defaults
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.study_identity import (
    StudyIdentity,
    check_identity,
    check_same,
    difference_of,
    identity_from_plain,
)
from gradwise.searching.strategies.random_search import Random, Sobol
from gradwise.specs.priors import Choice, LogUniform
from gradwise.specs.search_space import Space, dimension

RECIPE = defaults.classification()
SPACE = Space(
    RECIPE,
    (
        dimension(RECIPE, "batches.size", Choice((16, 32), (0.25, 0.75))),
        dimension(RECIPE, "optimiser.optimiser.learning_rate", LogUniform(1e-4, 1e-1)),
    ),
)
ABOUT = StudyIdentity(SPACE, 3, Random(), "digest", "classes", "error_rate", {"budget": "9 trials"})


def test_it_comes_back_through_json() -> None:
    plain = json.loads(json.dumps(ABOUT.to_plain()))
    back = identity_from_plain("study.journal", plain, ())
    assert back.space.recipe == RECIPE
    assert back.space.dimensions == SPACE.dimensions
    assert (back.seed, back.strategy, back.settings) == (3, Random(), {"budget": "9 trials"})
    assert json.loads(json.dumps(back.to_plain())) == plain


def test_the_budget_may_grow_and_nothing_else_may_change() -> None:
    plain = ABOUT.to_plain()
    check_same("here", "mine", plain, dataclasses.replace(ABOUT, settings={"budget": "20 trials"}).to_plain())
    with pytest.raises(RequestError, match=r"the study 'mine' in here differs: its strategy is Random"):
        check_same("here", "mine", plain, dataclasses.replace(ABOUT, strategy=Sobol()).to_plain())


def test_the_first_difference_among_those_asked_for_is_named() -> None:
    plain = ABOUT.to_plain()
    other = dataclasses.replace(ABOUT, seed=4, metric="log_loss").to_plain()
    assert difference_of(plain, other, ("seed", "metric")) == "its seed is 3"
    assert difference_of(plain, other, ("metric",)) == "its metric is error_rate"
    assert difference_of(plain, other, ("data", "space")) == ""


def test_what_is_not_ours_is_refused() -> None:
    for stored in (None, {}, "text", {"version": "1"}):
        with pytest.raises(RequestError, match="was not written by gradwise"):
            check_identity("here", "mine", stored)
    assert check_identity("here", "mine", ABOUT.to_plain())["seed"] == 3
