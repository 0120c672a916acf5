"""Findings are plain values, so that they go into JSON and back."""

import dataclasses

from gradwise.core.finding import Finding


def test_a_finding_survives_being_written() -> None:
    finding = Finding("warning", "the best model is the last one.", row="C6", next="give it more time.")
    assert Finding(**dataclasses.asdict(finding)) == finding


def test_row_and_next_step_may_be_left_out() -> None:
    assert Finding("note", "something.") == Finding("note", "something.", "", "")
