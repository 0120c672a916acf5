"""How a run ended."""

import pytest

from gradwise.records.outcome import Outcome

NAMES = ("patience", "finished", "out_of_time", "interrupted", "stalled", "diverged")


@pytest.mark.parametrize("name", NAMES)
def test_an_outcome_says_why_and_when(name: str) -> None:
    text = str(Outcome(name, 12_345))
    assert "12,345 examples" in text
    assert "\n" not in text


def test_only_what_was_cut_short_is_resumable_and_only_divergence_fails() -> None:
    assert [name for name in NAMES if Outcome(name, 1).resumable] == ["out_of_time", "interrupted"]
    assert [name for name in NAMES if Outcome(name, 1).failed] == ["diverged"]


def test_an_unknown_ending_is_refused() -> None:
    with pytest.raises(ValueError, match="bored"):
        Outcome("bored", 1)
