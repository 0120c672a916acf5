"""Which rows of a long table are shown, and the sizes of figures that have a line for each name."""

from collections.abc import Iterable

import numpy as np

from ..plots.style import LETTER

SHOWN = 24
ROW_HEIGHT = 25


def some_rows(count: int, always: int | None = None, most: int = 60) -> list[int]:
    """Some of so many rows, evenly spread, including the first, the last and one that must be shown."""
    picked = {round(place) for place in np.linspace(0, count - 1, min(count, most))}
    return sorted(picked | ({always} if always is not None else set()))


def tall_of(count: int) -> int:
    return 66 + ROW_HEIGHT * count


def left_of(names: Iterable[str]) -> int:
    return 22 + round(LETTER * max([min(26, len(name)) for name in names], default=4))
