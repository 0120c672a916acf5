"""The data as read: sizes add up, and everything comes back from JSON."""

import json

from gradwise.records.data_read import ColumnRead, DataRead, SetSizes
from gradwise.records.plain_values import from_values, to_values


def test_the_sizes_add_up() -> None:
    assert SetSizes(6, 3, 1).total == 10


def test_what_was_read_comes_back() -> None:
    data = DataRead("a", ("y",), SetSizes(1), "HoldOut", (8, 8), (ColumnRead("x", "category", 2, 3, True),), more=4)
    assert from_values(DataRead, json.loads(json.dumps(to_values(data)))) == data
    assert to_values(data)["rows"] == {"train": 1, "valid": 0, "test": 0}
