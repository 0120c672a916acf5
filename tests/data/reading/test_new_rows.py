"""New rows in any form: a frame, an Arrow table and an array are encoded as the training rows were."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from gradwise.data.reading.new_rows import read_rows
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Column

COLUMNS = (Column("n"), Column("c", "category", ("p", "q")))


def test_a_frame_and_an_arrow_table_are_matched_by_name() -> None:
    frame = pd.DataFrame({"other": ["z", "z", "z"], "c": ["q", "r", None], "n": [1, 2, 3]})
    for data in (frame, pa.Table.from_pandas(frame)):
        rows = read_rows(data, COLUMNS, (2,))
        np.testing.assert_array_equal(rows.inputs, [[1, 1], [2, np.nan], [3, np.nan]])
        assert dict(rows.unseen) == {"c": 1}
        assert list(rows.table.column_names)[:3] == ["other", "c", "n"]
    one = read_rows([{"n": 4, "c": "p"}, {"c": "q", "n": 5}], COLUMNS, (2,))
    np.testing.assert_array_equal(one.inputs, [[4, 0], [5, 1]])
    with pytest.raises(RequestError, match="`n`"):
        read_rows(frame.drop(columns="n"), COLUMNS, (2,))


def test_an_array_is_matched_by_position_and_must_fit() -> None:
    numbers = (Column("a"), Column("b"))
    np.testing.assert_array_equal(read_rows([[1, 2], [3, 4]], numbers, (2,)).inputs, [[1.0, 2.0], [3.0, 4.0]])
    assert read_rows(np.zeros((3, 4)), (), (2, 2)).inputs.shape == (3, 2, 2)
    assert read_rows(pd.DataFrame(np.zeros((3, 4))), (), (4,)).inputs.shape == (3, 4)
    assert read_rows(sparse.csr_matrix(np.eye(3)), (), (5,)).inputs.shape == (3, 5)
    with pytest.raises(RequestError, match="expects 2"):
        read_rows(np.zeros((3, 4)), numbers, (2,))
    with pytest.raises(RequestError, match="expects a table with `n`, `c`"):
        read_rows(np.zeros((3, 2)), COLUMNS, (2,))
