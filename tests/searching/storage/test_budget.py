"""Budgets: what is written is what is read."""

import pytest

from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.budget import Budget, parse_budget


@pytest.mark.parametrize(
    ("text", "budget", "again"),
    [
        ("10min", Budget(seconds=600.0), "10min"),
        ("60s", Budget(seconds=60.0), "1min"),
        ("2h", Budget(seconds=7200.0), "2h"),
        ("1h30min", Budget(seconds=5400.0), "90min"),
        ("0.5 s", Budget(seconds=0.5), "0.5s"),
        ("32 trials", Budget(trials=32), "32 trials"),
        ("1 trial", Budget(trials=1), "1 trial"),
        ("+50 trials", Budget(trials=50, more=True), "+50 trials"),
        ("+50trials", Budget(trials=50, more=True), "+50 trials"),
    ],
)
def test_budgets(text: str, budget: Budget, again: str) -> None:
    assert parse_budget(text) == budget
    assert str(budget) == again
    assert parse_budget(again) == budget


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("32", "Did you mean trials or seconds?"),
        ("ten minutes", "invalid budget 'ten minutes'. Give a time (60s, 10min"),
        ("0 trials", "at least 1 trial"),
        ("0s", "a time above 0"),
        ("-5min", "invalid budget '-5min'"),
        ("+5min", "invalid budget"),
        ("5 years", "invalid budget"),
        ("", "invalid budget"),
    ],
)
def test_wrong_budgets(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_budget(text)
    assert words in str(caught.value)
