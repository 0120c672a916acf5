"""Search by a model of the scores: better than random where there is structure, on numbers and on parts; and pure."""

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.records.trial import Trial, best_of
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.model_based import ModelBased, SpaceColumns, expected_improvement
from gradwise.searching.strategies.random_search import Random, Sobol, chosen_values
from gradwise.specs.priors import Choice, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Dimension, Space, dimension
from tests.searching.planted_functions import bowl, branched

RATE = "optimiser.optimiser.learning_rate"
KEY = from_seed(0)
Searching = Callable[..., list[Trial]]
Planted = Callable[[dict[str, Any]], float]


@pytest.fixture(scope="module")
def mixed() -> Space:
    """A choice of optimisers, a knob that one of them has, a choice of units, and a knob that may be off."""
    recipe = defaults.classification(optimiser=Sgd())
    return Space(
        recipe,
        (
            dimension(recipe, "optimiser", Choice((Sgd(), Adam(), HeavyBall()))),
            dimension(recipe, "optimiser.learning_rate", LogUniform(1e-4, 1.0)),
            Dimension("optimiser.momentum", Uniform(0.0, 0.99)),
            dimension(recipe, "model.activation", Choice((Tanh(), Rectifier(), Sigmoid()))),
            dimension(recipe, "model.dropout", ZeroOr(Uniform(0.1, 0.5), 0.5)),
        ),
    )


def _mixed(values: dict[str, Any]) -> float:
    """Each optimiser has a rate of its own; with the right momentum one of them is best."""
    rate, name = math.log10(values["optimiser.learning_rate"]), values["optimiser"]
    score = {"Tanh()": 0.2, "Rectifier()": 0.0, "Sigmoid()": 0.5}[values["model.activation"]]
    score += 0.2 if values["model.dropout"] == 0 else abs(values["model.dropout"] - 0.3)
    if name.startswith("Adam"):
        return score + 0.3 + 0.5 * (rate + 3) ** 2
    if name.startswith("HeavyBall"):
        return score + 0.5 * (rate + 1.5) ** 2 + 2 * (values["optimiser.momentum"] - 0.8) ** 2
    return score + 0.6 + 0.3 * (rate + 0.5) ** 2


def _best_scores(search: Searching, strategy: Any, space: Space, planted: Planted, seeds: range, most: int) -> Any:
    return np.array([best_of(search(strategy, space, planted, most, seed=seed)).score for seed in seeds])


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_a_model_beats_random_search_on_a_bowl(model: str, space: Space, search: Searching) -> None:
    seeds = range(200, 203)
    ours = _best_scores(search, ModelBased(model, candidates=300), space, bowl, seeds, 22)
    theirs = _best_scores(search, Random(), space, bowl, seeds, 22)
    assert ours.mean() < 0.6 * theirs.mean()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["forest", "gp"])
@pytest.mark.parametrize(("name", "planted"), [("space", bowl), ("conditional", branched)])
def test_a_model_beats_random_search_over_many_seeds(
    model: str, name: str, planted: Planted, search: Searching, request: pytest.FixtureRequest
) -> None:
    space, seeds = request.getfixturevalue(name), range(300, 306)
    ours = _best_scores(search, ModelBased(model), space, planted, seeds, 32)
    theirs = _best_scores(search, Random(), space, planted, seeds, 32)
    assert ours.mean() < 0.8 * theirs.mean()
    assert np.mean(ours < theirs) > 0.7


