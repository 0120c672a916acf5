"""What became of each example, on disk."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradwise.records.evidence.example_record import (
    EXAMPLES,
    ExampleRecord,
    examples_frame,
    read_examples,
    write_examples,
)
from gradwise.runtime.errors import RequestError

RECORD = ExampleRecord(
    {
        "set": np.array(["training", "training", "validation"]),
        "row": np.array([0, 2, 1]),
        "target": np.array(["cat", "dog", "cat"]),
        "forgotten": np.array([1.0, 0.0, np.nan], np.float32),
        "suspect": np.array([False, True, False]),
    }
)


def test_a_record_is_read_as_it_was_written_and_equal_ones_give_equal_bytes(tmp_path: Path) -> None:
    assert read_examples(tmp_path) is None
    write_examples(RECORD, tmp_path)
    first = (tmp_path / EXAMPLES).read_bytes()
    write_examples(RECORD, tmp_path)
    assert (tmp_path / EXAMPLES).read_bytes() == first
    found = read_examples(tmp_path)
    assert found is not None
    pd.testing.assert_frame_equal(examples_frame(found), examples_frame(RECORD))
    assert repr(found) == "ExampleRecord(3 examples, 1 suspected label errors)"
    assert len(examples_frame(None)) == 0


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 torn"])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EXAMPLES).write_bytes(content)
    with pytest.raises(RequestError, match=r"examples.npz is damaged"):
        read_examples(tmp_path)


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / EXAMPLES, row=np.arange(3), suspect=np.zeros(2, bool))
    with pytest.raises(RequestError, match="differ in length"):
        read_examples(tmp_path)
