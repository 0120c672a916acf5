"""Cohorts: one program and its slots; what ends leaves, what waits enters, and nothing is lost to a lack of memory."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.models.mlp import Mlp
from gradwise.runtime.line_search_state import line_search
from gradwise.searching.running import cohort as module
from gradwise.searching.running.cohort import Cohort, describe_error, written_out
from gradwise.searching.running.device_runner import off_knobs
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.population_size import Given
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.knobs import knob
from gradwise.specs.priors import Uniform
from gradwise.specs.recipe import Recipe
from gradwise.training.population import Population
from gradwise.training.stopping import Patience
from tests.searching import tiny

Make = Callable[..., Cohort]


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def make(data: EvaluationData) -> Make:
    """A cohort of so many slots with these jobs in its queue."""
    train, valid = data.place(tiny.recipe().scaler)

    def cohort(slots: int, jobs: list[Job], **options: Any) -> Cohort:
        made = Cohort(train, valid, 3, data.key, Given(slots), **options)
        made.queue.extend((job, job.recipe) for job in jobs)
        return made

    return cohort


def run(cohort: Cohort, *, turns: int = 3000) -> list[Done]:
    """Intervals as a crew would run them."""
    done: list[Done] = []
    while cohort.busy and turns:
        turns -= 1
        done += cohort.refill()
        if not cohort.places:
            continue
        try:
            cohort.begin()
            done += cohort.end()
        except Exception as problem:
            done += cohort.lost(problem)
    return sorted(done, key=lambda one: one.number)


@pytest.fixture(scope="module")
def wanted(make: Make) -> list[Done]:
    """Nine jobs in four slots."""
    return run(make(4, tiny.jobs(9)))


# --- what shares a program


def test_a_knob_written_out_is_a_number_that_the_program_reads() -> None:
    recipe = tiny.recipe(criterion=Supervised(SoftmaxLoss(), penalties=(L2(0.0),)))
    paths = ("model.dropout", "criterion.penalties.0.coefficient", "criterion.penalties.4.coefficient", "no.such")
    written = written_out(recipe, paths)
    assert type(recipe.model.dropout) is float
    assert type(written.model.dropout) is np.float64
    assert type(written.criterion.penalties[0].coefficient) is np.float64
    assert (written.model.dropout, written.criterion.penalties[0].coefficient) == (0.0, 0.0)
    assert written.model.widths == recipe.model.widths
    on = tiny.recipe(model=Mlp(widths=(8,), dropout=0.25))
    assert written_out(on, paths).model.dropout == 0.25


def test_knobs_off_in_some_recipes_and_on_in_others_are_found() -> None:
    off, on = tiny.recipe(), tiny.recipe(model=Mlp(widths=(8,), dropout=0.25))
    assert off_knobs([off, on]) == {"model.dropout"}
    assert off_knobs([on, on]) == frozenset()


@pytest.mark.slow
def test_a_knob_written_out_at_its_off_value_changes_nothing(make: Make, wanted: list[Done]) -> None:
    def written(recipe: Recipe) -> Recipe:
        penalised = dataclasses.replace(recipe, criterion=Supervised(SoftmaxLoss(), penalties=(L2(0.0),)))
        return written_out(penalised, ("model.dropout", "criterion.penalties.0.coefficient"))

    jobs = [dataclasses.replace(job, recipe=written(job.recipe)) for job in tiny.jobs(4)]
    tiny.assert_same(run(make(4, jobs)), wanted[:4])


# --- how jobs end


def test_every_job_ends_once_whatever_the_slots(make: Make, wanted: list[Done]) -> None:
    assert [done.number for done in wanted] == list(range(9))
    tiny.assert_same(run(make(1, tiny.jobs(3))), wanted[:3])
    assert len({done.score for done in wanted}) > 1


def test_a_record_says_what_happened(wanted: list[Done], data: EvaluationData) -> None:
    for done in wanted:
        curve = done.curve
        assert done.outcome == "finished"
        assert done.age_examples == curve["age_examples"][-1] == 20 * len(data.train)
        assert done.score == min(curve["valid_score"])
        assert done.best_age in curve["age_examples"]
        assert done.seconds == curve["seconds"][-1] > 0
        assert done.scores is not None
        assert done.scores.shape == (len(data.valid),)
        assert done.scores.mean() == pytest.approx(done.score, abs=1e-6)
        assert done.parameters == 4 * 8 + 8 + 8 * 3 + 3


def test_ends_of_all_kinds(make: Make) -> None:
    """In one population: its full length, an age of its own, patience, and a rate that explodes."""
    patience = Patience(initial_examples=120, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)
    jobs = [Job(n, tiny.recipe(rate=rate, stopping=patience), n) for n, rate in enumerate((0.1, 0.1, 1e-9, 3e38))]
    jobs[1] = dataclasses.replace(jobs[1], examples=100)
    whole, short, stuck, wild = run(make(4, jobs))
    assert whole.outcome in {"finished", "patience"}
    assert (short.outcome, short.age_examples) == ("finished", 106)  # a whole number of updates of 8, by epochs
    assert stuck.outcome == "patience"
    assert stuck.age_examples < whole.age_examples
    assert (wild.outcome, wild.network) == ("diverged", None)
    assert math.isnan(wild.score)
    assert 0 < wild.age_examples <= 90


def test_a_job_that_cannot_start_costs_itself_alone(make: Make, wanted: list[Done]) -> None:
    jobs = tiny.jobs(5)
    jobs[2] = dataclasses.replace(jobs[2], recipe=tiny.recipe(model=tiny.Refused()))
    found = run(make(4, jobs))
    assert (found[2].outcome, found[2].number) == ("failed", 2)
    assert found[2].reason.startswith("this model wants another number of inputs")
    del found[2]
    tiny.assert_same(found, [done for done in wanted[:5] if done.number != 2])


def test_a_record_that_cannot_be_made_costs_one_trial(
    make: Make, wanted: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = Population.best_of

    def best_of(population: Population, slots: Sequence[int]) -> Any:
        if 1 in slots:
            raise OSError("the device is gone\nfor good")
        return true(population, slots)

    monkeypatch.setattr(Population, "best_of", best_of)
    found = run(make(4, tiny.jobs(4)))
    assert [done.outcome for done in found] == ["finished", "failed", "finished", "finished"]
    assert found[1].reason == "OSError: the device is gone"


def test_cut_ends_what_runs_and_forgets_what_waits(make: Make) -> None:
    cohort = make(4, tiny.jobs(9, epochs=1000))
    assert run(cohort, turns=2) == []
    cohort.begin()  # an interval under way is read first
    cut = cohort.cut("out_of_time")
    assert sorted(done.number for done in cut) == [0, 1, 2, 3]
    assert {done.outcome for done in cut} == {"out_of_time"}
    assert {len(done.curve["seconds"]) for done in cut} == {3}
    assert not cohort.busy
    early = make(4, tiny.jobs(9, epochs=1000))
    early.refill()
    assert early.cut("out_of_time") == []  # nothing was judged yet: there is no model to tell of


def test_long_curves_are_thinned_and_keep_their_ends(make: Make) -> None:
    (done,) = run(make(1, tiny.jobs(1, epochs=400)))
    ages = done.curve["age_examples"]
    assert len(ages) <= 201
    assert ages[-1] == done.age_examples == 400 * 90
    assert all(len(column) == len(ages) for column in done.curve.values())


# --- checkpoints


def _intervals(cohort: Cohort, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many intervals of trainings are read from now on: the list grows."""
    read, seen = cohort._read, []

    def counted(host: Any, share: float) -> list[Done]:
        seen.extend(place.job.number for place in cohort.places.values())
        return read(host, share)

    monkeypatch.setattr(cohort, "_read", counted)
    return seen


