"""A knob knows its kind: of the optimiser, or of the model; one that sets capacity is never chosen on training error.

    refuse_capacity(data.judged_on, space_recipes(space))       a search, before its first trial
    refuse_capacity(data.judged_on, [recipe, wider])            recipes that are to be compared

Row E19. Where the rows that judge a trial are those that it learned from, its score is a training error. Knobs of the
optimiser may be chosen by it: it is free, less noisy than validation, and what they decide is how well the criterion is
minimised. Knobs of capacity may not: the largest network that nothing holds back would always win. Everything that
chooses by a score asks here first: `search`, `compare`, `challenge`, `layerwise`, `compare_batch_sizes`, `evolve`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import equinox as eqx

from ...runtime.errors import RequestError, nearest
from ...specs.paths import knobs, parts
from ...specs.priors import Choice
from ...specs.search_space import Dimension, Space, label, write_at

JudgedOn = Literal["train", "valid"]


def kind_at(recipe: Any, path: str) -> str:
    """The kind of the knob, switch or part at a path: "optimiser", "model" or "capacity".

    A path into a switch (`model.widths.count`) has the switch's kind; a part that holds a knob of capacity sets it too.
    """
    declared = {name: declaration.kind for name, declaration, _ in knobs(recipe)}
    head, _, _ = path.rpartition(".")
    for name in (path, head):
        if name in declared:
            return declared[name]
    known = [*declared, *(name for name, _ in parts(recipe))]
    if path not in known:
        raise RequestError(f"unknown knob `{path}`.{nearest(path, known)}")
    within = {kind for name, kind in declared.items() if name.startswith(f"{path}.")}
    return "capacity" if "capacity" in within else "optimiser" if within == {"optimiser"} else "model"


def varied_capacity(recipes: Iterable[Any]) -> str | None:
    """The first knob of capacity that these recipes do not have in common; None where they have one capacity."""
    each = [{n: str(label(value)) for n, one, value in knobs(recipe) if one.kind == "capacity"} for recipe in recipes]
    names = dict.fromkeys(name for one in each for name in one)
    # A part that has no such knob is of another capacity than one that has.
    return next((name for name in names if len({one.get(name) for one in each}) > 1), None)


def _values(dimension: Dimension) -> Sequence[Any]:
    """Values that show what a dimension changes: all of a choice, or both ends."""
    if isinstance(dimension.prior, Choice):
        return dimension.prior.values
    return dimension.at(0.0), dimension.at(1.0)


def space_recipes(space: Space) -> list[Any]:
    """Recipes that show all that a search of this space may change, each dimension in turn.

    A knob of one of several parts is there where that part is.
    """
    whole = [
        write_at(space.recipe, dimension.path, value)
        for dimension in space.dimensions
        for value in _values(dimension)
        if isinstance(value, eqx.Module)
    ]
    found = [space.recipe, *space.portfolio]
    for base in (space.recipe, *whole):
        found += [write_at(base, one.path, value) for one in space.dimensions for value in _values(one)]
    return found


def without_capacity(space: Space) -> Space:
    """The space with those of its dimensions that set no capacity."""
    alone = {path: space.only([path]) for path in space.paths}
    return space.only([path for path, one in alone.items() if varied_capacity(space_recipes(one)) is None])


def refuse_capacity(judged_on: JudgedOn, recipes: Iterable[Any]) -> None:
    """Refuses to choose by training error among recipes that differ in capacity; names the knob."""
    name = varied_capacity(recipes) if judged_on == "train" else None
    if name is not None:
        raise RequestError(
            f"`{name}` sets capacity and cannot be chosen by training error, which always prefers more capacity. Hold "
            f"out validation rows, or leave `{name}` as it is."
        )
