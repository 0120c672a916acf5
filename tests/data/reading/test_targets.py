"""Targets become a task; where one is missing the row is kept, unlabelled."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.reading.read import ReadRequest, read
from gradwise.data.reading.targets import missing_targets, of_array, under, understand
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Inputs, Labels, Numbers, Several

ROWS = 10
COLUMNS = {
    "word": ["no", None, "yes", "no", None, "yes", "no", "yes", "no", "yes"],
    "whole": [3, None, 5, 3, None, 5, 3, 5, 3, 5],
    "truth": [True, None, False, True, None, False, True, False, True, False],
    "real": [0.5, None, 1.5, 2.5, None, 3.5, 4.5, 5.5, 6.5, 7.5],
}
CODES = [0, -1, 1, 0, -1, 1, 0, 1, 0, 1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One table as text and as Parquet, two cells of each target empty."""
    frame = pd.DataFrame({"x": np.arange(ROWS) / 4, **COLUMNS}).astype({"whole": "Int64", "truth": "boolean"})
    folder = tmp_path_factory.mktemp("targets")
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_parquet(folder / "a.parquet")
    return [str(folder / "a.csv"), str(folder / "a.parquet")]


def asked(target: str, **more: object) -> ReadRequest:
    return ReadRequest(targets=(target,), drop=tuple(name for name in COLUMNS if name != target), **more)  # type: ignore


@pytest.mark.parametrize(
    ("target", "labels", "codes"),
    [
        ("word", ["no", "yes"], CODES),
        ("whole", [3, 5], CODES),  # integers stay integers, and so classes, beside empty cells
        ("truth", [False, True], [1 - code if code >= 0 else -1 for code in CODES]),
    ],
)
def test_a_class_that_is_missing_is_kept_unlabelled(
    files: list[str], target: str, labels: list[object], codes: list[int]
) -> None:
    for file in files:
        dataset = read(file, asked(target))
        assert isinstance(dataset.task, Classes)
        assert list(map(str, dataset.task.labels)) == list(map(str, labels))  # text files keep the word "True"
        assert dataset.targets.tolist() == codes
        assert dataset.labelled.sum() == 8
        assert any(f"`{target}`: missing in 2 of 10 rows, first in data row 2" in note for note in dataset.notes)


def test_a_number_that_is_missing_is_not_a_number(files: list[str]) -> None:
    for file in files:
        dataset = read(file, asked("real"))
        assert dataset.task == Numbers(("real",))
        np.testing.assert_array_equal(dataset.targets[:, 0], np.array(COLUMNS["real"], float))
        assert dataset.labelled.tolist() == [code >= 0 for code in CODES]


def test_several_targets_are_missing_together() -> None:
    first, second = of_array("a", np.array([0.0, 1.0, np.nan, 1.0])), of_array("b", np.array([np.nan, 1.0, 0.0, 0.0]))
    task, values, notes = understand([first, second], None)
    assert task == Labels(("a", "b"))
    np.testing.assert_array_equal(values, [[0, np.nan], [1, 1], [np.nan, 0], [1, 0]])
    assert notes == missing_targets([first, second])
    assert "`a`, `b`: missing in 2 of 4 rows, first in data row 1;" in notes[0]
    assert missing_targets([of_array("c", np.arange(3))]) == ()


def test_a_test_set_keeps_its_missing_targets_missing() -> None:
    task = Classes(np.array([3.0, 5.0, 7.0]))
    assert under(task, [of_array("y", np.array([7.0, np.nan, 3.0]))]).tolist() == [2, -1, 0]
    np.testing.assert_array_equal(under(Numbers(), [of_array("y", np.array([7.0, np.nan]))]), [[7.0], [np.nan]])


def test_a_supervised_fit_says_which_row_has_none_and_what_to_do(files: list[str], tmp_path: Path) -> None:
    line = "missing in 2 of 10 rows, first in data row 2: Supervised needs one for each.*SemiSupervised"
    for target, recipe in (("word", defaults.classification()), ("real", defaults.regression())):
        with pytest.raises(RequestError, match=line):
            gradwise.train(recipe, read(files[0], asked(target)), key=keys.from_seed(0))
    full = pd.read_csv(files[0])[["x", "word"]]
    full.dropna().to_csv(tmp_path / "train.csv", index=False)
    full.to_csv(tmp_path / "test.csv", index=False)
    dataset = read(str(tmp_path / "train.csv"), ReadRequest(targets=("word",), test=str(tmp_path / "test.csv")))
    with pytest.raises(RequestError, match="data row 2 of the test set has no target"):
        gradwise.train(defaults.classification(), dataset, key=keys.from_seed(0))


def test_all_columns_are_inputs_where_no_target_is_wanted(files: list[str]) -> None:
    for file in files:
        dataset = read(file, ReadRequest(unsupervised=True))
        assert isinstance(dataset.task, Inputs)
        assert dataset.targets.shape == (ROWS, 0)
        assert [column.name for column in dataset.columns] == ["x", *COLUMNS]
        assert "no target: features of the inputs are learned" in dataset.notes
        with pytest.raises(RequestError, match=r"--target, or learn features.*--unsupervised\. The columns are `x`"):
            read(file)
        left = read(file, ReadRequest(targets=("word",), unsupervised=True))
        assert "word" not in [column.name for column in left.columns]
        assert isinstance(left.task, Inputs)


