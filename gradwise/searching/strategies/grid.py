"""Grids: every combination of a few values of each knob, regular in the prior's own scale (row E7).

    Grid()                                            as many values as the budget allows, most for the rate
    Grid(values=5)                                    five values of every numeric knob, all values of a choice
    Grid(counts=(("dropout", 2),))                    two of this knob; the others as the budget allows
    GridSequence()                                    the rate, then the schedule, then the rate again, then the rest

A knob with one value keeps the recommended one; a choice has all its values or that one. The ends of an interval
belong to the grid, so that a best value on the border is noticed (row E4). Cells that differ only in inactive knobs
count as one. A cell that failed for reasons other than its recipe is run once more at the end.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial, best_of
from ...runtime.errors import RequestError, nearest
from ...specs.knobs import Spec, switch
from ...specs.paths import parts, replace
from ...specs.priors import Choice, ZeroOr
from ...specs.schedules import AbstractSchedule, Constant
from ...specs.search_space import Dimension, Space
from .contract import AbstractStrategy, History
from .random_search import chosen_values, learned_from, point_signature
from .recommended import within_ranges

Signature = frozenset[tuple[str, Any]]
Cells = dict[Signature, Any]  # the recipe of each cell, in the grid's order
Lists = dict[str, list[Any]]  # the values of each knob that has more than one

_FIRST_CELLS = 8  # where time is the budget: a grid of so many cells, then of twice as many, and so on
_MOST_MORE = 1024  # trials that a finished grid is asked to grow by
_OTHER_CELLS = 16  # of the knobs beside rate and schedule, where time is the budget


def regular(count: int) -> list[float]:
    """Equally spaced fractions with both ends; the middle if there is one only."""
    return [place / (count - 1) for place in range(count)] if count > 1 else [0.5]


def regular_values(dimension: Dimension, count: int, centre: Any = None, reach: float = 1.0) -> list[Any]:
    """Regular values of a dimension: over its whole interval, or around a value as far as `reach` (a fraction).

    A choice gives all its values; of a knob that may be off 0 is the first of them. Around a value there is an odd
    number of them, with the value in their middle; near an end of the prior the interval keeps its width by lying to
    one side.
    """
    prior, scale = dimension.prior, dimension.scale
    if isinstance(scale, Choice):
        weights = scale.weights or (1.0,) * len(scale.values)
        return [value for value, weight in zip(scale.values, weights, strict=True) if weight > 0]
    off = [0.0] if isinstance(prior, ZeroOr) else []
    if centre is None or (off and centre == 0):
        return _different([*off, *map(scale.quantile, regular(max(1, count - len(off))))])
    middle = scale.fraction(centre)
    low = min(max(0.0, middle - reach), max(0.0, 1.0 - 2 * reach))
    high = min(1.0, low + 2 * reach)
    steps = regular(count + 1 - count % 2)
    return _different([*off, *(scale.quantile(low + step * (high - low)) for step in steps)])


def _different(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _refuse(count: int, most: int, lists: Mapping[str, list[Any]]) -> None:
    if count <= most:
        return
    longest = max(lists, key=lambda path: len(lists[path]))
    sizes = " × ".join(str(len(values)) for values in lists.values())
    raise RequestError(
        f"the grid has {count:,} cells ({sizes}), more than `most_cells` = {most:,}: use fewer values, such as "
        f"counts=({longest.rpartition('.')[2]}=2), fewer knobs, or random search."
    )


def cells(space: Space, lists: Mapping[str, list[Any]], most: int, whole: Space | None = None) -> Cells:
    """The cells of a grid by what they chose in the `whole` space: one for each combination that differs."""
    _refuse(math.prod(len(values) for values in lists.values()), most, lists)
    found: Cells = {}
    for combination in itertools.product(*lists.values()):
        recipe = space.recipe_of(dict(zip(lists, combination, strict=True)))
        found.setdefault(point_signature(chosen_values(whole or space, recipe)), recipe)
    return found


def is_rate(path: str) -> bool:
    """Whether a path leads to a learning rate, the knob that matters most."""
    return path.rpartition(".")[2] == "learning_rate"


def _several(dimension: Dimension, count: int) -> list[Any]:
    """So many values of a knob, all of a choice; none where one is left, which is the recipe's own."""
    found = regular_values(dimension, count) if count > 1 else []
    return found if len(found) > 1 else []


