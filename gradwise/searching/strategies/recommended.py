"""The recommended recipe first, then others near it (row E1): a search that cannot be much worse than one fit.

    trial 0              the space's own recipe, brought into the ranges where it lies outside
    trials 1, 2, ..., p  the space's portfolio: other recipes that did well elsewhere
    trials p + 1, ...    the first with about half of the knobs drawn anew, each from its prior

Trial n is a function of the study's key and of n, so nothing depends on what ran beside it. Most settings far from a
good default are worse, and an ensemble gains by networks that are good and differ: hence near, and not anywhere.
"""

import dataclasses
import math
from typing import Any, ClassVar

import jax.random as jr
from jaxtyping import Array, Key

from ...records.trial import Proposal
from ...runtime.keys import generator, named
from ...specs.priors import AbstractPrior, Choice
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from .contract import AbstractStrategy, History

_KEPT = 0.5  # the chance that a knob keeps its recommended value


def is_within(prior: AbstractPrior, value: Any) -> bool:
    """Whether the prior has this value."""
    try:
        near = prior.quantile(prior.fraction(value))
    except (ValueError, TypeError):  # a choice does not have it
        return False
    return bool(near == value) or (isinstance(near, float) and math.isclose(near, value, rel_tol=1e-6))


def _inside(prior: AbstractPrior, value: Any) -> Any:
    """The value, or the nearest one that the prior has."""
    if is_within(prior, value):
        return value
    return prior.quantile(0.5) if isinstance(prior, Choice) else prior.quantile(prior.fraction(value))


def within_ranges(space: Space) -> Recipe:
    """The space's recipe with every searched knob inside its range: a range of the user's own may leave it out."""
    values = space.values(space.recipe)
    outside = {path: near for path, value in values.items() if (near := _inside(space[path].prior, value)) is not value}
    return space.recipe_of(outside)


class Recommended(AbstractStrategy):
    """The recipe itself, then draws around it."""

    looks_back: ClassVar[bool] = False

    def _near(self, space: Space, number: int, key: Key[Array, ""]) -> Recipe:
        space = dataclasses.replace(space, recipe=within_ranges(space))
        if number == 0:
            return space.recipe
        if number <= len(space.portfolio):
            return space.portfolio[number - 1]
        draw = generator(jr.fold_in(named(key, "near the recommended"), number))
        kept, fractions = draw.random(len(space.dimensions)), draw.random(len(space.dimensions))
        if (kept < _KEPT).all():
            kept[draw.integers(len(kept))] = 1.0  # the recipe itself is there already
        pairs = zip(space.dimensions, kept, fractions, strict=True)
        drawn = {one.path: one.at(float(fraction)) for one, lot, fraction in pairs if lot >= _KEPT}
        # A layer with a range of its own keeps its width where one for all layers is drawn.
        own = space.values(space.recipe)
        layers = [one for one in space.dimensions if one.path.rpartition(".")[2].isdigit()]
        return space.recipe_of({**{one.path: own.get(one.path, one.at(0.5)) for one in layers}, **drawn})

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        numbers = range(history.next, history.next + count)
        return [Proposal(self._near(space, number, key)) for number in numbers]
