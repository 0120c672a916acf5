"""Each reading of the test set is counted in the run's folder, and told from the second on."""

from pathlib import Path

import pytest

from gradwise.records.readings import READINGS, find_readings, in_words, next_reading, write_readings
from gradwise.runtime.errors import WorkError


def test_a_folder_remembers_how_often_its_test_set_was_read(tmp_path: Path) -> None:
    assert next_reading(None) == next_reading(tmp_path) == next_reading(tmp_path) == 1  # nobody was told the first
    write_readings(0, tmp_path)
    assert not (tmp_path / READINGS).exists()
    for count in (1, 2, 3):
        assert next_reading(tmp_path) == count
        write_readings(count, tmp_path)


@pytest.mark.parametrize("content", ["", "many", "-1", "[1]", "true"])
def test_a_damaged_count_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / READINGS).write_text(content)
    with pytest.raises(WorkError, match=r"test_readings\.json is damaged"):
        next_reading(tmp_path)
    assert (tmp_path / READINGS).read_text() == content


def test_the_first_reading_is_honest_and_later_ones_are_told() -> None:
    assert find_readings(0) == find_readings(1) == ()
    (found,) = find_readings(3)
    assert found.what.startswith("the test set has been read 3 times: ")
    assert (found.level, found.row) == ("warning", "E2")
    assert [in_words(n) for n in (1, 2, 7)] == ["once", "twice", "7 times"]
