"""HTML: structure that a screen reader can follow, and text that stays text."""

from html.parser import HTMLParser

import pytest

from gradwise.reporting.blocks import (
    Cell,
    CodeLines,
    Figure,
    HeadingRow,
    Items,
    Notice,
    Page,
    Prose,
    Section,
    Table,
    Verdict,
)
from gradwise.reporting.html import render

VOID = {"meta", "br", "img", "link"}
HOSTILE = "</td></table></style><script>x</script><img src=x onerror=y> & \" ' `<b>`"


class Tree(HTMLParser):
    """Checks that tags are balanced, and collects elements and their text."""

    def __init__(self, text: str):
        HTMLParser.__init__(self)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def content_policy(text: str) -> str | None:
    (found,) = (a["content"] for _, a in Tree(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    return found


def page(*blocks, **changes) -> Page:
    given = {
        "title": "title",
        "name": "name",
        "about": "about",
        "verdict": Verdict("Test error 2 %", "interval", "story"),
        "notices": (),
        "sections": (Section("one", "One", blocks),),
        "footer": "footer",
    }
    return Page(**{**given, **changes})


def everything(text: str) -> Page:
    table = Table(text, (text, text), ((text, Cell(text, strong=True)), HeadingRow(text, text)), (1,), note=text)
    return page(
        Figure("f", text, text, lambda ax: None, table),
        table,
        Table(text, (text,), ((Cell(text, code=True),),), folded=True),
        Prose(text),
        Items((text, text)),
        CodeLines(text, text),
        Notice("error", text, text, text),
        title=text,
        name=text,
        about=text,
        verdict=Verdict(text, text, text),
        notices=(Notice(text, text, text, text),),
        footer=text,
    )


def test_every_kind_of_block_escapes_text_from_outside():
    innocent, hostile = Tree(render(everything("innocent"))), Tree(render(everything(HOSTILE)))
    tags = [tag for tag, _ in hostile.elements if tag != "code"]  # backticks make code, whoever writes them
    plain = [tag for tag, _ in innocent.elements if tag != "code"]
    spans = tags.count("span") - plain.count("span")  # long text in a cell may be broken
    assert [tag for tag in tags if tag != "span"] == [tag for tag in plain if tag != "span"]
    assert spans >= 0
    assert not {"script", "img", "b"} & set(tags) - {"b"}
    assert not any(name.startswith("on") for _, attributes in hostile.elements for name in attributes)


def test_nothing_is_fetched_and_nothing_runs():
    text = render(everything("text"))
    tree = Tree(text)
    assert content_policy(text) == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in tree.elements}
    references = [
        value for _, attributes in tree.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(value is not None and value.startswith("#") for value in references)
    assert "url(http" not in text
    assert "@import" not in text


def test_a_figure_is_named_described_and_has_its_numbers():
    tree = Tree(render(page(Figure("f", "Title", "Words", lambda ax: None, Table("Numbers", ("x",), (("1",),))))))
    drawing = next(attributes for tag, attributes in tree.elements if tag == "svg")
    ids = {attributes.get("id") for _, attributes in tree.elements}
    assert drawing["role"] == "img"
    assert {drawing["aria-labelledby"], drawing["aria-describedby"]} <= ids
    assert [tag for tag, _ in tree.elements].index("details") > [tag for tag, _ in tree.elements].index("svg")
    assert "Words" in tree.text


def test_tables_have_headers_and_scroll_in_their_own_box():
    tree = Tree(render(page(Table("Caption", ("a", "b"), (("1", "2"), HeadingRow("g")), numbers=(1,)))))
    scopes = [attributes.get("scope") for tag, attributes in tree.elements if tag == "th"]
    assert scopes == ["col", "col", "row", None]
    box = next(attributes for _, attributes in tree.elements if attributes.get("class") == "box")
    assert (box["role"], box["tabindex"], box["aria-label"]) == ("region", "0", "Caption")


def test_figures_in_a_row_share_a_grid():
    drawn = [Figure(name, name, name, lambda ax: None, Table("", (), ())) for name in "abc"]
    classes = [
        attributes.get("class") for _, attributes in Tree(render(page(*drawn[:2], Prose("x"), drawn[2]))).elements
    ]
    assert classes.count("grid") == 2


def test_backticks_become_code_and_code_is_copied_as_it_stands():
    tree = Tree(render(page(Prose("use `--set a=1` now"), CodeLines("shell", "a  <b>\n  c"))))
    assert "--set a=1" in tree.text
    assert "a  <b>\n  c" in tree.text


def test_one_heading_of_the_first_rank_and_a_language():
    tree = Tree(render(page(Prose("x"))))
    assert [tag for tag, _ in tree.elements].count("h1") == 1
    assert tree.elements[0] == ("html", {"lang": "en-GB"})


@pytest.mark.parametrize("level", ["error", "warning", "note", "strange"])
def test_a_notice_says_its_level_in_words(level):
    tree = Tree(render(page(Notice(level, "what", "next"))))
    assert {"error": "Error.", "warning": "Warning."}.get(level, "Note.") in tree.text


def test_a_table_that_goes_on_beyond_its_box_shows_it(browser):
    """On a desk: a bar that stays, and a shadow at the edge; neither is there for a table that fits."""
    tables = [Table("Caption", tuple(f"column {k}" for k in range(count)), (("value",) * count,)) for count in (3, 40)]
    look = (
        "(() => { const b = w.document.querySelector('.box'), of = w.getComputedStyle(b);"
        "return [b.scrollWidth > b.clientWidth, b.offsetHeight - b.clientHeight, of.backgroundAttachment]; })()"
    )
    (fits, bar, shadow), (goes_on, bar_beyond, _) = browser.measure([(render(page(one)), 1280) for one in tables], look)
    assert (fits, bar) == (False, 0)
    assert goes_on
    assert bar_beyond > 4
    assert shadow == "local, local, scroll, scroll"
