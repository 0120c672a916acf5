"""Recipes that a search of a table tries after the recommended one: a short list that did well together elsewhere.

    portfolio_of(defaults.table("numbers", rows=5000))       recipes, the most useful first

`portfolio.json` names them as changes of the recommended recipe for tables, with where they come from:
`benchmarks/portfolio.py` chose them, one after another, as what lowered the error of the ensemble most on tables that
no result is reported on. A change sets values, multiplies them, or has so many networks share their weights:

    {"set": {"model.inputs.numbers": {"class": "gradwise:PiecewiseLinear"}}, "times": {"model.widths.each": 2}}
    {"members": 8}

What the user chose stays: an entry that would change it is left out.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .models.mlp import Mlp
from .models.shared_weights import SharedWeights
from .specs.paths import replace
from .specs.recipe import Recipe
from .specs.search_space import read_at, write_at
from .specs.serialisation import from_plain, to_plain

_FILE = Path(__file__).with_name("portfolio.json")


@functools.cache
def portfolio_entries() -> tuple[dict[str, Any], ...]:
    """The changes, as the file has them."""
    return tuple(json.loads(_FILE.read_text())["entries"])


def with_entry(recipe: Recipe, entry: Mapping[str, Any]) -> Recipe:
    """The recipe changed as an entry says; a change of what the recipe does not have is passed over."""
    for path, plain in entry.get("set", {}).items():
        recipe = write_at(recipe, path, from_plain(plain))
    for path, factor in entry.get("times", {}).items():
        there, value = read_at(recipe, path)
        if there:
            recipe = write_at(recipe, path, type(value)(value * factor))
    if entry.get("members", 1) > 1:
        recipe = replace(recipe, "model", SharedWeights(recipe.model, members=entry["members"]))
    return recipe


def _touched(entry: Mapping[str, Any]) -> list[str]:
    return [*entry.get("set", {}), *entry.get("times", {})]


def _at(recipe: Recipe, path: str) -> Any:
    there, value = read_at(recipe, path)
    return to_plain(value) if there else None


def portfolio_of(recipe: Recipe, recommended: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
    """The list's recipes around this one, but for those that would change what differs from all recommended ones."""
    if not isinstance(recipe.model, Mlp):
        return ()
    return tuple(
        with_entry(recipe, entry)
        for entry in portfolio_entries()
        if all(any(_at(recipe, path) == _at(one, path) for one in recommended) for path in _touched(entry))
    )
