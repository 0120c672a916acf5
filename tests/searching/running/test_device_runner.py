"""A crew: few programs for many recipes, the same result in any company, and no job lost to another's mistake."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.extend
import numpy as np
import pytest

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import MaxAbs, Standardise
from gradwise.models.activations import Rectifier, Tanh
from gradwise.models.initial_weights import FanIn
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.optimisers.wrappers.width_transfer import WidthTransfer
from gradwise.searching.running import cohort, device_runner
from gradwise.searching.running.device_runner import DeviceRunner, Varied, program_group, train_alone
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.population_size import Given
from gradwise.training.population import Population
from tests.searching import tiny


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


def wide(width: int, **model: Any) -> dict[str, Any]:
    return {"model": Mlp(widths=(width,), **{"activation": Tanh(), "dropout": 0.0, **model})}


def several() -> list[Job]:
    """Twelve jobs of two programs: widths of two buckets, any rate, and ends of their own."""
    jobs = [Job(n, tiny.recipe(rate=0.02 * (1 + n % 5), **wide((9, 16, 17, 12)[n % 4])), n) for n in range(12)]
    return [dataclasses.replace(job, examples=200 + 50 * job.number) if job.number % 3 else job for job in jobs]


@pytest.fixture(scope="module")
def wanted(data: EvaluationData) -> list[Done]:
    return train_alone(data, several(), slots=Given(1))


# --- programs


def programs(data: EvaluationData, recipes: list[Any], **options: Any) -> int:
    runner = DeviceRunner(data, **options)
    runner.submit(Job(n, recipe, n) for n, recipe in enumerate(recipes))
    assert runner.waiting == len(recipes)
    return len(runner.cohorts)


@pytest.mark.slow
def test_programs_that_nobody_waits_for_are_forgotten(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and maps of a long search stay flat, and a program that comes again gives the same numbers."""
    recipes = [tiny.recipe(rate=0.1, epochs=2, **wide(width)) for width in (16, 64, 128)]
    monkeypatch.setattr(device_runner, "_MOST_PROGRAMS", 2)
    runner = DeviceRunner(data)
    found: dict[int, float] = {}
    held, compiled = [], []
    for number in range(6):  # each ends before the next is there
        runner.submit([Job(number, recipes[number % 3], number % 3)])
        while runner.busy:
            found |= {done.number: done.loss for done in runner.turn()}
        held.append(len(runner.cohorts))
        compiled.append(len(jax.extend.backend.get_backend().live_executables()))
    assert held == [1, 2, 1, 2, 1, 2]
    assert max(compiled[2:]) <= compiled[1], "a program that was dropped is out of memory too"
    assert [found[number] for number in range(3)] == [found[number] for number in range(3, 6)]
    assert len(set(found.values())) == 3
    runner.submit(Job(number, recipe, number) for number, recipe in enumerate(recipes, 6))
    assert len(runner.cohorts) == 3  # those that have work are kept, however many


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory maps are read from /proc")
def test_a_hundred_trials_of_many_widths_stay_below_eight_thousand_maps() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "benchmarks/search_memory.py", "--case", "random widths", "--trials", "100"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    readings = [json.loads(line) for line in done.stdout.splitlines()]
    assert readings
    assert max(one["maps"] for one in readings) < 8000


def test_many_widths_are_few_programs(data: EvaluationData) -> None:
    recipes = [tiny.recipe(rate=0.01 * width, **wide(width)) for width in range(17, 65)]
    assert programs(data, recipes) == 1
    assert programs(data, [*recipes, tiny.recipe(**wide(16)), tiny.recipe(**wide(65))]) == 3


def test_numbers_and_first_weights_share_a_program(data: EvaluationData) -> None:
    first = tiny.recipe(**wide(9))
    for other in (tiny.recipe(rate=0.7, **wide(11)), tiny.recipe(**wide(9, initial=FanIn()))):
        assert programs(data, [first, other]) == 1


@pytest.mark.parametrize(
    "parts",
    [
        wide(9, activation=Rectifier()),
        wide(9, dropout=0.2),
        {"model": Mlp(widths=(9, 9), activation=Tanh(), dropout=0.0)},
        {"batches": Reshuffled(16)},
        {"optimiser": HeavyBall(0.1)},
        {"scaler": MaxAbs()},
        {"criterion": Supervised(SoftmaxLoss(), penalties=(L2(0.1),))},
    ],
    ids=["activation", "dropout", "depth", "batch size", "optimiser", "scaler", "penalty"],
)
def test_what_shapes_the_program_does_not_share_one(data: EvaluationData, parts: dict[str, Any]) -> None:
    first = tiny.recipe(**wide(9))
    assert programs(data, [first, dataclasses.replace(first, **parts)]) == 2


def test_a_scaler_with_other_numbers_makes_other_examples(data: EvaluationData) -> None:
    runner = DeviceRunner(data)
    recipes = [tiny.recipe(scaler=scaler) for scaler in (Standardise(), Standardise(), MaxAbs())]
    runner.submit(Job(n, recipe, n) for n, recipe in enumerate(recipes))
    trains = [cohort.train.inputs for cohort in runner.cohorts.values()]
    assert len(trains) == 2
    assert not np.allclose(*trains)


