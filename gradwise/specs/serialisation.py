"""Recipes and fitted modules as JSON, and back.

    assert from_json(to_json(recipe)) == recipe

A part is written as its public name with its fields: `{"class": "gradwise:Sgd", "learning_rate": 0.03, ...}`; a class
of the user's own as `module:Class`, and a value without a written form, such as an Optax transformation, as the name of
its type. Loading imports nothing outside gradwise, runs no constructor chosen by a file
and never unpickles: other classes must be passed in.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..runtime.errors import RequestError
from ..runtime.public_names import HOMES, load_public
from .knobs import Spec

_OURS = "gradwise"


def public_path(thing: Any) -> str:
    """How a file names a class or function: ours by its public name, others by module and name."""
    if HOMES.get(thing.__qualname__) == thing.__module__:
        return f"{_OURS}:{thing.__qualname__}"
    if thing.__module__.partition(".")[0] == _OURS:
        raise RequestError(f"`{thing.__qualname__}` has no public name, so it cannot be saved to a file.")
    return f"{thing.__module__}:{thing.__qualname__}"


def _encode(value: Any, arrays: dict[str, np.ndarray] | None, path: str, incomplete: bool = False) -> Any:
    if isinstance(value, eqx.Module):
        fields = {
            f.name: _encode(getattr(value, f.name), arrays, f"{path}.{f.name}" if path else f.name, incomplete)
            for f in dataclasses.fields(value)
        }
        return {"class": public_path(type(value)), **fields}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_encode(item, arrays, f"{path}.{index}", incomplete) for index, item in enumerate(value)]
    if isinstance(value, (jax.Array, np.ndarray)) and arrays is not None:
        arrays[path] = np.asarray(value)
        return {"array": path}
    if isinstance(value, types.FunctionType):
        return {"function": public_path(value)}
    if incomplete:
        return {"unwritten": type(value).__name__}
    raise RequestError(f"`{path}` holds a {type(value).__name__}, which cannot be saved. Make it a spec.")


@dataclasses.dataclass(frozen=True)
class Unwritten:
    """Stands in a recipe that was read from a file for a value that has no written form."""

    kind: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RequestError(f"the {self.kind} of this recipe was not saved: pass the recipe that you trained with.")


def _find(name: str, given: Mapping[str, Any]) -> Any:
    if name in given:
        return given[name]
    package, _, public = name.partition(":")
    if package.startswith(f"{_OURS}."):
        raise RequestError(f"written by gradwise 0.1 (`{name}`), whose files this version cannot read. Train again.")
    if package != _OURS:
        raise RequestError(f"`{name}` is not part of gradwise. Pass it in: classes=[...].")
    if public not in HOMES:
        raise RequestError(f"`{name}` does not exist in this version of gradwise.")
    found = load_public(public)
    if not (isinstance(found, type) and issubclass(found, eqx.Module)):
        raise RequestError(f"`{name}` is not a part.")
    return found


def _decode(value: Any, find: Callable[[str], Any], arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item, find, arrays) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"number"}:
        return float(value["number"])
    if set(value) == {"unwritten"}:
        return Unwritten(str(value["unwritten"]))
    if set(value) == {"function"}:
        return find(value["function"])
    if set(value) == {"array"}:
        if value["array"] not in arrays:
            raise RequestError(f"the array `{value['array']}` is missing from the file.")
        return arrays[value["array"]]
    if not isinstance(value.get("class"), str):
        raise RequestError("a part without its class: the file was not written by gradwise.")
    kind = find(value["class"])
    if isinstance(kind, Unwritten):
        return kind
    fields = {name: _decode(item, find, arrays) for name, item in value.items() if name != "class"}
    known = {field.name for field in dataclasses.fields(kind)}
    if not issubclass(kind, Spec):  # a file may be older than a field that has a default
        later = {f.name: f.default for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}
        fields = {**later, **fields}
    if set(fields) - known or (not issubclass(kind, Spec) and known - set(fields)):
        odd = ", ".join(sorted(set(fields) ^ known))
        raise RequestError(f"`{value['class']}` does not match the file; unexpected: {odd}.")
    if issubclass(kind, Spec):
        missing = [
            f.name
            for f in dataclasses.fields(kind)
            if f.name not in fields and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise RequestError(f"`{value['class']}` in the file lacks: {', '.join(missing)}.")
        return kind(**fields)  # a spec checks its own knobs
    module = object.__new__(kind)  # a fitted module is data: no constructor runs
    for name, item in fields.items():
        object.__setattr__(module, name, item)
    return module


def to_plain(module: Any, arrays: dict[str, np.ndarray] | None = None, *, incomplete: bool = False) -> Any:
    """A module as JSON values. Arrays go into `arrays` under their paths; without it they are refused.

    With `incomplete`, for the record of what was trained, only the type of a value without a written form is kept.
    """
    return _encode(module, arrays, "", incomplete)


def from_plain(
    plain: Any, arrays: Mapping[str, Any] | None = None, classes: tuple[Any, ...] = (), *, incomplete: bool = False
) -> Any:
    """The module that `to_plain` wrote. With `incomplete`, code that was not passed in is left out of it.

    `classes` are the classes and functions of the user's own, or modules of these classes.
    """
    kinds = [item if hasattr(item, "__qualname__") else type(item) for item in classes]
    given = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in kinds}

    def find(name: str) -> Any:
        known = name in given or name.partition(":")[0].partition(".")[0] == _OURS
        return Unwritten(name) if incomplete and not known else _find(name, given)

    try:
        return _decode(plain, find, arrays or {})
    except RequestError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as problem:
        told = str(problem).partition("\n")[0][:200]
        raise RequestError(f"the file was not written by gradwise ({type(problem).__name__}: {told}).") from problem


def to_json(recipe: Any, *, incomplete: bool = False) -> str:
    """A recipe as JSON text; numbers are written so that they come back exactly."""
    return json.dumps(to_plain(recipe, incomplete=incomplete), indent=2)


def from_json(text: str, classes: tuple[Any, ...] = ()) -> Any:
    """The recipe that `to_json` wrote; classes and functions from outside gradwise are passed in."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"the recipe is not JSON: {problem}.") from None
    recipe = from_plain(plain, classes=classes)
    if not isinstance(recipe, eqx.Module):
        raise RequestError("the file contains no recipe: it was not written by gradwise.")
    return recipe
