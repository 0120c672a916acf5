"""The batch size: recipes keep their meaning in examples, and the least time to a common score wins unless by noise."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_analysis import BatchSizes
from gradwise.runtime import keys
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import AbstractExecutor, LocalExecutor
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.selection.batch_size import (
    at_size,
    batch_size_jobs,
    compare_batch_sizes,
    retune,
    seconds_per_update,
)
from gradwise.specs.paths import get, replace
from gradwise.specs.recipe import Recipe
from gradwise.training.stopping import Off, Patience


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return EvaluationData.of(gradwise.read("iris"), HoldOut(), metric="error_rate", key=keys.from_seed(3))


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=0.1),
        stopping=Patience(initial_examples=400, initial_epochs=0, spacing=1.0, least_examples=1, epochs=8),
    )


class Planted(AbstractExecutor):
    """Curves from a function: the age, in examples, at which a run reaches a score of 0.1."""

    def __init__(self, age: Callable[[Job], float]):
        self.age, self.jobs = age, list[Job]()

    def room(self, *, looks_back: bool) -> int:
        return 1

    def submit(self, jobs: Iterable[Job]) -> None:
        self.jobs += jobs

    def _done(self, job: Job) -> Done:
        age = self.age(job)
        if not math.isfinite(age):
            return Done(job.number, "diverged")
        curve = {"age_examples": [0.5 * age, age], "valid_score": [1.0, 0.1], "seconds": [1.0, 2.0]}
        return Done(job.number, "finished", 0.1, 0.1, curve=curve)

    def wait(self, seconds: float) -> list[Done]:
        done, self.jobs = [self._done(job) for job in self.jobs], []
        return done

    def cut(self, outcome: str) -> list[Done]:
        return []

    def use(self, data: Any, *, varying: Any = None) -> None:
        raise AssertionError("a study has one data set")

    def close(self) -> None: ...

    @property
    def running(self) -> int:
        return len(self.jobs)


@pytest.mark.parametrize("size", [2, 8, 64])
def test_memories_last_as_many_examples_as_before(recipe: Recipe, size: int) -> None:
    heavy = at_size(replace(recipe, "optimiser", HeavyBall(0.1, 0.9)), size)
    assert heavy.optimiser.momentum ** (1 / size) == pytest.approx(0.9 ** (1 / 8))
    # A step sums over the memory: 0.1 / (1 - 0.9), but for the root of the ratio, is the whole of a gradient's effect.
    whole = heavy.optimiser.learning_rate / (1 - heavy.optimiser.momentum)
    assert whole == pytest.approx(math.sqrt(size / 8) * 0.1 / (1 - 0.9))
    averaged = at_size(replace(recipe, "optimiser", MovingAverage(Adam(schedule=InverseTime(1000.0)), 0.99)), size)
    assert averaged.optimiser.decay ** (1 / size) == pytest.approx(0.99 ** (1 / 8))
    assert averaged.optimiser.optimiser.schedule.tau_updates * size == pytest.approx(1000 * 8)
    smooth = at_size(replace(recipe, "optimiser", Sgd(0.1, smoothing=0.2)), size)
    assert (1 - smooth.optimiser.smoothing) ** (1 / size) == pytest.approx(0.8 ** (1 / 8))
    assert smooth.optimiser.learning_rate == pytest.approx(0.1 * math.sqrt(size / 8))


def test_plain_gradient_descent_stays_without_momentum(recipe: Recipe) -> None:
    assert type(at_size(recipe, 64).optimiser.smoothing) is float
    assert at_size(recipe, 8) == recipe


def test_jobs_cover_sizes_rates_and_seeds(recipe: Recipe) -> None:
    jobs = batch_size_jobs(replace(recipe, "stopping", Off(epochs=5)), (4, 16), (1.0, 2.0), seeds=3, first=10)
    assert len({job.number for job in jobs}) == len(jobs) == 3 * 2 * 3
    assert [job.number for job in jobs] == [64 * number for number in range(10, 28)]
    assert {job.recipe.batches.size for job in jobs} == {4, 8, 16}  # the present one takes part
    assert {job.randomness for job in jobs} == {10, 11, 12}
    assert jobs[0].recipe.batches.size == 8  # and comes first
    assert all(job.recipe.stopping == Off(epochs=5) for job in jobs)


def _age(sizes: dict[int, float], noise: float = 0.0) -> Callable[[Job], float]:
    """An age for each size, twice that at rates other than the scaled one, and some noise between seeds."""

    def age(job: Job) -> float:
        size = job.recipe.batches.size
        scaled = 0.1 * math.sqrt(size / 8)
        off = abs(job.recipe.optimiser.learning_rate / scaled - 2.0) > 1e-6
        return sizes[size] * (2.0 if off else 1.0) * math.exp(noise * (-1) ** job.randomness)

    return age


def test_the_least_time_wins_at_its_best_rate(recipe: Recipe, data: EvaluationData) -> None:
    planted = Planted(_age({4: 900.0, 8: 1000.0, 32: 2000.0}, noise=0.02))
    found = compare_batch_sizes(recipe, data, planted, sizes=(4, 32), timed=lambda r: 1.0)
    assert found.recommended == 32
    assert found.rate == pytest.approx(2.0 * 0.1 * 2.0)  # the root of 32/8, and the ladder's upper step
    by_size = {line.size: line for line in found.table}
    count = len(data.train)
    for size, examples in ((4, 900), (8, 1000), (32, 2000)):
        assert by_size[size].examples == examples
        assert by_size[size].seconds == pytest.approx(examples / count * math.ceil(count / size), rel=1e-3)
        assert by_size[size].reached
    assert "32 reaches a validation error of 10.0\u202f%" in found.sentence
    assert "times as fast as the current 8" in found.sentence
    assert found.factor == 2.0
    assert get(at_size(recipe, 32, found.factor), "optimiser.learning_rate") == pytest.approx(found.rate)
    assert from_values(BatchSizes, json.loads(json.dumps(to_values(found)))) == found
    assert {trial.phase for trial in found.trials} == {"size"}
    # Where time goes with the examples, the smallest wins.
    found = compare_batch_sizes(recipe, data, planted, sizes=(4, 32), timed=lambda r: float(r.batches.size))
    assert found.recommended == 4


def test_a_gain_within_noise_changes_nothing(recipe: Recipe, data: EvaluationData) -> None:
    noisy = Planted(_age({4: 900.0, 8: 1000.0}, noise=0.3))
    found = compare_batch_sizes(recipe, data, noisy, sizes=(4,), timed=lambda r: float(r.batches.size))
    assert found.recommended == 8
    assert (found.factor, found.rate) == (1.0, get(recipe, "optimiser.learning_rate"))
    assert "but within the noise" in found.sentence
    # The same gain is taken where seeds agree, and with one seed only where it is large.
    for noise, seeds, chosen in ((0.001, 2, 4), (0.0, 1, 8)):
        sure = Planted(_age({4: 900.0, 8: 1000.0}, noise))
        found = compare_batch_sizes(recipe, data, sure, sizes=(4,), seeds=seeds, timed=lambda r: float(r.batches.size))
        assert found.recommended == chosen


def test_runs_that_diverge_do_not_count(recipe: Recipe, data: EvaluationData) -> None:
    planted = Planted(_age({4: 900.0, 8: 1000.0, 32: math.inf}))
    found = compare_batch_sizes(recipe, data, planted, sizes=(4, 32), timed=lambda r: 1.0)
    assert [line.size for line in found.table] == [4, 8]
    nothing = compare_batch_sizes(recipe, data, Planted(lambda job: math.inf), sizes=(4,), timed=lambda r: 1.0)
    assert nothing.recommended == 8
    assert nothing.table == ()
    assert "no run produced a curve" in nothing.sentence


@pytest.mark.slow
def test_real_curves_against_measured_time(recipe: Recipe, data: EvaluationData) -> None:
    measured: dict[int, float] = {}

    def timed(one: Recipe) -> float:
        return measured.setdefault(one.batches.size, seconds_per_update(one, data))

    with LocalExecutor(data) as executor:
        found = compare_batch_sizes(recipe, data, executor, sizes=(32,), rates=(1.0, 3.0), seeds=2, timed=timed)
    assert [line.size for line in found.table] == [8, 32]
    count = len(data.train)
    for line in found.table:
        updates = line.examples / count * math.ceil(count / line.size)
        assert line.seconds == pytest.approx(updates * measured[line.size], rel=1e-2)
        assert 1e-7 < measured[line.size] < 1e-1
    assert found.recommended in {8, 32}


def test_the_size_stays_where_time_was_up_before_its_own_runs_ended(recipe: Recipe, data: EvaluationData) -> None:
    ages = _age({4: 900.0, 8: 1000.0})
    told: list[int] = []
    found = compare_batch_sizes(recipe, data, Planted(ages), sizes=(4,), stop=lambda: True, timed=lambda r: 1.0)
    assert found.sentence == "the batch size stays 8: the time ran out before its own runs ended."
    compare_batch_sizes(recipe, data, Planted(ages), sizes=(4,), timed=lambda r: 1.0, watch=told.append)
    assert told == list(range(1, 13))


def test_a_batch_is_cut_to_the_training_part(recipe: Recipe, data: EvaluationData) -> None:
    count = len(data.train)
    large = replace(recipe, "batches.size", 1000)
    planted = Planted(lambda job: 1000.0)
    found = compare_batch_sizes(large, data, planted, sizes=(32, 256), timed=lambda r: 1.0)
    assert [line.size for line in found.table] == [32, count]


def test_retuning_is_a_small_grid_over_both(recipe: Recipe) -> None:
    proposals = retune(recipe, 16, most=40)
    places: Any = {(p.recipe.batches.size, round(float(p.recipe.optimiser.learning_rate), 6)) for p in proposals}
    assert len(places) == len(proposals) == 9
    assert {size for size, _ in places} == {8, 16, 32}
    assert {p.phase for p in proposals} == {"batch"}
    assert (8, 0.1) in places
    assert proposals[0].recipe == at_size(recipe, 16)  # what differs least comes first
    assert {p.recipe.batches.size for p in retune(recipe, 16, most=31)} == {8, 16}
