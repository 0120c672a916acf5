"""Small studies of their own, by an executor that only pretends to train."""

import math
from collections.abc import Iterable
from typing import Any

import pytest

from gradwise.searching.running.executors import AbstractExecutor
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.run_jobs import as_trial, mean_curve, run_jobs
from tests.searching import tiny


class _Pretended(AbstractExecutor):
    """Ends the last job first, two at a call; what is cut stood at 0.5."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    @property
    def running(self) -> int:
        return len(self.jobs)

    def room(self, *, looks_back: bool) -> int:
        return 2

    def submit(self, jobs: Iterable[Job]) -> None:
        self.jobs += jobs

    def _end(self, count: int, outcome: str, score: float) -> list[Done]:
        return [Done(self.jobs.pop().number, outcome, score=score) for _ in range(min(count, self.running))]

    def wait(self, seconds: float) -> list[Done]:
        return self._end(2, "finished", 0.1)

    def cut(self, outcome: str) -> list[Done]:
        return self._end(1, outcome, 0.5)

    def use(self, data: Any, *, varying: Any = None) -> None:
        raise AssertionError("a study has one data set")

    def close(self) -> None:
        raise AssertionError("who lends an executor closes it")


def test_all_jobs_come_back_by_number() -> None:
    told: list[int] = []
    found = run_jobs(_Pretended(), iter(tiny.jobs(5)), each=lambda done: told.append(done.number))
    assert told == [4, 3, 2, 1, 0]
    assert {number: done.number for number, done in found.items()} == {n: n for n in range(5)}


def test_no_jobs_are_no_work() -> None:
    assert run_jobs(_Pretended(), []) == {}


def test_what_runs_when_time_is_up_is_cut_as_it_stands() -> None:
    told: list[str] = []
    found = run_jobs(
        _Pretended(), tiny.jobs(5), each=lambda done: told.append(done.outcome), stop=lambda: len(told) == 2
    )
    assert told == ["finished", "finished", "out_of_time"]
    assert {number: done.score for number, done in found.items()} == {4: 0.1, 3: 0.1, 2: 0.5}


def test_a_failed_job_is_written_down_like_any_other() -> None:
    (job,) = tiny.jobs(1, start=3)
    trial = as_trial(Done(3, "failed", reason="no room"), job, {"x": 1}, phase="finalists", continues=2)
    assert (trial.number, trial.outcome, trial.reason, trial.phase) == (3, "failed", "no room", "finalists")
    assert (trial.values, trial.continues, trial.recipe) == ({"x": 1}, 2, job.recipe)
    assert math.isnan(trial.score)


def test_a_finished_job_keeps_its_numbers() -> None:
    (job,) = tiny.jobs(1)
    curve = {"age_examples": [90.0], "valid_score": [0.25]}
    done = Done(0, "patience", 0.25, 0.5, 0.75, 180, 90, 1.5, 67, curve)
    trial = as_trial(done, job, {}, phase="search")
    assert (trial.score, trial.loss, trial.train_loss) == (0.25, 0.5, 0.75)
    assert (trial.age_examples, trial.best_age, trial.seconds, trial.parameters) == (180, 90, 1.5, 67)
    assert trial.curve == curve
    assert trial.continues is None
    assert trial.score == pytest.approx(0.25)


def test_the_curve_of_a_trial_with_folds_is_their_mean_where_they_were_validated_alike() -> None:
    one = {"age_examples": [10.0, 20.0], "valid_score": [0.4, 0.2], "train_loss": [1.0, 0.5], "seconds": [1.0, 2.0]}
    other = {**one, "valid_score": [0.1, 0.2], "train_loss": [2.0, 0.5], "seconds": [3.0, 4.0]}
    mean = mean_curve([one, other], [20, 10])
    assert mean["valid_score"] == pytest.approx([0.3, 0.2])
    assert mean["train_loss"] == pytest.approx([4 / 3, 0.5])
    assert (mean["age_examples"], mean["seconds"]) == ([10.0, 20.0], [1.0, 2.0])
    assert mean_curve([one, {**other, "age_examples": [10.0, 30.0]}], [20, 10]) == {}
    assert mean_curve([{}, {}], [20, 10]) == {}
