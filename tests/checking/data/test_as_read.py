"""Planted faults of a table as it was read; sound tables raise nothing."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import gradwise as gw
from gradwise.checking.data.as_read import find_as_read, join_findings, refuse_unlearnable
from gradwise.data.reading.read import ReadRequest, read
from gradwise.journeys.data_and_recipe import find_in_data
from gradwise.records.finding import Finding
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers

DRAW = np.random.default_rng(0)
ROWS = 60
PLAIN = DRAW.normal(size=(ROWS, 2))
TWO = Classes(np.array(["a", "b"]))


def _dataset(inputs: Any = PLAIN, targets: Any = None, task: Any = TWO, columns: Any = ()) -> Dataset:
    targets = (np.arange(len(inputs)) % 2) if targets is None else targets
    return Dataset(inputs, targets, task, columns)


def _read(folder: Path, **more: Any) -> Dataset:
    frame = pd.DataFrame({"u": PLAIN[:, 0], "v": PLAIN[:, 1], **more, "y": np.arange(ROWS) % 2})
    frame.to_csv(folder / "a.csv", index=False)
    return read(str(folder / "a.csv"), ReadRequest(targets=("y",), kinds={"who": "category"} if "who" in more else {}))


def _told(dataset: Dataset) -> list[tuple[str, str, str]]:
    return [(one.level, one.code, one.where) for one in find_as_read(dataset)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", DRAW.permutation(10_000)[:ROWS]),
        ("order_uuid", DRAW.permutation(10_000)[:ROWS]),
        ("PassengerId", DRAW.permutation(10_000)[:ROWS]),
        ("plain name", np.cumsum(DRAW.integers(1, 50, ROWS))),  # increases
        ("line", ROWS - np.arange(ROWS)),
        ("who", [f"p{k:03d}{k * 7919 % 97}" for k in range(ROWS)]),
    ],
)
def test_a_column_that_names_the_rows_is_to_be_dropped(tmp_path: Path, name: str, values: Any) -> None:
    dataset = _read(tmp_path, **{name: values})
    assert _told(dataset) == [("warning", "GW203", name)]
    assert f"--drop {name}" in find_as_read(dataset)[0].next.replace("'", "")
    found = find_in_data(gw.defaults.table("classes"), dataset, jax.random.key(0))
    assert [one.where for one in found if one.code == "GW203"] == [name]  # once, though two rules know it


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("count", DRAW.permutation(10_000)[:ROWS]),  # all different, but nothing says that it names rows
        ("id", np.repeat(np.arange(ROWS // 2), 2)),
        ("humid", DRAW.permutation(10_000)[:ROWS]),
        ("length", np.sort(DRAW.normal(size=ROWS))),  # sorted, but no whole numbers
        ("day", pd.date_range("2024-01-01", periods=ROWS).strftime("%Y-%m-%d")),
        ("colour", ["red", "green", "blue"] * (ROWS // 3)),
    ],
)
def test_other_columns_are_not(tmp_path: Path, name: str, values: Any) -> None:
    assert _told(_read(tmp_path, **{name: values})) == []


def test_empty_columns_and_rows_are_warned_of(tmp_path: Path) -> None:
    dataset = _read(tmp_path, m=[None] * ROWS, price=[f"${k % 7 + 1},{k:03d}.00" for k in range(ROWS)])
    assert [(one.level, one.what) for one in find_as_read(dataset)] == [
        ("warning", "column `m` has no values: dropped."),
        ("note", "`price`: text with a currency, percent signs or thousands separators, read as numbers."),
    ]
    inputs = np.column_stack([PLAIN, np.full(ROWS, np.nan)])
    assert _told(_dataset(inputs)) == [("warning", "GW205", "X[:, 2]")]
    assert _told(_dataset(inputs, columns=(Column("a"), Column("b"), Column("c")))) == [("warning", "GW205", "c")]


def test_fewer_than_twenty_rows_are_warned_of_once() -> None:
    assert _told(_dataset(PLAIN[:19])) == [("warning", "GW214", "rows")]
    assert _told(_dataset(PLAIN[:20])) == []
    unlabelled = _dataset(PLAIN, np.r_[np.arange(12) % 2, np.full(ROWS - 12, -1)])
    assert "only 12 rows" in find_as_read(unlabelled)[0].what
    assert find_as_read(unlabelled.without_targets()) == ()


@pytest.mark.parametrize(
    ("words", "dataset"),
    [
        ("'a' in every row", _dataset(targets=np.zeros(ROWS, int))),
        (r"3\.5 in every row", _dataset(targets=np.full((ROWS, 1), 3.5), task=Numbers())),
        ("every input is missing", _dataset(np.full((ROWS, 2), np.nan))),
    ],
)
@pytest.mark.parametrize("verb", ["fit", "search", "check"])
def test_what_cannot_be_learned_is_refused_in_one_line(verb: str, words: str, dataset: Dataset) -> None:
    with pytest.raises(RequestError, match=words) as refusal:
        getattr(gw, verb)(dataset)
    assert "\n" not in str(refusal.value)


def test_what_can_be_learned_is_let_through() -> None:
    refuse_unlearnable(_dataset())
    refuse_unlearnable(_dataset().without_targets())


def test_what_was_found_twice_is_told_once() -> None:
    one, two = Finding("warning", "a", code="GW203", where="x"), Finding("error", "b", code="GW201")
    again = Finding("warning", "c", code="GW203", where="x")
    assert join_findings([one], [again, two]) == (two, one)


def test_fit_and_check_report_the_same_of_the_data(tmp_path: Path) -> None:
    dataset = _read(tmp_path, id=np.arange(ROWS) * 3, m=[None] * ROWS).take(np.arange(18))
    short = {"stopping.epochs": 2}
    for found in (gw.fit(dataset, set=short).record.findings, gw.check(dataset, set=short, only="data").findings):
        codes = [one.code for one in found if one.level == "warning"]
        assert {"GW203", "GW214"} <= set(codes)
        assert "column `m` has no values: dropped." in [one.what for one in found]
