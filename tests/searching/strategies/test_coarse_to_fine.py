"""From coarse to fine: boxes shrink around the few best, and a small grid ends a random search."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwise.records.trial import Trial, best_of
from gradwise.runtime.errors import RequestError
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.coarse_to_fine import AroundBest, CoarseToFine, explained_order, numeric_fractions
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.random_search import Random, Sobol
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space

RATE, MIXUP, WIDTH = "optimiser.optimiser.learning_rate", "criterion.mixup", "model.widths.each"
KEY = from_seed(0)
Searching = Callable[..., list[Trial]]


def _bowl(values: dict[str, Any]) -> float:
    """The rate matters most, the width some, mixup not at all."""
    return (math.log10(values[RATE]) + 2.3) ** 2 + 0.05 * (math.log2(values[WIDTH]) - 6) ** 2


def test_the_first_round_is_the_coarse_search(space: Space) -> None:
    assert CoarseToFine(first=8).ask(space, History(), 99, key=KEY) == Sobol().ask(space, History(), 8, key=KEY)
    assert CoarseToFine(first=8, quasi=False).ask(space, History(), 99, key=KEY) == Random().ask(
        space, History(), 8, key=KEY
    )


def test_later_rounds_lie_in_boxes_that_shrink_around_the_best(space: Space, search: Searching) -> None:
    zoom = CoarseToFine(first=16, rounds=3, best=2, each=5)
    trials = search(zoom, space, _bowl, 999, at_once=4)
    assert len(trials) == 16 + 3 * 10
    for turn in range(3):
        start = 16 + 10 * turn
        ranked = sorted(trials[:start], key=lambda trial: trial.score)[:2]
        for place in range(10):
            centre = numeric_fractions(space, ranked[place // 5])
            point = numeric_fractions(space, trials[start + place])
            apart = [abs(point[path] - centre[path]) for path in (RATE, MIXUP)]
            assert max(apart) <= 0.25 * 0.5**turn + 1e-9


def test_finer_rounds_pay(space: Space, search: Searching) -> None:
    found = [best_of(search(CoarseToFine(), space, _bowl, 52, seed=seed)) for seed in range(5)]
    even = [best_of(search(Sobol(), space, _bowl, 52, seed=seed)) for seed in range(5)]
    scores, others = ([t.score for t in trials if t] for trials in (found, even))
    assert len(scores) == len(others) == 5
    assert np.mean(scores) < 0.5 * np.mean(others)


def test_a_round_waits_for_the_one_before_and_asks_the_same_again(space: Space, plant: Searching) -> None:
    zoom = CoarseToFine(first=6)
    coarse = zoom.ask(space, History(), 9, key=KEY)
    trials = tuple(plant(space, _bowl, coarse))
    assert zoom.ask(space, History(trials[:5], ((5, coarse[5]),), 6), 9, key=KEY) == []
    finer = zoom.ask(space, History(trials, (), 6), 9, key=KEY)
    assert finer == zoom.ask(space, History(trials, (), 6), 9, key=KEY)
    # Some of the round run, one has ended: the rest is what it would have been.
    one = tuple(plant(space, _bowl, finer[:1], 6))
    assert zoom.ask(space, History((*trials, *one), ((7, finer[1]), (8, finer[2])), 9), 2, key=KEY) == finer[3:5]


def test_a_killed_search_goes_on_as_if_nothing_had_happened(conditional: Space, search: Searching) -> None:
    def planted(values: dict[str, Any]) -> float:
        return abs(math.log10(values[RATE]) + 3) + 0.2 * values["model.widths.count"]

    whole = search(CoarseToFine(), conditional, planted, 40)
    history = History(tuple(whole[:30]), (), 30)
    assert CoarseToFine().ask(conditional, history, 1, key=KEY)[0].recipe == whole[30].recipe


def test_boxes_reach_into_land_that_was_opened(space: Space, search: Searching) -> None:
    """The best lies on the high end and the interval is then extended: the next box holds all that is new."""
    narrow = space.only([RATE])

    def rising(values: dict[str, Any]) -> float:
        return -math.log10(values[RATE])

    zoom = CoarseToFine(first=16, rounds=1, best=1, each=8)
    trials = search(zoom, narrow, rising, 999)
    assert len(trials) == 24
    history = History(tuple(trials), (), 24)
    assert zoom.ask(narrow, history, 8, key=KEY) == []
    wide = narrow.with_priors({RATE: LogUniform(1e-4, 10.0)})
    rates = [wide.values(p.recipe)[RATE] for p in zoom.ask(wide, history, 8, key=KEY)]
    assert len(rates) == 8
    assert max(rates) > 3.0
    assert min(rates) > 0.1 * 10 ** (-0.125 * 5) - 1e-9


def test_relevance_sees_a_fall_and_a_rise_alike(space: Space, search: Searching) -> None:
    def planted(values: dict[str, Any]) -> float:
        return _bowl(values) if values[RATE] < 0.05 else math.nan

    trials = search(Random(), space, planted, 60)
    found = explained_order(space, trials)
    assert found[RATE] > 0.6
    assert abs(found[MIXUP]) < 0.2
    assert found[RATE] > found[WIDTH]


def test_a_small_grid_around_the_best_over_the_knobs_that_matter(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, _bowl, 40))
    strategy = AroundBest()
    assert set(strategy.over(space, trials)) == {RATE, WIDTH}
    proposals = strategy.ask(space, History(trials, (), 40), 99, key=KEY)
    best = best_of(trials)
    assert best is not None
    assert len(proposals) == 8  # three by three without the best itself
    assert {proposal.phase for proposal in proposals} == {"refine"}
    assert {space.values(p.recipe)[MIXUP] for p in proposals} == {best.values[MIXUP]}
    rates = sorted({space.values(p.recipe)[RATE] / best.values[RATE] for p in proposals})
    assert rates == pytest.approx([10**-0.3, 1.0, 10**0.3])


def test_its_own_results_do_not_move_the_grid(space: Space, search: Searching, plant: Searching) -> None:
    trials = tuple(search(Random(), space, _bowl, 20))
    strategy = AroundBest(paths=(RATE,), values=5)
    proposals = strategy.ask(space, History(trials, (), 20), 99, key=KEY)
    assert len(proposals) == 4
    done = tuple(plant(space, lambda values: -1.0, proposals[:2], 20))
    assert strategy.ask(space, History((*trials, *done), (), 22), 99, key=KEY) == proposals[2:]
    assert strategy.ask(space, History((*trials, *done), ((22, proposals[2]),), 23), 99, key=KEY) == proposals[3:]
    more = tuple(plant(space, lambda values: -1.0, proposals[2:], 22))
    assert strategy.ask(space, History((*trials, *done, *more), (), 24), 99, key=KEY) == []


def test_it_waits_for_the_search_and_needs_a_best(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, _bowl, 9))
    running = Random().ask(space, History(next=9), 1, key=KEY)[0]
    assert AroundBest().ask(space, History(trials, ((9, running),), 10), 9, key=KEY) == []
    assert AroundBest().ask(space, History(), 9, key=KEY) == []
    with pytest.raises(RequestError, match="unknown dimension `momentum`"):
        AroundBest(paths=("momentum",)).ask(space, History(trials, (), 9), 9, key=KEY)


def test_with_few_trials_the_rate_comes_first(space: Space, search: Searching) -> None:
    reordered = space.only(space.paths[::-1])
    assert AroundBest(knobs=1).over(reordered, search(Random(), space, _bowl, 4)) == (RATE,)
