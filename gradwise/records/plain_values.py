"""Records as JSON values, and back: the one writer and the one reader of frozen dataclasses.

    plain = to_values(record)                 dictionaries, lists, numbers, words
    assert from_values(Fit, plain) == record  by the annotations of the fields

NaN is written as null, an infinite number as "inf" or "-inf". A field that is empty by default (None, (), {}, "", a
record) and has this value is omitted, and so is a field that does not count for equality (`compare=False`). A recipe or
another part is written as `specs.serialisation` writes it.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from ..specs.serialisation import from_plain, to_plain

_NAMES: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_INFINITE = ("inf", "-inf")


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_omitted(field: "dataclasses.Field[Any]", value: Any) -> bool:
    empty = isinstance(value, (str, tuple, list, Mapping)) and not value
    if _is_required(field) or not (empty or value is None or dataclasses.is_dataclass(value)):
        return False
    return bool(value == (field.default if field.default_factory is dataclasses.MISSING else field.default_factory()))


def to_values(value: Any) -> Any:
    """A record, or anything that a field of one may hold, as JSON values."""
    if isinstance(value, eqx.Module):
        return to_plain(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare)
        return {field.name: to_values(x) for field, x in fields if not _is_omitted(field, x)}
    if isinstance(value, Mapping):
        return {str(key): to_values(item) for key, item in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return to_values(value.tolist())
    if isinstance(value, (list, tuple)):
        return [to_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON.")


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Of each field its annotation, and whether a file must have it."""
    hints = typing.get_type_hints(kind)
    return {field.name: (hints[field.name], _is_required(field)) for field in dataclasses.fields(kind) if field.compare}


def _number(kind: Any, value: Any) -> Any:
    if kind is float and (value is None or value in _INFINITE):
        return math.nan if value is None else float(value)
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"expected {_NAMES[kind]}, got {str(value)[:60]!r}")
    return kind(value)


def _any_of(kinds: tuple[Any, ...], value: Any, classes: tuple[Any, ...]) -> Any:
    """The value as the first of several types that it fits."""
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _read(kind, value, classes)
            except ValueError as problem:
                problems.append(str(problem))
    raise ValueError("; ".join(problems))


def _record(kind: Any, value: Any, classes: tuple[Any, ...]) -> Any:
    known = _fields(kind)
    if not isinstance(value, dict):
        raise ValueError(f"expected the fields of {kind.__name__}, got {str(value)[:60]!r}")
    missing = [name for name, (_, required) in known.items() if required and name not in value]
    odd = [name for name in value if name not in known]
    if missing or odd:
        raise ValueError(f"{kind.__name__} lacks {missing}" if missing else f"{kind.__name__} has no {odd}")
    return kind(**{name: _within(name, known[name][0], item, classes) for name, item in value.items()})


def _within(name: str, kind: Any, value: Any, classes: tuple[Any, ...]) -> Any:
    """A value within another; what is wrong with it is reported with its place."""
    try:
        return _read(kind, value, classes)
    except ValueError as problem:
        text = str(problem)
        joint = "." if text.startswith("`") else "`: "
        raise ValueError(f"`{name}{joint}{text.removeprefix('`')}") from None


def _read(kind: Any, value: Any, classes: tuple[Any, ...]) -> Any:
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _any_of(given, value, classes)
    if origin in (tuple, list, Sequence):
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {str(value)[:60]!r}")
        repeated = origin is not tuple or given[1:] == (Ellipsis,)
        if not repeated and len(given) != len(value):
            raise ValueError(f"expected {len(given)} values, got {len(value)}")
        kinds = given[:1] * len(value) if repeated else given
        items = (_within(str(i), one, item, classes) for i, (one, item) in enumerate(zip(kinds, value, strict=True)))
        return list(items) if origin is list else tuple(items)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise ValueError(f"expected names and values, got {str(value)[:60]!r}")
        return {given[0](name): _within(name, given[1], item, classes) for name, item in value.items()}
    if kind in _NAMES:
        return _number(kind, value)
    if issubclass(kind, eqx.Module):
        part = from_plain(value, classes=classes)
        if not isinstance(part, kind):
            raise ValueError(f"expected a {kind.__name__}, got {type(part).__name__}")
        return part
    return _record(kind, value, classes)


Record = typing.TypeVar("Record")


def from_values(kind: type[Record], plain: Any, classes: tuple[Any, ...] = ()) -> Record:
    """The record of this class that `to_values` wrote; raises a ValueError that says where the values do not fit.

    `classes` are the user's own parts that recipes in it name.
    """
    record: Record = _read(kind, plain, classes)
    return record
