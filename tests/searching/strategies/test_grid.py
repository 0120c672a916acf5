"""Grids: regular in the log domain, no cell twice, failed ones again, and sequences of them."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.trial import Trial, best_of
from gradwise.runtime.errors import RequestError
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.grid import (
    Grid,
    GridSequence,
    constant_schedule,
    refuse_finished,
    regular,
    regular_values,
)
from gradwise.searching.strategies.random_search import Random, chosen_values
from gradwise.specs.priors import Choice, LogUniform, ZeroOr
from gradwise.specs.schedules import Constant
from gradwise.specs.search_space import Dimension, Space, dimension

RATE = "optimiser.optimiser.learning_rate"
KEY = from_seed(0)
Searching = Callable[..., list[Trial]]


def _distance(values: dict[str, Any]) -> float:
    return abs(math.log10(values[RATE]) + 2)


def test_a_grid_is_regular_in_the_log_domain_with_both_ends(space: Space) -> None:
    assert regular_values(space[RATE], 4) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1])
    assert regular_values(space["criterion.mixup"], 3) == pytest.approx([0.0, 0.25, 0.5])
    assert regular_values(space["model.widths.each"], 5) == [16, 32, 64, 128, 256]
    assert regular(1) == [0.5]


def test_around_a_value_the_interval_keeps_its_width() -> None:
    axis = Dimension("x", LogUniform(1e-4, 1.0))
    assert regular_values(axis, 3, 1e-2, reach=0.25) == pytest.approx([1e-3, 1e-2, 1e-1])
    assert regular_values(axis, 3, 1.0, reach=0.25) == pytest.approx([1e-2, 1e-1, 1.0])
    assert regular_values(Dimension("x", ZeroOr(LogUniform(1e-4, 1.0))), 2) == pytest.approx([0.0, 1e-2])
    assert regular_values(Dimension("x", ZeroOr(LogUniform(1e-4, 1.0))), 3) == pytest.approx([0.0, 1e-4, 1.0])
    assert regular_values(Dimension("x", Choice(("a", "b", "c"), (1.0, 0.0, 2.0))), 9) == ["a", "c"]


def test_every_cell_once_in_a_fixed_order_however_it_is_asked(space: Space, search: Searching) -> None:
    grid = Grid(values=2, counts=((RATE, 3),))
    one, many = search(grid, space, _distance, 99), search(grid, space, _distance, 99, at_once=5)
    assert [trial.values for trial in one] == [trial.values for trial in many]
    assert len({tuple(trial.values.items()) for trial in one}) == len(one) == 3 * 2 * 2
    assert [trial.values[RATE] for trial in one[:4]] == pytest.approx([1e-4] * 4)


def test_cells_that_differ_in_inactive_knobs_are_one(conditional: Space, search: Searching) -> None:
    grid = Grid(values=2, counts=(("model.widths.count", 3),))
    trials = search(grid, conditional, _distance, 999, at_once=50)
    # Two rates, two dropouts (off and on); a third layer has two widths, one or two layers have none.
    assert len(trials) == 2 * 2 * (1 + 1 + 2)
    assert all(("model.widths.2" in t.values) == (t.values["model.widths.count"] == 3) for t in trials)


def test_a_failed_cell_is_launched_once_more_at_the_end_and_a_diverged_one_is_not(
    space: Space, plant: Callable[..., list[Trial]]
) -> None:
    grid, small = Grid(values=2), space.only([RATE, "criterion.mixup"])
    proposals = grid.ask(small, History(), 4, key=KEY)
    trials = plant(small, lambda v: math.nan if v["criterion.mixup"] else 1.0, proposals)
    assert [trial.outcome for trial in trials] == ["finished", "diverged", "finished", "diverged"]
    assert grid.ask(small, History(tuple(trials), (), 4), 4, key=KEY) == []
    failed = Trial(2, trials[2].recipe, trials[2].values, "failed", reason="the worker was lost")
    history = History((*trials[:2], failed, trials[3]), (), 4)
    [again] = grid.ask(small, history, 4, key=KEY)
    assert again.recipe == failed.recipe
    assert grid.ask(small, history, 4, key=KEY) == [again]
    assert grid.ask(small, History(history.trials, ((4, again),), 5), 4, key=KEY) == []
    twice = Trial(4, failed.recipe, failed.values, "failed")
    assert grid.ask(small, History((*history.trials, twice), (), 5), 4, key=KEY) == []


def test_an_extended_space_is_gridded_anew(space: Space, search: Searching) -> None:
    narrow = space.only([RATE])
    trials = search(Grid(values=4), narrow, _distance, 99)
    wide = narrow.with_priors({RATE: LogUniform(1e-4, 1.0)})
    proposals = Grid(values=4).ask(wide, History(tuple(trials), (), 4), 9, key=KEY)
    assert [chosen_values(wide, p.recipe)[RATE] for p in proposals] == pytest.approx(
        [10 ** (-4 + 4 / 3), 10 ** (-4 / 3), 1.0]
    )


def test_too_many_cells_are_refused_with_their_number(space: Space, search: Searching) -> None:
    with pytest.raises(RequestError, match=r"1,728 cells \(12 × 12 × 12\), more than `most_cells` = 1,000: use fewer"):
        Grid(values=12).ask(space, History(), 1, key=KEY)
    with pytest.raises(RequestError, match=r"the grid has 144 cells .* more than `most_cells` = 100"):
        search(GridSequence(values=12, most_cells=100), space, _distance, 99)
    with pytest.raises(RequestError, match=r"unknown dimension `model\.width`"):
        Grid(counts=(("model.width", 3),)).ask(space, History(), 1, key=KEY)
    with pytest.raises(RequestError, match=r"of `a` must be a whole number of at least 1; got 0"):
        Grid(counts=(("a", 0),))


@pytest.mark.parametrize(("budget", "sizes"), [(1, ()), (4, (4,)), (8, (4, 2)), (32, (5, 3, 2)), (64, (5, 3, 2, 2))])
def test_a_grid_of_the_default_space_fits_the_budget(budget: int, sizes: tuple[int, ...]) -> None:
    for recipe in (defaults.table("classes", 150), defaults.classification()):
        space = defaults.search_space(recipe)
        lists = Grid().lists(space, budget)
        cells = Grid().ask(space, History(budget=budget), 999, key=KEY)
        assert budget / 2 < len(cells) <= budget
        assert len(cells) == math.prod(map(len, lists.values()))
        if isinstance(space.dimensions[0].prior, LogUniform):  # the table's, which begins with the rate
            assert tuple(map(len, lists.values())) == sizes
        assert all(len(values) <= len(lists[RATE]) for values in lists.values())
        still = [path for path in space.paths if path not in lists]
        assert {chosen_values(space.only(still), p.recipe).__str__() for p in cells} == {
            str(chosen_values(space.only(still), recipe))
        }


def test_a_grid_says_what_it_is_and_takes_names_of_knobs() -> None:
    space = defaults.search_space(defaults.table("classes", 150))
    said = Grid(counts=(("learning_rate", 5), ("model.dropout", 3))).describe(space, History(budget=32))
    assert said == (
        "a grid of 30 cells: learning_rate 5 × decay 2 × dropout 3; fixed at the recommended value: deviation, "
        "label_smoothing"
    )
    assert Grid(values=2).describe(space, History(budget=5)).endswith("; the budget covers 5 of them")
    both = defaults.search_space(defaults.classification())
    with pytest.raises(RequestError, match=r"unknown dimension `dropuot` of the space. Did you mean 'model.dropout'\?"):
        Grid(counts=(("dropuot", 3),)).lists(both, 8)
    twice = Space(both.recipe, (*both.dimensions, Dimension("b.dropout", LogUniform(0.1, 1.0))))
    with pytest.raises(RequestError, match=r"`dropout` is ambiguous: write model.dropout or b.dropout"):
        Grid(counts=(("dropout", 3),)).lists(twice, 8)


def test_more_trials_make_a_larger_grid_and_no_cell_is_run_twice(plant: Callable[..., list[Trial]]) -> None:
    space = defaults.search_space(defaults.table("classes", 150))
    first = plant(space, _distance, Grid().ask(space, History(budget=8), 99, key=KEY))
    assert len(first) == 8
    assert Grid().ask(space, History(tuple(first), (), 8, budget=8), 99, key=KEY) == []
    done = list(first)
    while proposals := Grid().ask(space, History(tuple(done), (), len(done), budget=40), 3, key=KEY):
        done += plant(space, _distance, proposals, len(done))
    assert 30 <= len(done) <= 40
    assert len({str(trial.values) for trial in done}) == len(done)


def test_a_finished_grid_says_how_many_trials_would_make_it_grow(plant: Callable[..., list[Trial]]) -> None:
    space = defaults.search_space(defaults.table("classes", 150))
    first = tuple(plant(space, _distance, Grid().ask(space, History(budget=8), 99, key=KEY)))
    with pytest.raises(RequestError) as refusal:
        refuse_finished(Grid(), space, History(first, budget=8 + 1), key=KEY)
    words = r"the grid is complete \(8 trials\), and 1 more are too few for a larger one: .* such as --trials \+(\d+)\."
    told = re.fullmatch(words, str(refusal.value))
    assert told
    refuse_finished(Grid(), space, History(first, budget=8 + int(told[1])), key=KEY)
    refuse_finished(Grid(), space, History(first[:5], budget=5 + 1), key=KEY)  # cells of the first grid are left
    refuse_finished(Random(), space, History(first, budget=8 + 1), key=KEY)

    given = Grid(counts=tuple((path, 2 if "rate" in path else 1) for path in space.paths))
    done = tuple(plant(space, _distance, given.ask(space, History(budget=8), 99, key=KEY)))
    with pytest.raises(RequestError, match="start another study, with more values per knob or with random search"):
        refuse_finished(given, space, History(done, budget=500), key=KEY)


def test_with_a_budget_of_time_grids_become_finer(search: Searching) -> None:
    space = defaults.search_space(defaults.table("classes", 150))
    trials = search(Grid(), space, _distance, 40, at_once=3)
    assert len({str(trial.values) for trial in trials}) == 40
    values = [{trial.values[RATE] for trial in trials[:count]} for count in (8, 40)]
    assert len(values[0]) == 4
    assert len(values[1]) > 5
    held = "criterion.loss.label_smoothing"
    assert {trial.values[held] for trial in trials[:8]} == {0.1}


@pytest.mark.parametrize("kind", ["table", "images"])
def test_the_default_space_has_its_schedule_chosen_after_the_rate(kind: str, plant: Callable[..., list[Trial]]) -> None:
    recipe = defaults.table("classes", 150) if kind == "table" else defaults.classification()
    plain, extra = defaults.search_space(recipe), defaults.schedule_dimensions(recipe)
    space = Space(recipe, (*extra, *plain.dimensions))
    place, good = extra[0].path, "OneCycle()" if kind == "table" else "InverseTime()"
    rate = float(recipe.optimiser.optimiser.learning_rate)

    def planted(values: dict[str, Any]) -> float:
        """With the good schedule a rate twice as high as recommended is best."""
        return abs(math.log(values[RATE] / rate / 2)) + 3.0 * (not str(values[place]).startswith(good[:-1]))

    done: list[Trial] = []
    while proposals := GridSequence().ask(space, History(tuple(done), (), len(done), budget=16), 4, key=KEY):
        done += plant(space, planted, proposals, len(done))
    chosen = [trial.values[place] for trial in done[:16]]
    assert chosen[:5] == ["Constant()"] * 5
    schedules = [t for t in done[5:] if t.values[RATE] == done[5].values[RATE]]
    assert len({str(t.values[place]) for t in schedules}) == (3 if kind == "table" else 1)
    assert len(schedules) >= 3
    again = [t for t in done[:16] if str(t.values[place]).startswith(good[:-1])]
    assert len({t.values[RATE] for t in again}) >= 4  # the rate again, with the schedule that was best
    before, after = best_of(done[:5]), best_of(done[:16])
    assert before is not None
    assert after is not None
    assert after.values[RATE] == pytest.approx(2 * rate, rel=0.3)
    decay_schedules = [t.recipe.optimiser.optimiser.decay_schedule for t in done] if kind == "table" else []
    assert all(one == recipe.optimiser.optimiser.decay_schedule for one in decay_schedules)


def _scheduled() -> Space:
    recipe = defaults.classification(optimiser=Sgd(schedule=InverseTime()))
    paths = ("optimiser.learning_rate", "optimiser.schedule.tau_updates", "model.activation")
    priors = (LogUniform(1e-4, 1e-1), LogUniform(100.0, 1e5), Choice((Tanh(), Rectifier())))
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in zip(paths, priors, strict=True)))


def _planted(values: dict[str, Any]) -> float:
    """Best at a rate of 0.0055 with tau = 1000 and tanh; without a schedule a little worse."""
    tau = values.get("optimiser.schedule.tau_updates")
    schedule = 0.5 if tau is None else 0.2 * abs(math.log10(tau) - 3)
    rate = abs(math.log10(values["optimiser.learning_rate"] / 0.0055))
    return rate + schedule + (values["model.activation"] != "Tanh()")


def test_the_rate_first_then_its_schedule_then_the_rate_again(search: Searching) -> None:
    space = _scheduled()
    trials = search(GridSequence(), space, _planted, 99)
    assert search(GridSequence(), space, _planted, 99, at_once=7)[-1].values == trials[-1].values
    rates, schedules = trials[:4], trials[4:8]
    assert all(isinstance(t.recipe.optimiser.schedule, Constant) for t in rates)
    assert [t.values["optimiser.learning_rate"] for t in rates] == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1])
    assert {t.values["optimiser.learning_rate"] for t in schedules} == {0.01}
    assert [t.values["optimiser.schedule.tau_updates"] for t in schedules] == pytest.approx([1e2, 1e3, 1e4, 1e5])
    again = [trial for trial in trials[8:] if trial.values["model.activation"] == "Rectifier()"]
    assert again == trials[8:12]  # the rate again, at the best schedule, before the other knobs
    others = trials[12]
    assert others.values["model.activation"] == "Tanh()"
    closer = trials[13:]
    assert all(0.99e-3 <= t.values["optimiser.learning_rate"] <= 1.01e-2 for t in closer)
    assert all(1e-3 <= t.values["optimiser.learning_rate"] <= 1e-1 for t in again)
    assert all(t.values["optimiser.schedule.tau_updates"] == pytest.approx(1000.0) for t in again)
    best = best_of(trials)
    assert best is not None
    assert best in closer
    assert best.values["optimiser.learning_rate"] == pytest.approx(0.0055, rel=0.05)


def test_a_sequence_waits_for_its_grid_and_takes_no_schedule_if_that_is_best(
    plant: Callable[..., list[Trial]], search: Searching
) -> None:
    space = _scheduled()
    proposals = GridSequence().ask(space, History(), 9, key=KEY)
    assert len(proposals) == 4
    ended = plant(space, _planted, proposals[:3])
    assert GridSequence().ask(space, History(tuple(ended), ((3, proposals[3]),), 4), 9, key=KEY) == []

    def harmful(values: dict[str, Any]) -> float:
        return _planted(values) + 2.0 * ("optimiser.schedule.tau_updates" in values)

    best = best_of(search(GridSequence(), space, harmful, 99))
    assert best is not None
    assert isinstance(best.recipe.optimiser.schedule, Constant)


def test_without_knobs_of_a_schedule_the_recipes_own_stays() -> None:
    recipe = _scheduled().recipe
    space = Space(recipe, (dimension(recipe, "optimiser.learning_rate"),))
    proposals = GridSequence().ask(space, History(), 9, key=KEY)
    assert all(p.recipe.optimiser.schedule == recipe.optimiser.schedule for p in proposals)
    assert isinstance(constant_schedule(recipe).optimiser.schedule, Constant)
