"""The page of a check: order, verdict, findings; what is left out without evidence; from a folder too."""

import dataclasses
import math
import re

import pytest

from gradwise.records.check import write_checked
from gradwise.records.evidence.check_evidence import (
    CheckedEvidence,
    ChoicesEvidence,
    DataEvidence,
    FlowEvidence,
    GradientEvidence,
    GrowthEvidence,
    OverfitEvidence,
    StartEvidence,
    TrainingEvidence,
)
from gradwise.records.evidence.verdict import Judgement, RunNumbers
from gradwise.records.finding import Finding
from gradwise.reporting.pages.check_page import check_page
from gradwise.reporting.pages.provenance import finding_notice
from gradwise.reporting.report import read_record, report, verdict, write_report
from tests.marks import parametrize_one_quick
from tests.reporting.made_up import checked, graph, growth


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<body>") :]))


def bare(record, **changes):
    return dataclasses.replace(
        record, **{"findings": (), "remedies": (), "ran": (), "evidence": CheckedEvidence(), **changes}
    )


def test_the_verdict_comes_first_then_the_worst_finding():
    page = report(checked())
    text = text_of(page)
    places = [text.index(words) for words in ("Something is broken", "Error.", "Warning.", "Note.", "Checks run")]
    assert places == sorted(places)
    assert "The gradient of layers.1.weight has the wrong sign, and nothing else" in text
    assert "1 error, 1 warning, 1 note." in text
    assert "2 checks in 12.5 s." in text
    assert "GW101" in text
    assert "gradwise explain GW101" in text


def test_a_finding_tells_where_and_what_next():
    (notice,) = (finding_notice(f) for f in checked().coded("GW101"))
    assert (notice.level, notice.next) == ("error", "mend the derivative of `odd`.")
    assert "Where: `layers.1.weight, model.py:12 in odd`." in notice.what
    assert notice.source.startswith("GW101, F1")
    said = finding_notice(Finding("note", "84 % are in `layers.0`.", where="layers.0"))
    assert said.what == "84 % are in `layers.0`."  # it is said already


def test_every_area_has_its_section_and_only_with_evidence():
    every = [section.name for section in check_page(checked()).sections]
    assert every == [
        *("findings", "remedies", "ran", "gradient", "learning", "rates", "flow", "data", "choices", "graph", "repeat"),
    ]
    empty = check_page(bare(checked()))
    assert [section.name for section in empty.sections] == ["findings", "repeat"]
    assert "No findings." in text_of(report(bare(checked())))
    one = check_page(bare(checked(), evidence=CheckedEvidence(growth=growth())))
    assert [section.name for section in one.sections] == ["findings", "learning", "repeat"]


def test_names_of_figures_are_unique():
    names = [b.name for s in check_page(checked()).sections for b in s.blocks if hasattr(b, "draw")]
    assert len(names) == len(set(names)) >= 16


def test_a_short_verdict_is_the_headline():
    said = verdict(bare(checked(), verdict="nothing stands out: 2 checks passed."))
    assert said.headline == "Nothing stands out: 2 checks passed."
    assert said.interval == "Nothing found."


def test_why_a_check_was_not_run_is_told():
    assert "not run 0.0 s no mask" in text_of(report(checked())).replace("\u202f", " ")


@pytest.mark.slow
def test_a_folder_with_a_check_is_read_and_reported(tmp_path):
    write_checked(checked(), tmp_path)
    assert read_record(tmp_path).summary() == checked().summary()
    path = write_report(tmp_path)
    assert path.read_text() == report(checked()) == report(tmp_path)


def test_areas_that_measured_nothing_have_no_section():
    nothing = CheckedEvidence(
        gradient=GradientEvidence(),
        start=StartEvidence(()),
        overfit=OverfitEvidence(0, False, (), (), ()),
        growth=GrowthEvidence((), (), (), (), ()),
        flow=FlowEvidence(),
        data=DataEvidence(),
        choices=ChoicesEvidence(),
        graph=dataclasses.replace(graph(), boxes=()),
        training=TrainingEvidence(RunNumbers(math.nan, math.nan), (), (), (), ""),
        verdict=Judgement("", "fine"),
    )
    page = check_page(bare(checked(), evidence=nothing))
    assert [section.name for section in page.sections] == ["findings", "repeat"]


def test_hostile_text_is_shown_not_run():
    bad = "<img src=x onerror=alert(1)>`$\\frac{1}{"
    finding = Finding("error", bad, bad, bad, bad, bad)
    page = report(dataclasses.replace(checked(), subject=bad, verdict=bad, findings=(finding,), remedies=(bad,)))
    assert "<img" not in page


@parametrize_one_quick("width", [400, 1100])
def test_nothing_sticks_out_of_the_page(browser, width):
    look = "[w.document.documentElement.scrollWidth, w.document.documentElement.clientWidth]"
    ((wide, room),) = browser.measure([(report(checked()), width)], look)
    assert wide <= room + 1
