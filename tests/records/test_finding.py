"""Findings are plain values, so that they go into JSON and back."""

import dataclasses

import pytest

from gradwise.records.finding import Finding, worst_first


def test_a_finding_survives_being_written() -> None:
    finding = Finding("warning", "the best model is the last one.", row="C6", next="give it more time.")
    assert Finding(**dataclasses.asdict(finding)) == finding


def test_row_and_next_step_may_be_left_out() -> None:
    assert Finding("note", "something.") == Finding("note", "something.", "", "")


def test_the_worst_come_first_and_keep_their_order() -> None:
    given = [Finding("note", "a."), Finding("error", "b."), Finding("warning", "c."), Finding("error", "d.")]
    assert [finding.what for finding in worst_first(given)] == ["b.", "d.", "c.", "a."]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown level 'fatal' of a finding; choose from error, warning, note"):
        Finding("fatal", "something.")
