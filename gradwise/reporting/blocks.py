"""The elements of a page: figures, tables, sentences. Plain text and numbers only; `html.py` formats them.

    Figure("error", "Error", "Validation error falls to 2.1 %.", partial(draw.learning_curves, curves), table)

Nothing here contains HTML, so text from the user's data (names of columns and classes) is escaped in one place: the
page.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cell:
    """A formatted cell of a table: `strong` highlights its row, `code` is something to type."""

    text: str
    strong: bool = False
    code: bool = False


@dataclasses.dataclass(frozen=True)
class HeadingRow:
    """A row of a table that is a heading for the rows under it."""

    text: str
    detail: str = ""


Row = tuple[str | Cell, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a header. `numbers` marks columns of numbers, which are right-aligned.

    A `folded` table is collapsed at first; a `wordy` one contains sentences, which may wrap.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[Row | HeadingRow, ...]
    numbers: tuple[int, ...] = ()
    note: str = ""
    folded: bool = False
    wordy: bool = False


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture, its description, and the numbers behind it.

    `draw` takes a matplotlib axes. `width` and `height` are its natural size in CSS pixels; `margins` (left, bottom,
    right, top) is the room around the axes. A figure that is `wide` takes the whole width of the page.
    """

    name: str
    title: str
    description: str
    draw: Callable[[Any], Any]
    table: Table
    width: int = 400
    height: int = 264
    margins: tuple[int, int, int, int] = (54, 40, 12, 26)
    wide: bool = False


@dataclasses.dataclass(frozen=True)
class Prose:
    """A paragraph; `words in backticks` are set as code."""

    text: str


@dataclasses.dataclass(frozen=True)
class Items:
    """Short remarks, one below the other."""

    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CodeLines:
    """Lines to copy."""

    caption: str
    text: str


@dataclasses.dataclass(frozen=True)
class Notice:
    """A message for the reader, by level: "note", "warning" or "error"."""

    level: str
    what: str
    next: str = ""
    source: str = ""


Block = Figure | Table | Prose | Items | CodeLines | Notice


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""  # its name in the list at the top, where the title is long


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The headline: the result, in large type, and how it was obtained."""

    headline: str
    interval: str
    story: str


@dataclasses.dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    name: str
    about: str
    verdict: Verdict
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    footer: str
    script: str = ""  # a file of `templates/` that runs in the page
