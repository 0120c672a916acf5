import shlex

import pytest

from gradwise.journeys.requests.training_requests import FitRequest, read_config
from gradwise.runtime.errors import RequestError


def test_the_command_line_wins_over_the_file():
    table = {"target": "y", "seed": 3, "drop": ["id", "name"], "max-time": "1min", "json": True}
    options = FitRequest(**FitRequest.read({"data": "a.csv", "target": ["z"]}, table, "run.toml"))
    assert options.target == ("z",)
    assert options.seed == 3
    assert options.drop == ("id", "name")
    assert options.max_time == 60
    assert options.json is True


def test_the_file_may_name_the_data_too():
    assert FitRequest.read({}, {"data": "a.csv"}, "run.toml") == {"data": "a.csv"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sead": 1}, "Did you mean 'seed'"),
        ({"set": ["a=1"]}, "unknown option `set` in [fit]"),
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
        FitRequest(**FitRequest.read({"data": "a.csv"}, table, "run.toml"))
    assert words in str(caught.value)


def test_a_config_file_has_options_and_parts(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[fit]\ntarget = "y"\nkind = {zip = "category"}\n[optimiser]\nlearning_rate = 0.03\n')
    table, parts = read_config(str(file))
    assert table == {"target": "y", "kind": {"zip": "category"}}
    assert parts == {"optimiser.learning_rate": 0.03}
    request = FitRequest.of({"data": "-", "config": str(file), "set": ["model.widths=8"]})
    assert (request.kind, request.recipe, request.set) == ({"zip": "category"}, parts, {"model.widths": "8"})


def test_the_command_repeats_the_request():
    options = FitRequest(
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
        *("--class-weight", "a=1.0,b=5.0", "--seed", "7", "--folds", "3", "--set", "model.widths=8"),
    ]


@pytest.mark.parametrize(
    ("data", "name"),
    [("-", "stdin"), ("a/b/houses.csv.gz", "houses"), ("iris", "iris"), ("a b.csv", "a-b"), (".csv", "data")],
)
def test_a_run_is_named_after_its_data(data, name):
    assert FitRequest(data=data).name_of_data == name
