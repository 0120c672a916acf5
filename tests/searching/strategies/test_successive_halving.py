"""Successive halving: who goes on is decided by the history alone, and most of the work goes to few."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gradwise.records.trial import Proposal, Trial, best_of
from gradwise.runtime.errors import RequestError
from gradwise.runtime.keys import from_seed
from gradwise.searching.comparison.cheap_recipes import random_lower_layers
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.random_search import Random
from gradwise.searching.strategies.successive_halving import SuccessiveHalving
from gradwise.specs.search_space import Space

RATE = "optimiser.optimiser.learning_rate"
KEY = from_seed(0)
HALVING = SuccessiveHalving(least_examples=100, factor=3, most_examples=900)
Planting = Callable[..., list[Trial]]


def _distance(values: dict[str, Any]) -> float:
    return abs(math.log10(values[RATE]) + 2)


def test_rungs_grow_by_the_factor_up_to_the_end() -> None:
    assert HALVING.rungs == [100, 300, 900]
    assert SuccessiveHalving(100, 4, 1000).rungs == [100, 400, 1000]
    assert SuccessiveHalving(100, 4, 100).rungs == [100]
    with pytest.raises(
        RequestError, match=r"`SuccessiveHalving\.most_examples` must be at least `least_examples`; got 10 and 20"
    ):
        SuccessiveHalving(20, 3, 10)


def test_the_first_are_draws_of_the_prior_at_the_lowest_rung(space: Space) -> None:
    drawn = Random().ask(space, History(), 3, key=KEY)
    assert HALVING.ask(space, History(), 3, key=KEY) == [replace(proposal, examples=100) for proposal in drawn]


def test_the_best_third_goes_on_and_continues_its_first_trial(space: Space, plant: Planting) -> None:
    trials = plant(space, _distance, HALVING.ask(space, History(), 9, key=KEY))
    ranked = sorted(trials, key=lambda trial: trial.score)
    proposals = HALVING.ask(space, History(tuple(trials), (), 9), 5, key=KEY)
    assert [p.continues for p in proposals] == [t.number for t in ranked[:3]] + [None, None]
    assert [p.examples for p in proposals] == [300, 300, 300, 100, 100]
    assert [p.recipe for p in proposals[:3]] == [t.recipe for t in ranked[:3]]
    # Some of them running already: nobody is promoted twice.
    history = History(tuple(trials), ((9, proposals[0]),), 10)
    assert HALVING.ask(space, history, 2, key=KEY) == proposals[1:3]
    # Three at the second rung: the best goes to the last one, and still continues its first trial.
    second = plant(space, _distance, proposals[:3], 9)
    [last] = HALVING.ask(space, History((*trials, *second), (), 12), 1, key=KEY)
    assert (last.examples, last.continues) == (900, ranked[0].number)


def test_it_does_not_wait_for_a_whole_rung(space: Space, plant: Planting) -> None:
    proposals = HALVING.ask(space, History(), 9, key=KEY)
    trials = plant(space, _distance, proposals[:3])
    history = History(tuple(trials), tuple(enumerate(proposals[3:], 3)), 9)
    [asked] = HALVING.ask(space, history, 1, key=KEY)
    assert asked.continues == min(trials, key=lambda trial: trial.score).number


def test_diverged_failed_and_finished_ones_do_not_go_on(space: Space, plant: Planting) -> None:
    trials = plant(space, _distance, HALVING.ask(space, History(), 6, key=KEY))
    ranked = sorted(trials, key=lambda trial: trial.score)
    ended = {ranked[0].number: "failed", ranked[1].number: "patience"}
    told = tuple(replace(trial, outcome=ended.get(trial.number, trial.outcome)) for trial in trials)
    # Five count at the rung, so one may go on; it was stopped by patience, and more examples would change nothing.
    assert [p.continues for p in HALVING.ask(space, History(told, (), 6), 1, key=KEY)] == [None]
    diverged = tuple(replace(trial, outcome="diverged", score=math.nan) for trial in trials)
    assert [p.continues for p in HALVING.ask(space, History(diverged, (), 6), 2, key=KEY)] == [None, None]


def test_a_third_of_each_rung_goes_on_and_the_best_get_the_most(space: Space, search: Planting) -> None:
    trials = search(HALVING, space, _distance, 80, at_once=4)
    counted = Counter(trial.examples for trial in trials)
    assert counted[300] == pytest.approx(counted[100] / 3, abs=2)
    assert counted[900] == pytest.approx(counted[300] / 3, abs=2)
    best = best_of(trials)
    assert best is not None
    assert best.score == best_of(t for t in trials if t.examples == 900).score
    assert all(t.randomness < t.number for t in trials if t.examples != 100)


def test_the_same_history_gives_the_same_answer(space: Space, search: Planting) -> None:
    trials = tuple(search(HALVING, space, _distance, 31))
    history = History(trials, ((31, Proposal(space.recipe, examples=100)),), 32)
    assert HALVING.ask(space, history, 4, key=KEY) == HALVING.ask(space, history, 4, key=KEY)
    shuffled = History(trials[::-1], history.running, 32)
    assert HALVING.ask(space, shuffled, 4, key=KEY) == HALVING.ask(space, history, 4, key=KEY)


def test_the_lowest_rung_may_have_random_lower_layers_and_those_that_go_on_train_all(
    space: Space, plant: Planting
) -> None:
    cheap = replace(HALVING, random_layers=True)
    usual, first = HALVING.ask(space, History(), 6, key=KEY), cheap.ask(space, History(), 6, key=KEY)
    assert [p.recipe for p in first] == [random_lower_layers(p.recipe) for p in usual]
    # What they chose is read off the full recipe, as the driver does.
    trials = plant(space, _distance, usual)
    trials = [replace(t, recipe=p.recipe, outcome="patience") for t, p in zip(trials, first, strict=True)]
    best = sorted(trials, key=lambda trial: trial.score)[:2]
    promoted = cheap.ask(space, History(tuple(trials), (), 6), 2, key=KEY)
    # Patience that ended a run of the output alone says nothing of a run of all layers.
    assert [(p.continues, p.examples) for p in promoted] == [(trial.number, 300) for trial in best]
    assert [p.recipe for p in promoted] == [usual[trial.number].recipe for trial in best]
    ended = [replace(t, recipe=p.recipe, outcome="patience") for t, p in zip(trials, usual, strict=True)]
    assert all(p.continues is None for p in HALVING.ask(space, History(tuple(ended), (), 6), 2, key=KEY))
