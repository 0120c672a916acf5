"""The race against the first trial: who is behind, what is told of them, and that the others train as they would."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise.runtime import keys
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import AbstractExecutor, LocalExecutor, WorkerProcesses
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.population_size import Given
from gradwise.searching.selection.racing import UNLIMITED, Race
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from gradwise.searching.storage.network_store import Contenders, TrainedTrial
from gradwise.searching.storage.study_identity import StudyIdentity
from gradwise.searching.storage.study_store import Store
from gradwise.searching.strategies.recommended import Recommended
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Off
from tests.searching import tiny

RATE = "optimiser.learning_rate"
KEY = keys.from_seed(3)
EPOCHS = 12


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return dataclasses.replace(tiny.data(), folds=3)


def first(data: EvaluationData, scores: np.ndarray, **changes: Any) -> TrainedTrial:
    recipe = tiny.recipe(stopping=Off(epochs=EPOCHS, spacing=1.0, least_examples=1))
    made = TrainedTrial(0, recipe, float(scores.mean()), 0.3, scores, (None,) * 3, data.variants)
    return dataclasses.replace(made, **changes)


def race(data: EvaluationData, error: float = 0.2, curve: dict[str, list[float]] | None = None) -> Race:
    """The first trial misses each row's target by about `error`."""
    scores = np.random.default_rng(0).normal(error, 0.05, len(data.pool)).astype(np.float32)
    return Race(data, first(data, scores), curve or {})


def on_first_fold(one: Race, worse: float, noise: float) -> Done:
    added = np.random.default_rng(1).normal(worse, noise, len(one.rows))
    added += worse - added.mean()
    return Done(64, "finished", 0.5, 0.5, scores=(one.scores + added).astype(np.float32))


def test_three_standard_errors_of_the_difference_are_behind(data: EvaluationData) -> None:
    one = race(data)
    error = 0.1 / np.sqrt(len(one.rows))
    assert not one.is_behind(on_first_fold(one, worse=-0.5, noise=0.1))
    assert not one.is_behind(on_first_fold(one, worse=2.0 * error, noise=0.1))
    assert one.is_behind(on_first_fold(one, worse=4.0 * error, noise=0.1))
    assert one.is_behind(Done(64, "behind", scores=one.scores)), "its limits said so"
    assert not one.is_behind(Done(64, "finished")), "without scores nothing can be said"


def test_the_estimate_is_what_the_first_trial_has_and_what_it_is_worse_by(data: EvaluationData) -> None:
    one = race(data)
    found = one.estimate(on_first_fold(one, worse=0.3, noise=0.1))
    assert found.outcome == "behind"
    assert found.score == pytest.approx(one.first.score + 0.3, abs=1e-5)
    assert found.network is None
    assert found.outputs is None


CURVE = {"age_examples": [100.0, 200.0, 300.0, 400.0, 500.0], "valid_score": [1.0, 0.8, 0.5, 0.6, 0.2]}


def test_limits_allow_what_the_first_trial_still_gained(data: EvaluationData) -> None:
    one = race(data, curve=CURVE)
    ages, highest = one.limits(one.first.recipe)
    assert ages == (200.0, 300.0, 400.0, 500.0), "nothing is asked of the first quarter"
    harder = one.scores.mean() - one.first.score
    noise = 3 * one.scores.std() / np.sqrt(len(one.scores))
    assert highest == pytest.approx(np.array([1.4, 0.8, 0.8, 0.2]) + harder + noise)
    job = Job(64, one.first.recipe, 1, limits=(ages, highest))
    assert not job.is_behind(199.0, 9.0)
    assert job.is_behind(250.0, 1.6)
    assert not job.is_behind(250.0, 1.0)
    assert job.is_behind(350.0, 1.0)
    assert not job.is_behind(350.0, float("nan")), "without a score nothing can be said"


def test_runs_of_another_length_have_no_limits(data: EvaluationData) -> None:
    one = race(data, curve=CURVE)
    longer = dataclasses.replace(one.first.recipe, stopping=Off(epochs=2 * EPOCHS))
    assert one.limits(longer) == ((), ())
    assert race(data, curve={}).limits(one.first.recipe) == ((), ())


