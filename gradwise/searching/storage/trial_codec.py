"""A trial as one line of text: what it showed, and how its recipe differs from the study's.

    line = write_trial(trial, base)           {"number": 7, "score": 0.03, ..., "recipe": {"batches.size": 64}}
    trial == read_trial(line, base)

A study of ten thousand trials has one recipe and ten thousand small departures from it. Writing only these makes a line
a third as long, and reading them rebuilds only the parts that hold a difference. Nothing is lost: whatever is not equal
to the base, to the letter of its JSON, is written, and a part of another class is written whole.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx

from ...records.trial import Trial, trial_from_plain
from ...runtime.errors import RequestError
from ...specs.paths import field_converters
from ...specs.serialisation import from_plain, to_plain

_WHOLE = ""  # the path of the recipe itself


def _holds_parts(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, eqx.Module) for item in value)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike; `1`, `1.0` and `True` are not, nor are the two zeros."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (float, int, str)):
        return bool(one == other) and (one != 0 or str(one) == str(other))
    return json.dumps(to_plain(one)) == json.dumps(to_plain(other))


def recipe_differences(base: Any, recipe: Any, path: str = _WHOLE) -> Iterator[tuple[str, Any]]:
    """The paths at which a recipe differs from the base, with the plain values there."""
    if base is recipe:
        return
    prefix = f"{path}." if path else ""
    if isinstance(base, eqx.Module) and type(base) is type(recipe):
        ours, theirs = vars(base), vars(recipe)
        for name, _ in field_converters(type(base)):
            if ours[name] is not theirs[name]:
                yield from recipe_differences(ours[name], theirs[name], prefix + name)
    elif _holds_parts(base) and isinstance(recipe, tuple) and len(base) == len(recipe):
        for index, (one, other) in enumerate(zip(base, recipe, strict=True)):
            yield from recipe_differences(one, other, f"{prefix}{index}")
    elif not _same(base, recipe):
        yield path, to_plain(recipe)


def _nested(changes: dict[str, Any]) -> dict[str, Any]:
    """Dotted paths as a tree; a leaf is a one-tuple, since a plain value may itself be a dictionary."""
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        *owners, name = path.split(".")
        node = tree
        for owner in owners:
            node = node.setdefault(owner, {})
        node[name] = (value,)
    return tree


def _rebuilt(base: Any, tree: dict[str, Any], classes: tuple[Any, ...]) -> Any:
    """The base with these changes. The values were checked when the trial was made: no constructor runs again."""
    if isinstance(base, tuple):
        items = list(base)
        for name, change in tree.items():
            items[int(name)] = _changed(items[int(name)], change, classes)
        return tuple(items)
    kind: type = type(base)
    made: Any = object.__new__(kind)
    fields = vars(base)
    for name, convert in field_converters(kind):
        value = fields[name]
        if name in tree:
            value = convert(_changed(value, tree[name], classes))
        object.__setattr__(made, name, value)
    return made


def _changed(value: Any, change: Any, classes: tuple[Any, ...]) -> Any:
    if isinstance(change, dict):
        return _rebuilt(value, change, classes)
    plain = change[0]
    return from_plain(plain, classes=classes) if isinstance(plain, (dict, list)) else plain


def apply_differences(base: Any, changes: dict[str, Any], classes: tuple[Any, ...] = ()) -> Any:
    """The recipe whose differences from the base these are."""
    if not changes:
        return base
    if _WHOLE in changes:
        return from_plain(changes[_WHOLE], classes=classes)
    return _rebuilt(base, _nested(changes), classes)


_PLAIN = (float, int, str, bool)
_FIELDS = tuple(field.name for field in dataclasses.fields(Trial) if field.name not in {"recipe", "curve"})


def _number(value: Any) -> Any:
    """A number that JSON can hold; NumPy's become Python's, infinities and not-a-number null."""
    if type(value) is not float and hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_trial(trial: Trial, base: Any) -> str:
    """A trial as one line of JSON: `trial_to_plain`, its recipe as differences from the base."""
    plain = {name: _number(getattr(trial, name)) for name in _FIELDS}
    plain["values"] = {
        path: value if type(value) in _PLAIN else to_plain(value) for path, value in trial.values.items()
    }
    plain["curve"] = {name: [_number(x) for x in column] for name, column in trial.curve.items()}
    plain["recipe"] = dict(recipe_differences(base, trial.recipe))
    return json.dumps(plain, separators=(",", ":"), allow_nan=False)


def read_trial(line: str, base: Any, classes: tuple[Any, ...] = ()) -> Trial:
    """The trial that `write_trial` wrote; classes from outside gradwise are passed in."""
    try:
        plain = json.loads(line)
        recipe = apply_differences(base, plain.pop("recipe"), classes)
        values = {path: from_plain(value, classes=classes) for path, value in plain.pop("values").items()}
        trial = trial_from_plain({**plain, "values": values, "recipe": None})
    except RequestError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as problem:
        raise RequestError(f"a trial was not written by gradwise ({type(problem).__name__}: {problem}).") from None
    trial.__dict__["recipe"] = recipe  # a frozen record, filled before anyone has seen it
    return trial