@pytest.mark.parametrize("slots", [1, 4, 8], ids=["alone", "together", "entering together"])
def test_a_training_goes_on_where_it_was_left_to_the_same_bits(
    make: Make, slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cohort, with other neighbours in other slots, trains what was missing and nothing else."""
    monkeypatch.setattr(module, "_TOGETHER", 6)
    monkeypatch.setattr(module, "CALL_SECONDS", 0.0)  # one interval a call: all have gone on for as many
    checkpoints = JobCheckpoints(tmp_path / "running", 0.0, "this study")
    jobs = tiny.jobs(slots)
    wanted = {done.number: done for done in run(make(slots, jobs))}
    left = make(slots, jobs, checkpoints=checkpoints)
    assert run(left, turns=7) == []
    assert sorted(path.name for path in (tmp_path / "running").iterdir()) == [f"{n}.safetensors" for n in range(slots)]
    again = make(slots, jobs[::-1], checkpoints=checkpoints)
    seen = _intervals(again, monkeypatch)
    found = {done.number: done for done in run(again)}
    assert sorted(found) == sorted(wanted)
    for number, done in wanted.items():
        assert seen.count(number) == len(done.curve["seconds"]) - 7
        one = found[number]
        assert (one.outcome, one.age_examples, one.best_age) == (done.outcome, done.age_examples, done.best_age)
        assert (one.score, one.loss, one.train_loss) == (done.score, done.loss, done.train_loss)
        for name in ("age_examples", "valid_score", "valid_loss", "train_loss"):
            assert one.curve[name] == done.curve[name]
        assert one.curve["seconds"] == sorted(one.curve["seconds"])
        for mine, theirs in zip(jax.tree.leaves(one.network), jax.tree.leaves(done.network), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_training_that_ends_before_its_first_checkpoint_writes_nothing(make: Make, tmp_path: Path) -> None:
    cohort = make(4, tiny.jobs(4), checkpoints=JobCheckpoints(tmp_path / "running", 3600.0))
    assert len(run(cohort)) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_recipe_is_not_gone_on_with(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = JobCheckpoints(tmp_path / "running", 0.0)
    run(make(2, tiny.jobs(2), checkpoints=checkpoints), turns=5)
    first, second = tiny.jobs(2)
    other = dataclasses.replace(first, recipe=tiny.recipe(rate=0.3))
    again = make(2, [other, second], checkpoints=checkpoints)
    seen = _intervals(again, monkeypatch)
    lengths = {done.number: len(done.curve["seconds"]) for done in run(again)}
    assert [seen.count(number) for number in (0, 1)] == [lengths[0], lengths[1] - 5]


# --- memory


def test_a_cohort_that_does_not_fit_is_split(make: Make, wanted: list[Done], monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two and a half slots, nine jobs: two at a time, and none is lost."""
    sizes: list[int] = []

    def two_and_a_half() -> float:
        assert sizes
        return 2.5 * sizes[-1]

    def noted(*given: Any) -> int:
        sizes.append(true(*given))
        return sizes[-1]

    true = module.slot_bytes
    cohort = make(8, tiny.jobs(9))
    monkeypatch.setattr(module, "slot_bytes", noted)
    sizes.append(true(*_first(cohort), cohort.train, cohort.valid))
    monkeypatch.setattr(module, "free_bytes", two_and_a_half)
    tiny.assert_same(run(cohort), wanted)
    assert cohort.population is not None
    assert cohort.population.slots == 2


def _first(cohort: Cohort) -> Any:
    return cohort._enter(*cohort.queue[0])


def test_less_memory_than_one_slot_still_tries(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda: 1.0)
    cohort = make(8, tiny.jobs(2))
    assert [done.outcome for done in run(cohort)] == ["finished", "finished"]
    assert cohort.population is not None
    assert cohort.population.slots == 1


def _failing(most: int, message: str) -> tuple[list[int], Callable[[Population], Any]]:
    """An interval that fails in more slots than these; the slots of each call."""
    true, seen = Population.interval, []

    def interval(population: Population) -> Any:
        seen.append(population.slots)
        if population.slots > most:
            raise RuntimeError(message)
        return true(population)

    return seen, interval


def test_out_of_memory_halves_the_slots_and_loses_no_job(
    make: Make, wanted: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, interval = _failing(3, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
    monkeypatch.setattr(Population, "interval", interval)
    tiny.assert_same(run(make(8, tiny.jobs(9))), wanted)
    assert list(dict.fromkeys(seen)) == [8, 4, 2]
    assert seen.count(8) == seen.count(4) == 1


def test_out_of_memory_in_the_middle_begins_again(
    make: Make, wanted: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ran start over in fewer slots, with the same numbers in the end."""
    cohort = make(4, tiny.jobs(9))
    early = run(cohort, turns=3)
    assert (early, cohort.live) == ([], 4)
    _, interval = _failing(2, "RESOURCE_EXHAUSTED: Out of memory.")
    monkeypatch.setattr(Population, "interval", interval)
    tiny.assert_same(run(cohort), wanted)


def test_any_other_failure_is_found_one_by_one(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, interval = _failing(0, "INTERNAL: a mistake in a part")
    monkeypatch.setattr(Population, "interval", interval)
    monkeypatch.setattr(Population, "turns", lambda population, count: interval(population))
    found = run(make(4, tiny.jobs(3)))
    assert [done.outcome for done in found] == ["failed"] * 3
    assert {done.reason for done in found} == {"RuntimeError: INTERNAL: a mistake in a part"}
    assert seen == [4, 1, 1, 1]


def test_an_error_is_told_in_a_line() -> None:
    assert describe_error(ValueError("one\ntwo")) == "ValueError: one"
    assert len(describe_error(ValueError("x" * 1000))) == 300 + len("ValueError: ")


# --- a line search that finds nothing


class Stubborn(AbstractOptimiser):
    """Descends for `lasts` updates; from then on its line search finds nothing, and it stays where it is."""

    lasts: float = knob(2.0, allowed="[0, inf)", prior=Uniform(0.0, 9.0), row="H7", about="updates before it fails")

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: Any) -> Any:
            return jnp.zeros((), jnp.int32), line_search()

        def update(updates: Any, state: Any, parameters: Any = None, **extra: Any) -> Any:
            found = state[0] < self.lasts
            moved = jax.tree.map(lambda g: jnp.where(found, -0.1 * g, 0.0), updates)
            return moved, (state[0] + 1, state[1].after(found))

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: Any) -> Any:
        return jnp.asarray(0.1)


@pytest.mark.slow
def test_a_member_whose_line_search_gives_up_leaves_with_its_best(make: Make) -> None:
    """Three in one population: two give up, each at its own age and with a network, the third goes on to its end."""
    recipes = [tiny.recipe(epochs=6, optimiser=Stubborn(lasts)) for lasts in (5.0, 30.0, 1e6)]
    done = run(make(3, [Job(number, recipe, number) for number, recipe in enumerate(recipes)]))
    assert [one.outcome for one in done] == ["stalled", "stalled", "finished"]
    ages = [one.age_examples for one in done]
    assert ages == sorted(set(ages))
    for one in done:
        assert np.isfinite(one.score)
        assert one.network is not None
        assert 0 < one.best_age <= one.age_examples


def test_several_intervals_in_one_call_give_what_one_after_another_gives(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single slot goes several intervals at a time; its lines, its best model and its end are the same."""
    calls: list[int] = []
    turns = Population.turns

    def counted(population: Population, count: int) -> Any:
        calls.append(count)
        return turns(population, count)

    monkeypatch.setattr(Population, "turns", counted)
    together = run(make(1, tiny.jobs(3)))
    assert max(calls) > 1
    monkeypatch.setattr(Cohort, "_turns", lambda cohort: 0)
    alone = run(make(1, tiny.jobs(3)))
    assert [done.curve["valid_loss"] for done in together] == [
        pytest.approx(done.curve["valid_loss"], rel=1e-4) for done in alone
    ]
    tiny.assert_same(together, alone)
