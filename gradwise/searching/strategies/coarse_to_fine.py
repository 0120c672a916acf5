"""From coarse to fine: a wide search first, then narrower ones around the few best (rows E6, E12).

    CoarseToFine(first=16, rounds=3)            sixteen points over the priors, then three rounds of narrower boxes
    AroundBest()                                a small grid around the best trial, over the knobs that matter
    AroundBest(paths=("model.dropout",))        over this one

Boxes are measured in fractions of the prior, so that a rate's box is a factor and not a difference.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial, best_of
from ...specs.knobs import switch
from ...specs.search_space import Space, read_at
from ..comparison.cheap_recipes import train_all_layers
from .contract import AbstractStrategy, History
from .grid import busy_cells, cells, is_rate, open_cells, regular_values
from .random_search import count_proposals, learned_from, random_points, sobol_points
from .range_borders import BORDER


def numeric_fractions(space: Space, trial: Trial) -> dict[str, float]:
    """Where a trial lies along the numeric dimensions that were active in it."""
    active = (d for d in space.dimensions if d.numeric and d.path in trial.values)
    return {d.path: d.prior.fraction(trial.values[d.path]) for d in active}


class _Map:
    """Where the trials lie, by path: what the next boxes are made of."""

    def __init__(self, space: Space, trials: Sequence[Trial]) -> None:
        self.space = space
        self.points = {trial.number: numeric_fractions(space, trial) for trial in trials}
        seen: dict[str, list[float]] = {}
        for point in self.points.values():
            for path, fraction in point.items():
                seen.setdefault(path, []).append(fraction)
        self.ends = {path: (min(found), max(found)) for path, found in seen.items()}

    def untried(self, path: str, fraction: float) -> tuple[bool, bool]:
        """Whether untried land begins below and above a value that is among the outermost tried.

        That is so where an interval was extended after the trials so far (row E4).
        """
        low, high = self.ends[path]
        return (fraction - low <= BORDER < low, high - fraction <= BORDER < 1.0 - high)

    def lies_before_untried_land(self, trial: Trial) -> bool:
        return any(any(self.untried(path, fraction)) for path, fraction in self.points[trial.number].items())

    def box(self, trial: Trial, reach: float) -> dict[str, tuple[float, float]]:
        """The box around a trial, as far as `reach` to each side, and to the end where untried land begins.

        A dimension that was not active in it keeps its whole prior. Words have no neighbours: the best one stays.
        """
        found = dict.fromkeys(self.space.paths, (0.0, 1.0))
        for path, fraction in self.points[trial.number].items():
            below, above = self.untried(path, fraction)
            low, high = max(0.0, fraction - reach), min(1.0, fraction + reach)
            found[path] = (0.0 if below else low, 1.0 if above else high)
        return found

    def inside(self, trial: Trial, reach: float, point: dict[str, float]) -> Any:
        """The recipe at a point of the box around a trial."""
        box = self.box(trial, reach)
        values = {
            d.path: d.at(box[d.path][0] + point[d.path] * (box[d.path][1] - box[d.path][0]))
            for d in self.space.dimensions
        }
        kept = {
            d.path: value
            for d in self.space.dimensions
            if not d.numeric
            for active, value in [read_at(trial.recipe, d.path)]
            if active
        }
        return self.space.recipe_of({**values, **kept})


class CoarseToFine(AbstractStrategy):
    """Coarse over a wide range, then finer around the few best, several rounds (row E6).

    Where an interval was extended because the best lay on its border, the next boxes reach into the new land, and
    rounds are added for as long as the best lies before land that is untried.
    """

    first: int = switch(16, allowed="[1, inf)", row="E6", about="points of the coarse search")
    rounds: int = switch(3, allowed="[0, inf)", row="E6", about="rounds of narrower boxes")
    best: int = switch(3, allowed="[1, inf)", row="E6", about="number of best trials that get a box")
    each: int = switch(4, allowed="[1, inf)", row="E6", about="points in each box")
    shrink: float = switch(0.5, allowed="(0, 1)", row="E6", about="the width of a box relative to the round before")
    quasi: bool = switch(True, row="E6", about="points of a Sobol sequence rather than independent ones")

    def _points(self, space: Space, history: History, count: int, key: Key[Array, ""]) -> list[dict[str, float]]:
        if self.quasi:
            return sobol_points(space, history.next, count, key)
        return random_points(space, range(history.next, history.next + count), key)

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        at, size = count_proposals(history), self.best * self.each
        if at < self.first:
            points = self._points(space, history, min(count, self.first - at), key)
            return [Proposal(space.recipe_at(point)) for point in points]
        turn, within = divmod(at - self.first, size)
        start = history.next - within  # the number that began this round
        if any(number < start for number, _ in history.running):
            return []  # the boxes lie around the best of all before
        before = [trial for trial in learned_from(history) if trial.number < start]
        ranked = sorted((t for t in before if t.ok), key=lambda t: (t.score, t.loss, t.number))
        known = _Map(space, before)
        if not ranked or (turn >= self.rounds and not known.lies_before_untried_land(ranked[0])):
            return []
        reach = 0.5 * self.shrink ** (turn + 1)
        recipes = [
            known.inside(ranked[min((within + ahead) // self.each, len(ranked) - 1)], reach, point)
            for ahead, point in enumerate(self._points(space, history, min(count, size - within), key))
        ]
        return [Proposal(recipe) for recipe in recipes]


def explained_order(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much of the scores' order each numeric knob explains by itself: 1 all of it, 0 or less nothing.

    The trials are cut into groups of equal size along the knob, and the ranks of their scores compared between and
    within the groups (the unbiased correlation ratio). A rise and a fall count alike, which a rank correlation would
    not see. Diverged trials rank last.
    """
    from scipy.stats import rankdata

    usable = [trial for trial in trials if trial.ok or trial.outcome == "diverged"]
    ranks = rankdata([trial.score if trial.ok else np.inf for trial in usable])
    points = [numeric_fractions(space, trial) for trial in usable]
    found = {}
    for dimension in space.dimensions:
        held = [place for place, point in enumerate(points) if dimension.path in point]
        groups = min(5, len(held) // 4)
        if not dimension.numeric or groups < 2:
            continue
        along = sorted(held, key=lambda place: points[place][dimension.path])
        parts = [ranks[part] for part in np.array_split(np.asarray(along), groups)]
        total = float(((ranks[held] - ranks[held].mean()) ** 2).sum())
        inside = float(sum(((part - part.mean()) ** 2).sum() for part in parts))
        if total > 0:
            found[dimension.path] = 1.0 - (inside / (len(held) - groups)) / (total / (len(held) - 1))
    return found


class AroundBest(AbstractStrategy):
    """A small grid around the best trial of a search, over the knobs that matter; its phase is "refine" (row E12).

    It asks for nothing while the search runs, and where there is no best.
    """

    paths: tuple[str, ...] = switch((), row="E12", about="the knobs of the grid; empty: those that matter most")
    knobs: int = switch(2, allowed="[1, inf)", row="E12", about="number of knobs chosen if none is given")
    values: int = switch(3, allowed="[2, inf)", row="E12", about="values of each knob, including the best one")
    reach: float = switch(0.1, allowed="(0, 0.5]", row="E12", about="distance to each side, as a fraction of the prior")
    most_cells: int = switch(200, allowed="[1, inf)", row="E12", about="maximum number of cells")

    looks_back: ClassVar[bool] = False  # at the search before it, not at its own trials

    def over(self, space: Space, trials: Sequence[Trial]) -> tuple[str, ...]:
        """The knobs of the grid: those named, or those that explain most; a learning rate where nothing is known."""
        for path in self.paths:
            space[path]  # names what is missing
        if self.paths:
            return self.paths
        best, known = best_of(trials), explained_order(space, trials)
        numeric = [*numeric_fractions(space, best)] if best else []
        ranked = sorted(numeric, key=lambda path: (-known.get(path, 0.0), not is_rate(path), space.paths.index(path)))
        return tuple(ranked[: self.knobs])

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        trials = [trial for trial in history.trials if trial.phase in ("search", "border")]
        best = best_of(trials)
        if best is None or any(proposal.phase == "search" for _, proposal in history.running):
            return []
        recipe = train_all_layers(best.recipe)
        values = space.values(recipe)
        paths = [path for path in self.over(space, trials) if path in values]
        lists = {path: regular_values(space[path], self.values, values[path], reach=self.reach) for path in paths}
        laid = cells(space.only(paths, recipe=recipe), lists, self.most_cells, whole=space)
        tried = [trial for trial in history.trials if trial.phase in ("search", "border", "refine")]
        recipes = open_cells(laid, tried, busy_cells(space, history))
        return [Proposal(recipe, phase="refine") for recipe in recipes[:count]]
