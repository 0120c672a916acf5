"""Named data sets: those that scikit-learn ships, those under $GRADWISE_DATA, and those that must be fetched."""

import subprocess
import sys
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from gradwise.data.reading.named_sets import NAMES
from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.specs.dataset import Classes, Numbers


def test_digits_are_the_images_of_scikit_learn() -> None:
    dataset, bunch = read("digits", ReadRequest()), sklearn.datasets.load_digits()
    assert dataset.inputs.dtype == np.uint8
    assert dataset.shape == (8, 8)
    np.testing.assert_array_equal(dataset.inputs, bunch.images)
    np.testing.assert_array_equal(dataset.targets, bunch.target)


def test_digits_are_read_without_the_libraries_for_tables() -> None:
    script = (
        "import sys; from gradwise.data.reading.read import *; read('digits', ReadRequest());"
        "assert not {'pandas', 'pyarrow', 'sklearn', 'jax'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("name", "loader", "target"),
    [("iris", "iris", "species"), ("wine", "wine", "cultivar"), ("breast-cancer", "breast_cancer", "diagnosis")],
)
def test_shipped_tables(name: str, loader: str, target: str) -> None:
    dataset, bunch = read(name, ReadRequest()), getattr(sklearn.datasets, f"load_{loader}")()
    np.testing.assert_array_equal(dataset.inputs, bunch.data)
    assert isinstance(dataset.task, Classes)
    assert dataset.task.name == target
    np.testing.assert_array_equal(dataset.task.labels[dataset.targets], bunch.target_names[bunch.target])
    assert [column.name for column in dataset.columns] == [name.removesuffix(" (cm)") for name in bunch.feature_names]


def test_diabetes_is_not_scaled() -> None:
    dataset, bunch = read("diabetes", ReadRequest()), sklearn.datasets.load_diabetes(scaled=False)
    np.testing.assert_array_equal(dataset.inputs, bunch.data)
    np.testing.assert_array_equal(dataset.targets[:, 0], bunch.target)
    assert dataset.task == Numbers(("progression",))


def test_a_named_table_is_read_as_asked() -> None:
    dataset = read("iris", ReadRequest(targets=("petal width",), drop=("species",)))
    assert dataset.task == Numbers(("petal width",))
    assert [column.name for column in dataset.columns] == ["sepal length", "sepal width", "petal length"]
    rows = read_rows("iris", dataset.columns, dataset.shape)
    np.testing.assert_array_equal(rows.inputs, dataset.inputs)
    assert read_rows("digits", (), (8, 8)).inputs.shape == (1797, 8, 8)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(RequestError, match="Did you mean 'breast-cancer'") as refusal:
        read("breast_cancer", ReadRequest())
    assert all(name in str(refusal.value) for name in NAMES)


def test_mnist(data_folder: Path) -> None:
    dataset = read("mnist", ReadRequest())
    assert dataset.inputs.shape == (60000, 28, 28)
    assert dataset.inputs.dtype == np.uint8
    assert dataset.test is not None
    assert dataset.test.inputs.shape == (10000, 28, 28)
    counts = np.bincount(dataset.targets)
    assert (counts.min(), counts.max()) == (5421, 6742)
    assert dataset.targets[:5].tolist() == [5, 0, 4, 1, 9]


def test_usps(data_folder: Path) -> None:
    dataset = read("usps", ReadRequest())
    assert dataset.test is not None
    assert (dataset.inputs.shape, dataset.test.inputs.shape) == ((7291, 16, 16), (2007, 16, 16))


def test_adult(data_folder: Path) -> None:
    dataset = read("adult", ReadRequest())
    assert isinstance(dataset.task, Classes)
    assert dataset.task.labels.tolist() == ["<=50K", ">50K"]
    assert np.bincount(dataset.targets).tolist() == [24720, 7841]
    assert dataset.test is not None
    assert np.bincount(dataset.test.targets).tolist() == [12435, 3846]
    kinds = {column.name: column for column in dataset.columns}
    assert len(kinds) == 14
    assert kinds["age"].kind == "number"
    assert kinds["sex"].categories == ("Female", "Male")
    assert len(kinds["native-country"].categories) == 41
    assert "column `workclass`: 1836 of 32561 missing" in dataset.notes
    raw = pd.read_csv(data_folder / "tabular" / "adult-train.csv.gz", header=None, skipinitialspace=True)
    index = [column.name for column in dataset.columns].index("capital-gain")
    np.testing.assert_array_equal(dataset.inputs[:, index], raw[10])


@pytest.mark.parametrize(
    ("name", "rows", "columns", "test"),
    [
        ("california-housing", 20640, 8, None),
        ("german-credit", 1000, 20, None),
        ("letter", 16000, 16, 4000),
        ("optdigits", 3823, 64, 1797),
        ("shuttle", 43500, 9, 14500),
        ("spambase", 3065, 57, 1536),
        ("concrete", 1030, 8, None),
        ("kin8nm", 8192, 8, None),
    ],
)
def test_tables_of_the_folder(data_folder: Path, name: str, rows: int, columns: int, test: int | None) -> None:
    dataset = read(name, ReadRequest())
    assert dataset.inputs.shape == (rows, columns)
    assert len(dataset.columns) == columns
    assert (dataset.test and len(dataset.test)) == test


def test_a_set_that_cannot_be_fetched_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise URLError("no route\nto host")

    monkeypatch.setenv("GRADWISE_DATA", str(tmp_path))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    monkeypatch.setattr(sklearn.datasets, "fetch_california_housing", fail)
    for name in ("mnist", "adult", "california-housing"):
        with pytest.raises(WorkError, match=f"^could not download {name} .*no route to host.* GRADWISE_DATA.*"):
            read(name, ReadRequest())


def test_a_fetched_set_is_read_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"a": range(10), "c": pd.Categorical(list("xy") * 5), "class": pd.Categorical(list("pq") * 5)})
    images = np.zeros((60_004, 784), np.int16)
    images[60_003, 29] = 255  # row 1, column 1

    def fetch(data_id: int, as_frame: bool, n_retries: int) -> Bunch:
        if as_frame:
            return Bunch(frame=frame, target_names=["class"])
        return Bunch(data=images, target=np.array(["3", "7"] * 30_002, object))

    monkeypatch.delenv("GRADWISE_DATA", raising=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    adult = read("adult", ReadRequest())
    assert isinstance(adult.task, Classes)
    assert adult.task.labels.tolist() == ["p", "q"]
    assert [column.categories for column in adult.columns] == [(), ("x", "y")]
    mnist = read("mnist", ReadRequest())
    assert mnist.inputs.dtype == np.uint8
    assert mnist.shape == (28, 28)
    assert len(mnist) == 60_000
    assert isinstance(mnist.task, Classes)
    assert mnist.task.labels.tolist() == [3, 7]
    assert mnist.test is not None
    assert mnist.test.targets.tolist() == [0, 1, 0, 1]
    assert np.argwhere(mnist.test.inputs).tolist() == [[3, 1, 1]]
