"""Studies by population-based training: budgets, what is left behind, and going on after a kill."""

import dataclasses
import math
import os
import signal
import threading

import jax
import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.trial import best_of
from gradwise.runtime.errors import RequestError
from gradwise.searching import search as searches
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.executor_choice import choose_executor
from gradwise.searching.running.executors import WorkerProcesses
from gradwise.searching.search import Budget, SearchPlan, StudyOptions, run_study
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.population_based_training import PopulationBasedTraining
from gradwise.searching.strategies.population_search import device_of_population, plan_populations, train_populations
from gradwise.specs.priors import Choice, LogUniform, Uniform
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Off, Patience
from tests.searching.small_study import data_of, digits

RATE, SCALE = "optimiser.learning_rate", "model.initial.scale"
PBT = PopulationBasedTraining(intervals=8, every=2)


def space_of(*paths, **parts):
    given = {
        "split": HoldOut(0.3, 0.3),
        "batches": Reshuffled(16),
        "model": Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        "optimiser": Sgd(learning_rate=0.1),
        "stopping": Patience(initial_examples=100, initial_epochs=0, spacing=1.0, least_examples=1, epochs=1),
    }
    recipe = defaults.classification(**{**given, **parts})
    priors = {RATE: LogUniform(1e-3, 1.0), SCALE: LogUniform(0.3, 3.0), "model.widths": Choice(((4,), (8,)))}
    return Space(recipe, tuple(dimension(recipe, path, priors[path]) for path in paths or (RATE, SCALE)))


