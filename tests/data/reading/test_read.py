"""Reading files: oracles (one frame, many dialects), what is understood, and what is refused in one line."""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.data.reading.tables import from_frame
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Column, Labels, Numbers


def sample_frame(count: int = 40) -> pd.DataFrame:
    """A table with every kind of column, with missing values in each."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.normal(size=count).round(6),
            "rooms": draw.integers(1, 9, count),
            "colour": draw.choice(["red", "dark green", "blue"], count),
            "sold": draw.choice(["True", "False"], count),
            "when": pd.date_range("2023-12-05 06:00", periods=count, freq="31h").strftime("%Y-%m-%d %H:%M:%S"),
            "price": (draw.normal(size=count) * 100).round(3),
        }
    )
    frame.loc[3, "size"] = np.nan
    frame.loc[[5, 7], "colour"] = None
    frame.loc[9, "when"] = None
    return frame


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


DIALECTS: dict[str, dict[str, Any]] = {
    "comma.csv": {},
    "quoted.csv": {"quoting": 2, "lineterminator": "\r\n"},
    "tab.tsv": {"sep": "\t", "na_rep": "NA"},
    "bar.txt": {"sep": "|", "na_rep": "?"},
    "german.csv": {"sep": ";", "decimal": ",", "na_rep": "NaN"},
    "packed.csv.gz": {"na_rep": "null"},
    "marked.csv": {"encoding": "utf-8-sig"},
    "indexed.csv": {"index": True},
}


@pytest.mark.parametrize("name", [*DIALECTS, "table.parquet"])
def test_one_frame_reads_the_same_in_every_dialect(tmp_path: Path, name: str) -> None:
    frame = sample_frame()
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.assign(when=pd.to_datetime(frame["when"]), sold=frame["sold"] == "True").to_parquet(path)
    else:
        frame.to_csv(path, **{"index": False, **DIALECTS[name]})
    dataset = read(str(path), ReadRequest(targets=("price",)))
    parts = ("year", "month", "day", "weekday", "hour")
    assert dataset.columns == (
        Column("size"),
        Column("rooms"),
        Column("colour", "category", ("blue", "dark green", "red")),
        Column("sold", "category", ("False", "True")),
        *(Column(f"when:{part}", "date") for part in parts),
    )
    moments = pd.to_datetime(frame["when"]).dt
    expected = np.column_stack(
        [
            frame["size"],
            frame["rooms"],
            frame["colour"].map({"blue": 0, "dark green": 1, "red": 2}),
            frame["sold"] == "True",
            *(getattr(moments, part.replace("weekday", "day_of_week")) for part in parts),
        ]
    ).astype(float)
    np.testing.assert_array_equal(dataset.inputs, expected)
    assert isinstance(dataset.task, Numbers)
    assert dataset.task.names == ("price",)
    np.testing.assert_array_equal(dataset.targets[:, 0], frame["price"])
    assert "column `colour`: 2 of 40 missing" in dataset.notes


def test_a_frame_and_its_file_encode_alike(tmp_path: Path) -> None:
    frame = sample_frame()
    frame.to_csv(tmp_path / "a.csv", index=False)
    from_file = read(str(tmp_path / "a.csv"), ReadRequest(targets=("price",)))
    inferred = from_frame(frame.drop(columns="price"))
    assert inferred.columns == from_file.columns
    np.testing.assert_array_equal(inferred.inputs, from_file.inputs)
    assert inferred.missing == {"size": 1, "colour": 2, "when": 1}
    again = from_frame(frame[::-1], columns=inferred.columns)
    np.testing.assert_array_equal(again.inputs, from_file.inputs[::-1])


def test_a_frame_of_plain_numbers_takes_the_short_way_to_the_same_place() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1, 2, 3]})
    short = from_frame(frame)
    long = from_frame(frame, kinds={"a": "number"})
    np.testing.assert_array_equal(short.inputs, long.inputs)
    assert (short.columns, short.missing) == (long.columns, long.missing) == ((Column("a"), Column("b")), {"a": 1})
    swapped = from_frame(frame[["b", "a"]], columns=short.columns)
    np.testing.assert_array_equal(swapped.inputs, short.inputs)
    with pytest.raises(RequestError, match="column `a`: inf in data row 2"):
        from_frame(pd.DataFrame({"a": [1.0, np.inf]}))


def test_frames_with_mixed_and_declared_columns() -> None:
    frame = pd.DataFrame(
        {
            "mixed": ["a", 1, None, "a"],
            "declared": pd.Categorical([3, 1, 3, 1]),
            "flag": [True, False, True, True],
            "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
        }
    )
    encoded = from_frame(frame)
    assert [column.categories for column in encoded.columns] == [("1", "a"), ("1", "3"), ("False", "True"), ()]
    np.testing.assert_array_equal(encoded.inputs, [[1, 1, 1, 1], [0, 0, 0, np.nan], [np.nan, 1, 1, 3], [1, 0, 1, 4]])


ROWS = "\n".join(f"{i}.5,{'ab'[i % 2]},{i % 3}" for i in range(12)) + "\n"


def test_without_a_header_columns_are_counted(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "a.csv", ROWS), ReadRequest(targets=("x3",)))
    assert [column.name for column in dataset.columns] == ["x1", "x2"]
    assert len(dataset) == 12
    assert dataset.notes[0] == "no header row: columns are named x1 to x3"
    rows = read_rows(write(tmp_path / "b.csv", "4.5,b\n1.5,a\n"), dataset.columns, dataset.shape)
    np.testing.assert_array_equal(rows.inputs, [[4.5, 1], [1.5, 0]])
    assert rows.table.num_rows == 2
    headed = read_rows(write(tmp_path / "c.csv", " x2, x1\nb,4.5\n"), dataset.columns, dataset.shape)
    np.testing.assert_array_equal(headed.inputs, [[4.5, 1]])


@pytest.mark.parametrize(
    ("header", "rows"),
    [("0,1,2", "5,6,7"), ("id,2019,2020", "1,5,6"), ("a,b,c", "x,y,z"), ('"1 st","b\nb",c', "1,2,3")],
)
def test_a_header_is_taken_for_one(tmp_path: Path, header: str, rows: str) -> None:
    names = [name.strip('"').replace("\n", " ") for name in header.split(",")]
    body = "\n".join(rows.replace(rows[0], str(i % 7)) for i in range(10))
    dataset = read(write(tmp_path / "a.csv", f"{header}\n{body}\n"), ReadRequest(targets=(names[0],), task="numbers"))
    assert (len(dataset), [column.name for column in dataset.columns]) == (10, names[1:])


def test_blanks_around_values_do_not_matter(tmp_path: Path) -> None:
    body = "".join(f" {i} , {'ab'[i % 2]} , ? , {'yes' if i % 3 else ' no'}\n" for i in range(9))
    dataset = read(write(tmp_path / "a.csv", " n , c , m , y \n" + body), ReadRequest(targets=("y",)))
    assert dataset.columns == (Column("n"), Column("c", "category", ("a", "b")))
    assert isinstance(dataset.task, Classes)
    assert dataset.task.labels.tolist() == ["no", "yes"]


def test_what_is_wholly_missing_is_dropped_with_a_warning(tmp_path: Path) -> None:
    body = "".join(f"{i},NA,?,{'ab'[i % 2]},{i % 2}\n" for i in range(1, 9)) + ",,,,1\n" * 2
    dataset = read(write(tmp_path / "a.csv", "n,m,k,c,y\n" + body), ReadRequest(targets=("y",)))
    assert [column.name for column in dataset.columns] == ["n", "c"]
    assert len(dataset) == 8
    assert dataset.rows is None
    assert dataset.warnings == (
        "columns `m`, `k` have no values: dropped",
        "2 of 10 rows have no inputs: dropped, first data row 9",
    )
    frame = pd.read_csv(tmp_path / "a.csv")
    for some in (frame[["n", "m", "c"]], frame[["n", "m"]]):  # of several kinds, and of numbers alone
        assert from_frame(some).blank == ("m",)
        assert len(from_frame(some).columns) == some.shape[1] - 1
    with pytest.raises(RequestError, match="no values in any input column"):
        from_frame(frame[["m", "k"]])
    one = read(write(tmp_path / "b.csv", "n,y\n" + "1,1\n,0\n" * 4), ReadRequest(targets=("y",)))
    assert len(one) == 8  # that the only input is missing may say something


def test_empty_rows_of_arrays_are_dropped_with_their_weights(tmp_path: Path) -> None:
    inputs = np.arange(24.0).reshape(12, 2)
    inputs[[3, 7]] = np.nan
    np.savez(tmp_path / "a.npz", X=inputs, y=np.arange(12) % 2, w=np.arange(1.0, 13))
    dataset = read(str(tmp_path / "a.npz"), ReadRequest(weight="w"))
    assert dataset.weights is not None
    np.testing.assert_array_equal(dataset.weights, [1, 2, 3, 5, 6, 7, 9, 10, 11, 12])
    np.savez(tmp_path / "b.npz", X=np.full((12, 2), np.nan), y=np.arange(12) % 2)
    with pytest.raises(RequestError, match="no values in any input"):
        read(str(tmp_path / "b.npz"), ReadRequest())


def test_line_breaks_in_quoted_values_are_read(tmp_path: Path) -> None:
    count = 60_000  # several of Arrow's blocks, so that one ends inside a quoted value
    body = "".join(f'{i % 7},"one\ntwo, {i % 3}\nthree four five six seven",{i % 2}\n' for i in range(count))
    dataset = read(write(tmp_path / "a.csv", "a,text,y\n" + body), ReadRequest(targets=("y",)))
    assert len(dataset) == count
    np.testing.assert_array_equal(dataset.inputs[:, 1], np.arange(count) % 3)


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["2024-01-31", "2024-02-01"], "2024-01-31"),
        (["2024/1/31", "2024/02/01"], "2024-01-31"),
        (["31.1.2024", "1.2.2024"], "2024-01-31"),
        (["31/1/2024 13:05", "1/2/2024 14:00"], "2024-01-31"),
        (["1/31/2024", "2/1/2024"], "2024-01-31"),
        (["2024-01-31T23:30:00-02:00", "2024-02-01T03:00:00Z"], "2024-02-01"),
    ],
)
def test_dates_are_read_as_parts(tmp_path: Path, texts: list[str], first: str) -> None:
    lines = "".join(f"{texts[i % 2]},{i}.5\n" for i in range(30))
    dataset = read(write(tmp_path / "a.csv", "when,y\n" + lines), ReadRequest(targets=("y",)))
    seen = {column.name: dataset.inputs[0, index] for index, column in enumerate(dataset.columns)}
    moment = pd.Timestamp(first)
    for part in ("month", "day", "weekday"):
        if f"when:{part}" in seen:
            assert seen[f"when:{part}"] == getattr(moment, part.replace("weekday", "day_of_week"))
    assert "when:hour" in seen or "when:month" in seen
    assert "when:year" not in seen  # it does not vary


def test_kinds_overrule_what_columns_look_like(tmp_path: Path) -> None:
    body = "".join(f"0{i % 3}1,{20240101 + i % 5},{i},{i % 2}\n" for i in range(30))
    path = write(tmp_path / "a.csv", "zip,day,id,y\n" + body)
    request = ReadRequest(targets=("y",), drop=("id",), kinds={"zip": "category", "day": "date"})
    dataset = read(path, request)
    assert dataset.columns[0] == Column("zip", "category", ("001", "011", "021"))
    assert [column.name for column in dataset.columns[1:]] == ["day:day", "day:weekday"]
    rows = read_rows(path, dataset.columns, dataset.shape)  # the zip is read as text here too
    np.testing.assert_array_equal(rows.inputs, dataset.inputs)
    assert rows.frame["id"].tolist() == list(range(30))


@pytest.mark.parametrize(
    ("column", "task", "labels"),
    [
        ([3, 1, 2, 1, 3, 2], Classes, [1, 2, 3]),
        (["b", "a", "b", "a", "b", "a"], Classes, ["a", "b"]),
        ([1.5, 2.5, 1.5, 2.5, 3.0, 1.0], Numbers, None),
        (list(range(60)), Numbers, None),
        ([f"c{i % 25}" for i in range(60)], Classes, sorted(f"c{i}" for i in range(25))),
        ([i % 21 for i in range(60)], Numbers, None),
        ([i % 20 for i in range(60)], Classes, list(range(20))),
    ],
)
def test_the_target_sets_the_task(tmp_path: Path, column: list, task: type, labels: list | None) -> None:
    frame = pd.DataFrame({"x": np.arange(len(column)) / 3, "y": column})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        dataset = read(str(tmp_path / name), ReadRequest(targets=("y",)))
        assert isinstance(dataset.task, task)
        if isinstance(dataset.task, Classes):
            assert dataset.task.labels.tolist() == labels
            assert dataset.task.labels[dataset.targets].tolist() == column
            assert dataset.targets.dtype == np.int64
        else:
            np.testing.assert_array_equal(dataset.targets, np.array(column, float)[:, None])


def test_booleans_come_back_as_booleans(tmp_path: Path) -> None:
    pd.DataFrame({"x": range(6), "y": [True, False] * 3}).to_parquet(tmp_path / "a.parquet")
    task = read(str(tmp_path / "a.parquet"), ReadRequest(targets=("y",))).task
    assert isinstance(task, Classes)
    assert task.labels.dtype == bool
    assert task.labels.tolist() == [False, True]


def test_several_targets_are_labels_or_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x,a,b,c\n" + "".join(f"{i}.5,{i % 2},{i // 3 % 2},{i}.25\n" for i in range(8)))
    both = read(path, ReadRequest(targets=("a", "b"), drop=("c",)))
    assert both.task == Labels(("a", "b"))
    np.testing.assert_array_equal(both.targets, [[i % 2, i // 3 % 2] for i in range(8)])
    assert read(path, ReadRequest(targets=("a", "c"))).task == Numbers(("a", "c"))
    assert read(path, ReadRequest(targets=("a", "b"), task="numbers")).task == Numbers(("a", "b"))


def test_group_time_and_weight_are_no_inputs(tmp_path: Path) -> None:
    body = "".join(f"{i}.5,g{i // 2},2024-01-{i + 1:02},{i},{i % 2}\n" for i in range(8))
    path = write(tmp_path / "a.csv", "x,who,when,w,y\n" + body)
    dataset = read(path, ReadRequest(targets=("y",), group="who", time="when", weight="w"))
    assert [column.name for column in dataset.columns] == ["x"]
    assert dataset.groups is not None
    assert dataset.times is not None
    assert dataset.weights is not None
    assert dataset.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(np.diff(dataset.times), 86400)
    assert dataset.weights.tolist() == list(range(8))
    assert "column `when` is used as --time and is not an input" in dataset.notes


def test_a_test_file_is_encoded_under_the_training_schema(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", "c,n,y\n" + "".join(f"{'pq'[i % 2]},{i}.5,{'uv'[i % 2]}\n" for i in range(8)))
    test = write(tmp_path / "b.csv", "y,n,c\nv,1,q\nu,,r\n")
    dataset = read(train, ReadRequest(targets=("y",), test=test))
    assert dataset.test is not None
    np.testing.assert_array_equal(dataset.test.inputs, [[1, 1], [np.nan, np.nan]])
    assert dataset.test.targets.tolist() == [1, 0]
    assert dataset.notes[-1] == "test set, column `c`: 1 values of categories not seen in training"
    wrong = write(tmp_path / "c.csv", "y,n,c\nw,1,q\n")
    with pytest.raises(RequestError, match="class 'w'"):
        read(train, ReadRequest(targets=("y",), test=wrong))


def test_new_rows_count_what_was_never_seen(tmp_path: Path) -> None:
    columns = (Column("c", "category", ("p", "q")), Column("n"), Column("d:month", "date"))
    path = write(tmp_path / "a.csv", "id,d,n,c\n7,2024-05-01,,q\n8,,2,r\n9,2024-06-01,3,r\n4,2024-06-01,3,?\n")
    rows = read_rows(path, columns, (3,))
    np.testing.assert_array_equal(rows.inputs, [[1, np.nan, 5], [np.nan, 2, np.nan], [np.nan, 3, 6], [np.nan, 3, 6]])
    assert rows.unseen == {"c": 2}
    assert rows.frame["id"].tolist() == [7, 8, 9, 4]
    with pytest.raises(RequestError, match="lacks columns that the model needs: `n`"):
        read_rows(write(tmp_path / "b.csv", "c,d\np,2024-05-01\n"), columns, (3,))
    with pytest.raises(RequestError, match="'much' in data row 1 is not a number"):
        read_rows(write(tmp_path / "c.csv", "c,d,n\np,2024-05-01,much\n"), columns, (3,))


def test_one_column_of_inputs(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "a.csv", "x,y\n" + "1,2.5\n3,4.5\n" * 4), ReadRequest(targets=("y",)))
    assert dataset.shape == (1,)
    rows = read_rows(write(tmp_path / "b.csv", "x\n5\n6\n"), dataset.columns, dataset.shape)
    np.testing.assert_array_equal(rows.inputs, [[5], [6]])


def test_many_columns(tmp_path: Path) -> None:
    values = np.arange(10 * 5000).reshape(10, 5000) / 8
    frame = pd.DataFrame(values, columns=[f"f{i}" for i in range(5000)])
    frame.iloc[2, 4000] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False, na_rep="N/A")
    dataset = read(str(tmp_path / "a.csv"), ReadRequest(targets=("f0",)))
    np.testing.assert_array_equal(dataset.inputs, frame.to_numpy()[:, 1:])
    np.testing.assert_array_equal(dataset.targets[:, 0], values[:, 0])


def test_standard_input_and_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"x;y\n" + b"1,5;0\n2,5;1\n" * 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    dataset = read("-", ReadRequest(targets=("y",)))
    np.testing.assert_array_equal(dataset.inputs[:2], [[1.5], [2.5]])
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        pipe.write(content)
        pipe.close()
        assert len(read(f"/dev/fd/{reading}", ReadRequest(targets=("y",)))) == 6


def test_arrays_keep_their_form(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (12, 4, 5, 3), np.uint8)
    labels = np.arange(12) % 3
    np.savez(tmp_path / "a.npz", X=images, y=labels, extra=np.array([{}], object))
    dataset = read(str(tmp_path / "a.npz"), ReadRequest())
    assert dataset.inputs.dtype == np.uint8
    assert dataset.shape == (4, 5, 3)
    assert dataset.columns == ()
    np.testing.assert_array_equal(dataset.inputs, images)
    assert dataset.targets.tolist() == labels.tolist()
    np.savez(tmp_path / "b.npz", X=images[:2])
    np.testing.assert_array_equal(read_rows(str(tmp_path / "b.npz"), (), (4, 5, 3)).inputs, images[:2])


def test_arrays_by_name_are_targets_groups_and_weights(tmp_path: Path) -> None:
    inputs = np.arange(24.0, dtype=np.float32).reshape(12, 2)
    many = np.arange(36).reshape(12, 3) % 2
    np.savez(tmp_path / "a.npz", X=inputs, Y=many, z=np.arange(12) * 2, w=np.ones(12), g=np.array(list("aabbccddeeff")))
    path = str(tmp_path / "a.npz")
    labels = read(path, ReadRequest(targets=("Y",), group="g", weight="w"))
    assert labels.task == Labels(("Y1", "Y2", "Y3"))
    np.testing.assert_array_equal(labels.targets, many)
    assert labels.groups is not None
    assert labels.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert isinstance(read(path, ReadRequest(targets=("z",))).task, Classes)  # integers in an array file
    assert read(path, ReadRequest(targets=("z",), task="numbers")).task == Numbers(("z",))
    assert labels.inputs.dtype == np.float32
    days = np.datetime64("2024-01-01") + np.arange(12)[::-1]
    np.savez(tmp_path / "b.npz", X=inputs, y=np.arange(12) % 2, t=days, gap=days.astype(str))
    times = read(str(tmp_path / "b.npz"), ReadRequest(time="t")).times
    assert times is not None
    assert np.diff(times).tolist() == [-86400.0] * 11
    with pytest.raises(RequestError, match="--time gap: expected numbers or dates"):
        read(str(tmp_path / "b.npz"), ReadRequest(time="gap"))
    days[4] = np.datetime64("NaT")
    np.savez(tmp_path / "c.npz", X=inputs, y=np.arange(12) % 2, t=days)
    with pytest.raises(RequestError, match="--time t: 1 values are missing, first in data row 5"):
        read(str(tmp_path / "c.npz"), ReadRequest(time="t"))


def test_a_matrix_alone_is_a_table_by_position(tmp_path: Path) -> None:
    matrix = np.column_stack([np.arange(10) / 4, np.arange(10) % 2, np.arange(10) ** 2])
    np.save(tmp_path / "a.npy", matrix)
    dataset = read(str(tmp_path / "a.npy"), ReadRequest(targets=("x2",), task="classes"))
    assert [column.name for column in dataset.columns] == ["x1", "x3"]
    np.testing.assert_array_equal(dataset.inputs, matrix[:, [0, 2]])
    np.save(tmp_path / "b.npy", matrix[:, [0, 2]])
    for name in ("a.npy", "b.npy"):
        rows = read_rows(str(tmp_path / name), dataset.columns, dataset.shape)
        np.testing.assert_array_equal(rows.inputs, matrix[:, [0, 2]])


def test_sparse_files_stay_sparse(tmp_path: Path) -> None:
    train = write(tmp_path / "a.svm", "+1 1:0.5 4:2\n-1 2:1\n" * 4)
    test = write(tmp_path / "b.libsvm.gz", gzip.compress(b"-1 3:7\n+1 2:1 5:1\n"))
    dataset = read(train, ReadRequest(test=test))
    assert scipy.sparse.issparse(dataset.inputs)
    assert dataset.inputs.format == "csr"
    np.testing.assert_array_equal(dataset.inputs[:2].toarray(), [[0.5, 0, 0, 2, 0], [0, 1, 0, 0, 0]])
    assert isinstance(dataset.task, Classes)
    assert dataset.task.labels.tolist() == [-1, 1]
    assert dataset.test is not None
    assert dataset.test.targets.tolist() == [0, 1]
    np.testing.assert_array_equal(dataset.test.inputs.toarray(), [[0, 0, 7, 0, 0], [0, 1, 0, 0, 1]])
    rows = read_rows(write(tmp_path / "c.svm", "0 1:3\n"), (), (5,))
    np.testing.assert_array_equal(rows.inputs.toarray(), [[3, 0, 0, 0, 0]])


def idx(array: np.ndarray) -> bytes:
    kinds = {"uint8": 0x08, "int16": 0x0B, "float32": 0x0D}
    head = bytes([0, 0, kinds[array.dtype.name], array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("kind", ["uint8", "int16", "float32"])
def test_idx_files_find_their_labels_and_their_test_set(tmp_path: Path, kind: str) -> None:
    draw = np.random.default_rng(0)
    for part, count in (("train", 9), ("t10k", 4)):
        images = draw.integers(0, 100, (count, 3, 2)).astype(kind)
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", gzip.compress(idx(images)))
        write(tmp_path / f"{part}-labels-idx1-ubyte", idx((np.arange(count) % 2).astype(np.uint8)))
    dataset = read(str(tmp_path / "train-images-idx3-ubyte.gz"), ReadRequest())
    assert dataset.inputs.dtype == kind
    assert dataset.inputs.shape == (9, 3, 2)
    assert dataset.targets.tolist() == [i % 2 for i in range(9)]
    assert dataset.test is not None
    np.testing.assert_array_equal(dataset.test.inputs, images)
    rows = read_rows(str(tmp_path / "t10k-images-idx3-ubyte.gz"), (), (3, 2))
    np.testing.assert_array_equal(rows.inputs, images)


def test_a_table_of_pixels_serves_a_network_for_images(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,c,d\n1,2,3,4\n5,6,7,8\n")
    np.testing.assert_array_equal(read_rows(path, (), (2, 2)).inputs, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    with pytest.raises(RequestError, match="examples of 4 values; the model expects 3 x 2"):
        read_rows(path, (), (3, 2))


GOOD = "x,c,y\n" + "".join(f"{i}.5,{'ab'[i % 2]},{i % 2}\n" for i in range(10))
LONG = "one fine day the fox ran over hill {} and dale"

# What the file holds, what is asked of it, and words that the one line must contain.
BAD_TEXT: dict[str, tuple[str | bytes, ReadRequest, tuple[str, ...]]] = {
    "empty": ("", ReadRequest(), ("is empty",)),
    "blank lines": ("\n\n  \n", ReadRequest(), ("is empty",)),
    "header only": ("a,b,y\n", ReadRequest(targets=("y",)), ("no data rows",)),
    "header and blanks": ("a,b,y\n\n\n", ReadRequest(targets=("y",)), ("no data rows",)),
    "binary": (bytes(range(256)) * 4, ReadRequest(), ("not a text table",)),
    "UTF-16": (GOOD.encode("utf-16"), ReadRequest(), ("UTF-16", "iconv")),
    "Latin 1 in the header": ("größe,y\n1,2\n".encode("latin1"), ReadRequest(), ("not UTF-8", "line 1", "iconv")),
    "Latin 1 far below": (
        GOOD.encode() * 60 + b"1.5,\xe9,1\n",
        ReadRequest(targets=("y",)),
        ("not UTF-8", "0xe9", f"position {len(GOOD) * 60 + 4}", "line 661"),
    ),
    "Latin 1 in a category": (
        GOOD.encode() * 60 + b"1.5,\xe9,1\n",
        ReadRequest(targets=("y",), kinds={"c": "category"}),
        ("not UTF-8", "line 661"),
    ),
    "short row": ("a,b,y\n1,2,3\n4,5\n", ReadRequest(targets=("y",)), ("line 3", "2 values", "header has 3")),
    "long row": ("a,b,y\n1,2,3\n\n4,5,6,7\n", ReadRequest(targets=("y",)), ("line 4", "4 values", "header has 3")),
    "open quotation mark": ('a,b\n1,2\n3,"4\n5,6\n', ReadRequest(targets=("b",)), ("line 3", "never closed")),
    "one column": ("a b y\n1 2 3\n4 5 6\n", ReadRequest(targets=("y",)), ("only one column", "commas, tabs")),
    "same name twice": ("a,b,a,y\n1,2,3,4\n", ReadRequest(targets=("y",)), ("`a`", "2 times", "columns 1, 3")),
    "no target": (GOOD, ReadRequest(), ("--target", "`x`, `c`, `y`")),
    "unknown target": (
        "size,colour,y\n1,2,3\n",
        ReadRequest(targets=("colur",)),
        ("unknown column `colur`", "'colour'"),
    ),
    "unknown drop": (GOOD, ReadRequest(targets=("y",), drop=("z",)), ("--drop", "unknown column `z`")),
    "unknown group": (GOOD, ReadRequest(targets=("y",), group="z"), ("--group", "`z`")),
    "unknown kind": (GOOD, ReadRequest(targets=("y",), kinds={"x": "float"}), ("x=float", "number, category, date")),
    "kind of no column": (GOOD, ReadRequest(targets=("y",), kinds={"q": "number"}), ("--kind", "`q`")),
    "unknown task": (GOOD, ReadRequest(targets=("y",), task="regression"), ("--task regression", "classes")),
    "two roles": (GOOD, ReadRequest(targets=("y",), drop=("y",)), ("`y`", "--target", "--drop")),
    "target twice": (GOOD, ReadRequest(targets=("y", "y")), ("`y`", "--target twice")),
    "a title above": ("Prices of 2024\n" + GOOD, ReadRequest(targets=("y",)), ("line 1", "below have 3", "delete")),
    "footer": (GOOD + "total: 10\n", ReadRequest(targets=("y",)), ("line 12", "1 value ", "header has 3")),
    "money": (
        "x,y\n" + "".join(f"{'$€'[i % 2]}{i}.00,{i % 2}\n" for i in range(30)),
        ReadRequest(targets=("y",)),
        ("`x`", "different symbols", "'$0.00'", "one unit"),
    ),
    "nothing but blanks": (
        "a,b,y\n" + ",NA,1\n,?,0\n" * 5,
        ReadRequest(targets=("y",)),
        ("no values in any input column", "`a`, `b`"),
    ),
    "too few rows with inputs": (
        "a,b,y\n" + ",,1\n,,0\n" * 5 + "1,2,0\n" * 4,
        ReadRequest(targets=("y",)),
        ("without its 10 rows that have no inputs", "4 rows", "at least 5"),
    ),
    "no inputs": ("x,y\n" + "1,2.5\n1,3\n" * 4, ReadRequest(targets=("y",), drop=("x",)), ("no input columns",)),
    "3 rows": ("x,y\n1,2\n2,3\n3,4\n", ReadRequest(targets=("y",)), ("3 rows", "at least 5")),
    "target missing": ("x,y\n" + "1,\n2,NA\n" * 4, ReadRequest(targets=("y",)), ("`y`", "every row", "--unsupervised")),
    "target infinite": ("x,y\n" + "1,2.5\n" * 6 + "1,inf\n", ReadRequest(targets=("y",)), ("infinite in data row 7",)),
    "one class": ("x,y\n" + "1,no\n" * 9, ReadRequest(targets=("y",)), ("'no' in every row", "at least two")),
    "constant number": ("x,y\n" + "1,2.5\n" * 9, ReadRequest(targets=("y",)), ("2.5 in every row",)),
    "no number": (GOOD, ReadRequest(targets=("c",), task="numbers"), ("`c`", "not numbers")),
    "words as labels": (GOOD, ReadRequest(targets=("c",), task="labels"), ("0 and 1", "`c`")),
    "two targets as classes": (GOOD, ReadRequest(targets=("c", "y"), task="classes"), ("one target", "got 2")),
    "a class a row": (
        "x,y\n" + "".join(f"{i},n{i}\n" for i in range(30)),
        ReadRequest(targets=("y",)),
        ("30 distinct values in 30 rows",),
    ),
    "target is a date": (
        "x,y\n" + "1,2024-01-01\n" * 9,
        ReadRequest(targets=("y",)),
        ("`y`", "text, booleans or numbers"),
    ),
    "infinite input": (GOOD + "-inf,a,1\n", ReadRequest(targets=("y",)), ("column `x`", "-inf", "data row 11")),
    "identifier": (
        "name,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(30)),
        ReadRequest(targets=("y",)),
        ("`name`", "30 distinct values", "identifier", "--drop name", "--kind name=category"),
    ),
    "two identifiers": (
        "t,u,y\n" + "".join(f"m{i},n{i},{i % 2}\n" for i in range(30)),
        ReadRequest(targets=("y",)),
        ("`t`", "30 distinct values", "likewise `u`", "--drop t --drop u"),
    ),
    "one bad number": (
        "x,y\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(30)) + "1O,1\n",
        ReadRequest(targets=("y",)),
        ("`x`", "'1O' in data row 31", "--drop x"),
    ),
    "words as numbers": (GOOD, ReadRequest(targets=("y",), kinds={"c": "number"}), ("`c`", "'a' in data row 1")),
    "words as dates": (GOOD, ReadRequest(targets=("y",), kinds={"c": "date"}), ("`c`", "dates", "2024-01-31")),
    "ambiguous dates": (
        "d,y\n" + "1/2/2024,1\n3/4/2024,0\n" * 4,
        ReadRequest(targets=("y",), kinds={"d": "date"}),
        ("`d`", "2024-01-31"),
    ),
    "negative weight": (
        "x,w,y\n" + "1,-2,0\n2,1,1\n" * 4,
        ReadRequest(targets=("y",), weight="w"),
        ("-2.0", "data row 1"),
    ),
    "no weight": ("x,w,y\n" + "1,0,0\n2,0,1\n" * 4, ReadRequest(targets=("y",), weight="w"), ("every weight is 0",)),
    "missing group": (
        "x,g,y\n" + "1,,0\n2,a,1\n" * 4,
        ReadRequest(targets=("y",), group="g"),
        ("--group g", "4 values"),
    ),
    "words as time": (GOOD, ReadRequest(targets=("y",), time="c"), ("--time c", "expected numbers, or dates")),
}


def test_texts_become_a_column_for_each_place_of_a_word(tmp_path: Path) -> None:
    rows = [LONG.format(f"number {i}") if i else "" for i in range(30)]
    path = write(tmp_path / "a.csv", "t,x,y\n" + "".join(f'"{text}",{i},{i % 2}\n' for i, text in enumerate(rows)))
    dataset = read(path, ReadRequest(targets=("y",)))
    names = [f"t:{place}" for place in range(1, 13)]
    assert [(column.name, column.kind) for column in dataset.columns] == [
        *((n, "text") for n in names),
        ("x", "number"),
    ]
    words = dataset.columns[0].categories
    assert words == tuple(sorted({word for text in rows for word in text.split()}))
    spoken = [[words[int(code)] for code in row if not np.isnan(code)] for row in dataset.inputs[:, :12]]
    assert [" ".join(text) for text in spoken] == rows
    assert "column `t`: text, 12 words per row, 12 at most" in dataset.notes
    assert "column `t`: 1 of 30 missing" in dataset.notes


def test_a_kind_makes_a_text_of_any_column_and_a_category_of_a_text(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "t,y\n" + "".join(f"{'good film' if i % 3 else 'bad'},{i % 2}\n" for i in range(30))
    )
    assert read(path, ReadRequest(targets=("y",))).columns[0].kind == "category"
    dataset = read(path, ReadRequest(targets=("y",), kinds={"t": "text"}))
    assert [column.name for column in dataset.columns] == ["t:1", "t:2"]
    assert dataset.columns[0].categories == ("bad", "film", "good")


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, request, words = BAD_TEXT[case]
    with pytest.raises(RequestError) as refusal:
        read(write(tmp_path / "a.csv", content), request)
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith((".", "?")), message
    for word in words:
        assert word in message, message


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def parquet(frame: pd.DataFrame) -> bytes:
    return bytes(frame.to_parquet())


X = np.ones((8, 2))
Y = np.arange(8) % 2
BAD_FILES: dict[str, tuple[str, bytes, ReadRequest, tuple[str, ...]]] = {
    "truncated gzip": (
        "a.csv.gz",
        gzip.compress(GOOD.encode() * 50)[:-20],
        ReadRequest(),
        ("damaged or truncated gzip",),
    ),
    "broken gzip": ("a.csv.gz", b"\x1f\x8b" + b"junk" * 9, ReadRequest(), ("damaged or truncated gzip",)),
    "damaged parquet": ("a.parquet", parquet(sample_frame())[:-30], ReadRequest(), ("not a valid Parquet file",)),
    "no parquet": ("a.parquet", GOOD.encode(), ReadRequest(), ("not a valid Parquet file",)),
    "nested parquet": (
        "a.parquet",
        parquet(pd.DataFrame({"l": [["a"], ["b"]] * 4, "y": Y})),
        ReadRequest(targets=("y",)),
        ("`l`", "list", "--drop l"),
    ),
    "unknown ending": ("a.xlsx", b"PK", ReadRequest(), (".csv", ".parquet", ".npz")),
    "npz without X": ("a.npz", npz(y=Y, z=Y), ReadRequest(), ("no array `X`", "y, z")),
    "npz without y": ("a.npz", npz(X=X, label=Y), ReadRequest(), ("no array `y`", "X, label", "--target")),
    "objects in npz": ("a.npz", npz(X=X, y=np.array([{}] * 8, object)), ReadRequest(), ("`y`", "never unpickles")),
    "truncated npz": ("a.npz", npz(X=X, y=Y)[:-40], ReadRequest(), ("not a valid NumPy file",)),
    "text as npz": ("a.npz", GOOD.encode(), ReadRequest(), ("not a valid NumPy file",)),
    "npz of other lengths": ("a.npz", npz(X=X, y=Y[:5]), ReadRequest(), ("(5,)", "8 rows")),
    "flat X": ("a.npz", npz(X=X[:, 0], y=Y), ReadRequest(), ("(8,)", "X.reshape(-1, 1)")),
    "X of five dimensions": ("a.npz", npz(X=np.ones((8, 1, 1, 1, 1)), y=Y), ReadRequest(), ("2 to 4 dimensions",)),
    "X without columns": ("a.npz", npz(X=np.ones((8, 0)), y=Y), ReadRequest(), ("(8, 0)", "no inputs")),
    "words in X": ("a.npz", npz(X=np.full((8, 2), "a"), y=Y), ReadRequest(), ("<U1", "numbers")),
    "infinite X": (
        "a.npz",
        npz(X=np.where(np.eye(8, 2), np.inf, 1), y=Y),
        ReadRequest(),
        ("infinite at index (0, 0)",),
    ),
    "NaN as y": ("a.npz", npz(X=X, y=np.full(8, np.nan)), ReadRequest(), ("`y`", "missing in every row")),
    "drop from arrays": ("a.npz", npz(X=X, y=Y), ReadRequest(drop=("a",)), ("--drop a", "no names")),
    "complex y": ("a.npz", npz(X=X, y=Y * 1j), ReadRequest(), ("complex128",)),
    "one dimension in npy": ("a.npy", npy(np.ones(8)), ReadRequest(), ("(8,)", ".npz")),
    "target in images": ("a.npy", npy(np.ones((8, 2, 2))), ReadRequest(targets=("y",)), ("no array `y`", "contains X")),
    "objects in npy": ("a.npy", npy(np.array([{}], object)), ReadRequest(), ("never unpickles",)),
    "npy called npz": ("a.npz", npy(X), ReadRequest(), (".npy",)),
    "npz called npy": ("a.npy", npz(X=X), ReadRequest(), (".npz",)),
    "no svmlight": ("a.svm", b"x 1:2\n", ReadRequest(), ("svmlight format", "index:value")),
    "empty svmlight": ("a.svm", b"", ReadRequest(), ("is empty",)),
    "no idx": ("a-images.idx", b"\1\2\3\4\5", ReadRequest(), ("not an IDX file",)),
    "truncated idx": ("a-images.idx", idx(np.ones((3, 2, 2), np.uint8))[:-1], ReadRequest(), ("28 bytes",)),
    "images without labels": ("a-images.idx", idx(np.ones((3, 2, 2), np.uint8)), ReadRequest(), ("a-labels.idx",)),
    "labels without images": ("a-labels.idx", idx(np.ones(3, np.uint8)), ReadRequest(), ("contains labels",)),
    "odd idx name": ("faces.idx", idx(np.ones((3, 2, 2), np.uint8)), ReadRequest(), ("contains `images`",)),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    name, content, request, words = BAD_FILES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError) as refusal:
        read(str(tmp_path / name), request)
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith("."), message
    for word in words:
        assert word in message, message


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "houses.csv", GOOD)
    for source, words in (
        (tmp_path / "house.csv", "'houses.csv'"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "a.csv", "does not exist"),
    ):
        with pytest.raises(RequestError, match=words):
            read(str(source), ReadRequest())
    with pytest.raises(RequestError, match="File name too long"):
        read("a" * 5000, ReadRequest())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=r"'houses.csv'.* Named sets: digits, iris"):
        read("houses", ReadRequest())


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "a.parquet", "a.svm"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/proc/self/mem")  # its first page is nobody's, not even root's
    with pytest.raises(RequestError, match=rf"{name} (cannot be read|is not a valid)"):
        read(str(tmp_path / name), ReadRequest())


def test_reading_text_loads_no_network_library(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", GOOD)
    script = (
        "import sys; from gradwise.data.reading.read import *;"
        f"read({str(tmp_path / 'a.csv')!r}, ReadRequest(targets=('y',)));"
        "assert not {'jax', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
