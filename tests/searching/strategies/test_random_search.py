"""Search from the priors: point n is a function of n, shares are right, conditional knobs shift nothing."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from gradwise import defaults
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.records.trial import Proposal, Trial
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.random_search import (
    Random,
    Sobol,
    chosen_values,
    count_proposals,
    point_signature,
    random_point,
    sobol_points,
)
from gradwise.specs.priors import Choice, LogUniform
from gradwise.specs.search_space import Space, dimension

RATE = "optimiser.optimiser.learning_rate"
KEY = from_seed(3)


@pytest.mark.parametrize("strategy", [Random(), Sobol()])
def test_trial_n_depends_on_the_key_and_on_n_alone(strategy: Random | Sobol, conditional: Space) -> None:
    whole = strategy.ask(conditional, History(), 9, key=KEY)
    assert whole == strategy.ask(conditional, History(), 9, key=KEY)
    pieces = [strategy.ask(conditional, History(next=n), 3, key=KEY) for n in (0, 3, 6)]
    assert [proposal for piece in pieces for proposal in piece] == whole
    running = History((Trial(0, whole[0].recipe, {}, "failed"),), ((1, whole[1]),), 2)
    assert strategy.ask(conditional, running, 1, key=KEY) == [whole[2]]
    assert strategy.ask(conditional, History(), 9, key=from_seed(4)) != whole


def test_what_each_promises() -> None:
    assert (Random.independent, Random.looks_back) == (True, False)
    assert (Sobol.independent, Sobol.looks_back) == (False, False)


def test_fractions_are_uniform(space: Space) -> None:
    draws = np.array([list(random_point(space, n, KEY).values()) for n in range(400)])
    for column in draws.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.15


def test_a_rate_is_drawn_in_the_log_domain(space: Space) -> None:
    rates = [chosen_values(space, p.recipe)[RATE] for p in Random().ask(space, History(), 300, key=KEY)]
    assert stats.kstest([math.log10(rate) for rate in rates], stats.uniform(-4, 3).cdf).pvalue > 0.01


def test_weighted_choices_have_the_right_shares() -> None:
    recipe = defaults.classification()
    prior = Choice((Tanh(), Rectifier(), Sigmoid()), weights=(6.0, 3.0, 1.0))
    space = Space(recipe, (dimension(recipe, "model.activation", prior),))
    counted = Counter(
        chosen_values(space, p.recipe)["model.activation"] for p in Random().ask(space, History(), 500, key=KEY)
    )
    observed = [counted["Tanh()"], counted["Rectifier()"], counted["Sigmoid()"]]
    assert stats.chisquare(observed, [300, 150, 50]).pvalue > 0.01


def test_a_third_layers_width_exists_with_three_layers_only(conditional: Space) -> None:
    seen = Counter()
    for proposal in Random().ask(conditional, History(), 60, key=KEY):
        values = chosen_values(conditional, proposal.recipe)
        assert ("model.widths.2" in values) == (values["model.widths.count"] == 3)
        assert len(proposal.recipe.model.widths) == values["model.widths.count"]
        seen[values["model.widths.count"]] += 1
    assert set(seen) == {1, 2, 3}


def test_an_inactive_knob_shifts_nothing_else(conditional: Space) -> None:
    without = conditional.only([path for path in conditional.paths if path != "model.widths.2"])
    for number in range(5):
        assert random_point(conditional, number, KEY)[RATE] == random_point(without, number, KEY)[RATE]


def test_every_block_of_a_sobol_sequence_is_balanced(space: Space) -> None:
    """The defining property: of 16 points in a row each sixteenth of every dimension holds one, wherever they start."""
    for first in (0, 16, 48):
        points = sobol_points(space, first, 16, KEY)
        for path in space.paths:
            assert sum(point[path] < 0.5 for point in points) == 8
            assert sorted(int(point[path] * 16) for point in points) == list(range(16))


def test_a_sobol_sequence_covers_better_than_draws(space: Space) -> None:
    even = np.array([list(point.values()) for point in sobol_points(space, 0, 64, KEY)])
    drawn = np.array([list(random_point(space, n, KEY).values()) for n in range(64)])
    assert stats.qmc.discrepancy(even) < 0.5 * stats.qmc.discrepancy(drawn)


def test_a_space_without_dimensions_gives_the_recipe_itself() -> None:
    recipe = defaults.classification()
    for strategy in (Random(), Sobol()):
        assert strategy.ask(Space(recipe, ()), History(), 2, key=KEY) == [Proposal(recipe), Proposal(recipe)]


def test_a_signature_survives_a_file() -> None:
    assert point_signature({"a": 0.1 + 0.2, "b": (64, 64)}) == point_signature({"a": 0.3, "b": "64×64"})
    assert point_signature({"a": 0.3}) != point_signature({"a": 0.3000001})


def test_other_phases_do_not_count_as_places(space: Space) -> None:
    recipe = space.recipe
    trials = (Trial(0, recipe, {}, "finished"), Trial(1, recipe, {}, "finished", phase="finalist"))
    assert count_proposals(History(trials, ((2, Proposal(recipe)), (3, Proposal(recipe, phase="batch"))), 4)) == 2


def test_a_prior_that_was_extended_keeps_the_fraction(space: Space) -> None:
    wider = space.with_priors({RATE: LogUniform(1e-4, 1.0)})
    assert random_point(space, 7, KEY) == random_point(wider, 7, KEY)
