"""The data of a run or study as they were read: rows, columns, preprocessing, and the command that read them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SetSizes:
    """The rows of the training, validation and test sets."""

    train: int = 0
    valid: int = 0
    test: int = 0

    @property
    def total(self) -> int:
        return self.train + self.valid + self.test


@dataclass(frozen=True)
class ColumnRead:
    """One column: its kind, its missing values, the number of its categories, and whether it is constant."""

    name: str
    kind: str = "number"
    missing: int = 0
    categories: int = 0
    constant: bool = False


@dataclass(frozen=True)
class DataRead:
    """How the data were read and split.

    `columns` are the first ones, `more` counts the others. `judged_on` is the set that the network was chosen by:
    "valid", or "train" if nothing was held out. `test_readings` counts how often the test set was read.
    """

    name: str = ""
    target: tuple[str, ...] = ()
    rows: SetSizes = SetSizes()
    split: str = ""
    shape: tuple[int, ...] = ()
    columns: tuple[ColumnRead, ...] = ()
    more: int = 0
    notes: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()
    judged_on: str = "valid"
    folds: int = 1
    test_readings: int = 0
    command: str = ""
