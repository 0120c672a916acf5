"""Rows read with NumPy alone become the numbers that `read_rows` makes of them."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.tables import from_frame
from gradwise.exporting.plain_rows import encode_rows

FRAME = pd.DataFrame(
    {
        "size": [1.5, np.nan, 3.0, 1e9],
        "rooms": [1, 2, 3, 4],
        "zip": ["7", "12", None, "7"],
        "garden": [True, False, True, False],
        "when": ["2024-01-31 05:00", "2023-02-28 13:05", None, "1999-12-31 23:59"],
    }
)


@pytest.fixture(scope="module")
def columns() -> Any:
    return from_frame(FRAME, kinds={"zip": "category"}).columns


def test_rows_are_read_as_by_gradwise(columns: Any) -> None:
    told = [(column.name, column.kind, column.categories) for column in columns]
    forms: list[Any] = [
        FRAME,
        FRAME.assign(zip=[7, 12, np.nan, 7.0], rooms=["1", "2", "3", "4"]),
        FRAME.assign(zip=FRAME["zip"].astype("category"), size=FRAME["size"].astype("float32")),
        FRAME.assign(when=pd.to_datetime(FRAME["when"])),
        FRAME.assign(when=["2024-01-31T06:00+01:00", "2023-02-28T13:05Z", "", "1999-12-31 23:59"]),
        FRAME.assign(when=["31.1.2024 05:00", "28.2.2023 13:05", "", "31.12.1999 23:59"]),
        FRAME.assign(garden=["True", "False", "True", " False "], zip=["7", "99", "NA", "?"]),
        FRAME.convert_dtypes(),
        FRAME.to_dict("records"),
        FRAME.iloc[[2]],
    ]
    for rows in forms:
        wanted = read_rows(pd.DataFrame(rows), columns, (len(columns),)).inputs
        np.testing.assert_array_equal(encode_rows(rows, told), wanted)
    whole = encode_rows(FRAME, told)
    np.testing.assert_array_equal(encode_rows({name: FRAME[name].tolist() for name in FRAME}, told), whole)
    days = [
        datetime.datetime.fromisoformat(text) if text else None
        for text in FRAME["when"].where(FRAME["when"].notna(), "")
    ]
    np.testing.assert_array_equal(
        encode_rows([{**row, "when": day} for row, day in zip(FRAME.to_dict("records"), days, strict=True)], told),
        whole,
    )
    stamps = FRAME.assign(when=pd.to_datetime(FRAME["when"]))["when"].to_numpy()
    np.testing.assert_array_equal(encode_rows({**{n: FRAME[n] for n in FRAME}, "when": stamps}, told), whole)


def test_an_array_serves_where_all_columns_are_numbers() -> None:
    told = [("a", "number", ()), ("b", "pixel", ())]
    np.testing.assert_array_equal(encode_rows(np.eye(2, dtype=np.int64), told), np.eye(2))
    np.testing.assert_array_equal(encode_rows([{"a": 1, "b": None}], told), [[1.0, np.nan]])
    with pytest.raises(ValueError, match="a dictionary of columns"):
        encode_rows(np.zeros((2, 3)), told)
