"""A population as one job: its reports, its members, its checkpoints, and what a runner does with one that fails."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import pytest

from gradwise.criteria.supervised import Supervised
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.device_runner import DeviceRunner
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.jobs import Done, Job, PopulationPlan
from gradwise.searching.strategies.population_run import PopulationRun
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from tests.searching import tiny

RATE = "optimiser.learning_rate"


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


def job_of(first: int = 0, *, path: str = RATE, folder: Path | None = None, **parts: Any) -> Job:
    recipe = tiny.recipe(**parts)
    space = Space(recipe, (dimension(recipe, path, LogUniform(1e-2, 1.0)),))
    return Job(first, recipe, first, population=PopulationPlan(space, 4, 5, 2, folder))


def run_to_end(runner: DeviceRunner) -> list[Done]:
    found = []
    while runner.busy:
        found += runner.turn()
    return found


@pytest.fixture(scope="module")
def whole(data: EvaluationData) -> list[Done]:
    runner = DeviceRunner(data)
    runner.submit([job_of(8)])
    return run_to_end(runner)


def assert_same_end(one: Done, other: Done) -> None:
    """Bit by bit, but for the seconds."""
    assert one.report is not None
    assert other.report is not None
    assert one.report.story == other.report.story
    for (member, knobs), (its, others) in zip(one.report.members, other.report.members, strict=True):
        assert (knobs, member.number, member.score, member.loss) == (others, its.number, its.score, its.loss)
        assert eqx.tree_equal(member.network, its.network)


def test_every_interval_is_reported_and_the_end_has_the_members(whole: list[Done]) -> None:
    *before, last = whole
    assert [(one.number, one.outcome, one.ended) for one in before] == [(8, "running", False)] * 5
    assert [one.report.intervals for one in before if one.report] == [1, 2, 3, 4, 5]
    assert (last.number, last.outcome, last.ended) == (8, "finished", True)
    assert last.report is not None
    assert [member.number for member, _ in last.report.members] == [8, 9, 10, 11]
    assert last.report.best == min(member.score for member, _ in last.report.members)
    assert last.report.story is not None
    assert (last.report.story.first, last.report.story.members, last.report.story.copies) == (8, 4, 2)
    # A network that several hold travels once.
    assert any(member.network is not None for member, _ in last.report.members)
    held = {(member.score, member.loss) for member, _ in last.report.members}
    assert sum(member.network is not None for member, _ in last.report.members) == len(held)


@pytest.mark.parametrize("turns", [1, 3, 5])
def test_one_that_is_cut_or_killed_goes_on_to_the_same_end(
    data: EvaluationData, whole: list[Done], tmp_path: Path, turns: int
) -> None:
    job = job_of(8, folder=tmp_path / "8-4")
    run = PopulationRun(job, data)
    assert run.cut("out_of_time") == []  # before the first interval
    for _ in range(turns):
        run.turn()
    (cut,) = run.cut("out_of_time")
    assert cut.outcome == ("finished" if turns == 5 else "out_of_time")
    again = PopulationRun(job, data)  # as whoever gets the job next
    assert len(again.evolution.history) == turns
    while not (done := again.turn()).ended:
        pass
    assert_same_end(done, whole[-1])
    with pytest.raises(RequestError, match="belongs to another run"):
        PopulationRun(dataclasses.replace(job, number=9), data)


def test_a_machine_that_does_not_see_the_folder_writes_nothing(data: EvaluationData, tmp_path: Path) -> None:
    run = PopulationRun(job_of(folder=tmp_path / "elsewhere" / "0-4"), data)
    for _ in range(2):
        run.turn()
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_refused_or_fails_says_why_and_others_go_on(data: EvaluationData) -> None:
    runner = DeviceRunner(data)
    broken = Supervised(tiny.Broken())
    runner.submit([job_of(0, path="model.initial.scale"), job_of(4, criterion=broken), job_of(8), *tiny.jobs(1)])
    ended = {one.number: one for one in run_to_end(runner) if one.ended and one.number != 0}
    assert ended[4].outcome == "failed"
    assert "ZeroDivisionError" in ended[4].reason
    assert ended[8].outcome == "finished"
    runner.submit([job_of(0, path="model.initial.scale")])
    (refused,) = run_to_end(runner)
    assert (refused.number, refused.outcome) == (0, "refused")
    assert "only read at initialisation" in refused.reason


def test_an_executor_holds_one_until_it_ends(data: EvaluationData, whole: list[Done]) -> None:
    with LocalExecutor(data) as executor:
        executor.submit([job_of(8), job_of(12)])
        executor.drop([12])
        found: list[Done] = []
        while executor.running:
            found += executor.wait(1.0)
    assert [one.outcome for one in found] == [one.outcome for one in whole]
    assert_same_end(found[-1], whole[-1])
