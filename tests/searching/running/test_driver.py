"""The driver of a study, by an executor that only pretends to train: numbers, holes, time, borders, interruption."""

import dataclasses
import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from gradwise.records.trial import Proposal, Trial
from gradwise.runtime import keys
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import AbstractExecutor
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from gradwise.searching.storage.study_identity import StudyIdentity
from gradwise.searching.storage.study_store import Store
from gradwise.searching.strategies.contract import AbstractStrategy, History
from gradwise.searching.strategies.random_search import Random
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from tests.searching import tiny

KEY = keys.from_seed(3)
RATE = "optimiser.learning_rate"


def rate_of(job: Job) -> float:
    return float(job.recipe.optimiser.learning_rate)  # type: ignore[attr-defined]


class Pretended(AbstractExecutor):
    """Ends the last job first, so many at a call. The score of a job is a function of its learning rate."""

    def __init__(self, score: Callable[[float], float], *, pace: int = 2, room: int = 6):
        self.score, self.pace, self.most = score, pace, room
        self.jobs: list[Job] = []
        self.seen: list[Job] = []

    @property
    def running(self) -> int:
        return len(self.jobs)

    def room(self, *, looks_back: bool) -> int:
        return max(0, (2 if looks_back else self.most) - self.running)

    def submit(self, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        self.jobs += jobs
        self.seen += jobs

    def _done(self, job: Job, outcome: str = "finished") -> Done:
        score = self.score(rate_of(job))
        if not math.isfinite(score):
            return Done(job.number, "diverged", age_examples=10)
        curve = {"seconds": [1.0], "age_examples": [10.0], "valid_score": [score]}
        scores = np.full(30 if job.variant[0] == "whole" else 40, score, np.float32)
        return Done(job.number, outcome, score, score, age_examples=10, best_age=10, curve=curve, scores=scores)

    def wait(self, seconds: float) -> list[Done]:
        return [self._done(self.jobs.pop()) for _ in range(min(self.pace, self.running))]

    def cut(self, outcome: str) -> list[Done]:
        cut, self.jobs = [self._done(job, outcome) for job in self.jobs[:1]], []
        return cut

    def use(self, data: Any, *, varying: Any = None) -> None:
        raise AssertionError("a study has one data set")

    def close(self) -> None:
        return None


def planted(rate: float) -> float:
    """The best rate is 0.3; beyond 10 it diverges."""
    return abs(math.log10(rate / 0.3)) / 10 if rate < 10 else math.inf


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def space() -> Space:
    recipe = tiny.recipe()
    return Space(recipe, (dimension(recipe, RATE, LogUniform(1e-3, 1.0)),))


Make = Callable[..., Driver]


@pytest.fixture
def make(data: EvaluationData, space: Space) -> Make:
    def driver(*, pace: int = 2, score: Callable[[float], float] = planted, **options: Any) -> Driver:
        given = {"space": space, "data": data, **options}
        executor = Pretended(score, pace=pace)
        return Driver(given.pop("space"), given.pop("data"), executor, key=KEY, **given)

    return driver


def executor_of(driver: Driver) -> Pretended:
    assert isinstance(driver.executor, Pretended)
    return driver.executor


def told(driver: Driver) -> list[tuple[int, dict[str, Any], float, str]]:
    return [(n, t.values, t.score, t.phase) for n, t in sorted(driver.trials.items())]


# --- numbers


@pytest.mark.parametrize("pace", [1, 2, 5])
def test_so_many_trials_are_run_and_no_more(make: Make, space: Space, pace: int) -> None:
    """However fast they end, and though the last ends first: trial n is draw n of the prior (row E17)."""
    driver = make(pace=pace)
    assert driver.explore(Random(), trials=11) == "finished"
    assert sorted(driver.trials) == list(range(11))
    proposals = Random().ask(space, History(next=0), 11, key=KEY)
    for number, proposal in enumerate(proposals):
        assert driver.trials[number].recipe == proposal.recipe
    assert {job.randomness for job in executor_of(driver).seen} == set(range(11))
    assert len(executor_of(driver).seen) == 11


def test_a_trial_is_written_down_with_what_it_chose(make: Make) -> None:
    driver = make()
    driver.explore(Random(), trials=4)
    for trial in driver.trials.values():
        rate = float(trial.recipe.optimiser.learning_rate)  # type: ignore[attr-defined]
        assert trial.values == {RATE: rate}
        assert trial.score == pytest.approx(planted(rate))
        assert (trial.outcome, trial.phase) == ("finished", "search")
    assert driver.best is not None
    assert driver.best.score == min(trial.score for trial in driver.trials.values())


def test_phases_are_counted_apart_and_share_the_numbers(make: Make) -> None:
    driver = make()
    driver.explore(Random(), trials=4)
    driver.explore(Random(), trials=3, phase="border")
    assert [trial.number for trial in driver.of_phase("border")] == [4, 5, 6]
    proposal = Proposal(driver.trials[0].recipe, phase="finalist")
    ran = driver.run([(proposal, ()), (proposal, ())])
    assert sorted(trial.number for trial in ran) == [7, 8]
    assert driver.run([(proposal, ()), (proposal, ())], first=7) == []  # they are there
    assert driver.next == 9


def test_a_continued_trial_keeps_its_randomness(make: Make) -> None:
    driver = make()
    driver.explore(Random(), trials=2)
    driver.run([(Proposal(driver.trials[1].recipe, examples=500, continues=1, phase="longer"), ())])
    assert [(job.randomness, job.examples) for job in executor_of(driver).seen[2:]] == [(1, 500)]
    assert driver.trials[2].continues == 1


def test_folds_are_one_trial(make: Make, data: EvaluationData) -> None:
    driver = make(data=dataclasses.replace(data, folds=3))
    driver.explore(Random(), trials=3)
    assert sorted(driver.trials) == [0, 1, 2]
    assert len(executor_of(driver).seen) == 9
    assert {job.randomness for job in executor_of(driver).seen} == {0, 1, 2}
    assert driver.trials[0].score == pytest.approx(planted(driver.trials[0].values[RATE]))


def test_a_fold_that_diverged_speaks_for_its_trial(make: Make, data: EvaluationData) -> None:
    calls: list[float] = []

    def sometimes(rate: float) -> float:
        calls.append(rate)
        return math.nan if len(calls) == 2 else 0.25

    driver = make(data=dataclasses.replace(data, folds=3), score=sometimes)
    driver.explore(Random(), trials=1)
    assert driver.trials[0].outcome == "diverged"
    assert not driver.trials[0].ok


# --- strategies that look back


class Watching(AbstractStrategy):
    """Remembers every history it was shown, and proposes the rate of its place; ends after six."""

    shown: ClassVar[list[History]] = []

    def ask(self, space: Space, history: History, count: int, *, key: Any) -> list[Proposal]:
        self.shown.append(history)
        most = min(count, 6 - history.next)
        return [Proposal(space.recipe_of({RATE: 0.1 * (1 + history.next + n)})) for n in range(most)]


def test_a_strategy_that_looks_back_sees_what_has_ended(make: Make) -> None:
    Watching.shown.clear()
    driver = make(pace=1)
    assert driver.explore(Watching(), trials=20) == "finished"  # it had no more than six
    assert sorted(driver.trials) == list(range(6))
    assert Watching.shown
    for history in Watching.shown:
        running = {number for number, _ in history.running}
        assert all(math.isfinite(trial.score) for trial in history.trials)
        assert {trial.number for trial in history.trials} | running == set(range(history.next))
        assert not {trial.number for trial in history.trials} & running
        assert len(running) < 2  # as much at once as the executor wants of such a strategy
    assert max(len(history.trials) for history in Watching.shown) == 6


# --- time and interruption


def test_one_trial_runs_whatever_the_budget(make: Make) -> None:
    driver = make()
    assert driver.explore(Random(), until=0.0) == "out_of_time"
    assert [(t.number, t.outcome) for t in driver.trials.values()] == [(0, "finished")]
    assert driver.explore(Random(), until=0.0) == "out_of_time"
    assert len(driver.trials) == 1  # there is one: no time is no time


def test_when_time_is_up_what_runs_is_cut_as_it_stands(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(Driver, "seconds", property(lambda driver: next(clock)))
    driver = make(pace=1)
    assert driver.explore(Random(), until=9) == "out_of_time"
    outcomes = [trial.outcome for trial in driver.trials.values()]
    assert outcomes.count("out_of_time") == 1
    assert outcomes.count("finished") >= 2
    (cut,) = [trial for trial in driver.trials.values() if trial.outcome == "out_of_time"]
    assert cut.phase == "cut"  # it may win, and is no draw of the prior like the others
    assert cut not in driver.of_phase("search")


def test_asked_to_end_it_ends(make: Make) -> None:
    asked = threading.Event()

    def watch(line: dict[str, Any]) -> None:
        if line["done"] >= 4:
            asked.set()

    driver = make(asked=asked, watch=watch)
    assert driver.explore(Random(), trials=20) == "interrupted"
    assert 4 <= len(driver.trials) <= 6
    assert driver.run([(Proposal(driver.space.recipe, phase="finalist"), ())]) == []


def test_watching_tells_how_far_it_is(make: Make) -> None:
    lines: list[dict[str, Any]] = []
    driver = make(watch=lines.append, score=lambda rate: math.nan if rate > 0.5 else planted(rate))
    driver.explore(Random(), trials=12)
    last = lines[-1]
    assert (last["phase"], last["done"], last["total"], last["running"]) == ("search", 12, 12, 0)
    assert last["failed"] == sum(not trial.ok for trial in driver.trials.values()) > 0
    assert last["best"] == driver.best.score  # type: ignore[union-attr]
    assert [line["done"] for line in lines] == sorted(line["done"] for line in lines)


def test_it_ends_by_itself_when_more_is_not_worth_it(make: Make) -> None:
    driver = make(score=lambda rate: 0.3)  # nothing ever differs
    assert driver.explore(Random(), trials=500, stop_early=True) == "enough"
    assert 16 <= len(driver.trials) <= 32
    assert math.isfinite(driver.noise)


# --- the store


def about(space: Space) -> StudyIdentity:
    return StudyIdentity(space, 3, Random(), "digest", "classes", "error_rate")


class Killed(Exception):
    """Stands for a signal that nobody can catch."""


def kill_after(count: int) -> Callable[[dict[str, Any]], None]:
    def watch(line: dict[str, Any]) -> None:
        if line["done"] >= count:
            raise Killed

    return watch


@pytest.mark.parametrize("count", [1, 5, 10])
def test_a_study_that_was_killed_ends_as_it_would_have(make: Make, space: Space, tmp_path: Path, count: int) -> None:
    """No trial lost, none repeated; numbers that had been asked for are asked for again (rows E16, E17)."""
    whole = make()
    whole.explore(Random(), trials=11)
    with Store.open(tmp_path / "s.journal", create=True, about=about(space)) as store:
        first = make(store=store, watch=kill_after(count), pace=1)
        with pytest.raises(Killed):
            first.explore(Random(), trials=11)
        ended = set(first.trials)
    assert len(ended) == count
    with Store.open(tmp_path / "s.journal", about=about(space)) as store:
        second = make(store=store)
        assert set(second.trials) == ended
        assert second.explore(Random(), trials=11) == "finished"
        assert told(second) == told(whole)
        again = {job.randomness for job in executor_of(second).seen}
        assert again == set(range(11)) - ended
        assert len(executor_of(second).seen) == 11 - count
        assert len(store) == 11
    with Store.open(tmp_path / "s.journal", about=about(space)) as store:
        third = make(store=store)
        third.explore(Random(), trials=11)
        assert executor_of(third).seen == []
        assert third.seconds >= third.earlier > 0


def test_folds_that_had_ended_when_the_study_was_killed_are_not_trained_again(
    make: Make, data: EvaluationData, space: Space, tmp_path: Path
) -> None:
    """A trial is written down when its last fold ends; those that ended before are kept until then."""
    folded = dataclasses.replace(data, folds=3)
    options: dict[str, Any] = {"data": folded, "pace": 1, "checkpoints": JobCheckpoints(tmp_path / "running", 0.0)}
    whole = make(data=folded)
    whole.explore(Random(), trials=4)

    def kill(line: dict[str, Any]) -> None:
        if any((tmp_path / "running" / "ended").glob("*")):
            raise Killed

    first = make(watch=kill, **options)
    with pytest.raises(Killed):
        first.explore(Random(), trials=4)
    kept = {int(path.stem) for path in (tmp_path / "running" / "ended").iterdir()}
    second = make(**options)
    second.explore(Random(), trials=4)
    assert told(second) == told(whole)
    asked = {job.number for job in executor_of(second).seen}
    assert len(kept) == 1
    assert asked == {64 * trial + fold for trial in range(4) for fold in range(3)} - kept
    assert list((tmp_path / "running" / "ended").iterdir()) == []


def test_what_was_cut_because_somebody_asked_is_not_written_down(make: Make, space: Space, tmp_path: Path) -> None:
    """The study goes on with those numbers as if it had not been stopped."""
    asked = threading.Event()

    def watch(line: dict[str, Any]) -> None:
        if line["done"] >= 4:
            asked.set()

    with Store.open(tmp_path / "s.journal", create=True, about=about(space)) as store:
        first = make(store=store, asked=asked, watch=watch)
        first.explore(Random(), trials=11)
        cut = {n for n, trial in first.trials.items() if trial.outcome == "out_of_time"}
        assert cut
        assert {trial.number for trial in store.trials()} == set(first.trials) - cut
    whole = make()
    whole.explore(Random(), trials=11)
    with Store.open(tmp_path / "s.journal", about=about(space)) as store:
        second = make(store=store)
        second.explore(Random(), trials=11)
        assert told(second) == told(whole)


def test_trials_from_beside_are_taken_in(make: Make, space: Space, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.journal", create=True, about=about(space)) as store:
        driver = make(store=store)
        driver.explore(Random(), trials=2)
        driver.adopt([Trial(2, space.recipe, {}, "finished", 0.01, phase="size")])
        assert [trial.number for trial in store.trials()] == [0, 1, 2]
        assert driver.next == 3


# --- borders


def test_borders_are_followed_to_an_optimum_far_outside(make: Make, space: Space) -> None:
    """The best rate is 30 times the interval's end: nobody has to help (row E4)."""
    low = space.with_priors({RATE: LogUniform(1e-4, 1e-2)})
    driver = make(space=low, pace=4)
    assert driver.explore(Random(), trials=96, borders=True) == "finished"
    prior = driver.space[RATE].prior
    assert isinstance(prior, LogUniform)
    assert prior.high >= 0.3
    assert driver.best is not None
    assert 0.1 < driver.best.values[RATE] < 0.9
    assert driver.findings
    assert all(finding.row == "E4" for finding in driver.findings)
    assert not make().follow_borders()  # no trial, no border


def test_borders_that_move_among_the_draws_are_remembered(make: Make, space: Space) -> None:
    """Row E10: then the trials are draws of several distributions, and there is no expected best of N."""
    low = space.with_priors({RATE: LogUniform(1e-4, 1e-2)})
    moving, still = make(space=low, pace=4), make(space=low, pace=4)
    moving.explore(Random(), trials=32, borders=True)
    still.explore(Random(), trials=32)
    assert (moving.moved, still.moved) == (True, False)
    assert still.follow_borders()  # beyond its end, after the last of them
    assert not still.moved
