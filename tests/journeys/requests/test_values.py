"""How the values of options are read: from words and from TOML alike."""

import pytest

from gradwise.journeys.requests.values import (
    parse_pairs,
    paths_to,
    read_class_weight,
    read_names,
    read_seconds,
    read_seconds_or_zero,
    read_time_limit,
    whole_number,
)
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.budget import Budget


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5 min", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30min", 5400),
        ("1d", 86400),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_times_are_read_in_any_unit(text, seconds):
    assert read_seconds(text, "--max-time") == seconds
    assert read_time_limit(text, "--budget") == Budget(seconds=seconds)


@pytest.mark.parametrize("text", ["banana", "", "10 parsecs", "-5", "1h30", "min", "1,5h", "nan", "inf", "0"])
def test_other_times_are_refused(text):
    with pytest.raises(RequestError, match="--max-time"):
        read_seconds(text, "--max-time")


def test_no_time_between_checkpoints_is_a_time():
    assert read_seconds_or_zero("0", "--checkpoint") == 0
    assert read_seconds_or_zero("1min", "--checkpoint") == 60


def test_pairs_may_hold_commas_and_equals_signs():
    assert parse_pairs("a=1,b=5", "--x", "k=v") == {"a": "1", "b": "5"}
    assert parse_pairs("smith, john=1,doe, jane=2", "--x", "k=v") == {"smith, john": "1", "doe, jane": "2"}
    assert parse_pairs(["a=b=number"], "--x", "k=v") == {"a=b": "number"}
    assert parse_pairs({"a": 1}, "--x", "k=v") == {"a": "1"}


def test_class_weights():
    assert read_class_weight("balanced", "--class-weight") == "balanced"
    assert read_class_weight("a=1,b=5", "--class-weight") == {"a": 1.0, "b": 5.0}
    assert read_class_weight({"0": 2}, "--class-weight") == {"0": 2.0}


@pytest.mark.parametrize("text", ["heavy", "a=x", "a=-1", "a=nan", "a=inf", "=1"])
def test_other_class_weights_are_refused(text):
    with pytest.raises(RequestError, match="--class-weight"):
        read_class_weight(text, "--class-weight")


def test_a_range_is_a_path_and_a_text():
    read = paths_to("range", "a=log(1, 2)")
    assert read([" a.b = log(1e-3, 1) ", "c=d=e"], "--range") == {"a.b": "log(1e-3, 1)", "c": "d=e"}
    for words in ("a.b", "=log(1, 2)", "a.b="):
        with pytest.raises(RequestError, match="path=range"):
            read([words], "--range")


def test_names_may_stand_between_commas():
    assert read_names(["a, b", "c"], "--only") == ("a", "b", "c")
    assert read_names("a", "run.toml: only") == ("a",)


@pytest.mark.parametrize("value", ["x", "1.5", 1.5, True, "-1", "11", ""])
def test_a_whole_number_has_bounds(value):
    assert whole_number(0, 10)("10", "--seed") == 10
    with pytest.raises(RequestError, match=r"--seed .*: expected a whole number from 0 to 10\."):
        whole_number(0, 10)(value, "--seed")
