"""The default strategy: the recommended recipe, then others near it."""

import numpy as np
import pytest

from gradwise import defaults
from gradwise.runtime import keys
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.recommended import Recommended, within_ranges
from gradwise.specs.paths import get
from gradwise.specs.priors import Choice, LogUniform, ZeroOr
from gradwise.specs.search_space import Space, dimension

RECIPE = defaults.table("classes", 5000)
SPACE = defaults.search_space(RECIPE)
RATE = "optimiser.optimiser.learning_rate"
KEY = keys.from_seed(3)


def ask(space: Space = SPACE, count: int = 200, first: int = 0) -> list:
    return [one.recipe for one in Recommended().ask(space, History(next=first), count, key=KEY)]


def test_the_first_trial_is_the_recipe_itself() -> None:
    assert ask(count=1) == [RECIPE]


def test_later_trials_keep_about_half_of_the_knobs_and_always_change_one() -> None:
    own = SPACE.values(RECIPE)
    kept = []
    for recipe in ask()[1:]:
        values = SPACE.values(recipe)
        same = [values[path] == own[path] for path in own]
        assert not all(same)
        kept.append(np.mean(same))
        for path, value in values.items():
            assert value == own[path] or 0.0 <= SPACE[path].prior.fraction(value) <= 1.0
    assert 0.4 < np.mean(kept) < 0.6


def test_a_trial_depends_on_its_number_alone() -> None:
    assert ask(count=6)[2:] == ask(count=4, first=2)
    assert Recommended.looks_back is False


@pytest.mark.parametrize(
    ("path", "prior", "wanted"),
    [
        (RATE, LogUniform(1.0, 10.0), 1.0),
        (RATE, LogUniform(1e-4, 1.0), 0.025),
        ("model.dropout", ZeroOr(LogUniform(0.2, 0.5)), 0.2),
        ("batches.size", Choice((16, 32)), 32),
        ("batches.size", Choice((16, 128)), 128),
    ],
)
def test_a_range_that_leaves_the_recipe_out_is_kept_to(path: str, prior: object, wanted: float) -> None:
    space = Space(RECIPE, (dimension(RECIPE, path, prior),))  # type: ignore[arg-type]
    assert get(within_ranges(space), path) == pytest.approx(wanted)
    assert get(ask(space, 1)[0], path) == pytest.approx(wanted)
