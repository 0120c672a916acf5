"""What a study tells besides its numbers."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from gradwise.evaluation.trials.expected_best import advice
from gradwise.records.data_read import SetSizes
from gradwise.records.score_scale import ScoreScale
from gradwise.records.study_analysis import Advice, PopulationHistory
from gradwise.records.study_conclusions import CommitteeSummary
from gradwise.records.trial import Trial
from gradwise.searching.running.effort import Effort
from gradwise.searching.selection.study_findings import (
    describe_evaluation_data,
    ensemble_advice,
    find_in_study,
    only_one,
    population_advice,
    shortened_runs,
    trials_behind,
)
from gradwise.searching.storage.budget import Budget
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from tests.searching import tiny

RATE = "optimiser.learning_rate"
GO_ON = Advice(True, "more trials are worth it", 0.1, 0.01, 20)


@pytest.fixture(scope="module")
def space() -> Space:
    recipe = tiny.recipe()
    return Space(recipe, (dimension(recipe, RATE, LogUniform(1e-3, 1.0)),))


def trial(number: int, outcome: str = "finished", score: float = 0.25, reason: str = "") -> Trial:
    values = {RATE: 0.01 * (number + 1)}
    return Trial(number, tiny.recipe(rate=values[RATE]), values, outcome, score, score, age_examples=8, reason=reason)


def test_the_data_are_told_with_their_parts() -> None:
    data = tiny.data()
    told = describe_evaluation_data(data, tiny.recipe())
    assert (told.folds, told.notes, told.rows) == (1, (), SetSizes(90, 30, 30))


@pytest.mark.parametrize(
    ("gain", "error", "goes_on", "says"),
    [
        (0.02, 0.01, True, "more may help"),
        (0.005, 0.01, False, "more are unlikely to help"),
        (0.0, 0.0, False, "no measurable difference"),
    ],
)
def test_the_second_half_of_the_trials_says_whether_more_are_worth_it(
    gain: float, error: float, goes_on: bool, says: str
) -> None:
    ensemble = CommitteeSummary("ensemble", 0, (0,), 1, 8, last_gain=(gain, error))
    found = ensemble_advice(ensemble)
    assert found is not None
    assert (found.go_on, says in found.sentence) == (goes_on, True)
    assert ensemble_advice(dataclasses.replace(ensemble, trials=3)) is None  # too few to be halved
    assert ensemble_advice(dataclasses.replace(ensemble, last_gain=None)) is None  # no ensemble
    assert ensemble_advice(None) is None


def test_trials_that_were_behind_are_counted() -> None:
    whole, behind = (SimpleNamespace(outcome=outcome) for outcome in ("finished", "behind"))
    assert trials_behind([whole]) == []  # type: ignore[list-item]
    (told,) = trials_behind([whole, behind, behind])  # type: ignore[list-item]
    assert told.what == "2 of 3 trials were clearly worse than the first and stopped early."


def test_runs_that_were_shortened_are_told() -> None:
    assert shortened_runs(Effort(5, 1.0)) == []
    (told,) = shortened_runs(Effort(5, 0.25))
    assert "25% of its recipe's epochs" in told.what


def test_a_budget_for_one_trial_is_told(space: Space) -> None:
    budget = Budget(seconds=2.0)
    (said,) = only_one([trial(0)], budget, 1.5)
    assert (said.level, said.row) == ("warning", "E1")
    assert said.what == "the budget of 2s sufficed for one trial only."
    assert only_one([trial(0), trial(1)], budget, 1.5) == []
    assert only_one([trial(0)], Budget(trials=1), 1.5) == []  # that was asked for


def test_a_budget_that_was_over_before_a_trial_had_ended_is_told(space: Space) -> None:
    budget = Budget(seconds=2.0)
    (one,), (two,) = only_one([trial(0)], budget, 3.0), only_one([trial(0), trial(1)], budget, 3.0)
    assert "ran out before a trial had ended; that one still ran to the end" in one.what
    assert "2 that ran side by side still ran to the end" in two.what


def test_nothing_amiss_is_nothing_told(space: Space) -> None:
    assert find_in_study(space, [trial(0), trial(1)], GO_ON, ()) == []
    assert find_in_study(space, [], GO_ON, ()) == []


def test_failures_are_told_with_the_first_reason(space: Space) -> None:
    trials = [trial(0), trial(1, "failed", math.nan, "no room"), trial(2, "failed", math.nan, "other")]
    (said,) = find_in_study(space, trials, GO_ON, ())
    assert (said.level, said.row) == ("warning", "E16")
    assert said.what == "2 of 3 trials failed, the first with: no room"


def test_when_every_trial_diverged_the_verdict_names_a_range(space: Space) -> None:
    trials = [trial(n, "diverged", math.nan) for n in range(6)]
    said = find_in_study(space, trials, advice(trials, worst=0.6, noise=math.nan), ())
    assert [finding.level for finding in said] == ["error"]  # and no advice to stop, and no count of failures
    assert RATE in said[0].what
    assert "diverged" in said[0].what


def test_that_more_is_not_worth_it_is_told_and_what_could_not_be_kept(space: Space) -> None:
    enough = Advice(False, "more trials are hardly worth it", 0.0, 0.01, 20)
    kept, told = find_in_study(space, [trial(0)], enough, ("trial 3's network cannot be written.",))
    assert (kept.level, kept.what) == ("note", "trial 3's network cannot be written.")
    assert (told.level, told.row, told.what) == ("note", "E10", "more trials are hardly worth it")


def test_advice_on_populations_looks_at_the_last_quarter() -> None:
    scores = ((0.4, math.nan), (0.3, 0.5), (0.2, 0.3), (0.1, 0.2))
    story = PopulationHistory(0, 4, 16, 4, (), (), scores, (), {}, (), 0.1, 0)
    better = population_advice(story, ScoreScale("error"))
    assert better.go_on
    assert "from 20.0\u202f% to 10.0\u202f%" in better.sentence
    assert "pbt(intervals=32)" in better.sentence
    level = population_advice(dataclasses.replace(story, scores=((0.4,), (0.1,), (0.1,), (0.1,))), ScoreScale("error"))
    assert not level.go_on