def test_the_gaussian_process_needs_no_torch(space: Space, search: Searching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it raises
    assert len(search(ModelBased("gp", startup=3, interleave=0.0), space, bowl, 5)) == 5


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_the_same_history_gives_the_same_answer(model: str, mixed: Space, plant: Searching) -> None:
    strategy = ModelBased(model, startup=5, interleave=0.0, candidates=50)
    start = strategy.ask(mixed, History(), 8, key=KEY)
    assert start == Sobol().ask(mixed, History(), 8, key=KEY)
    trials = tuple(plant(mixed, _mixed, start))
    several = strategy.ask(mixed, History(trials, (), 8), 3, key=KEY)
    assert strategy.ask(mixed, History(trials[::-1], (), 8), 3, key=KEY) == several
    assert len({str(chosen_values(mixed, p.recipe)) for p in (*start, *several)}) == 11
    # Three at once are three asked one by one while the others run.
    running = History(trials, ((8, several[0]), (9, several[1])), 10)
    assert strategy.ask(mixed, running, 1, key=KEY) == several[2:]
    assert strategy.ask(mixed, History(trials, (), 8), 1, key=from_seed(1)) != several[:1]


def test_a_share_of_the_proposals_are_draws_of_the_priors(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, bowl, 10))
    history = History(trials, (), 10)
    assert ModelBased(interleave=1.0).ask(space, history, 3, key=KEY) == Sobol().ask(space, history, 3, key=KEY)
    drawn = Sobol().ask(space, history, 12, key=KEY)
    found = ModelBased(interleave=0.3, candidates=20).ask(space, history, 12, key=KEY)
    assert 0 < sum(one == other for one, other in zip(found, drawn, strict=True)) < 8


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_a_model_keeps_away_from_where_it_diverges(model: str, space: Space, search: Searching) -> None:
    def cliff(values: dict[str, Any]) -> float:
        return -math.log10(values[RATE]) if values[RATE] < 0.01 else math.nan

    strategy = ModelBased(model, startup=5, interleave=0.0, candidates=100)
    trials = search(strategy, space, cliff, 24)
    assert np.mean([trial.outcome == "diverged" for trial in trials[12:]]) < 0.6  # the best lies at the very edge
    assert best_of(trials).values[RATE] > 0.005
    failed = tuple(Trial(t.number, t.recipe, t.values, "failed", reason="out of memory") for t in trials[:8])
    history = History(failed, (), 8)
    assert strategy.ask(space, history, 2, key=KEY) == Sobol().ask(space, history, 2, key=KEY)  # nothing to learn from


def test_what_is_not_active_or_off_is_told_apart(mixed: Space) -> None:
    columns = SpaceColumns(mixed)
    heavy, adam, off = (
        mixed.recipe_of({"optimiser": item, "optimiser.momentum": 0.5, "model.dropout": dropout})
        for item, dropout in ((HeavyBall(), 0.3), (Adam(), 0.3), (HeavyBall(), 0.0))
    )
    rows = np.array([columns.place_of(recipe) for recipe in (heavy, adam, off)])
    assert list(np.isnan(rows[:, 2])) == [False, True, False]
    np.testing.assert_allclose(columns.settle(np.nan_to_num(rows, nan=0.123)), rows)
    table = columns.encode(rows)
    #              Sgd Adam HeavyBall | rate, there | momentum, there | Tanh Rectifier Sigmoid | on, dropout
    assert table.shape == (3, 3 + 2 + 2 + 3 + 2)
    np.testing.assert_allclose(table[:, :3], [[0, 0, 1], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(table[:, 5:7], [[0.5 / 0.99, 1], [0.5, 0], [0.5 / 0.99, 1]])
    np.testing.assert_allclose(table[:, 10:], [[1, 0.5], [1, 0.5], [0, 0]])


def test_trials_of_another_space_do_not_disturb(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, bowl, 24))
    strategy = ModelBased(startup=2, interleave=0.0, candidates=20)
    for prior in (LogUniform(1e-5, 1.0), LogUniform(1e-3, 1e-2)):
        changed = space.with_priors({RATE: prior})
        [proposal] = strategy.ask(changed, History(trials, (), 24), 1, key=KEY)
        assert prior.low <= chosen_values(changed, proposal.recipe)[RATE] <= prior.high
    outside = SpaceColumns(space.with_priors({RATE: LogUniform(1e-3, 1e-2)})).place_of(
        space.recipe_of({RATE: 0.05}),
    )
    assert outside is None


def test_expected_improvement_is_the_mean_of_what_lies_below() -> None:
    draws = np.random.default_rng(0).standard_normal(400_000)
    means, deviations = np.array([0.5, -1.0, 3.0]), np.array([1.0, 0.3, 2.0])
    measured = [np.maximum(0.0, 0.2 - (mean + sd * draws)).mean() for mean, sd in zip(means, deviations, strict=True)]
    np.testing.assert_allclose(expected_improvement(means, deviations, 0.2), measured, rtol=0.02)


def test_more_rows_than_the_kernel_is_fitted_to(
    space: Space, search: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradwise.searching.strategies.model_based._FITTED", 10)
    trials = tuple(search(Random(), space, bowl, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [proposal] = ModelBased("gp", interleave=0.0).ask(space, History(trials, (), 30), 1, key=KEY)
    best = best_of(trials)
    assert best is not None
    assert bowl(chosen_values(space, proposal.recipe)) < 2 * best.score + 0.5