def fit_lists(space: Space, most: int, given: Mapping[str, int]) -> Lists:
    """Values of each knob such that the grid has at most `most` cells; `given` are those of some knobs.

    Knobs stand in the order of their importance: the rates, then as the space has them. In each step the knob with the
    least product of its values and its place gets one more: 4 × 2 for 8 cells, 5 × 3 × 2 for 32, 5 × 3 × 2 × 2 for 64.
    """
    found = {d.path: _several(d, given.get(d.path, 1)) for d in space.dimensions}
    order = sorted((d for d in space.dimensions if d.path not in given), key=lambda d: not is_rate(d.path))
    while True:
        sizes = {path: max(1, len(values)) for path, values in found.items()}
        ranked = sorted(enumerate(order, 1), key=lambda one: (one[0] * sizes[one[1].path], one[0]))
        for _, dimension in ranked:
            size = sizes[dimension.path]
            longer = (_several(dimension, count) for count in range(size + 1, size + 4))  # whole numbers may coincide
            more = next((values for values in longer if len(values) > size), None)
            if more and math.prod(sizes.values()) // size * len(more) <= most:
                found[dimension.path] = more
                break
        else:
            return {path: values for path, values in found.items() if values}


def full_path(space: Space, name: str) -> str:
    """The path of a dimension, told by all of it or by its last words."""
    found = [path for path in space.paths if path == name or path.endswith(f".{name}")]
    if len(found) > 1 and name not in found:
        raise RequestError(f"`{name}` is ambiguous: write {' or '.join(found)}.")
    if not found:
        raise RequestError(f"unknown dimension `{name}` of the space.{nearest(name, space.paths)}")
    return name if name in found else found[0]


def _short_name(path: str) -> str:
    """The last word of a path; of a switch that holds several numbers, the switch too."""
    head, _, word = path.rpartition(".")
    return f"{head.rpartition('.')[2]}.{word}" if word in {"count", "each"} or word.isdigit() else word


def describe_lists(space: Space, lists: Lists, count: int) -> str:
    """A grid in words."""
    names = [f"{_short_name(path)} {len(lists[path])}" for path in sorted(lists, key=lambda p: not is_rate(p))]
    still = [_short_name(path) for path in space.paths if path not in lists]
    kept = f"; fixed at the recommended value: {', '.join(still)}" if still else ""
    cells_word = "cell" if count == 1 else "cells"
    return f"a grid of {count} {cells_word}{': ' + ' × '.join(names) if names else ''}{kept}"


def open_cells(laid: Cells, trials: list[Trial], running: Iterable[Signature]) -> list[Any]:
    """The recipes still to be run: those never tried, then those that failed once."""
    attempts: dict[Signature, list[Trial]] = {}
    for trial in trials:
        attempts.setdefault(point_signature(trial.values), []).append(trial)
    busy = set(running)
    fresh = [recipe for cell, recipe in laid.items() if cell not in attempts and cell not in busy]
    again = [
        recipe
        for cell, recipe in laid.items()
        if cell not in busy and len(attempts.get(cell, ())) == 1 and attempts[cell][0].outcome == "failed"
    ]
    return fresh + again


def busy_cells(space: Space, history: History) -> list[Signature]:
    """What is being run at this moment."""
    return [point_signature(chosen_values(space, proposal.recipe)) for _, proposal in history.running]


# Grids that were laid out: making a thousand recipes takes longer than all else here. It changes no answer, and because
# the space is held its identity cannot be reused.
_LAID_OUT: list[tuple[Space, Spec, int, Cells]] = []


