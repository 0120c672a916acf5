"""How many folds judge a candidate, and for how long it trains, by rows and by time."""

import dataclasses

import pytest

from gradwise import defaults
from gradwise.data.splits import TimeHoldOut
from gradwise.runtime import keys
from gradwise.searching.running.effort import Effort, plan_effort, training_seconds
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.specs.recipe import Recipe
from tests.searching.small_study import digits


def data_of(rows: int) -> tuple[Recipe, EvaluationData]:
    dataset = digits(rows)
    recipe = defaults.table("classes", rows)
    return recipe, EvaluationData.of(dataset, recipe.split, metric="error_rate", key=keys.from_seed(0))


def test_trials_are_counted_in_more_folds_where_rows_are_few() -> None:
    assert plan_effort(*data_of(400), seconds=None, hands=2) == Effort(8)
    assert plan_effort(*data_of(1700), seconds=None, hands=2) == Effort(5)


def test_less_time_means_fewer_folds_and_shorter_runs_only_where_one_is_too_long() -> None:
    recipe, data = data_of(1700)
    each = training_seconds(recipe, data)
    found = [plan_effort(recipe, data, seconds=8.0 + each * times, hands=2) for times in (100, 7, 3, 2, 1, 0.1)]
    assert (found[0].folds, found[0].epochs) == (5, 1.0)
    assert found[0].trials == pytest.approx(100 * 2 / 5, abs=1)  # seconds of both hands, by what a trial takes
    assert all(effort.trials is not None and effort.trials >= 1 for effort in found)
    work = [effort.folds * effort.epochs for effort in found]
    assert work == sorted(work, reverse=True)
    assert found[-1].folds == 1
    assert all(effort.epochs == 1.0 for effort in found if effort.folds > 1)
    assert [effort.folds for effort in found[:4]] == [5, 5, 3, 1]
    for effort, times in zip(found[:-1], (100, 7, 3, 2, 1), strict=True):
        assert max(1.0, effort.folds / 2) * effort.epochs <= 0.6 * max(times, 1 / each) + 1e-9


def test_more_hands_and_a_faster_device_afford_more() -> None:
    recipe, data = data_of(1700)
    seconds = 8.0 + 3.0 * training_seconds(recipe, data)
    few = plan_effort(recipe, data, seconds=seconds, hands=2)
    many = plan_effort(recipe, data, seconds=seconds, hands=8)
    fast = plan_effort(recipe, data, seconds=seconds, hands=1, speed=40.0)
    assert (many.folds, many.epochs) == (fast.folds, fast.epochs) == (5, 1.0)
    assert (few.folds, few.epochs) != (5, 1.0)


def test_a_training_s_seconds_grow_with_its_epochs() -> None:
    recipe, data = data_of(400)
    twice = dataclasses.replace(recipe, stopping=dataclasses.replace(recipe.stopping, epochs=128.0))
    assert training_seconds(twice, data) == pytest.approx(2 * training_seconds(recipe, data))
    assert training_seconds(defaults.classification(), data) > 0


def test_rows_that_follow_time_are_not_dealt() -> None:
    recipe, data = data_of(400)
    assert data.can_be_dealt
    later = dataclasses.replace(data, split=TimeHoldOut())
    assert not later.can_be_dealt
    assert plan_effort(recipe, later, seconds=None, hands=2) == Effort(1)


def test_an_effort_shortens_runs_of_fixed_length_alone() -> None:
    table = defaults.table("classes", 5000)
    assert Effort(5, 0.25).applied(table).stopping.epochs == 32.0
    assert Effort(5).applied(table) is table
    patient = defaults.classification()
    assert Effort(5, 0.25).applied(patient) is patient


@pytest.mark.parametrize(
    ("effort", "by_time", "wanted"),
    [
        (Effort(5, 1.0, 40), True, "about 40 trials, 5 folds each, 128 epochs"),
        (Effort(5, 1.0, 40), False, "40 trials, 5 folds each, 128 epochs"),
        (Effort(3, 0.25, 1), True, "about 1 trial, 3 folds each, 32 epochs"),
        (Effort(), True, "trials, one validation set, 128 epochs"),
    ],
)
def test_the_plan_in_words(effort: Effort, by_time: bool, wanted: str) -> None:
    recipe = effort.applied(defaults.table("classes", 5000))
    assert effort.describe(recipe, by_time=by_time) == wanted
    assert "epochs" not in effort.describe(defaults.classification(), by_time=by_time)
