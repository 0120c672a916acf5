"""Durations in any unit; what is not a duration is not guessed at."""

import pytest

from gradwise.runtime.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5 min", 90), ("10M", 600), ("2h", 7200), ("1h 30min", 5400), ("1d", 86400), ("0s", 0)],
)
def test_durations_have_units(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "-5s", "1,5h", "1h30", "min", "10 parsecs", "nan", "inf", "1e3s"])
def test_other_texts_are_no_durations(text):
    assert parse_duration(text) is None
