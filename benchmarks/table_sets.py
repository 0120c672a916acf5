"""The tables that `tables.py` measures on: thirty public sets, read from $GRADWISE_DATA/tabular.

    part = split("german", seed=0)
    part.train, part.train_targets                     a frame with named columns, and its targets

Columns of words, and numbers that only name something, are of pandas' category type; what is missing stays missing.
Sets at even places of the alphabetical list are for development, those at odd places are kept for the report.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NAMES = (
    "adult",
    "banknote",
    "covertype_subset",
    "dna",
    "german",
    "glass",
    "ionosphere",
    "isolet1560",
    "letter",
    "mammography",
    "multilabel_yeast",
    "optdigits",
    "phoneme",
    "pimaindiansdiabetes",
    "reg_abalone",
    "reg_california_housing",
    "reg_concrete",
    "reg_energy",
    "reg_kin8nm",
    "reg_naval",
    "reg_power_plant",
    "reg_protein",
    "reg_wine_quality",
    "reg_yacht",
    "shuttle",
    "sonar",
    "spambase",
    "texture",
    "vehicle",
    "vowel",
)
LARGE = ("adult", "covertype_subset", "reg_protein", "shuttle")
HALVES = {"development": NAMES[0::2], "report": NAMES[1::2], "both": NAMES}
CATEGORIES = ("wilderness", "soil", "sex_M0_F1_I2")  # arrays of ids that stand beside X
ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A table in two parts: rows to learn from, and rows to be judged by."""

    kind: str  # "classes", "labels" or "numbers"
    train: pd.DataFrame
    test: pd.DataFrame
    train_targets: np.ndarray
    test_targets: np.ndarray

    def error(self, predicted: Any) -> float:
        """The share of wrong classes, or of wrong labels (Hamming); the root mean squared error of numbers."""
        predicted = np.asarray(predicted).reshape(self.test_targets.shape)
        if self.kind == "numbers":
            return float(np.sqrt(np.mean((predicted - self.test_targets) ** 2)))
        return float(np.mean(predicted != self.test_targets))


def folder() -> Path:
    return Path(os.environ.get("GRADWISE_DATA", "../shared/data")) / "tabular"


def load(name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """A set's frame, its targets, and whether these are classes, labels or numbers."""
    if name == "adult":
        files = [folder() / f"adult-{part}.csv.gz" for part in ("train", "test")]
        options: dict[str, Any] = {"header": None, "names": ADULT, "skipinitialspace": True, "na_values": "?"}
        return _with_categories(pd.concat([pd.read_csv(file, **options) for file in files], ignore_index=True))
    if name == "german":
        return _with_categories(pd.read_csv(folder() / "german.csv.gz", header=None).rename(columns=lambda n: f"x{n}"))
    with np.load(folder() / f"{name}.npz") as stored:
        arrays = dict(stored)
    inputs = arrays["X"].astype(np.float64) * float(arrays.get("scale", 1.0))
    columns = arrays.get("features", [f"x{number}" for number in range(inputs.shape[1])])
    frame = pd.DataFrame(inputs, columns=[str(column) for column in columns])
    for beside in CATEGORIES:
        if beside in arrays:
            frame[beside] = pd.Categorical(arrays[beside].astype(str))
    if "is_white" in arrays:
        frame["is_white"] = arrays["is_white"].astype(np.float64)
    if "Y" in arrays:
        return frame, arrays["Y"].astype(int), "labels"
    if name.startswith("reg_"):
        return frame, arrays["y"].astype(np.float64), "numbers"
    return frame, arrays["y"].astype(int), "classes"


def _with_categories(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, str]:
    """A file of words and numbers: words become categories, the last column the classes."""
    classes = frame.pop(frame.columns[-1]).astype(str).str.rstrip(".")  # adult's second file ends its labels so
    words = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    return frame.astype(dict.fromkeys(words, "category")), pd.factorize(classes, sort=True)[0], "classes"


def split(name: str, seed: int) -> Part:
    """Four fifths to learn from and one fifth to be judged by; classes spread evenly."""
    from sklearn.model_selection import train_test_split

    frame, targets, kind = load(name)
    evenly = targets if kind == "classes" else None
    train, test, *both = train_test_split(frame, targets, test_size=0.2, random_state=seed, stratify=evenly)
    return Part(kind, train.reset_index(drop=True), test.reset_index(drop=True), *both)