def searched(space=None, *, trials=8, strategy=PBT, budget=None, **options):
    plan, metric = options.pop("plan", SearchPlan()), options.pop("metric", None)
    return run_study(
        space or space_of(),
        digits(),
        strategy=strategy,
        budget=budget or Budget(trials=trials),
        key=jax.random.key(0),
        plan=plan,
        metric=metric,
        options=StudyOptions(**options),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return searched(folder=folder), folder


def test_every_member_is_a_trial_and_the_test_part_is_read_at_the_end(whole):
    study, folder = whole
    assert [trial.number for trial in study.trials] == list(range(8))
    assert all(trial.phase == "search" and trial.outcome == "finished" for trial in study.trials)
    assert study.winner.number == best_of(study.trials).number
    (story,) = study.analysis.populations
    assert len(story.ages) == 4  # a point for every generation of eight intervals
    assert story.copies == 2 * 3  # a quarter of eight after each generation but the last
    assert min(trial.score for trial in study.trials) == pytest.approx(story.best_score)
    slot = study.winner.number
    assert study.winner.values[RATE] > 0
    assert len(study.trials[slot].curve["valid_score"]) == 8
    # What answers is what was measured, on examples that nothing was chosen by.
    _, _, test = HoldOut(0.3, 0.3)(digits(), key=_split_key())
    wrong = study.predictor.predict(test.inputs).argmax(1) != test.targets
    assert study.estimates.test == pytest.approx(wrong.mean())
    assert study.estimates.test < 0.5 < study.chance
    assert [path.name for path in (folder / "population").iterdir()] == ["0.json"]
    # Siblings that hold one and the same ancestor keep it once.
    assert len(list((folder / "contenders").iterdir())) == len({(trial.score, trial.loss) for trial in study.trials})


def _split_key():
    from gradwise.runtime import keys

    return keys.named(jax.random.key(0), "split")


def test_a_knob_that_is_read_at_the_start_alone_is_inherited(whole):
    (story,) = whole[0].analysis.populations
    assert story.changing == (RATE,)
    drawn = set(story.knobs[SCALE][0])
    assert len(drawn) == 8
    assert all(set(line) <= drawn for line in story.knobs[SCALE])
    assert not set(story.knobs[RATE][-1]) <= set(story.knobs[RATE][0])
    with pytest.raises(RequestError, match="only read at initialisation"):
        searched(space_of(SCALE))


class _Killed(BaseException):
    """What a kill is to the code that runs."""


@pytest.mark.parametrize("after", [3, 8])
def test_a_population_that_was_killed_ends_as_it_would_have(whole, tmp_path, after):
    study, _ = whole

    def watch(line):
        if line["done"] == after:
            raise _Killed

    with pytest.raises(_Killed):
        searched(folder=tmp_path, watch=watch)
    assert [path.name for path in (tmp_path / "population").iterdir()] == ["0-8"]
    seen, ended = [], []
    watching = {"watch": lambda line: seen.append(line["done"]), "trial_ended": ended.append}
    again = searched(folder=tmp_path, resume=True, **watching)
    assert ended == list(again.trials)
    assert seen == list(range(1 + 2 * (after // 2), 9))  # from the last generation on
    assert [trial.score for trial in again.trials] == [trial.score for trial in study.trials]
    assert again.analysis.populations == study.analysis.populations
    assert again.estimates.test == study.estimates.test
    assert np.array_equal(again.predictor.predict(digits().inputs), study.predictor.predict(digits().inputs))


def test_more_members_are_another_population(whole, tmp_path):
    first = searched(trials=4, folder=tmp_path)
    with pytest.raises(RequestError, match="at least 4 members; got 2"):
        searched(trials=6, folder=tmp_path, resume=True)
    both = searched(trials=8, folder=tmp_path, resume=True)
    assert [trial.score for trial in both.trials[:4]] == [trial.score for trial in first.trials]
    assert [story.first for story in both.analysis.populations] == [0, 4]
    # A member's start depends on its number alone, whoever it trains beside.
    second, alone = both.analysis.populations[1], whole[0].analysis.populations[0]
    assert second.knobs[SCALE][0] == alone.knobs[SCALE][0][4:]


def test_a_time_that_is_over_cuts_and_more_time_goes_on(whole, tmp_path):
    strategy = dataclasses.replace(PBT, members=8)
    cut = searched(strategy=strategy, budget=Budget(seconds=1e-3), folder=tmp_path)
    assert {trial.phase for trial in cut.trials} == {"cut"}
    assert cut.predictor is not None
    assert cut.analysis.populations[0].intervals == 1
    on = searched(strategy=strategy, budget=Budget(trials=8), folder=tmp_path, resume=True)
    assert [trial.score for trial in on.trials] == [trial.score for trial in whole[0].trials]


@pytest.fixture(scope="module")
def workers():
    asked = threading.Event()
    with WorkerProcesses(data_of(digits()), count=2) as executor:
        driven(executor, None, watch=lambda line: asked.set(), asked=asked)  # both compile
        yield executor


def driven(executor, folder, *, watch=lambda line: None, asked=None, trials=None, taken=None, **strategy):
    """Populations without the rest of a study: their members by number, and their stories."""
    driver = Driver(space_of(), data_of(digits()), executor, key=jax.random.key(0), watch=watch, asked=asked)
    driver.trials |= taken or {}
    train_populations(
        driver, dataclasses.replace(PBT, members=4, **strategy), trials=trials, until=math.inf, folder=folder
    )
    return driver.trials, driver.populations


def assert_same_populations(one, other, atol=1e-5):
    """The same members and stories; sums of several cores, as this process makes them, may round."""
    assert one[1] == other[1]
    assert sorted(one[0]) == sorted(other[0])
    for number, trial in one[0].items():
        assert (trial.score, trial.values) == (other[0][number].score, other[0][number].values)
        np.testing.assert_allclose(trial.loss, other[0][number].loss, atol=atol, rtol=0)


def test_two_workers_train_two_populations_and_more_time_goes_on(workers, tmp_path):
    asked, seen = threading.Event(), []

    def watch(line):
        seen.append((line["total"], line["running"]))
        if len(list((tmp_path / "population").iterdir())) == 2:  # both have written a generation
            asked.set()

    cut, stories = driven(workers, tmp_path, watch=watch, asked=asked, intervals=100)
    assert seen[-1] == (200, 8)  # intervals and members of both
    assert sorted(cut) == list(range(8))
    assert {trial.phase for trial in cut.values()} == {"cut"}
    assert [story.first for story in stories] == [0, 4]
    assert sorted(path.name for path in (tmp_path / "population").iterdir()) == ["0-4", "4-4"]
    whole = driven(workers, tmp_path, trials=8, intervals=100)
    assert {trial.phase for trial in whole[0].values()} == {"search"}
    assert sorted(path.name for path in (tmp_path / "population").iterdir()) == ["0.json", "4.json"]
    other = tmp_path / "other"
    other.mkdir()
    first, _ = driven(workers, other, trials=4, intervals=100)  # one after the other
    assert_same_populations(whole, driven(workers, other, trials=8, taken=first, intervals=100), atol=0)


def test_a_worker_trains_what_this_process_trains(workers, whole):
    study = whole[0]
    here = {trial.number: trial for trial in study.trials}, study.analysis.populations
    assert_same_populations(driven(workers, None, trials=8), here)


def test_a_worker_that_is_killed_costs_at_most_a_generation(workers, tmp_path):
    killed, seen = [], []

    def watch(line):
        seen.append(line["done"])
        if line["done"] == 5 and not killed:
            (victim,) = (worker for worker in workers.workers if worker.jobs)
            os.kill(victim.process.pid, signal.SIGKILL)
            killed.append(victim)

    found = driven(workers, tmp_path, watch=watch, trials=8, intervals=60)
    assert killed[0] not in workers.workers
    assert seen[0] == 1
    assert seen[-1] == 60
    assert len(seen) <= 60 + PBT.every  # from the last generation that it had written
    assert_same_populations(found, driven(workers, None, trials=8, intervals=60), atol=0)


@pytest.mark.slow
def test_one_worker_and_two_give_the_same_bits_though_one_dies(monkeypatch, tmp_path):
    hired = []

    def hire(*arguments, **options):
        hired.append(choose_executor(*arguments, **options))
        return hired[-1]

    def watch(line):
        if line["done"] == 4 and hired[-1]._made == 2:
            victim = max(hired[-1].workers, key=lambda worker: len(worker.jobs))
            os.kill(victim.process.pid, signal.SIGKILL)

    monkeypatch.setattr(searches, "choose_executor", hire)
    one = searched(on="workers:1")
    two = searched(on="workers:2", watch=watch)  # without a folder it starts again
    assert hired[1]._made == 3
    assert [(t.score, t.loss, t.values) for t in one.trials] == [(t.score, t.loss, t.values) for t in two.trials]
    assert one.analysis.populations == two.analysis.populations
    assert np.array_equal(one.predictor.predict(digits().inputs), two.predictor.predict(digits().inputs))


@pytest.mark.slow
def test_a_budget_of_time_is_filled_by_both_workers(tmp_path):
    strategy = dataclasses.replace(PBT, members=4, intervals=20_000)
    study = searched(strategy=strategy, budget=Budget(seconds=45.0), on="workers:2", folder=tmp_path)
    assert [story.first for story in study.analysis.populations] == [0, 4]
    assert all(1 < story.intervals < 20_000 for story in study.analysis.populations)
    assert study.outcome == "finished"
    assert study.predictor is not None


def test_this_process_trains_unless_another_is_asked_for():
    assert [device_of_population(on) for on in (None, "cpu", "here")] == ["here"] * 3
    assert [device_of_population(on) for on in ("gpu", "workers:2", "ray")] == ["gpu", "workers:2", "ray"]
    with pytest.raises(RequestError, match="unknown device `moon`"):
        searched(on="moon")


def test_a_recipe_of_fixed_length_keeps_it():
    study = searched(
        space_of(RATE, stopping=Off(epochs=3.0, keep="best", every_epochs=1.0, spacing=1.0, least_examples=1)),
        trials=4,
        strategy=PopulationBasedTraining(every=1),
    )
    assert study.analysis.populations[0].intervals == 3
    assert study.trials[0].age_examples == pytest.approx(3 * 200, abs=3)


@pytest.mark.parametrize("metric", ["denoising_error", "probe_error_rate"])
def test_features_are_searched_by_populations_too(metric):
    recipe = defaults.features("denoising", 8, split=HoldOut(0.3, 0.3))
    level = "criterion.corruption.level"
    space = Space(
        recipe, (dimension(recipe, RATE, LogUniform(1e-4, 1e-1)), dimension(recipe, level, Uniform(0.1, 0.5)))
    )
    study = searched(space, trials=4, strategy=PopulationBasedTraining(intervals=2, every=1), metric=metric)
    assert (study.metric, study.committee.members) == (metric, 1)
    assert study.analysis.populations[0].changing == (RATE, level)
    assert study.winner.score == min(trial.score for trial in study.trials)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trials": 3}, "at least 4 members; got 3"),
        ({"space": space_of(RATE, "model.widths")}, r"`model\.widths` changes the compiled program"),
        ({"plan": SearchPlan(committee="seeds")}, "retrains a setting, which pbt cannot do"),
        ({"plan": SearchPlan(folds=3)}, "pbt uses one validation set"),
        ({"plan": SearchPlan(batch_size="auto")}, "which needs whole runs"),
    ],
)
def test_what_a_population_cannot_do_is_refused(given, said):
    with pytest.raises(RequestError, match=said):
        searched(**given)


def test_the_strategy_has_no_single_proposals():
    with pytest.raises(RequestError, match="proposes no single trials"):
        PBT.ask(space_of(), History(), 1, key=jax.random.key(0))
    plan = plan_populations(PBT, space_of(), Budget(seconds=60.0), SearchPlan())
    assert (plan.folds, plan.committee) == (1, "ensemble")
