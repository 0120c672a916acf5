"""Coordinate descent: one knob at a time, the rate most often, and an end when a round brings nothing."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from gradwise.records.trial import Trial, best_of
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.coordinate_descent import CoordinateDescent, order_of_visits
from gradwise.specs.search_space import Space

RATE, MIXUP, WIDTH = "optimiser.optimiser.learning_rate", "criterion.mixup", "model.widths.each"
KEY = from_seed(0)
Searching = Callable[..., list[Trial]]


def _valley(values: dict[str, Any]) -> float:
    """A slanting valley: the best rate falls as the width grows, as it does for networks."""
    rate, width = math.log10(values[RATE]), math.log2(values[WIDTH])
    return (rate + 3 + 0.3 * (width - 5)) ** 2 + 0.1 * (width - 6.5) ** 2 + 4 * (values[MIXUP] - 0.2) ** 2


def _moved(space: Space, trials: list[Trial], number: int) -> list[str]:
    """The knobs in which a trial differs from the centre of its step: the best of all before the step began."""
    starts = [best_of(trials[:start]) for start in range(max(1, number - 5), number + 1)]
    return min(([p for p in space.paths if trials[number].values[p] != c.values[p]] for c in starts if c), key=len)


def test_the_rate_is_visited_after_every_other_knob(space: Space) -> None:
    assert [d.path for d in order_of_visits(space)] == [RATE, MIXUP, RATE, WIDTH, RATE]


def test_each_step_moves_one_knob_and_stays_at_the_best_of_the_others(space: Space, search: Searching) -> None:
    trials = search(CoordinateDescent(), space, _valley, 40)
    assert trials[0].recipe == space.recipe
    assert all(len(_moved(space, trials, number)) == 1 for number in range(1, len(trials)))


def test_it_walks_down_a_slanting_valley_and_ends(space: Space, search: Searching) -> None:
    trials = search(CoordinateDescent(), space, _valley, 400)
    best = best_of(trials)
    assert best is not None
    assert len(trials) < 120
    assert best.score < 0.02
    moved = Counter(_moved(space, trials, number)[0] for number in range(1, len(trials)))
    assert moved[RATE] > max(moved[MIXUP], moved[WIDTH])


def test_one_at_a_time_and_many_at_once_walk_the_same_way(space: Space, search: Searching) -> None:
    one, many = search(CoordinateDescent(), space, _valley, 30), search(CoordinateDescent(), space, _valley, 30, 16)
    assert [trial.values for trial in one] == [trial.values for trial in many]


def test_it_ends_after_a_round_that_brings_nothing(space: Space, search: Searching) -> None:
    """Nothing is better than the recipe itself: one round, and no second."""
    start = CoordinateDescent().ask(space, History(), 1, key=KEY)[0].recipe

    def flat(values: dict[str, Any]) -> float:
        return 0.0 if values == dict(space.values(start)) else 1.0

    trials = search(CoordinateDescent(values=4), space, flat, 400)
    # The recipe; 4 rates; 3 mixups and 3 widths, since 0 and 256 are its own; 4 rates about its own, and those again.
    assert len(trials) == 1 + 4 + 3 + 3 + 4


def test_a_step_waits_for_what_runs_and_asks_for_the_rest(space: Space, plant: Searching) -> None:
    strategy = CoordinateDescent()
    first = strategy.ask(space, History(), 9, key=KEY)
    assert len(first) == 1
    done = plant(space, _valley, first)
    step = strategy.ask(space, History(tuple(done), (), 1), 9, key=KEY)
    assert len(step) == 4
    running = History(tuple(done), ((1, step[0]), (2, step[1])), 3)
    assert strategy.ask(space, running, 9, key=KEY) == step[2:]
    assert strategy.ask(space, running, 9, key=KEY) == step[2:]
    everything = History(tuple(done), tuple(enumerate(step, 1)), 5)
    assert strategy.ask(space, everything, 9, key=KEY) == []


def test_diverged_values_are_no_centre(space: Space, search: Searching) -> None:
    def cliff(values: dict[str, Any]) -> float:
        return math.nan if values[RATE] > 0.02 else _valley(values)

    best = best_of(search(CoordinateDescent(), space, cliff, 400))
    assert best is not None
    assert best.score < 0.02


def test_a_knob_that_is_not_active_is_left_out(conditional: Space, search: Searching) -> None:
    def shallow(values: dict[str, Any]) -> float:
        return abs(math.log10(values[RATE]) + 2) + values["model.widths.count"]

    trials = search(CoordinateDescent(), conditional, shallow, 400)
    best = best_of(trials)
    assert best is not None
    assert best.values["model.widths.count"] == 1
    assert "model.widths.2" not in best.values
