"""The phases of a study: how many trials there are to be, beyond the borders, and which strategies have which phase."""

import types
from typing import Any

import pytest

from gradwise.records.trial import Trial
from gradwise.runtime import keys
from gradwise.searching import phases
from gradwise.searching.phases import explore, hold_finals, trials_wanted
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.study_clock import SearchPlan, StudyClock
from gradwise.searching.storage.budget import Budget
from gradwise.searching.strategies.grid import Grid
from gradwise.searching.strategies.recommended import Recommended
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from tests.searching import small_study

RATE = "optimiser.learning_rate"


def driver() -> Driver:
    recipe = small_study.recipe_at(0.1, epochs=2.0)
    data = small_study.data_of(small_study.digits(120))
    space = Space(recipe, (dimension(recipe, RATE, LogUniform(0.001, 0.02)),))
    return Driver(space, data, LocalExecutor(data), key=keys.from_seed(0))


@pytest.mark.parametrize(
    ("budget", "there", "wanted"),
    [(Budget(seconds=3.0), 5, None), (Budget(trials=7), 5, 7), (Budget(trials=7, more=True), 5, 12)],
)
def test_how_many_trials_there_are_to_be(budget: Budget, there: int, wanted: int | None) -> None:
    found: Any = types.SimpleNamespace(of_phase=lambda phase: [None] * there)
    assert trials_wanted(budget, found) == wanted


def of_phase(run: Driver, phase: str) -> list[Trial]:
    return run.of_phase(phase)


def test_a_grid_follows_its_borders_and_draws_near_the_recipe_do_not() -> None:
    """The best rate lies above the range, so that a grid, which has its ends, goes beyond it."""
    for strategy, moved in ((Grid(values=4), True), (Recommended(), False)):
        run = driver()
        budget, plan = Budget(trials=4), SearchPlan(finalists=1, seeds=1, committee="seeds")
        clock = StudyClock(budget, run, plan)
        assert explore(strategy, clock, None) == "finished"
        assert len(of_phase(run, "search")) == 4
        assert bool(of_phase(run, "border")) is moved
        assert bool(of_phase(run, "refine")) is moved
        hold_finals(clock)
        assert len(of_phase(run, "finalist")) == 1
        before = dict(run.trials)
        hold_finals(clock)  # those there are, are not run again
        assert run.trials == before


def test_borders_are_followed_for_a_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "_BORDER_ROUNDS", 1)
    run = driver()
    plan = SearchPlan(refine=False)
    explore(Grid(values=4), StudyClock(Budget(trials=4), run, plan), None)
    assert len(of_phase(run, "border")) == 4  # a quarter of the trials a round, at least four
