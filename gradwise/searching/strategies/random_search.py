"""Search from the priors alone: independent draws, or a sequence that fills the space more evenly.

    Random()     trial n is one draw of the prior; more trials can always be added   row E9
    Sobol()      trial n is point n of a scrambled Sobol sequence: fewer gaps         row E9

Both ask nothing of the trials before: point n is a function of the study's key and of n. Every dimension gets its
fraction of the prior whether it turns out to be active or not, so that a conditional knob shifts nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial
from ...runtime.errors import RequestError
from ...runtime.keys import generator, generators, named
from ...specs.search_space import Space, label
from .contract import AbstractStrategy, History

# What a strategy may learn from: trials of other phases are repetitions, with other seeds, of what was found.
LEARNED_FROM = ("search", "refine")


def random_points(space: Space, numbers: Iterable[int], key: Key[Array, ""]) -> list[dict[str, float]]:
    """The fractions of the trials of these numbers, uniform and independent."""
    paths = space.paths
    each = generators(named(key, "random search"), list(numbers))
    return [dict(zip(paths, one.random(len(paths)).tolist(), strict=True)) for one in each]


def random_point(space: Space, number: int, key: Key[Array, ""]) -> dict[str, float]:
    """The fractions of one trial."""
    return random_points(space, [number], key)[0]


def sobol_points(space: Space, first: int, count: int, key: Key[Array, ""]) -> list[dict[str, float]]:
    """Points `first` to `first + count - 1` of the study's Sobol sequence."""
    from scipy.stats import qmc

    if not space.dimensions or not count:
        return [{} for _ in range(count)]
    if len(space.dimensions) > qmc.Sobol.MAXDIM:
        raise RequestError(f"a Sobol sequence has at most {qmc.Sobol.MAXDIM} dimensions; use `Random`.")
    engine = qmc.Sobol(len(space.dimensions), scramble=True, seed=generator(named(key, "sobol sequence")))
    if first:
        engine.fast_forward(first)
    # One by one: SciPy warns of a first block that is no power of two, and a search rarely asks for one.
    rows = np.concatenate([engine.random(1) for _ in range(count)])
    return [dict(zip(space.paths, map(float, row), strict=True)) for row in rows]


def chosen_values(space: Space, recipe: Any) -> dict[str, Any]:
    """What a recipe chose, as the numbers and words that a trial's `values` hold."""
    return {path: label(value) for path, value in space.values(recipe).items()}


def point_signature(values: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """What makes two trials the same point. Twelve digits: some switches round, and files write numbers as text."""
    return frozenset(
        (path, float(f"{value:.12g}") if isinstance(value, float) else label(value)) for path, value in values.items()
    )


def learned_from(history: History) -> list[Trial]:
    """The trials that a strategy may look at, in the order of their numbers."""
    return sorted((t for t in history.trials if t.phase in LEARNED_FROM), key=lambda trial: trial.number)


def count_proposals(history: History) -> int:
    """How many proposals of the search proper came before the next number."""
    others = sum(trial.phase != "search" and trial.number < history.next for trial in history.trials)
    return history.next - others - sum(p.phase != "search" and n < history.next for n, p in history.running)


class Random(AbstractStrategy):
    """Independent draws of the priors (row E9); weighted choices and conditional knobs as the space has them (E3)."""

    independent: ClassVar[bool] = True
    looks_back: ClassVar[bool] = False

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        numbers = range(history.next, history.next + count)
        return [Proposal(space.recipe_at(point)) for point in random_points(space, numbers, key)]


class Sobol(AbstractStrategy):
    """A scrambled Sobol sequence through the priors: every stretch of it covers the space evenly."""

    looks_back: ClassVar[bool] = False

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        return [Proposal(space.recipe_at(point)) for point in sobol_points(space, history.next, count, key)]
