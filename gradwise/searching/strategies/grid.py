"""Grids: every combination of a few values of each knob, regular in the prior's own scale (row E7).

    Grid(values=5)                                    five values of every numeric knob, all values of a choice
    Grid(counts=(("model.dropout", 2),))              two of this knob, four of every other
    GridSequence()                                    the rate, then the schedule, then the rest, then the rate again

The ends of an interval belong to the grid, so that a best value on the border shows (row E4). Cells that differ only in
knobs that are not active are one cell. A cell that failed, for a reason that is not its recipe's, is launched once more
at the end.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial, best_of
from ...runtime.errors import RequestError
from ...specs.knobs import Spec, switch
from ...specs.paths import parts, replace
from ...specs.priors import Choice, ZeroOr
from ...specs.schedules import AbstractSchedule, Constant
from ...specs.search_space import Dimension, Space
from .contract import AbstractStrategy, History
from .random_search import chosen_values, learned_from, point_signature

Signature = frozenset[tuple[str, Any]]
Cells = dict[Signature, Any]  # the recipe of each cell, in the grid's order


def regular(count: int) -> list[float]:
    """Equally spaced fractions with both ends; the middle if there is one only."""
    return [place / (count - 1) for place in range(count)] if count > 1 else [0.5]


def regular_values(dimension: Dimension, count: int, centre: Any = None, reach: float = 1.0) -> list[Any]:
    """Regular values of a dimension: over its whole interval, or around a value as far as `reach` (a fraction).

    A choice gives all its values; a knob that may be off gives 0 too. Around a value there is an odd number of them,
    with the value in their middle; near an end of the prior the interval keeps its width by lying to one side.
    """
    prior, scale = dimension.prior, dimension.scale
    if isinstance(scale, Choice):
        weights = scale.weights or (1.0,) * len(scale.values)
        return [value for value, weight in zip(scale.values, weights, strict=True) if weight > 0]
    off = [0.0] if isinstance(prior, ZeroOr) else []
    if centre is None or (off and centre == 0):
        return _different([*off, *map(scale.quantile, regular(count))])
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
        f"the grid has {count:,} cells ({sizes}), above `most_cells` = {most:,}: give fewer values, such as "
        f"counts=(({longest!r}, 2),), fewer knobs, or search at random."
    )


def cells(space: Space, lists: Mapping[str, list[Any]], most: int, whole: Space | None = None) -> Cells:
    """The cells of a grid by what they chose in the `whole` space: one for each combination that differs."""
    _refuse(math.prod(len(values) for values in lists.values()), most, lists)
    found: Cells = {}
    for combination in itertools.product(*lists.values()):
        recipe = space.recipe_of(dict(zip(lists, combination, strict=True)))
        found.setdefault(point_signature(chosen_values(whole or space, recipe)), recipe)
    return found


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


# The last grid that was laid out: making a thousand recipes takes longer than all else here. It changes no answer, and
# because the space is held its identity cannot be reused.
_LAID_OUT: list[tuple[Space, Spec, Cells]] = []


class Grid(AbstractStrategy):
    """All cells of one grid, in a fixed order: the last dimension varies fastest."""

    looks_back: ClassVar[bool] = False  # but for cells that failed

    values: int = switch(4, allowed="[1, inf)", row="E7", about="values of each numeric knob")
    counts: tuple[tuple[str, int], ...] = switch((), row="E7", about="values of some knobs, as (path, count) pairs")
    most_cells: int = switch(1000, allowed="[1, inf)", row="E7", about="the most cells before the grid is refused")

    def __check_init__(self) -> None:
        wrong = next((pair for pair in self.counts if not (isinstance(pair[1], int) and pair[1] >= 1)), None)
        if wrong:
            raise RequestError(f"`Grid.counts` needs a whole number from 1 on for `{wrong[0]}`; got {wrong[1]!r}.")

    def cells(self, space: Space) -> Cells:
        """The recipe of each cell."""
        for laid_space, strategy, laid in tuple(_LAID_OUT):
            if laid_space is space and strategy is self:
                return laid
        given = dict(self.counts)
        for path in given:
            space[path]  # names what is missing
        lists = {d.path: regular_values(d, given.get(d.path, self.values)) for d in space.dimensions}
        found = cells(space, lists, self.most_cells)
        _LAID_OUT[:] = [(space, self, found)]
        return found

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        trials = [trial for trial in history.trials if trial.phase == "search"]
        recipes = open_cells(self.cells(space), trials, busy_cells(space, history))
        return [Proposal(recipe) for recipe in recipes[:count]]


def is_rate(path: str) -> bool:
    """Whether a path leads to a learning rate, the knob that matters most."""
    return path.rpartition(".")[2] == "learning_rate"


def _of_schedule(path: str) -> bool:
    return "schedule" in path.split(".")


def constant_schedule(recipe: Any) -> Any:
    """The recipe with every learning-rate schedule switched off."""
    for path, part in parts(recipe):
        if isinstance(part, AbstractSchedule):
            recipe = replace(recipe, path, Constant())
    return recipe


class GridSequence(AbstractStrategy):
    """Grids one after another, each around the best of those before (row E7).

    | grid | over | with |
    |---|---|---|
    | 1 | the learning rates | a constant schedule |
    | 2 | the schedule's knobs, and no schedule | the best rate |
    | 3 | every other knob | the best rate and schedule |
    | 4 | the rates within one step of the best | the best of all others |
    """

    values: int = switch(4, allowed="[2, inf)", row="E7", about="values of each numeric knob in each grid")
    most_cells: int = switch(
        1000, allowed="[1, inf)", row="E7", about="the most cells of one grid before it is refused"
    )

    def _stages(self, space: Space) -> list[tuple[str, list[Dimension]]]:
        rates = [d for d in space.dimensions if is_rate(d.path)]
        schedule = [d for d in space.dimensions if _of_schedule(d.path) and not is_rate(d.path)]
        others = [d for d in space.dimensions if d not in rates and d not in schedule]
        stages = [("rate", rates), ("schedule", schedule), ("others", others), ("again", rates)]
        return [(name, dimensions) for name, dimensions in stages if dimensions]

    def _grid(self, space: Space, stage: str, dimensions: list[Dimension], best: Any, schedules: Any) -> Cells:
        """The cells of one stage, around the recipe that was best before it."""
        if stage == "again":
            values = space.values(best)
            step = 1.0 / (self.values - 1)
            lists = {d.path: regular_values(d, self.values, values.get(d.path), reach=step) for d in dimensions}
        else:
            lists = {d.path: regular_values(d, self.values) for d in dimensions}
        centre = best
        if stage == "schedule":  # the schedules as the recipe has them, at the rate that was best without
            for path, part in schedules:
                centre = replace(centre, path, part)
        sub = space.only([d.path for d in dimensions], recipe=centre)
        found = cells(sub, lists, self.most_cells, whole=space)
        if stage != "rate":
            found.setdefault(
                point_signature(chosen_values(space, best)), best
            )  # what was best before stays in the race
        return found

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        trials = learned_from(history)
        busy = busy_cells(space, history)
        stages = self._stages(space)
        # Without knobs of a schedule the recipe's own stays: there would be no second grid to bring it back.
        names = [name for name, _ in stages]
        best = constant_schedule(space.recipe) if "schedule" in names else space.recipe
        schedules = [(path, part) for path, part in parts(space.recipe) if isinstance(part, AbstractSchedule)]
        for stage, dimensions in stages:
            laid = self._grid(space, stage, dimensions, best, schedules)
            recipes = open_cells(laid, trials, busy)
            if recipes:
                return [Proposal(recipe) for recipe in recipes[:count]]
            if any(cell in laid for cell in busy):
                return []  # the next grid lies around the best of this one
            winner = best_of(trial for trial in trials if point_signature(trial.values) in laid)
            best = winner.recipe if winner else best
        return []
