"""The history: plain values in columns, drawn against age (rows C12, F6)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gradwise.training.history import Monitor
from gradwise.training.interval import intervals
from gradwise.training.state import State


@pytest.fixture(scope="module")
def rows(start: Callable[..., tuple[Any, State]]) -> list[Any]:
    """Three calls of one interval each."""
    problem, state = start()
    told = []
    for _ in range(3):
        state, row = intervals(problem, state, 3, 1)
        told.append(row)
    return told


def test_a_line_holds_plain_values_and_joins_every_column(rows: list[Any]) -> None:
    monitor = Monitor(37, 3)
    lines = [monitor.add(row, 0.5 * number, 0.5 * number + 0.5)[0] for number, row in enumerate(rows)]
    assert {len(column) for column in monitor.columns.values()} == {3}
    assert monitor.columns["age_examples"] == [24, 45, 69]
    assert monitor.columns["epoch"] == [24 / 37, 45 / 37, 69 / 37]
    assert monitor.columns["seconds"] == [0.5, 1.0, 1.5]
    assert [type(monitor.columns[name][0]) for name in ("updates", "valid_loss", "best")] == [int, float, bool]
    assert len(monitor.columns["valid_score_by_class"][0]) == 3
    assert lines[1]["valid_loss"] == monitor.columns["valid_loss"][1] == float(rows[1].valid_loss[0])
    assert (lines[0]["stop"], lines[0]["diverged_examples"]) == (False, -1)
    assert json.loads(json.dumps(monitor.columns)) == monitor.columns


def test_a_history_goes_on_where_it_was(rows: list[Any]) -> None:
    whole = Monitor(37, 3)
    for row in rows:
        whole.add(row, 0.0, 1.0)
    first = Monitor(37, 3)
    first.add(rows[0], 0.0, 1.0)
    second = Monitor(37, 3, json.loads(json.dumps(first.columns)))
    for row in rows[1:]:
        second.add(row, 0.0, 1.0)
    assert second.columns == whole.columns


def test_the_best_age_is_that_of_the_last_line_marked_best(rows: list[Any]) -> None:
    monitor = Monitor(37, 3)
    assert (monitor.last_age, monitor.best_age) == (0, 0)
    for row in rows:
        monitor.add(row, 0.0, 1.0)
    monitor.columns["best"] = [True, True, False]
    assert (monitor.last_age, monitor.best_age) == (69, 45)


def test_numbers_have_no_columns_by_class(rows: list[Any]) -> None:
    assert [name for name in Monitor(37, 0).columns if "class" in name] == []


def test_the_intervals_of_one_call_are_lines_of_their_own(
    start: Callable[..., tuple[Any, State]], rows: list[Any]
) -> None:
    alone = Monitor(37, 3)
    for row in rows:
        alone.add(row, 0.0, 1.0)
    together = Monitor(37, 3)
    problem, state = start()
    lines = together.add(intervals(problem, state, 3, 3)[1], 1.0, 2.5)
    assert len(lines) == 3
    assert together.columns["seconds"] == [1.5, 2.0, 2.5]
    for name in set(together.columns) - {"seconds"}:
        assert together.columns[name] == alone.columns[name], name
