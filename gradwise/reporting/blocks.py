"""What a page is made of: figures, tables, sentences. Plain text and numbers only; how they look is `html.py`'s affair.

    Figure("error", "Error", "Validation error falls to 2.1 %.", partial(draw.learning_curves, curves), table)

Nothing here holds HTML, so text from outside (names of columns and classes) has one place where it is made safe:
the page.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table that is more than text: `strong` sets its row off from the others, `code` is to be typed."""

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
    """Rows under a header. `numbers` says which columns hold numbers, to be set right.

    A `folded` table is hidden at first; a `wordy` one holds sentences, which may run over several lines.
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
    """A picture, the words for those who cannot see it, and the numbers behind it.

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
    """Something the reader should know, by level: "note", "warning" or "error"."""

    level: str
    what: str
    next: str = ""
    source: str = ""


Block = Figure | Table | Prose | Items | CodeLines | Notice


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page under one heading."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""  # its name in the list at the top, where the title is long


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The first line: what was reached, in large type, and how."""

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
