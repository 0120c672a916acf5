"""What a finished run tells besides its numbers."""

import json
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.scaling import Automatic
from gradwise.data.splits import GivenParts
from gradwise.evaluation.run_findings import describe_data, find_in_run
from gradwise.models.activations import Sigmoid
from gradwise.models.mlp import Mlp
from gradwise.records.data_read import DataRead, SetSizes
from gradwise.records.outcome import Outcome
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.training.stopping import Off

X = np.random.default_rng(0).normal(size=(9, 3))
TRAIN = Dataset(X, np.arange(9) % 3, Classes(np.array(["a", "b", "c"])))
RECIPE = defaults.classification()


def _history(*best: bool) -> dict[str, list[Any]]:
    """Validations, each better than the one before where it is the best."""
    scores = [1.0 / (number + 1) if one else 1.0 for number, one in enumerate(best)]
    return {
        "age_examples": [10 * (number + 1) for number in range(len(best))],
        "best": list(best),
        "valid_score": scores,
    }


def test_a_quiet_run_tells_nothing() -> None:
    assert find_in_run(RECIPE, _history(True, False), Outcome("patience", 20), TRAIN) == ()


@pytest.mark.parametrize(
    ("name", "best", "told"),
    [
        ("finished", (True, True), True),
        ("out_of_time", (False, True), True),
        ("interrupted", (True,), True),
        ("finished", (True, False), False),
        ("patience", (True, True), False),
        ("diverged", (True, True), False),
        ("finished", (), False),
    ],
)
def test_a_run_cut_while_it_improved_says_so(name: str, best: tuple[bool, ...], told: bool) -> None:
    found = find_in_run(RECIPE, _history(*best), Outcome(name, 10 * len(best)), TRAIN)
    assert any("still improving" in finding.what for finding in found) == told
    off = find_in_run(defaults.classification(stopping=Off()), _history(*best), Outcome(name, 10), TRAIN)
    assert not any("still improving" in finding.what for finding in off)


def test_a_loss_that_falls_alone_is_no_improvement() -> None:
    history = {**_history(*[True] * 12), "valid_score": [0.5, *[0.0] * 11]}  # the loss breaks ties for the best
    assert find_in_run(RECIPE, history, Outcome("finished", 120), TRAIN) == ()


def test_divergence_is_an_error_with_a_next_step() -> None:
    (finding,) = find_in_run(RECIPE, _history(True, False), Outcome("diverged", 12_345), TRAIN)
    assert (finding.level, finding.row) == ("error", "C1")
    assert "12,345 examples" in finding.what
    assert "learning rate" in finding.next


def test_parts_have_their_say() -> None:
    recipe = defaults.classification(model=Mlp(widths=(4, 4), activation=Sigmoid()))
    found = find_in_run(recipe, _history(True, False), Outcome("patience", 20), TRAIN)
    assert [finding.row for finding in found] == ["D6"]


def test_classes_that_were_never_seen_are_named() -> None:
    part = TRAIN.take(np.flatnonzero(TRAIN.targets == 1))
    (finding,) = find_in_run(RECIPE, _history(True, False), Outcome("patience", 20), part)
    assert (finding.level, finding.row) == ("warning", "E2")
    assert "a, c" in finding.what


def test_the_data_is_described_column_by_column() -> None:
    inputs = np.array([[1.0, 0.0, 5.0], [np.nan, 1.0, 5.0], [3.0, 0.0, np.nan], [4.0, 1.0, 5.0]])
    columns = (Column("age"), Column("kind", "category", ("x", "y")), Column("same"))
    dataset = Dataset(inputs, np.zeros((4, 1)), Numbers(("price",)), columns, name="houses", notes=("a note",))
    recipe = defaults.regression(split=GivenParts(2, 1))
    told = describe_data(dataset, SetSizes(2, 1, 1), Automatic().fit(inputs, columns), recipe)
    assert [(one.name, one.missing, one.constant, one.categories) for one in told.columns] == [
        ("age", 1, False, 0),
        ("kind", 0, False, 2),
        ("same", 1, True, 0),
    ]
    assert (told.name, told.target, told.split, told.shape) == ("houses", ("price",), "GivenParts", (3,))
    assert (told.rows, told.notes, told.more) == (SetSizes(2, 1, 1), ("a note",), 0)
    assert from_values(DataRead, json.loads(json.dumps(to_values(told), allow_nan=False))) == told


def test_columns_beyond_two_hundred_are_counted() -> None:
    inputs = np.zeros((2, 250))
    columns = tuple(Column(f"c{number}") for number in range(250))
    dataset = Dataset(inputs, np.zeros(2, int), Classes(np.array(["a"], object), "label"), columns)
    told = describe_data(dataset, SetSizes(), Automatic().fit(inputs, columns), RECIPE)
    assert (len(told.columns), told.more, told.target) == (200, 50, ("label",))
