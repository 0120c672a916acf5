"""A page as one self-contained HTML file: no network, no fonts, no script but the page's own.

The HTML is in `templates/`. Everything that a template prints is cleaned and escaped by the environment here, so text
from the user's data stays text. The content-security policy ensures that the browser would not run anything that
slipped through: a script runs only if its hash is in the policy.
"""

import base64
import hashlib
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from . import wording
from .blocks import Block, Cell, CodeLines, Figure, HeadingRow, Items, Notice, Page, Table
from .plots.style import COLOURS
from .svg import picture

_TEMPLATES = Path(__file__).parent / "templates"


def _clean(value: Any) -> Any:
    return value if isinstance(value, Markup) else wording.clean(value)


def _prose(text: str) -> Markup:
    """Escaped text in which `words in backticks` are code; a short piece of code stays on one line."""
    escaped = re.sub(r"`([^`]{1,30})`", r'<code class="short">\1</code>', str(escape(_clean(text))))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


def _drawing(figure: Figure) -> Markup:
    """What is inside the figure's `svg` element."""
    return Markup(re.sub(r"^<svg[^>]*>|</svg>\s*$", "", picture(figure)))


def _side_by_side(members: Iterable[Block]) -> list[tuple[str | None, list[Block]]]:
    """Blocks in order; figures, and tables, that follow one another stand side by side where there is room."""
    places = {Figure: "grid", Table: "tables"}
    return [(places.get(kind), list(group)) for kind, group in itertools.groupby(members, key=type)]


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    finalize=_clean,
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"prose": _prose, "drawing": _drawing, "side_by_side": _side_by_side}
_ENVIRONMENT.tests["a"] = isinstance
_ENVIRONMENT.globals |= {kind.__name__: kind for kind in (Cell, CodeLines, Figure, HeadingRow, Items, Notice, Table)}


def render(page: Page) -> str:
    """The page as HTML text."""
    script = (_TEMPLATES / page.script).read_text(encoding="utf-8") if page.script else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _ENVIRONMENT.get_template("page.html").render(page=page, script=Markup(script), digest=digest)


def render_card(lines: Iterable[str], figure: Figure | None) -> str:
    """A few lines and a picture, for a notebook, which has no style sheet of ours."""
    colours = ";".join(f"--{role}:{colour}" for role, colour in COLOURS.items())
    return _ENVIRONMENT.get_template("card.html").render(lines=lines, figure=figure, colours=colours)