def test_arrays_without_a_target_set_the_task_of_inputs_by_themselves(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    matrix, images = draw.normal(size=(8, 3)), draw.integers(0, 255, (8, 4, 5), np.uint8)
    np.save(tmp_path / "matrix.npy", matrix)
    np.save(tmp_path / "images.npy", images)
    np.savez(tmp_path / "alone.npz", X=images)
    np.savez(tmp_path / "both.npz", X=images, y=np.arange(8) % 2)
    np.savez(tmp_path / "other.npz", X=images, label=np.arange(8) % 2)
    for name, expected in (("matrix.npy", matrix), ("images.npy", images), ("alone.npz", images)):
        dataset = read(str(tmp_path / name))
        assert isinstance(dataset.task, Inputs)
        assert dataset.labelled.all()
        np.testing.assert_array_equal(dataset.inputs, expected)
    assert isinstance(read(str(tmp_path / "both.npz")).task, Classes)
    assert isinstance(read(str(tmp_path / "matrix.npy"), ReadRequest(targets=("x2",))).task, Numbers)
    for name in ("both.npz", "other.npz", "images.npy"):  # asked for, a target is left alone
        assert isinstance(read(str(tmp_path / name), ReadRequest(unsupervised=True)).task, Inputs)
    with pytest.raises(RequestError, match=r"no array `y`; it contains X, label\. Name the one.*--unsupervised"):
        read(str(tmp_path / "other.npz"))  # another array may be the target: it is not passed over in silence


def test_named_sets_lose_their_target_only_when_asked() -> None:
    told, untold = read("iris"), read("iris", ReadRequest(unsupervised=True))
    assert isinstance(told.task, Classes)
    assert isinstance(untold.task, Inputs)
    np.testing.assert_array_equal(told.inputs, untold.inputs)
    assert told.columns == untold.columns


def test_labels_are_needed_where_a_target_is_learned() -> None:
    dataset = read("iris", ReadRequest(unsupervised=True))
    with pytest.raises(RequestError, match=r"the data have no target, but Supervised needs one"):
        gradwise.train(defaults.classification(), dataset, key=keys.from_seed(0))


# --- several kinds (row G7)


def test_several_kinds_of_targets_stand_side_by_side(files: list[str]) -> None:
    """Each as it would be alone, codes beside numbers; NaN where one is missing, and a note for each that is."""
    names = ("real", "word", "truth")
    for file in files:
        dataset = read(file, ReadRequest(targets=names, drop=("whole",)))
        assert isinstance(dataset.task, Several)
        assert [task.kind for task in dataset.task.tasks] == ["numbers", "classes", "classes"]
        assert (dataset.task.names, dataset.task.outputs, dataset.task.width) == (names, 5, 3)
        for place, name in enumerate(names):
            alone = read(file, asked(name))
            expected = np.where(alone.labelled, np.ravel(alone.targets), np.nan)
            np.testing.assert_array_equal(dataset.targets[:, place], expected)
            np.testing.assert_array_equal(
                np.ravel(dataset.task.pieces[place].of(dataset.targets)), alone.targets.ravel()
            )
        assert sum("which teach the other targets alone" in note for note in dataset.notes) == 3
        again = read(file, ReadRequest(targets=("real,word,truth",), drop=("whole",)))
        np.testing.assert_array_equal(again.targets, dataset.targets)


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        ([[1.5, 2.5, 3.5], [False, True, True]], ["numbers", "classes"]),
        ([[1.5, 2.5, 3.5], [0, 1, 1]], "numbers"),
        ([["a", "b", "a"], [0, 1, 1]], ["classes", "classes"]),
        ([["a", "b", "a"], [0.0, 1.0, 1.0]], ["classes", "numbers"]),  # written with a decimal point, so measured
        ([[1.5, 2.5, 3.5], [3, 4, 5]], "numbers"),
        ([[0, 1, 1], [True, False, True]], "labels"),
        ([["a", "b", "a"], [3, 4, 5]], ["classes", "numbers"]),
        ([["a", "b", "a"], ["x", "y", "y"]], ["classes", "classes"]),
    ],
)
def test_the_kind_of_each_target_beside_others(columns: list[list[object]], kinds: object) -> None:
    targets = [of_array(f"t{k}", np.array(values)) for k, values in enumerate(columns)]
    task, values, _ = understand(targets, None)
    assert kinds == ([one.kind for one in task.tasks] if isinstance(task, Several) else task.kind)
    assert values.shape == (3, 2)
    np.testing.assert_array_equal(under(task, targets), values)


def test_several_targets_that_cannot_be_learned_are_refused() -> None:
    word, same = of_array("word", np.array(["a", "b", "a"])), of_array("same", np.array([2.0, 2.0, 2.0]))
    with pytest.raises(RequestError, match=r"`same` is 2\.0 in every row: leave it out"):
        understand([word, same], None)
    task, _, _ = understand([word, of_array("real", np.array([0.5, 1.5, 2.5]))], None)
    with pytest.raises(RequestError, match="the class 'c' in `word`"):
        under(task, [of_array("word", np.array(["c", "b", "a"])), of_array("real", np.array([0.5, 1.5, 2.5]))])
