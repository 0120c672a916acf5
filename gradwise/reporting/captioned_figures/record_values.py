"""Numbers, arrays and rows read from the plain values of a record, whatever is missing there."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..plots.style import LETTER

Plain = Mapping[str, Any]
SHOWN = 24
ROW_HEIGHT = 25


def as_number(value: Any) -> float:
    """A number, or NaN for what is none."""
    usable = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if usable else math.nan


def array(values: Any) -> np.ndarray:
    """Numbers of any nesting; null is NaN. Empty for anything else."""
    if not isinstance(values, list | tuple | np.ndarray):
        return np.zeros(0)
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.zeros(0)


def some_rows(count: int, always: int | None = None, most: int = 60) -> list[int]:
    """Some of so many rows, evenly spread, including the first, the last and one that must be shown."""
    picked = {round(place) for place in np.linspace(0, count - 1, min(count, most))}
    return sorted(picked | ({always} if always is not None else set()))


def rows_of(plain: Any) -> list[Plain]:
    """The dictionaries in a list."""
    return [one for one in plain if isinstance(one, Mapping)] if isinstance(plain, list | tuple) else []


def part_of(plain: Plain, name: str) -> Plain:
    """The dictionary under a name; an empty one where there is none."""
    found = plain.get(name)
    return found if isinstance(found, Mapping) else {}


def tall_of(count: int) -> int:
    return 66 + ROW_HEIGHT * count


def left_of(names: Iterable[str]) -> int:
    return 22 + round(LETTER * max([min(26, len(name)) for name in names], default=4))