class Grid(AbstractStrategy):
    """All cells of one grid, in a fixed order: the last dimension varies fastest.

    Without `values` the grid fits the budget. A study that is extended gets the largest grid whose cells, those that
    were tried apart, fit what is left; where time is the budget, grids follow one another, each twice as large.
    """

    looks_back: ClassVar[bool] = False  # but for cells that failed

    values: int = switch(
        0, allowed="[0, inf)", row="E7", about="values of each numeric knob; 0: as many as the budget allows"
    )
    counts: tuple[tuple[str, int], ...] = switch((), row="E7", about="values of some knobs, as (path, count) pairs")
    most_cells: int = switch(1000, allowed="[1, inf)", row="E7", about="maximum number of cells")

    def __check_init__(self) -> None:
        wrong = next((pair for pair in self.counts if not (isinstance(pair[1], int) and pair[1] >= 1)), None)
        if wrong:
            raise RequestError(f"`Grid.counts` of `{wrong[0]}` must be a whole number of at least 1; got {wrong[1]!r}.")

    def lists(self, space: Space, most: int) -> Lists:
        """The values of each knob that has several, in a grid of at most so many cells."""
        given = {full_path(space, name): count for name, count in self.counts}
        if self.values:
            given = {**dict.fromkeys(space.paths, self.values), **given}
        found = fit_lists(space, min(most, self.most_cells), given)
        return {path: found[path] for path in space.paths if path in found}

    def cells(self, space: Space, most: int) -> Cells:
        """The recipe of each cell of that grid."""
        for laid_space, strategy, size, laid in tuple(_LAID_OUT):
            if laid_space is space and strategy is self and size == most:
                return laid
        recommended = dataclasses.replace(space, recipe=within_ranges(space))
        found = cells(recommended, self.lists(space, most), self.most_cells)
        _LAID_OUT[:] = [*_LAID_OUT[-7:], (space, self, most, found)]
        return found

    def _size(self, space: Space, history: History, tried: set[Signature]) -> int:
        """The cells that the grid of this study may have."""
        if history.budget is None:
            size = _FIRST_CELLS
            while size < self.most_cells and all(cell in tried for cell in self.cells(space, size)):
                size *= 2
            return size
        size = history.budget
        while size > 1:
            laid = self.cells(space, size)
            if len(laid) + len(tried - set(laid)) <= history.budget:
                break
            # No more than this fits; a grid that was given in full is as large for any size.
            smaller = min(size, math.prod(map(len, self.lists(space, size).values()))) - 1
            size = smaller if self.lists(space, smaller) != self.lists(space, size) else 1
        return size if size > 1 or history.budget == 1 else history.budget

    def _laid(self, space: Space, history: History) -> tuple[Lists, Cells]:
        """The values of each knob that has several, and the cells."""
        trials = [trial for trial in history.trials if trial.phase == "search"]
        tried = {point_signature(trial.values) for trial in trials} | set(busy_cells(space, history))
        size = self._size(space, history, tried)
        return self.lists(space, size), self.cells(space, size)

    def describe(self, space: Space, history: History) -> str:
        lists, laid = self._laid(space, history)
        words = describe_lists(space, lists, len(laid))
        if history.budget is not None and len(laid) > history.budget:
            words += f"; the budget covers {history.budget} of them"
        return words

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        trials = [trial for trial in history.trials if trial.phase == "search"]
        recipes = open_cells(self._laid(space, history)[1], trials, busy_cells(space, history))
        return [Proposal(recipe) for recipe in recipes[:count]]


def _of_schedule(path: str) -> bool:
    return "schedule" in path.split(".")


def rate_schedules(recipe: Any) -> list[tuple[str, AbstractSchedule]]:
    """The schedules of learning rates by path: not those of dropout or decay, nor one within another."""
    found: list[tuple[str, AbstractSchedule]] = []
    for path, part in parts(recipe):
        named = isinstance(part, AbstractSchedule) and path.rpartition(".")[2] == "schedule"
        if named and not any(path.startswith(f"{outer}.") for outer, _ in found):
            found.append((path, part))
    return found


def constant_schedule(recipe: Any) -> Any:
    """The recipe with every learning-rate schedule switched off."""
    for path, _ in rate_schedules(recipe):
        recipe = replace(recipe, path, Constant())
    return recipe


