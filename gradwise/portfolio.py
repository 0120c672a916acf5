"""Recipes that a search of a table tries after the recommended one: a short list that did well together elsewhere.

    portfolio_of(defaults.table("numbers", rows=5000))                     recipes, the most useful first
    Space(recipe, dimensions, portfolio_of(recipe, fixed=["model.dropout"]))

`portfolio.json` names them as changes of the recommended recipe for tables, and says where they come from: they were
chosen one after another, each as what lowered the loss of the ensemble most, on tables that no result is reported
on. A change sets values or multiplies them:

    {"set": {"model.inputs.numbers": {"class": "gradwise:PiecewiseLinear"}}, "times": {"model.widths.each": 2}}

What the user chose stays: an entry that would change it is left out.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .models.mlp import Mlp
from .recipes import is_for_tables
from .specs.recipe import Recipe
from .specs.search_space import read_at, write_at
from .specs.serialisation import from_plain

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
    return recipe


def _touches(entry: Mapping[str, Any], fixed: Iterable[str]) -> bool:
    """Whether an entry changes something at, within or around one of these paths."""
    touched = [*entry.get("set", {}), *entry.get("times", {})]
    pairs = [(f"{path}.", f"{one}.") for path in fixed for one in touched]
    return any(one.startswith(path) or path.startswith(one) for path, one in pairs)


def portfolio_of(recipe: Recipe, fixed: Iterable[str] = ()) -> tuple[Recipe, ...]:
    """The list's recipes around this one, without those that would change what was fixed; none but for tables."""
    parts = {name: getattr(recipe, name) for name in ("model", "optimiser", "stopping")}
    if not (isinstance(recipe.model, Mlp) and is_for_tables(**parts)):
        return ()
    fixed = tuple(fixed)
    return tuple(with_entry(recipe, entry) for entry in portfolio_entries() if not _touches(entry, fixed))