def test_a_knob_that_a_study_varies_needs_no_program_of_its_own(data: EvaluationData) -> None:
    recipes = [tiny.recipe(**wide(9, dropout=dropout)) for dropout in (0.0, 0.2, 0.4)]
    assert programs(data, recipes) == 2
    assert programs(data, recipes, varying=Varied(("model.dropout",))) == 1


def test_an_accelerator_has_coarser_buckets(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [tiny.recipe(**wide(width)) for width in (3, 17, 64)]
    assert programs(data, recipes) == 2
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert programs(data, recipes) == 1


def test_on_an_accelerator_depths_and_activations_share_a_program(
    data: EvaluationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network(depth: int, width: int, activation: Any) -> dict[str, Any]:
        return {"model": Mlp(widths=(width,) * depth, activation=activation, dropout=0.0)}

    varied = Varied(deepest=3, widest=300, activations=(Tanh(), Rectifier()))
    sizes = [(depth, width, (Tanh(), Rectifier())[width % 2]) for depth in (1, 2, 3) for width in (3, 70, 256)]
    recipes = [tiny.recipe(**network(*size)) for size in sizes]
    assert programs(data, recipes, varying=varied) > 3
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert programs(data, recipes, varying=varied) == 1
    larger = [tiny.recipe(**network(*size)) for size in ((1, 300, Tanh()), (2, 257, Tanh()))]
    assert programs(data, [*recipes, *larger], varying=varied) == 2
    # An optimiser that looks at whole layers would see those that are not there.
    layerwise = [
        dataclasses.replace(recipe, optimiser=WidthTransfer(HeavyBall(0.1))) for recipe in (recipes[0], recipes[3])
    ]
    assert programs(data, layerwise, varying=varied) == 2


@pytest.mark.slow
def test_a_result_is_the_same_in_arrays_for_all_sizes(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        Job(n, tiny.recipe(model=Mlp(widths=(9 + n,) * (1 + n % 3), activation=(Tanh(), Rectifier())[n % 2])), n)
        for n in range(4)
    ]
    wanted = train_alone(data, jobs, slots=Given(1))
    varied = Varied(deepest=3, widest=64, activations=(Tanh(), Rectifier()))
    runner = DeviceRunner(data, slots=Given(4), varying=varied)
    runner.accelerated = True  # in its choice of arrays alone
    runner.submit(jobs)
    assert len(runner.cohorts) == 1
    runner.accelerated = False
    found: list[Done] = []
    while runner.busy:
        found += runner.turn()
    tiny.assert_same(sorted(found, key=lambda one: one.number), wanted)
    for done, job in zip(sorted(found, key=lambda one: one.number), jobs, strict=True):
        shapes = tuple(layer.weight.shape[0] for layer in done.network.layers)
        assert shapes == job.recipe.model.widths
        assert done.network.layers[0].activation == job.recipe.model.activation


def test_jobs_of_a_kind_are_told_before_they_are_prepared() -> None:
    kinds = [program_group(tiny.recipe(rate=0.1 * width, **wide(width))) for width in (17, 20, 32)]
    assert len(set(kinds)) == 1
    others = [wide(65), wide(17, activation=Rectifier()), wide(17, dropout=0.5), {"model": tiny.Linear()}]
    assert len({kinds[0], *(program_group(tiny.recipe(**parts)) for parts in others)}) == 5


# --- results


@pytest.mark.slow
@pytest.mark.parametrize("slots", [3, 8])
def test_the_result_is_the_same_in_any_company(data: EvaluationData, wanted: list[Done], slots: int) -> None:
    """Twelve jobs in slots of their own, and in the opposite order in slots that are refilled (row E18)."""
    assert len({done.score for done in wanted}) > 2
    tiny.assert_same(train_alone(data, reversed(several()), slots=Given(slots)), wanted)
    for done, job in zip(wanted, several(), strict=True):
        assert done.network.layers[0].weight.shape[0] == job.recipe.model.widths[0]  # padding has gone


@pytest.mark.slow
def test_several_intervals_in_one_call_change_no_result(
    data: EvaluationData, wanted: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an accelerator, where the way to the device and back may take longer than an interval."""
    counts: list[int] = []
    turns = Population.turns

    def counted(population: Population, count: int) -> Any:
        counts.append(count)
        return turns(population, count)

    monkeypatch.setattr(Population, "turns", counted)
    monkeypatch.setattr(cohort, "CALL_SECONDS", 1e9)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    tiny.assert_same(train_alone(data, several(), slots=Given(4)), wanted)
    assert max(counts) > 1


def test_one_that_cannot_start_costs_the_others_nothing(
    data: EvaluationData, wanted: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where several enter in one call and one is refused, each is tried alone."""
    monkeypatch.setattr(cohort, "_TOGETHER", 2)
    calls: list[int] = []

    def refusing(recipes: list[Any], *given: Any, **options: Any) -> Any:
        calls.append(len(recipes))
        raise ValueError("one of them")

    monkeypatch.setattr(cohort, "enter_together", refusing)
    tiny.assert_same(train_alone(data, several()[:4], slots=Given(4)), wanted[:4])
    assert calls


@pytest.mark.slow
def test_another_number_is_another_network(data: EvaluationData, wanted: list[Done]) -> None:
    other = dataclasses.replace(several()[0], number=0, randomness=77)
    (found,) = train_alone(data, [other])
    assert found.loss != pytest.approx(wanted[0].loss, abs=1e-4)


def test_a_fold_is_judged_by_its_own_rows(data: EvaluationData) -> None:
    folded = dataclasses.replace(data, folds=3)
    jobs = [Job(n, tiny.recipe(), 0, variant=variant) for n, variant in enumerate(folded.variants)]
    done = train_alone(folded, jobs)
    assert [len(one.scores) for one in done] == [40, 40, 40]
    assert len({one.loss for one in done}) == 3


@pytest.mark.parametrize("together", [2, 32], ids=["entering together", "entering one by one"])
def test_folds_train_in_one_population_as_they_do_apart(
    data: EvaluationData, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slot reads its own fold, also where a slot is refilled with another fold's network."""
    monkeypatch.setattr(cohort, "_TOGETHER", together)
    folded = dataclasses.replace(data, folds=3)
    recipes = (tiny.recipe(), tiny.recipe(rate=0.3))
    jobs = [
        Job(place * 3 + n, recipe, place, variant=variant)
        for place, recipe in enumerate(recipes)
        for n, variant in enumerate(folded.variants)
    ]
    runner = DeviceRunner(folded, slots=Given(4))
    runner.submit(jobs)
    assert len(runner.cohorts) == 1
    tiny.assert_same(_all(runner), train_alone(folded, jobs, slots=Given(1)))


@pytest.fixture(params=["cpu", "accelerator"])
def any_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On an accelerator programs are compiled in threads, and one interval runs while another is read."""
    if request.param == "accelerator":
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    return str(request.param)


def _all(runner: DeviceRunner, seconds: float = 20.0) -> list[Done]:
    done: list[Done] = []
    end = time.monotonic() + seconds
    while runner.busy:
        assert time.monotonic() < end, "the crew is busy for ever"
        done += runner.turn()
    return sorted(done, key=lambda one: one.number)


@pytest.mark.slow
def test_failed_jobs_cost_themselves_alone(data: EvaluationData, wanted: list[Done], any_backend: str) -> None:
    """Refused when it is built, refused for its task, and broken in the middle of the program (row E16)."""
    refused = Job(20, tiny.recipe(model=tiny.Refused()), 20)
    function = Job(21, tiny.recipe(criterion=tiny.plain_loss), 21)
    broken = [Job(n, tiny.recipe(criterion=Supervised(tiny.Broken())), n) for n in (22, 23)]
    runner = DeviceRunner(data, slots=Given(4))
    runner.submit([refused, *several()[:4], function, *broken, *several()[4:]])
    found = _all(runner)
    tiny.assert_same(found[:12], wanted)
    assert {done.number: done.outcome for done in found[12:]} == dict.fromkeys((20, 21, 22, 23), "failed")
    reasons = {done.number: done.reason for done in found[12:]}
    assert reasons[20].startswith("this model wants another number of inputs")
    assert reasons[22] == reasons[23] == "ZeroDivisionError: a mistake in the user's own loss"
    assert (runner.waiting, runner.live) == (0, 0)


def test_a_program_that_cannot_be_compiled_is_not_tried_for_ever(data: EvaluationData, any_backend: str) -> None:
    runner = DeviceRunner(data, slots=Given(2))
    runner.submit(Job(n, tiny.recipe(criterion=Supervised(tiny.Broken())), n) for n in range(3))
    assert [(done.number, done.outcome) for done in _all(runner)] == [(n, "failed") for n in range(3)]


def test_cut_ends_everything(data: EvaluationData, any_backend: str) -> None:
    runner = DeviceRunner(data, slots=Given(2))
    long = [dataclasses.replace(job, recipe=tiny.recipe(epochs=10**6), examples=None) for job in several()[:3]]
    short = dataclasses.replace(long[0], number=30, examples=100)
    runner.submit([short, *long])
    first: list[Done] = []
    while not first:
        first = runner.turn()
    assert [done.number for done in first] == [30]
    cut = runner.cut("out_of_time")
    assert {done.number for done in cut} <= {0, 1, 2}
    assert {done.outcome for done in cut} == {"out_of_time"}
    assert not runner.busy


def test_a_failure_while_all_is_cut_costs_no_more_than_the_trials(
    data: EvaluationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = DeviceRunner(data, slots=Given(2))
    runner.submit(tiny.jobs(3, epochs=10**6))
    runner.turn()
    (cohort,) = runner.cohorts.values()
    cohort.begin()

    def gone() -> Any:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(cohort, "end", gone)
    assert runner.cut("out_of_time") == []
    assert not runner.busy