class GridSequence(AbstractStrategy):
    """Grids one after another, each around the best of those before (row E7).

    | grid | over | with |
    |---|---|---|
    | 1 | the learning rates | a constant schedule |
    | 2 | the schedule and its knobs, and no schedule | the best rate |
    | 3 | the rates within one step of the best | the best schedule |
    | 4 | every other knob, as far as the budget goes | the best rate and schedule |
    | 5 | the rates within half a step of the best | the best of all others |
    """

    values: int = switch(
        0, allowed="[0, inf)", row="E7", about="values of each numeric knob in each grid; 0: three to five, by budget"
    )
    most_cells: int = switch(1000, allowed="[1, inf)", row="E7", about="maximum number of cells of one grid")

    def _values(self, budget: int | None) -> int:
        """Values of a numeric knob in one grid."""
        by_budget = 4 if budget is None else min(5, max(3, budget // 3))
        return max(2, self.values or by_budget)

    def _stages(self, space: Space) -> list[tuple[str, list[Dimension]]]:
        rates = [d for d in space.dimensions if is_rate(d.path)]
        schedule = [d for d in space.dimensions if _of_schedule(d.path) and not is_rate(d.path)]
        others = [d for d in space.dimensions if d not in rates and d not in schedule]
        stages = [("rate", rates), ("schedule", schedule), ("again", rates), ("others", others), ("closer", rates)]
        return [(name, dimensions) for name, dimensions in stages if dimensions]

    def _lists(self, space: Space, stage: str, dimensions: list[Dimension], best: Any, budget: int | None) -> Lists:
        values = self._values(budget)
        if stage in {"again", "closer"}:
            chosen, step = space.values(best), 1.0 / (values - 1) / (2 if stage == "closer" else 1)
            return {d.path: regular_values(d, values, chosen.get(d.path), reach=step) for d in dimensions}
        if stage == "others" and not self.values:
            return fit_lists(space.only([d.path for d in dimensions]), budget or _OTHER_CELLS, {})
        return {d.path: regular_values(d, values) for d in dimensions}

    def _grid(self, space: Space, stage: str, lists: Lists, best: Any) -> Cells:
        """The cells of one stage, around the recipe that was best before it."""
        centre = best
        if stage == "schedule":  # the schedules as the recipe has them, at the rate that was best without
            for path, part in rate_schedules(space.recipe):
                centre = replace(centre, path, part)
        sub = space.only(list(lists), recipe=centre)
        found = cells(sub, lists, self.most_cells, whole=space)
        if stage != "rate":
            # What was best before stays in the race.
            found.setdefault(point_signature(chosen_values(space, best)), best)
        return found

    def describe(self, space: Space, history: History) -> str:
        values = self._values(history.budget)
        names = {"rate": "the rate", "schedule": "its schedule", "again": "the rate again", "others": "the other knobs"}
        told = [names[stage] for stage, _ in self._stages(space) if stage in names]
        return f"a sequence of grids with {values} values per knob: {', '.join(told)}"

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        trials = learned_from(history)
        busy = busy_cells(space, history)
        stages = self._stages(space)
        # Without knobs of a schedule the recipe's own stays: there would be no second grid to bring it back.
        names = [name for name, _ in stages]
        best = constant_schedule(space.recipe) if "schedule" in names else space.recipe
        seen: set[Signature] = set()
        for stage, dimensions in stages:
            left = None if history.budget is None else max(1, history.budget - len(seen) + 1)
            size = left if stage == "others" else history.budget
            laid = self._grid(space, stage, self._lists(space, stage, dimensions, best, size), best)
            seen |= set(laid)
            recipes = open_cells(laid, trials, busy)
            if recipes:
                return [Proposal(recipe) for recipe in recipes[:count]]
            if any(cell in laid for cell in busy):
                return []  # the next grid lies around the best of this one
            winner = best_of(trial for trial in trials if point_signature(trial.values) in laid)
            best = winner.recipe if winner else best
        return []


def refuse_finished(strategy: AbstractStrategy, space: Space, history: History, *, key: Key[Array, ""]) -> None:
    """Raises if the grids are complete and the extra trials do not suffice for a larger one."""
    if history.budget is None or not isinstance(strategy, Grid | GridSequence):
        return
    if strategy.ask(space, history, 1, key=key):
        return
    tried = sum(trial.phase == "search" for trial in history.trials)
    more = history.budget - tried
    several = (2**power for power in range(_MOST_MORE.bit_length()))
    enough = next(
        (
            count
            for count in several
            if count > more and strategy.ask(space, dataclasses.replace(history, budget=tried + count), 1, key=key)
        ),
        None,
    )
    advice = (
        f"add more trials, such as --trials +{enough}."
        if enough
        else "start another study, with more values per knob or with random search."
    )
    raise RequestError(f"the grid is complete ({tried} trials), and {more} more are too few for a larger one: {advice}")
