"""Checkpoints of a search's trainings: whole, of this training and no other, and gone when they are not needed."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

from gradwise.runtime import keys
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Job
from gradwise.searching.storage import job_checkpoints
from gradwise.searching.storage.job_checkpoints import EndedJobs, JobCheckpoints, RunningJobs
from gradwise.training.checkpoint import Saved
from gradwise.training.population import enter
from gradwise.training.state import State
from tests.searching import tiny
from tests.searching.small_study import planted

JOB = Job(7, tiny.recipe(), 3, examples=500, variant=("fold", 1))
LINES: dict[str, list[Any]] = {"valid_loss": [0.1 + 0.2, float("nan")], "seconds": [1.0, 2.0], "best": [0]}


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def state(data: EvaluationData) -> State:
    recipe = tiny.recipe()
    return enter(recipe, *data.place(recipe.scaler), outputs=3, key=keys.from_seed(1))[1]


@pytest.fixture
def checkpoints(tmp_path: Path) -> JobCheckpoints:
    return JobCheckpoints(tmp_path / "running", 0.0, "a study")


def test_a_training_comes_back_bit_for_bit(checkpoints: JobCheckpoints, state: State) -> None:
    assert not checkpoints.has(JOB)
    checkpoints.save(JOB, Saved(state, LINES, 2.0))
    assert checkpoints.has(JOB)
    assert checkpoints.folder is not None
    assert [path.name for path in checkpoints.folder.iterdir()] == ["7.safetensors"]
    found = checkpoints.load(JOB, jax.tree.map(lambda leaf: leaf * 0, state))
    assert found is not None
    assert str(found.history) == str(LINES)
    assert found.seconds == 2.0
    for mine, theirs in zip(jax.tree.leaves(found.state), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def _damaged(checkpoints: JobCheckpoints) -> JobCheckpoints:
    assert checkpoints.folder is not None
    path = checkpoints.folder / "7.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    return checkpoints


@pytest.mark.parametrize(
    "change",
    [
        lambda c, job: (c, dataclasses.replace(job, recipe=tiny.recipe(rate=0.2))),
        lambda c, job: (c, dataclasses.replace(job, randomness=4)),
        lambda c, job: (c, dataclasses.replace(job, examples=None)),
        lambda c, job: (c, dataclasses.replace(job, variant=("fold", 2))),
        lambda c, job: (dataclasses.replace(c, study="another version, or other data"), job),
        lambda c, job: (_damaged(c), job),
    ],
    ids=["recipe", "randomness", "length", "fold", "study", "damaged"],
)
def test_a_file_that_does_not_fit_is_ignored(
    checkpoints: JobCheckpoints, state: State, change: Callable[[JobCheckpoints, Job], tuple[JobCheckpoints, Job]]
) -> None:
    checkpoints.save(JOB, Saved(state, LINES, 2.0))
    assert checkpoints.load(JOB, state) is not None
    other, job = change(checkpoints, JOB)
    assert other.load(job, state) is None


def test_a_state_of_other_shapes_is_ignored(checkpoints: JobCheckpoints, state: State) -> None:
    """On a device with other buckets of widths the same recipe has larger arrays."""
    checkpoints.save(JOB, Saved(state, LINES, 2.0))
    larger = eqx.tree_at(lambda s: s.update, state, np.zeros(2, np.int32))
    assert checkpoints.load(JOB, larger) is None


def test_nothing_is_written_where_the_folder_of_the_study_is_not_seen(state: State, tmp_path: Path) -> None:
    elsewhere = JobCheckpoints(tmp_path / "on another machine" / "running", 0.0)
    elsewhere.save(JOB, Saved(state, LINES, 2.0))
    assert list(tmp_path.iterdir()) == []
    nowhere = JobCheckpoints()
    assert not nowhere.is_due(0.0)
    nowhere.save(JOB, Saved(state, LINES, 2.0))
    assert not nowhere.has(JOB)


def test_a_disk_that_cannot_be_written_ends_no_training(state: State, tmp_path: Path) -> None:
    (tmp_path / "running").write_text("a file where the folder should be")
    checkpoints = JobCheckpoints(tmp_path / "running", 0.0)
    checkpoints.save(JOB, Saved(state, LINES, 2.0))
    assert not checkpoints.has(JOB)


def test_a_training_is_written_when_it_is_time_and_not_before(
    checkpoints: JobCheckpoints, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the end of its first interval, which may have compiled."""
    clock = [100.0]
    monkeypatch.setattr(job_checkpoints.time, "monotonic", lambda: clock[0])
    running = RunningJobs(dataclasses.replace(checkpoints, seconds=10.0))
    early, late = JOB, dataclasses.replace(JOB, number=8)
    written: list[int] = []

    def now(clock_says: float, *jobs: Job) -> list[int]:
        clock[0] = clock_says
        written.clear()
        running.keep([(job, functools.partial(_noted, job.number, written, state)) for job in jobs])
        return list(written)

    assert now(100.0, early) == []
    assert now(105.0, early, late) == []
    assert now(110.0, early, late) == [7]
    assert now(114.0, early, late) == []
    assert now(120.0, early, late) == [8, 7]  # the one that has waited longest comes first
    assert now(131.0, late) == [8]
    assert now(142.0, early, late) == [8]  # the other one began again meanwhile


