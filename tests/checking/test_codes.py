"""Every code has a page and a row that has words; every page belongs to a code."""

import re
from pathlib import Path

import pytest

from gradwise.checking import codes
from gradwise.checking.codes import CODES, found, page, reported_codes
from gradwise.records.finding import LEVELS
from gradwise.runtime.errors import RequestError
from gradwise.specs.chapter_rows import ROWS

PAGES = Path(codes.__file__).parent / "pages"


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page_that_says_what_to_do(code: str) -> None:
    text = page(code)
    assert text.startswith(f"# {code}: {CODES[code].title}\n")
    for heading in ("What it means", "How it is measured", "What to do", "When it is a false alarm"):
        assert f"\n## {heading}\n" in text
    assert re.search(rf"Chapter: rows? .*\b{CODES[code].row}\b", text.strip().splitlines()[-1])
    assert CODES[code].row in ROWS
    assert CODES[code].level in LEVELS


def test_every_page_belongs_to_a_code() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(CODES)


def test_a_finding_takes_row_and_level_from_its_code() -> None:
    finding = found("GW101", "the sign is wrong.", where="layers.0.weight", next="turn it.", ratio=-1.0)
    assert (finding.level, finding.row, finding.code) == ("error", "F1", "GW101")
    assert finding.evidence == {"ratio": -1.0}
    assert found("GW101", "perhaps.", level="note").level == "note"


def test_an_unknown_code_is_refused_with_the_nearest() -> None:
    assert page("gw101").startswith("# GW101")
    with pytest.raises(RequestError, match=r"unknown finding 'GW1011'\. Did you mean 'GW101'\?"):
        page("GW1011")


def test_every_code_used_in_the_house_is_known() -> None:
    house = Path(codes.__file__).parents[1]
    used = {code for path in house.rglob("*.py") for code in re.findall(r"GW\d{3}", path.read_text())}
    assert used <= set(CODES)


def test_findings_are_selected_and_ignored_by_code_or_beginning() -> None:
    assert reported_codes() == {"", *CODES}
    assert reported_codes("gw9") == {"GW901", "GW902", "GW903"}
    assert reported_codes(["GW9, GW101"], ["GW902"]) == {"GW901", "GW903", "GW101"}
    assert {"", *CODES} - reported_codes(ignore="GW2,GW304") == {c for c in CODES if c[:3] == "GW2"} | {"GW304"}
    for words in ({"select": "GW99"}, {"ignore": ["GW2", "GW99"]}):
        with pytest.raises(RequestError, match=r"unknown finding 'GW99'\. Did you mean 'GW90\d'\?"):
            reported_codes(**words)
