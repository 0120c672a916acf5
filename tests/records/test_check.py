"""The record of a check goes to disk and back, findings worst first."""

import math
from pathlib import Path

import pytest

from gradwise.records.check import Checked, Ran, read_checked, write_checked
from gradwise.records.evidence.check_evidence import CheckedEvidence, StartEvidence
from gradwise.records.finding import Finding
from gradwise.runtime.errors import RequestError


def _record() -> Checked:
    return Checked(
        subject="digits",
        verdict="one thing is wrong.",
        findings=(
            Finding("note", "a thing.", code="GW805"),
            Finding("error", "the sign.", code="GW101", where="layers.0.weight", evidence={"ratio": -1.0}),
        ),
        remedies=("mend it.",),
        ran=(Ran("gradient", "found", 1.5), Ran("rates", "not run", 0.0, "no optimiser")),
        evidence=CheckedEvidence(start=StartEvidence((2.0, math.nan), math.inf)),
        seconds=2.0,
        seed=3,
        version="0",
        machine={"device": "cpu"},
    )


def test_findings_come_worst_first_and_an_error_fails_the_check() -> None:
    record = _record()
    assert [finding.code for finding in record.findings] == ["GW101", "GW805"]
    assert not record.passed
    assert record.coded("GW805")[0].level == "note"
    assert str(record).splitlines()[:2] == ["one thing is wrong.", "error GW101 [layers.0.weight]: the sign."]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_checked(_record(), tmp_path)
    again = read_checked(tmp_path)
    assert again.findings == _record().findings
    assert again.ran == _record().ran
    assert again.evidence == CheckedEvidence(start=StartEvidence((2.0, math.nan), math.inf))
    assert again.remedies == ("mend it.",)


def test_a_missing_or_damaged_record_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"is not the folder of a check: it has no check\.json"):
        read_checked(tmp_path)
    (tmp_path / "check.json").write_text("{")
    with pytest.raises(RequestError, match="is damaged"):
        read_checked(tmp_path)
