"""The offline runs: their file holds what a sync would upload."""

import json
import struct
import time

import pytest
from wandb.proto.wandb_internal_pb2 import Record

from gradwise.runtime.errors import RequestError
from gradwise.tracking.tracker import curves_of
from gradwise.tracking.wandb_runs import WandB

_HEADER, _BLOCK = 7, 32768  # of the file; its records are those of a LevelDB log
_COMPLETE = {1, 4}  # kinds of pieces with which a record ends


def records(folder):
    """The records of the one offline run in a folder. W&B writes them from a process of its own, the exit last."""
    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    for _ in range(300):
        found = list(_records(path.read_bytes()))
        if any(one.HasField("exit") for one in found):
            break
        time.sleep(0.1)
    return found


def _records(data):
    at, whole = _HEADER, b""
    while at + _HEADER <= len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEADER:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        whole += data[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size
        if kind in _COMPLETE:
            yield Record.FromString(whole)
            whole = b""


def items(several):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in several}


def history(folder):
    return [items(one.history.item) for one in records(folder) if one.HasField("history")]


def summary(folder):
    found = {}
    for one in records(folder):
        found |= items(one.summary.update)
    return found


def test_every_row_setting_and_metric_is_there(tracked):
    rows = [row for row in history(tracked.folder) if "age_examples" in row]
    assert [row["age_examples"] for row in rows] == [row["age_examples"] for row in tracked.rows]
    for row, expected in zip(rows, tracked.rows, strict=True):
        assert {name: row[name] for name in curves_of(expected)} == pytest.approx(curves_of(expected))
    [run] = [one.run for one in records(tracked.folder) if one.HasField("run")]
    about = items(run.config.update)
    assert run.project == "tracked"
    assert about["optimiser.learning_rate"] == 0.1
    assert about["seed"] == 0
    found = summary(tracked.folder)
    assert found["outcome"] == "finished"
    assert found["test_error_rate"] == tracked.record.test


def test_curves_are_drawn_against_age(tracked):
    axes = {one.metric.name: one.metric.step_metric for one in records(tracked.folder) if one.HasField("metric")}
    assert axes["valid_loss"] == "age_examples"


def test_the_report_is_kept(tracked):
    [page] = tracked.folder.glob("wandb/offline-run-*/files/media/html/report*.html")
    assert "The page of the run." in page.read_text()


def test_each_trial_is_a_row_with_what_was_chosen(tracked_search):
    rows = history(tracked_search.folder)
    assert [row["trial"] for row in rows] == [row["trial"] for row in tracked_search.rows]
    for row in rows:
        trial = tracked_search.record.trials[row["trial"]]
        assert row["score"] == pytest.approx(trial.score)
        assert {path: row[f"values.{path}"] for path in trial.values} == pytest.approx(trial.values)


def test_an_unknown_mode_is_refused():
    with pytest.raises(RequestError, match="unknown mode 'of'; choose 'offline' or 'online'"):
        WandB(mode="of")


def test_a_training_that_failed_is_marked(failed):
    [end] = [one.exit for one in records(failed) if one.HasField("exit")]
    assert end.exit_code == 1
    assert summary(failed)["outcome"] == "failed"
