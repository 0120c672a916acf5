"""Columns of lists are sequences, from JSON lines and from Parquet."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import gradwise as gw
from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.specs.sequences import Sequences

ROWS: list[dict[str, Any]] = [
    {"pen": [[0.5 * step, float(row)] for step in range(2 + row)], "letter": "ab"[row % 2], "who": row // 2}
    for row in range(6)
]


def _write(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_each_row_is_a_sequence_with_its_target(tmp_path: Path, ending: str) -> None:
    path = _write(tmp_path / f"strokes.{ending}", ROWS)
    dataset = read(path, ReadRequest(targets=("letter",), group="who"))
    assert isinstance(dataset.inputs, Sequences)
    assert (dataset.shape, dataset.task.outputs) == ((7, 2), 2)
    np.testing.assert_array_equal(dataset.targets, [0, 1] * 3)
    np.testing.assert_array_equal(dataset.groups, [0, 0, 1, 1, 2, 2])
    for place, row in enumerate(ROWS):
        np.testing.assert_array_equal(dataset.inputs[place], row["pen"])
    rows = read_rows(path, (), dataset.shape, sequences=True)
    np.testing.assert_array_equal(np.asarray(rows.inputs), np.asarray(dataset.inputs))


def test_lists_side_by_side_are_channels(tmp_path: Path) -> None:
    rows = [{"left": [1, 2, None][: 1 + k % 3], "right": [4.5, 5, 6][: 1 + k % 3], "y": k % 2} for k in range(6)]
    dataset = read(_write(tmp_path / "two.jsonl", rows), ReadRequest(targets=("y",)))
    np.testing.assert_array_equal(dataset.inputs[2], [[1.0, 4.5], [2.0, 5.0], [np.nan, 6.0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pen": []}, "column `pen` has no steps in data row 3"),
        ({"pen": None}, "column `pen` has no steps in data row 3"),
        ({"pen": [[1.0, 2.0], [3.0]]}, "every step of column `pen` must have the same number of channels"),
    ],
)
def test_broken_lists_are_refused_by_row(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*ROWS[:2], {**ROWS[2], **change}, *ROWS[3:]]
    with pytest.raises(gw.RequestError, match=message):
        read(_write(tmp_path / "strokes.jsonl", rows), ReadRequest(targets=("letter",)))


def test_lists_of_text_and_of_unlike_lengths_are_refused(tmp_path: Path) -> None:
    rows = [{"words": ["a", "b"], "y": k % 2} for k in range(6)]
    with pytest.raises(gw.RequestError, match="the lists of column `words` hold string; expected numbers"):
        read(_write(tmp_path / "words.jsonl", rows), ReadRequest(targets=("y",)))
    rows = [{"left": [1, 2], "right": [1], "y": k % 2} for k in range(6)]
    with pytest.raises(gw.RequestError, match="column `right` has 1 steps in data row 1, but `left` has 2"):
        read(_write(tmp_path / "two.jsonl", rows), ReadRequest(targets=("y",)))
    (tmp_path / "broken.jsonl").write_text('{"a": [1, 2\n')
    with pytest.raises(gw.RequestError, match="is not a valid JSON-lines file"):
        read(str(tmp_path / "broken.jsonl"), ReadRequest())


def test_a_table_whose_lists_are_dropped_stays_a_table(tmp_path: Path) -> None:
    rows = [{**row, "size": float(k)} for k, row in enumerate(ROWS)]
    dataset = read(_write(tmp_path / "strokes.jsonl", rows), ReadRequest(targets=("letter",), drop=("pen",)))
    assert [column.name for column in dataset.columns] == ["who", "size"]
    dataset = read(_write(tmp_path / "strokes.jsonl", rows), ReadRequest(targets=("letter",), drop=("size",)))
    assert dataset.notes[0] == "each row is a sequence of steps, from `pen`"
