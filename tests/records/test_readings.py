"""Each reading of the test set is counted in the run's folder, and told from the second on."""

from pathlib import Path

import jax
import numpy as np
import pytest

import gradwise as gw
from gradwise.journeys.fit import fit_recipe
from gradwise.records.readings import READINGS, find_readings, in_words, next_reading, write_readings
from gradwise.reporting.report import verdict
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


def test_every_reading_in_python_is_counted(tmp_path: Path) -> None:
    """Resuming in a folder, and a warm start that keeps the test set; another key draws another one."""
    recipe = gw.defaults.classification(model=gw.models.Mlp(widths=(4,)), stopping=gw.training.Off(epochs=2))
    draw = np.random.default_rng(0)
    dataset = gw.Dataset(draw.normal(size=(60, 3)), np.arange(60) % 2, gw.Classes(np.array([0, 1])))
    options = gw.RunOptions(folder=tmp_path)
    again = gw.RunOptions(folder=tmp_path, resume=True)
    key = jax.random.key(0)
    runs = [fit_recipe(recipe, dataset, key=key, options=one, check_data=False) for one in (options, again, again)]
    assert [run.data.test_readings for run in runs] == [1, 2, 3]
    assert "read 3 times" in verdict(runs[2]).interval
    assert any("read 3 times" in finding.what for finding in runs[2].findings)
    warm = fit_recipe(recipe, dataset, key=key, warm=runs[0], check_data=False)
    assert warm.data.test_readings == 2
    other = fit_recipe(recipe, dataset, key=jax.random.key(1), warm=runs[0], check_data=False)
    assert other.data.test_readings == 1