def _noted(number: int, written: list[int], state: State) -> Saved:
    written.append(number)
    return Saved(state, LINES, 2.0)


@pytest.mark.parametrize("seconds", [1.0, 0.0], ids=["some time", "every interval"])
def test_writing_many_takes_a_small_share_of_the_time(
    checkpoints: JobCheckpoints, state: State, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three files of three seconds each, by turns; where every interval is to be written, that is what is meant."""
    clock = [0.0]
    monkeypatch.setattr(job_checkpoints.time, "monotonic", lambda: clock[0])
    running = RunningJobs(dataclasses.replace(checkpoints, seconds=seconds))
    written: list[int] = []

    def slow(number: int) -> Saved:
        written.append(number)
        clock[0] += 3.0
        return Saved(state, LINES, 2.0)

    jobs = [(dataclasses.replace(JOB, number=number), functools.partial(slow, number)) for number in range(3)]
    while clock[0] < 1000.0:
        running.keep(jobs)
        clock[0] += 1.0
    if not seconds:
        assert written[:6] == [0, 1, 2] * 2
        return
    assert written == ([0, 1, 2] * len(written))[: len(written)]
    assert 0.025 < 3.0 * len(written) / clock[0] < 0.035


def test_a_training_that_ended_is_found_by_its_job_alone(checkpoints: JobCheckpoints) -> None:
    ended = EndedJobs(checkpoints)
    assert ended.find(JOB) is None
    done = dataclasses.replace(planted(7, 0.25, 0.5), curve={"seconds": [1.0]}, age_examples=90)
    ended.keep([done])
    found = EndedJobs(checkpoints).find(JOB)
    assert found is not None
    assert (found.number, found.outcome, found.score, found.loss, found.curve) == (7, "finished", 0.25, 0.5, done.curve)
    for mine, theirs in zip(jax.tree.leaves(found.network), jax.tree.leaves(done.network), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert EndedJobs(checkpoints).find(dataclasses.replace(JOB, randomness=4)) is None
    assert checkpoints.folder is not None
    path = checkpoints.folder / "ended" / "7.safetensors"
    path.write_bytes(b"no safetensors")
    assert EndedJobs(checkpoints).find(JOB) is None
    ended.forget([7])
    assert not path.exists()


@pytest.mark.parametrize("outcome", ["failed", "out_of_time"])
def test_what_failed_or_was_cut_short_is_run_again(checkpoints: JobCheckpoints, outcome: str) -> None:
    ended = EndedJobs(checkpoints)
    ended.find(JOB)
    ended.keep([dataclasses.replace(planted(7, 0.25), outcome=outcome)])
    assert ended.find(JOB) is None


def test_trainings_that_ended_are_written_now_and_then_and_once(
    checkpoints: JobCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(job_checkpoints.time, "monotonic", lambda: clock[0])
    rare = dataclasses.replace(checkpoints, seconds=10.0)
    ended, done = EndedJobs(rare), planted(7, 0.25)
    ended.find(JOB)
    clock[0] = 9.0
    ended.keep([done])
    assert rare.folder is not None
    assert not rare.folder.exists()
    clock[0] = 10.0
    ended.keep([done])
    path = rare.folder / "ended" / "7.safetensors"
    written = path.stat().st_mtime_ns
    clock[0] = 20.0
    ended.keep([done])
    assert path.stat().st_mtime_ns == written


def test_a_network_of_the_users_own_is_trained_again(checkpoints: JobCheckpoints) -> None:
    """It has no written form, and that is no error."""
    ended = EndedJobs(checkpoints)
    ended.find(JOB)
    own = tiny.Linear().build((4,), 3, key=jr.key(0))
    ended.keep([dataclasses.replace(planted(7, 0.25), network={"mine": own, "and": tiny.plain_loss})])
    assert ended.find(JOB) is None


def test_all_files_go_when_the_study_has_ended(checkpoints: JobCheckpoints, state: State) -> None:
    checkpoints.save(JOB, Saved(state, LINES, 2.0))
    checkpoints.clear()
    assert checkpoints.folder is not None
    assert not checkpoints.folder.exists()
    checkpoints.clear()
    JobCheckpoints().clear()
