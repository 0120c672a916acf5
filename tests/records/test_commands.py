"""Commands with other options: shell lines stay shell lines, calls stay calls that Python can read."""

import ast

import pytest

from gradwise.records.commands import as_check, as_search, by_recipe, with_options


def test_knobs_of_a_part_are_left_out() -> None:
    shell = "gradwise fit iris --set model.widths=8 --set optimiser=Sgd --set model=Mlp"
    wanted = "gradwise fit iris --set optimiser=Sgd --pretrain rbm:8"
    assert with_options(shell, "--pretrain rbm:8", without="model") == wanted
    call = 'gw.fit(data, set={"model.widths": 8})'
    assert with_options(call, "--pretrain rbm:8", without="model") == 'gw.fit(data, pretrain="rbm:8")'


@pytest.mark.parametrize(
    ("command", "options", "wanted"),
    [
        ("gradwise fit iris", ("--set model.dropout=0.3",), "gradwise fit iris --set model.dropout=0.3"),
        (
            "gradwise fit 'my data.csv' --set a.b=1 --set c=2",
            ("--set a.b=0.5", "--folds 10"),
            "gradwise fit 'my data.csv' --set c=2 --set a.b=0.5 --folds 10",
        ),
        (
            "gradwise search iris --range 'a.b=log(1, 2)'",
            ("--range 'a.b=log(1, 3)'",),
            "gradwise search iris --range 'a.b=log(1, 3)'",
        ),
        ("gw.fit(data)", ("--folds 10",), "gw.fit(data, folds=10)"),
        ("gw.fit(data, y, folds=5)", ("--folds 10",), "gw.fit(data, y, folds=10)"),
        (
            'gw.fit(data, target="y", set={"a.b": 1, "c": 2})',
            ("--set a.b=0.5", "--set model.widths=64,64", "--class-weight balanced"),
            'gw.fit(data, target="y", set={"a.b": 0.5, "c": 2, "model.widths": "64,64"}, class_weight="balanced")',
        ),
        (
            'gw.search(data, range={"a": "log(1, 2)"})',
            ("--range 'b.c=log(1e-4, 0.1)'", "--budget 10min"),
            'gw.search(data, range={"a": "log(1, 2)", "b.c": "log(1e-4, 0.1)"}, budget="10min")',
        ),
        ("gw.fit(data, model=...)", ("--unsupervised",), "gw.fit(data, model=..., unsupervised=True)"),
    ],
)
def test_options_are_added(command: str, options: tuple[str, ...], wanted: str) -> None:
    found = with_options(command, *options)
    assert found == wanted
    if found.startswith("gw."):
        ast.parse(found)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("gradwise fit iris --metric auc --drop id --folds 5", "gradwise check iris --drop id"),
        (
            "gradwise search iris --budget '6 trials' --strategy random --no-nested --range 'a=log(1, 2)' --set b=1",
            "gradwise check iris --set b=1",
        ),
        (
            "gradwise fit 'my data.csv' --target y --set a=1 --unsupervised",
            "gradwise check 'my data.csv' --target y --set a=1",
        ),
        ('gw.fit(data, target="y", metric="auc", model=...)', 'gw.check(data, target="y", model=...)'),
    ],
)
def test_a_check_keeps_the_data_and_the_recipe(command: str, wanted: str) -> None:
    assert as_check(command) == wanted


def test_a_search_leaves_out_what_only_a_training_takes() -> None:
    assert (
        as_search("gradwise fit iris --folds 5 --no-examples --set a=1 --max-time 9s")
        == "gradwise search iris --set a=1"
    )
    assert as_search('gw.fit(data, target="y", folds=5, no_examples=True)') == 'gw.search(data, target="y")'


def test_knobs_of_pretrained_layers_go_with_them():
    line = "gradwise fit iris --pretrain denoising:4 --set model.layers.0.stopping=Off --set stopping.epochs=2 --seed 3"
    assert as_check(line) == "gradwise check iris --set stopping.epochs=2 --seed 3"
    assert as_search(line) == "gradwise search iris --set stopping.epochs=2 --seed 3"
    call = 'gw.fit("iris", pretrain="denoising:4", set={"model.mlp.dropout": 0.1, "stopping.epochs": 2}, seed=3)'
    assert as_search(call) == 'gw.search("iris", set={"stopping.epochs": 2}, seed=3)'
    assert as_check('gw.fit(data, pretrain="rbm:4", set={"layers.stopping": "Off"})') == "gw.check(data)"


SHELL = "gradwise fit 'my houses.csv' --target price --kind zip=category --seed 7 --set model.dropout=0.3"
CALL = 'gw.fit(data, targets, seed=7, optimiser=..., set={"model.dropout": 0.3})'


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (SHELL, 'gw.fit("my houses.csv", target="price", seed=7, kind={"zip": "category"}, recipe=recipe)'),
        (
            "gradwise fit x.csv --drop a --drop b --unsupervised --no-baselines",
            'gw.fit("x.csv", drop=["a", "b"], unsupervised=True, no_baselines=True, recipe=recipe)',
        ),
        (CALL, "gw.fit(data, targets, seed=7, recipe=recipe)"),
        ("gradwise search digits --seed 1", "gw.fit(data, seed=3, recipe=recipe)"),
        ("gradwise fit 'unclosed", "gw.fit(data, seed=3, recipe=recipe)"),
        ("gradwise fit a --seed", "gw.fit(data, seed=3, recipe=recipe)"),
        ("gradwise fit a b=c d", "gw.fit(data, seed=3, recipe=recipe)"),
        ("", "gw.fit(data, seed=3, recipe=recipe)"),
    ],
)
def test_a_recipe_holds_the_knobs_and_parts(command: str, call: str) -> None:
    assert by_recipe(command, seed=3) == call
