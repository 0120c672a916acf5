"""Named data sets, for trying things out.

Five come with scikit-learn. The others are looked up in the folder `$GRADWISE_DATA` (the paths are in the table
below) and otherwise downloaded by scikit-learn. `mnist` and `fashion-mnist` come with their official test sets, so that
results are comparable; so do `usps`, `adult`, `letter`, `optdigits`, `shuttle` and `spambase` when read from the
folder. A downloaded set has no test set if its order does not identify the test rows.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import WorkError
from . import delimited, files
from .columns import fields_of_frame
from .files import Loaded

_ADULT = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,"
    "capital-loss,hours-per-week,native-country,income"
)
_GERMAN = (
    "status,duration,history,purpose,amount,savings,employment,rate,personal,debtors,residence,property,age,plans,"
    "housing,credits,job,dependants,telephone,foreign,risk"
)


def _table(name: str, inputs: np.ndarray, features: Any, target: str, values: np.ndarray, **more: Any) -> Loaded:
    """A table from a matrix and its column names."""
    import pyarrow as pa

    columns = {str(feature): np.ascontiguousarray(inputs[:, index]) for index, feature in enumerate(features)}
    return Loaded(name, pa.table({**columns, target: values}), targets=(target,), **more)


def _shipped_digits() -> np.ndarray:
    """The digits that come with scikit-learn, a row of 64 pixels and the digit each.

    Read from its file where that is found: importing scikit-learn takes a second, reading this a fortieth of one.
    """
    package = importlib.util.find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            lines = gzip.decompress(file.read_bytes()).decode().replace("\n", ",").rstrip(",").split(",")
            return np.array(lines, dtype=np.float64).astype(np.uint8).reshape(-1, 65)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.uint8)


def _digits() -> Loaded:
    rows = _shipped_digits()
    arrays = {"X": rows[:, :-1].reshape(-1, 8, 8), "y": rows[:, -1].astype(np.int64)}
    return Loaded("digits", arrays=arrays, targets=("y",), integers_are_classes=True)


def _shipped(name: str) -> Loaded:
    """A table that comes with scikit-learn."""
    import sklearn.datasets

    options = {"scaled": False} if name == "diabetes" else {}  # the scaled form has seen every row, test rows too
    bunch = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")(**options)
    features = [feature.removesuffix(" (cm)") for feature in bunch.feature_names]
    values = bunch.target_names[bunch.target] if "target_names" in bunch else bunch.target
    return _table(name, bunch.data, features, _TARGETS[name], values)


def _idx(name: str, path: Path) -> Loaded:
    return replace(files.load_idx(path), name=name)


def _usps(name: str, path: Path) -> Loaded:
    with np.load(path, allow_pickle=False) as archive:
        train, test = (
            {"X": archive[f"X_{part}"], "y": archive[f"y_{part}"].astype(np.int64)} for part in ("train", "test")
        )
    official = Loaded(f"{name}-test", arrays=test, targets=("y",), integers_are_classes=True)
    return Loaded(name, arrays=train, targets=("y",), integers_are_classes=True, test=official)


def _adult(name: str, path: Path) -> Loaded:
    def part(file: Path) -> Any:
        # The original test file ends each label with a point.
        rows = files.read_bytes(file).replace(b"K.", b"K")
        return delimited.parse_delimited(_ADULT.encode() + b"\n" + rows, str(file)).table

    test = Loaded(f"{name}-test", part(path.with_name(path.name.replace("train", "test"))), targets=("income",))
    return Loaded(name, part(path), targets=("income",), test=test)


def _german(name: str, path: Path) -> Loaded:
    data = _GERMAN.encode() + b"\n" + files.read_bytes(path)
    return Loaded(name, delimited.parse_delimited(data, str(path)).table, targets=("risk",))


def _matrix(target: str, test_from: int = 0) -> Callable[[str, Path], Loaded]:
    """A reader of an `.npz` with X, y and perhaps `features`, `classes` and `is_test`."""

    def read(name: str, path: Path) -> Loaded:
        with np.load(path, allow_pickle=False) as archive:
            inputs, values = archive["X"], archive["y"]
            features = archive.get("features", [f"x{index + 1}" for index in range(inputs.shape[1])])
            classes, chosen = archive.get("classes"), archive.get("is_test")
        if classes is not None:
            values = (classes.astype(np.int64) if np.char.isdigit(classes).all() else classes)[values]
        if chosen is None and not test_from:
            return _table(name, inputs, features, target, values)
        chosen = np.arange(len(values)) >= test_from if chosen is None else chosen.astype(bool)
        test = _table(f"{name}-test", inputs[chosen], features, target, values[chosen])
        return _table(name, inputs[~chosen], features, target, values[~chosen], test=test)

    return read


def _attempt(name: str, path: str, fetch: Callable[[], Any]) -> Any:
    """Downloads a set with scikit-learn; raises a one-line error if that fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its retries warn; the failure is reported once, below
            return fetch()
    except (OSError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:100]
        raise WorkError(
            f"could not download {name} ({reason}): connect to the internet, or set GRADWISE_DATA to a folder that "
            f"holds {path}."
        ) from None


