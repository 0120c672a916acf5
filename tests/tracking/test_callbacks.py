"""Callbacks around a training: what they get, and what happens when one fails."""

from pathlib import Path

import pytest

from gradwise.records.fit import Fit
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.tracking.callbacks import call_back
from gradwise.tracking.tracker import AbstractTracker, Row
from gradwise.training.loop import RunOptions
from gradwise.training.train import train
from tests.tracking.conftest import BLOBS, KEY, RECIPE, search_with


class Diary(AbstractTracker):
    """Notes what it is called with; fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.notes = fails, []

    def _note(self, name, what):
        self.notes.append((name, what))
        if name == self.fails:
            raise OSError("no space left")

    def begin(self, about):
        self._note("begin", about)

    def __call__(self, row):
        self._note("row", row["age_examples"])

    def end(self, record, report=None):
        self._note("end", record)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.notes]


def train_with(callbacks, **options) -> Fit:
    with call_back(callbacks, {"seed": 0}) as calls:
        result = train(RECIPE, BLOBS, key=KEY, options=RunOptions(watch=calls.watch, **options))
        calls.end(result)
    return result


def test_a_tracker_sees_the_beginning_every_row_and_the_end():
    diary, rows = Diary(), []
    result = train_with([diary, rows.append])
    ages = result.history["age_examples"]
    assert diary.notes == [("begin", {"seed": 0}), *(("row", age) for age in ages), ("end", result)]
    assert [row["age_examples"] for row in rows] == ages


def test_a_single_function_and_none_at_all_are_accepted():
    rows: list[Row] = []
    assert len(train_with(rows.append).history["updates"]) == len(rows)
    train_with(None)


def test_a_callback_that_changes_its_row_disturbs_nobody():
    rows: list[Row] = []
    assert train_with([dict.clear, rows.append]).outcome.name == "finished"
    assert all("valid_loss" in row for row in rows)


@pytest.mark.parametrize(
    ("wrong", "got"), [("tensorboard", "'tensorboard'"), (3, "3"), (Diary, "the class Diary"), (None, "None")]
)
def test_what_cannot_be_called_with_a_row_is_refused_by_its_place(wrong, got):
    with pytest.raises(RequestError, match=r"^callbacks\[1\]: expected a function of one row") as refused:
        train_with([print, wrong])
    assert str(refused.value).endswith(f"got {got}.")


def test_a_function_that_fails_stops_the_training_and_is_named():
    def plot_the_loss(row: Row) -> None:
        raise KeyError("loss")

    diary = Diary()
    with pytest.raises(WorkError, match=r"the callback .*plot_the_loss failed: KeyError: 'loss'\.") as stopped:
        train_with([diary, plot_the_loss])
    assert isinstance(stopped.value.__cause__, KeyError)  # the traceback leads to the user's own line
    assert diary.names == ["begin", "row", "end"]
    assert diary.notes[-1] == ("end", None)


def test_a_training_stopped_by_a_callback_goes_on_from_its_checkpoint(tmp_path: Path):
    whole = train_with(None)

    def fail_once(row: Row) -> None:
        raise ConnectionError("the server is gone")

    with pytest.raises(WorkError, match="the server is gone"):
        train_with([fail_once], folder=tmp_path, checkpoint_seconds=1000.0)
    ages: list[int] = []
    resumed = train_with([lambda row: ages.append(row["age_examples"])], folder=tmp_path, resume=True)
    assert ages == whole.history["age_examples"][1:]  # the first interval was not trained again
    assert resumed.history["valid_loss"] == whole.history["valid_loss"]
    assert resumed.metrics == whole.metrics


def test_a_training_stopped_at_its_last_row_has_ended(tmp_path: Path):
    def fail_last(row: Row) -> None:
        if row["epoch"] >= 4:
            raise ConnectionError("the server is gone")

    with pytest.raises(WorkError, match="the server is gone"):
        train_with([fail_last], folder=tmp_path)
    resumed = train_with([fail_last], folder=tmp_path, resume=True)
    assert resumed.outcome.name == "finished"
    assert resumed.metrics == train_with(None).metrics


def test_a_tracker_that_cannot_begin_stops_before_the_training_and_ends_the_others():
    first, second = Diary(), Diary("begin")
    with pytest.raises(WorkError, match="the callback Diary failed: OSError: no space left"):
        train_with([first, second])
    assert first.names == ["begin", "end"]


def test_a_tracker_that_cannot_end_warns_and_loses_nothing():
    first, last = Diary("end"), Diary()
    with pytest.warns(UserWarning, match=r"the callback Diary failed: OSError: no space left\. The result is complete"):
        result = train_with([first, last])
    assert result.outcome.name == "finished"
    assert last.names[-1] == "end"


def test_a_search_stopped_by_a_callback_names_it_and_goes_on_from_its_trials(tmp_path: Path):
    first, rest = [], []

    def fail(row: Row) -> None:
        first.append(row["trial"])
        if row["trial"] == 1:
            raise ValueError("no more")

    with pytest.raises(WorkError, match=r"fail failed: ValueError: no more\. Correct the callback"):
        search_with([fail], folder=tmp_path)
    resumed = search_with([lambda row: rest.append(row["trial"])], folder=tmp_path, resume=True)
    assert (first, rest) == ([0, 1], [2])
    assert [trial.score for trial in resumed.trials] == [trial.score for trial in search_with(None).trials]
