"""The default strategy: the recommended recipe, then others near it."""

import numpy as np
import pytest

from gradwise import defaults
from gradwise.models.mlp import Mlp
from gradwise.runtime import keys
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.recommended import Recommended, within_ranges
from gradwise.specs.paths import get
from gradwise.specs.priors import Choice, LogInteger, LogUniform, ZeroOr
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


def test_a_layer_s_own_range_holds_whatever_is_drawn_for_all_layers() -> None:
    recipe = defaults.classification()
    ranges = {"model.widths.count": Choice((1, 2, 3)), "model.widths.each": LogInteger(32, 256)}
    alone = {"model.widths.0": LogInteger(700, 1400), "model.widths.2": LogInteger(300, 600)}
    space = Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in {**ranges, **alone}.items()))
    widths = [one.model.widths for one in ask(space, 40)]
    assert widths[0] == (700, 256)
    assert all(700 <= several[0] <= 1400 for several in widths)
    assert all(300 <= several[2] <= 600 for several in widths if len(several) == 3)
    assert len({several[0] for several in widths}) > 5
    assert {len(several) for several in widths} == {1, 2, 3}


def test_the_portfolio_follows_the_recipe_and_draws_follow_the_portfolio() -> None:
    others = tuple(
        defaults.table("classes", 5000, model=Mlp(widths=(width,), parametrisation="ntk")) for width in (7, 9)
    )
    space = Space(RECIPE, SPACE.dimensions, others)
    found = ask(space, 6)
    assert found[:3] == [RECIPE, *others]
    assert all(one.model.widths == RECIPE.model.widths for one in found[3:])
    assert found[3:] == ask(space, 3, first=3)