# --- in a study


@pytest.fixture(scope="module")
def space() -> Space:
    """Around a good rate, with rates that learn nothing in so few epochs."""
    recipe = tiny.recipe(rate=0.1, stopping=Off(epochs=EPOCHS, spacing=1.0, least_examples=1))
    return Space(recipe, (dimension(recipe, RATE, LogUniform(1e-6, 1.0)),))


def study(
    space: Space, data: EvaluationData, executor: AbstractExecutor, *, trials: int = UNLIMITED + 6, race: bool = True
) -> Driver:
    with executor:
        driver = Driver(space, data, executor, key=KEY, contenders=Contenders(None))
        driver.explore(Recommended(), trials=trials, race=race)
    return driver


def told(driver: Driver) -> list[tuple[int, str, float, int]]:
    return [(n, t.outcome, t.score, t.age_examples) for n, t in sorted(driver.trials.items())]


@pytest.fixture(scope="module")
def raced(space: Space, data: EvaluationData) -> Driver:
    return study(space, data, LocalExecutor(data))


def test_trials_that_learn_nothing_have_one_fold(raced: Driver, space: Space, data: EvaluationData) -> None:
    behind = {n for n, trial in raced.trials.items() if trial.outcome == "behind"}
    slow = {n for n, trial in raced.trials.items() if trial.values[RATE] < 1e-4}
    assert slow, "the draws have some"
    assert slow <= behind
    assert raced.best is not None
    assert raced.best.number not in behind
    assert all(raced.contenders.find(number) is None for number in behind)
    assert raced.contenders.find(0) is not None, "all are compared with it, however many are better"
    late = [raced.trials[n] for n in behind if n >= UNLIMITED]
    assert late
    assert any(trial.age_examples < raced.trials[0].age_examples for trial in late), "ended on its way"
    whole = study(space, data, LocalExecutor(data), race=False)
    for number, trial in whole.trials.items():
        assert trial.outcome == "finished"
        if number in behind:
            assert trial.score > whole.trials[0].score, "no winner was lost"
        else:
            assert trial.score == raced.trials[number].score, "the others train as if there were no race"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_workers_run_the_same_race(raced: Driver, space: Space, data: EvaluationData, count: int) -> None:
    found = study(space, data, WorkerProcesses(data, count=count))
    ours, theirs = told(raced), told(found)
    assert [one[:2] for one in theirs] == [one[:2] for one in ours]
    np.testing.assert_allclose([one[2] for one in theirs], [one[2] for one in ours], atol=1e-3)


def test_a_study_that_goes_on_races_against_the_same_trial(
    raced: Driver, space: Space, data: EvaluationData, tmp_path: Path
) -> None:
    """The first trial is read from the folder."""
    about = StudyIdentity(space, 3, Recommended(), "iris", "classes", "error_rate", {})
    for trials in (9, UNLIMITED + 6):
        with LocalExecutor(data) as executor:
            store = Store.open(tmp_path / "study.journal", create=trials == 9, about=about)
            driver = Driver(space, data, executor, key=KEY, store=store, contenders=Contenders(tmp_path))
            driver.explore(Recommended(), trials=trials, race=True)
            store.close()
    assert told(driver) == told(raced)


@pytest.mark.slow
def test_folds_that_are_dropped_leave_no_checkpoint(space: Space, data: EvaluationData, tmp_path: Path) -> None:
    """The folds of a trial train side by side; when the first one is behind, the others are under way and written."""
    checkpoints = JobCheckpoints(tmp_path / "running", 0.0)
    with LocalExecutor(data, slots=Given(8), checkpoints=checkpoints) as executor:
        driver = Driver(space, data, executor, key=KEY, checkpoints=checkpoints)
        driver.explore(Recommended(), trials=UNLIMITED + 6, race=True)
    assert {trial.outcome for trial in driver.trials.values()} == {"finished", "behind"}
    assert (tmp_path / "running").is_dir()
    assert list(tmp_path.rglob("*.safetensors")) == []
