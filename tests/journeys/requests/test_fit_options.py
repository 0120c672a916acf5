import shlex

import pytest

from gradwise.journeys.requests.fit_options import (
    FitOptions,
    merge_options,
    parse_class_weight,
    parse_pairs,
    parse_seconds,
    read_config,
)
from gradwise.runtime.errors import RequestError


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
    assert parse_seconds(text, "--max-time") == seconds


@pytest.mark.parametrize("text", ["banana", "", "10 parsecs", "-5", "1h30", "min", "1,5h", "nan", "inf", "0"])
def test_other_times_are_refused(text):
    with pytest.raises(RequestError, match="--max-time"):
        parse_seconds(text, "--max-time")


def test_pairs_may_hold_commas_and_equals_signs():
    assert parse_pairs("a=1,b=5", "--x", "k=v") == {"a": "1", "b": "5"}
    assert parse_pairs("smith, john=1,doe, jane=2", "--x", "k=v") == {"smith, john": "1", "doe, jane": "2"}
    assert parse_pairs(["a=b=number"], "--x", "k=v") == {"a=b": "number"}
    assert parse_pairs({"a": 1}, "--x", "k=v") == {"a": "1"}


def test_class_weights():
    assert parse_class_weight("balanced", "--class-weight") == "balanced"
    assert parse_class_weight("a=1,b=5", "--class-weight") == {"a": 1.0, "b": 5.0}
    assert parse_class_weight({"0": 2}, "--class-weight") == {"0": 2.0}


@pytest.mark.parametrize("text", ["heavy", "a=x", "a=-1", "a=nan", "a=inf", "=1"])
def test_other_class_weights_are_refused(text):
    with pytest.raises(RequestError, match="--class-weight"):
        parse_class_weight(text, "--class-weight")


def test_the_command_line_wins_over_the_file():
    table = {"target": "y", "seed": 3, "drop": ["id", "name"], "max-time": "1min", "json": True}
    options = merge_options({"data": "a.csv", "target": ["z"], "seed": None, "json": False}, table, "run.toml")
    assert options.target == ("z",)
    assert options.seed == 3
    assert options.drop == ("id", "name")
    assert options.max_time == 60
    assert options.json is True


def test_the_file_may_name_the_data_too():
    assert merge_options({"data": None}, {"data": "a.csv"}, "run.toml").data == "a.csv"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sead": 1}, "Did you mean 'seed'"),
        ({"seed": 1.5}, "seed 1.5: expected a whole number"),
        ({"seed": True}, "expected a whole number"),
        ({"seed": -1}, "expected a whole number from 0"),
        ({"target": 3}, "target 3: expected text"),
        ({"json": "yes"}, "expected true or false"),
        ({"folds": 1}, "from 2"),
        ({"on": "abacus"}, "unknown device"),
        ({"kind": "zip"}, "expected column=category"),
        ({"resume": True, "overwrite": True, "out": "x"}, "--resume and --overwrite exclude each other"),
    ],
)
def test_mistakes_in_the_file_are_named(table, words):
    with pytest.raises(RequestError) as caught:
        merge_options({"data": "a.csv"}, table, "run.toml")
    assert words in str(caught.value)


def test_a_config_file_has_options_and_parts(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[fit]\ntarget = "y"\nkind = {zip = "category"}\n[optimiser]\nlearning_rate = 0.03\n')
    table, parts = read_config(str(file))
    assert table == {"target": "y", "kind": {"zip": "category"}}
    assert parts == {"optimiser": {"learning_rate": 0.03}}
    assert merge_options({"data": "-"}, table, "run.toml").kind == {"zip": "category"}


def test_the_command_repeats_the_request():
    options = FitOptions(
        data="my data.csv",
        target=("y", "z"),
        kind={"zip": "category"},
        class_weight={"a": 1.0, "b": 5.0},
        folds=3,
        seed=7,
        out="somewhere",
        max_time=60.0,
        json=True,
    )
    line = options.command(("model.widths=8",))
    assert shlex.split(line) == [
        *("gradwise", "fit", "my data.csv", "--target", "y", "--target", "z", "--kind", "zip=category"),
        *("--class-weight", "a=1.0,b=5.0", "--folds", "3", "--seed", "7", "--set", "model.widths=8"),
    ]


@pytest.mark.parametrize(
    ("data", "name"),
    [("-", "stdin"), ("a/b/houses.csv.gz", "houses"), ("iris", "iris"), ("a b.csv", "a-b"), (".csv", "data")],
)
def test_a_run_is_named_after_its_data(data, name):
    assert FitOptions(data=data).name_of_data == name
