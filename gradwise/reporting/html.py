"""A page as one self-contained HTML file: no network, no fonts, no script.

All text is escaped by `_text` or `_prose` here; no other module produces HTML. The
content-security policy ensures that the browser would not run anything that slipped through.
"""

import html
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import wording
from .blocks import Block, Cell, CodeLines, Figure, HeadingRow, Items, Notice, Page, Prose, Row, Section, Table
from .svg import picture

POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    'img-src data:">'
)
_BROAD = 480  # a picture naturally wider than this scrolls in its own box on a phone
_LONG = 28  # text longer than this may be broken inside a table


def _text(text: str) -> str:
    return html.escape(wording.clean(text), quote=True)


def _prose(text: str) -> str:
    """Escaped text in which `words in backticks` are code; a short piece of code stays on one line."""
    short = r'<code class="short">\1</code>'
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"`([^`]{1,30})`", short, _text(text)))


def _cell(content: str | Cell, *, number: bool, first: bool) -> str:
    cell = content if isinstance(content, Cell) else Cell(content)
    inner = _text(cell.text) if cell.code else _prose(cell.text)
    if cell.code:
        inner = f"<code>{inner}</code>"
    if cell.strong:
        inner = f"<strong>{inner}</strong>"
    if len(cell.text) > _LONG:
        inner = f'<span class="long">{inner}</span>'
    name = "th" if first else "td"
    scope = ' scope="row"' if first else ""
    kind = ' class="number"' if number else ""
    return f"<{name}{scope}{kind}>{inner}</{name}>"


def _row(row: Row | HeadingRow, table: Table) -> str:
    if isinstance(row, HeadingRow):
        detail = f" <span>{_prose(row.detail)}</span>" if row.detail else ""
        return f'<tr class="group"><th colspan="{len(table.header)}">{_prose(row.text)}{detail}</th></tr>'
    cells = (_cell(cell, number=i in table.numbers, first=i == 0) for i, cell in enumerate(row))
    changed = any(isinstance(cell, Cell) and cell.strong for cell in row)
    opening = '<tr class="changed">' if changed else "<tr>"
    return opening + "".join(cells) + "</tr>"


def _table(table: Table, *, caption: bool = True) -> str:
    kinds = [' class="number"' if i in table.numbers else "" for i in range(len(table.header))]
    head = "".join(f'<th scope="col"{kind}>{_text(name)}</th>' for kind, name in zip(kinds, table.header, strict=True))
    body = "".join(_row(row, table) for row in table.rows)
    title = f"<h3>{_text(table.caption)}</h3>" if caption else ""
    note = f'<p class="aside">{_prose(table.note)}</p>' if table.note else ""
    wordy = " wordy" if table.wordy else ""
    return (
        f'{title}<div class="box{wordy}" role="region" aria-label="{_text(table.caption)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _folded(table: Table, summary: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>{_table(table, caption=False)}</details>"


def _figure(figure: Figure) -> str:
    name = f"figure-{figure.name}"
    drawing = re.sub(
        r'^<svg[^>]*viewBox="([^"]*)"[^>]*>',
        rf'<svg viewBox="\1" role="img" aria-labelledby="{name}" aria-describedby="{name}-words">',
        picture(figure),
    )
    broad = " broad" if figure.width > _BROAD else ""
    place = "wide" if figure.wide else "half"
    return (
        f'<figure class="{place}"><h3 id="{name}">{_text(figure.title)}</h3>'
        f'<div class="picture{broad}" style="max-width:{figure.width * 1.3:.0f}px">{drawing}</div>'
        f'<figcaption id="{name}-words">{_prose(figure.description)}</figcaption>'
        f"{_folded(figure.table, figure.table.caption)}</figure>"
    )


def _notice(notice: Notice) -> str:
    level = {"error": "Error", "warning": "Warning"}.get(notice.level, "Note")
    what = notice.what[:1].upper() + notice.what[1:]
    after = f" <b>Next:</b> {_prose(notice.next)}" if notice.next else ""
    source = f' <span class="source">({_text(notice.source)})</span>' if notice.source else ""
    kind = notice.level if notice.level in ("error", "warning") else "note"
    return f'<p class="notice {kind}"><span class="level">{level}.</span> {_prose(what)}{after}{source}</p>'


def _block(block: Block) -> str:
    match block:
        case Figure():
            return _figure(block)
        case Table(folded=True):
            return f'<div class="table">{_folded(block, block.caption)}</div>'
        case Table():
            return f'<div class="table">{_table(block, caption=bool(block.caption))}</div>'
        case CodeLines():
            # A command keeps its characters: they are to be copied, so only HTML's own are escaped.
            code = html.escape(block.text)
            return f'<div class="code"><h3>{_text(block.caption)}</h3><pre><code>{code}</code></pre></div>'
        case Notice():
            return _notice(block)
        case Items():
            return '<ul class="items">' + "".join(f"<li>{_prose(text)}</li>" for text in block.texts) + "</ul>"
        case Prose():
            return f'<p class="prose">{_prose(block.text)}</p>'


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Blocks in order; figures, and tables, that follow one another stand side by side where there is room."""
    for kind, group in itertools.groupby(blocks, key=type):
        inner = "".join(map(_block, group))
        place = {Figure: "grid", Table: "tables"}.get(kind)
        yield f'<div class="{place}">{inner}</div>' if place else inner


def _section(section: Section) -> str:
    name = f"section-{section.name}"
    heading = f'<section id="{section.name}" aria-labelledby="{name}"><h2 id="{name}">{_text(section.title)}</h2>'
    return heading + "".join(_blocks(section.blocks)) + "</section>"


def render(page: Page) -> str:
    """The page as HTML text."""
    style = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
    verdict = page.verdict
    interval = f'<span class="interval">{_text(verdict.interval)}</span> ' if verdict.interval else ""
    links = "".join(
        f'<li><a href="#{section.name}">{_text(section.short or section.title)}</a></li>' for section in page.sections
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en-GB"><head><meta charset="utf-8">',
            POLICY,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(page.title)}</title>",
            f"<style>\n{style}</style></head><body>",
            f'<header><p class="subject"><b>{_text(page.name)}</b> · {_text(page.about)}</p>',
            f'<h1><span class="headline">{_text(verdict.headline)}</span> {interval}'
            f'<span class="story">{_text(verdict.story)}</span></h1>',
            *map(_notice, page.notices),
            f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>',
            "<main>" + "".join(map(_section, page.sections)) + "</main>",
            f"<footer><p>{_prose(page.footer)}</p></footer>",
            "</body></html>\n",
        ]
    )