def _fetch_table(name: str, path: str, number: int) -> Loaded:
    """A table from OpenML by its number; California housing, number 0, from scikit-learn."""
    import pyarrow as pa
    from sklearn.datasets import fetch_california_housing, fetch_openml

    if number:
        bunch = _attempt(name, path, lambda: fetch_openml(data_id=number, as_frame=True, n_retries=1))
    else:
        bunch = _attempt(name, path, lambda: fetch_california_housing(as_frame=True, n_retries=1))
    fields = fields_of_frame(bunch.frame)
    table = pa.table({title: field.array for title, field in fields.items()})
    return Loaded(name, table, targets=tuple(map(str, bunch.target_names)))


def _fetch_images(name: str, path: str, number: int, shape: tuple[int, ...], test_from: int) -> Loaded:
    """Images from OpenML; the official test set starts at row `test_from`, if that is not 0."""
    from sklearn.datasets import fetch_openml

    bunch = _attempt(name, path, lambda: fetch_openml(data_id=number, as_frame=False, n_retries=1))
    inputs = np.asarray(bunch.data).reshape(-1, *shape)
    if inputs.min() >= 0 and inputs.max() <= 255 and (inputs.dtype.kind in "iu" or np.all(inputs % 1 == 0)):
        inputs = inputs.astype(np.uint8)
    values = np.asarray(bunch.target).astype(str)
    if np.char.isdigit(values).all():
        values = values.astype(np.int64)
    cut = test_from or len(values)
    train, test = (
        Loaded(title, arrays={"X": inputs[rows], "y": values[rows]}, targets=("y",), integers_are_classes=True)
        for title, rows in ((name, slice(cut)), (f"{name}-test", slice(cut, None)))
    )
    return replace(train, test=test) if test_from else train


# The tables that come with scikit-learn, with the names of their targets.
_TARGETS = {"iris": "species", "wine": "cultivar", "breast-cancer": "diagnosis", "diabetes": "progression"}
_IMAGES = "train-images-idx3-ubyte.gz"
# Where each lies under $GRADWISE_DATA, how it is read there, and its number at OpenML.
_STORED: dict[str, tuple[str, Callable[[str, Path], Loaded], int]] = {
    "mnist": (f"mnist/{_IMAGES}", _idx, 554),
    "fashion-mnist": (f"fashion_mnist/{_IMAGES}", _idx, 40996),
    "usps": ("usps/usps.npz", _usps, 41082),
    "california-housing": ("tabular/reg_california_housing.npz", _matrix("MedHouseVal"), 0),
    "adult": ("tabular/adult-train.csv.gz", _adult, 1590),
    "german-credit": ("tabular/german.csv.gz", _german, 31),
    "letter": ("tabular/letter.npz", _matrix("letter", 16_000), 6),
    "optdigits": ("tabular/optdigits.npz", _matrix("digit", 3_823), 28),
    "shuttle": ("tabular/shuttle.npz", _matrix("class", 43_500), 40685),
    "spambase": ("tabular/spambase.npz", _matrix("kind"), 44),
    "concrete": ("tabular/reg_concrete.npz", _matrix("strength"), 44959),
    "kin8nm": ("tabular/reg_kin8nm.npz", _matrix("y"), 189),
}
_SHAPES = {"mnist": ((28, 28), 60_000), "fashion-mnist": ((28, 28), 60_000), "usps": ((16, 16), 0)}
NAMES = ("digits", *_TARGETS, *_STORED)


def load_named(name: str) -> Loaded:
    """The named set: from scikit-learn, from $GRADWISE_DATA, or downloaded."""
    if name == "digits":
        return _digits()
    if name in _TARGETS:
        return _shipped(name)
    path, read, number = _STORED[name]
    folder = os.environ.get("GRADWISE_DATA", "")
    if folder and (Path(folder) / path).is_file():
        return read(name, Path(folder) / path)
    if name in _SHAPES:
        return _fetch_images(name, path, number, *_SHAPES[name])
    return _fetch_table(name, path, number)
