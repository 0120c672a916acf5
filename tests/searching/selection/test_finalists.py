"""The end of a study: finalists, the choice among them, the corrected score, and one look at the test part."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gradwise.evaluation.metrics import measure, wilson
from gradwise.evaluation.trials.selection_bias import contenders as likely_best
from gradwise.evaluation.trials.selection_bias import corrected_for_selection, mean_and_variance, weighted_estimate
from gradwise.records.score_scale import percent
from gradwise.records.study_conclusions import Estimates
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.selection.committee_members import make_committee
from gradwise.searching.selection.finalists import (
    Conclusion,
    best_settings,
    choose_setting,
    chosen_from,
    conclude,
    decide,
    finalist_jobs,
    finalist_proposals,
)
from gradwise.searching.storage.network_store import TrainedTrial
from gradwise.training.committee import Committee
from gradwise.training.predictor import Predictor
from tests.searching.small_study import data_of, diabetes, digits, recipe_at, run, run_folds

RATES = (0.1, 0.003, 0.06, 0.03, 0.2, 0.01)


def _trial(number: int, rate: float, score: float, loss: float = 0.0, **about: Any) -> Trial:
    about = {"outcome": "finished", **about}
    return Trial(number, recipe_at(rate), {"optimiser.learning_rate": rate}, score=score, loss=loss, **about)


SEARCHED = [
    _trial(0, 0.1, 0.20),
    _trial(1, 0.2, 0.10, 0.5),
    _trial(2, 0.2, 0.11),  # the setting of the one before
    _trial(3, 0.3, math.nan, outcome="diverged"),
    _trial(4, 0.4, 0.10, 0.4),
    _trial(5, 0.5, 0.01, phase="seeds"),
]


def test_the_best_settings_are_different_ones() -> None:
    assert [trial.number for trial in best_settings(SEARCHED, 3)] == [4, 1, 0]
    assert [trial.number for trial in best_settings(SEARCHED, 9)] == [4, 1, 0]


def test_a_trial_that_time_cut_short_wins_only_where_there_is_no_other() -> None:
    cut = _trial(2, 0.3, 0.01, outcome="out_of_time", phase="cut")
    whole = [_trial(0, 0.1, 0.03, outcome="finished"), _trial(1, 0.2, 0.02, outcome="finished")]
    assert [trial.number for trial in chosen_from([cut, *whole])] == [1, 0, 2]
    assert [trial.number for trial in chosen_from([cut])] == [2]


def test_finalists_are_the_best_settings_with_seeds_of_their_own() -> None:
    jobs = finalist_jobs(SEARCHED, settings=2, seeds=3, start=6)
    assert [job.number for job, _ in jobs] == [6, 7, 8, 9, 10, 11]
    assert [job.randomness for job, _ in jobs] == [6, 7, 8, 9, 10, 11]
    assert [trial.number for _, trial in jobs] == [4, 1, 4, 1, 4, 1]
    assert all(job.recipe == trial.recipe for job, trial in jobs)
    # After a kill: what was run is not run again, and the others have the numbers that they would have had.
    done = [*SEARCHED, _trial(7, 0.2, 0.1, phase="finalist")]
    again = finalist_jobs(done, settings=2, seeds=3, start=6)
    assert [job.number for job, _ in again] == [6, 8, 9, 10, 11]
    bags = finalist_jobs(SEARCHED, settings=2, seeds=2, kind="bagging", start=6)
    assert [job.variant for job, _ in bags] == [("bag", 0), ("bag", 0), ("bag", 1), ("bag", 1)]
    with pytest.raises(RequestError, match="seeds, bagging, inputs"):
        finalist_jobs(SEARCHED, kind="contenders", start=6)


def test_finalists_as_proposals_leave_out_what_was_run() -> None:
    folds = (("fold", 0), ("fold", 1))
    proposals = finalist_proposals(SEARCHED, folds, settings=2, seeds=2)
    assert [(p.recipe, p.phase, v) for p, v in proposals] == [
        (SEARCHED[place].recipe, "finalist", folds) for place in (4, 1, 4, 1)
    ]
    done = [*SEARCHED, _trial(6, 0.2, 0.1, phase="finalist")]
    assert [p.recipe for p, _ in finalist_proposals(done, folds, settings=2, seeds=2)] == [
        SEARCHED[place].recipe for place in (4, 4, 1)
    ]
    inputs = finalist_proposals(SEARCHED, folds, settings=1, seeds=2, kind="inputs")
    assert [variants for _, variants in inputs] == [(("inputs", 0),), (("inputs", 1),)]


def test_the_setting_with_the_best_mean_over_its_seeds_is_chosen() -> None:
    assert choose_setting(SEARCHED) is None
    finalists = [
        *(_trial(6 + n, 0.4, score, phase="finalist") for n, score in enumerate([0.10, 0.14, 0.12])),
        *(_trial(9 + n, 0.2, score, phase="finalist") for n, score in enumerate([0.11, 0.10, 0.12])),
        _trial(12, 0.1, 0.01, phase="finalist"),  # one lucky run is not compared with three
        _trial(13, 0.4, 0.0, phase="finalist", outcome="out_of_time"),
        _trial(14, 0.2, math.nan, phase="finalist", outcome="diverged"),
    ]
    choice = choose_setting([*SEARCHED, *finalists])
    assert choice is not None
    assert choice.setting.number == 1
    assert [trial.number for trial in choice.members] == [9, 10, 11]
    first, second = choice.finalists
    assert (first.number, first.values) == (1, {"optimiser.learning_rate": 0.2})
    assert first.scores == (0.11, 0.10, 0.12)
    assert (first.mean, first.deviation) == pytest.approx((0.11, 0.01))
    assert (second.number, second.mean) == (4, pytest.approx(0.12))


def test_a_tie_of_means_goes_to_the_lower_loss() -> None:
    finalists = [
        *(_trial(6 + n, 0.4, 0.1, 0.5, phase="finalist") for n in range(2)),
        *(_trial(8 + n, 0.2, 0.1, 0.3, phase="finalist") for n in range(2)),
    ]
    choice = choose_setting([*SEARCHED, *finalists])
    assert choice is not None
    assert choice.setting.number == 1


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return data_of(digits())


@pytest.fixture(scope="module")
def study(data: EvaluationData) -> tuple[list[Trial], list[TrainedTrial]]:
    """Six trials and five seeds of the best two settings."""
    trials, kept = run(data, [recipe_at(rate) for rate in RATES])
    jobs = finalist_jobs(trials, settings=2, seeds=5, start=len(trials))
    more, finalists = run(data, [job.recipe for job, _ in jobs], start=len(trials), phase="finalist")
    return [*trials, *more], [*kept, *finalists]


@pytest.fixture(scope="module")
def concluded(data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]]) -> Conclusion:
    return conclude(data, *study, metric="error_rate")


@pytest.mark.slow
def test_the_winner_is_the_setting_that_was_chosen(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]], concluded: Conclusion
) -> None:
    trials, kept = study
    choice = choose_setting(trials)
    assert choice is not None
    winner = concluded.winner
    assert winner is not None
    chosen = trials[winner.number]
    assert chosen is choice.setting
    assert (winner.score, winner.values) == (chosen.score, chosen.values)
    found = corrected_for_selection(np.stack([one.scores for one in kept[: len(RATES)]]))
    assert winner.corrected is not None
    assert winner.corrected.optimism == pytest.approx(found.optimism)
    assert winner.corrected.score == pytest.approx(winner.score + found.optimism)
    low, high = winner.corrected.interval
    assert low < winner.corrected.score < high


@pytest.mark.slow
def test_the_committee_is_shown_against_its_mean_member(data: EvaluationData, concluded: Conclusion) -> None:
    found, told = concluded.committee, concluded.estimates
    assert data.test is not None
    assert isinstance(concluded.predictor, Committee)
    assert found is not None
    assert (found.members, found.kind) == (5, "seeds")
    assert found.setting == concluded.winner.number
    assert len(found.finalists) == 2
    members = [
        measure(data.test.task, m.predict(data.test.inputs), data.test.targets, None)["error_rate"]
        for m in concluded.predictor.members
    ]
    assert found.member_tests == tuple(members)
    assert found.mean_member_test == pytest.approx(np.mean(members))
    assert told.test < found.mean_member_test


def test_the_estimates_are_those_of_the_committee(data: EvaluationData, concluded: Conclusion) -> None:
    told = concluded.estimates
    assert concluded.predictor is not None
    for name, part in (
        ("train", data.train),
        ("valid", data.valid),
        ("test", data.test),
    ):
        assert part is not None
        expected = measure(part.task, concluded.predictor.predict(part.inputs), part.targets, None)
        assert told.metrics[name] == pytest.approx(expected)
    count = len(data.test)  # type: ignore[arg-type]
    assert told.test_interval == pytest.approx(wilson(told.test * count, count))
    evidence = told.evidence
    assert np.sum(evidence.classes.confusion) == count
    assert np.trace(evidence.classes.confusion) == round((1 - told.test) * count)
    assert evidence.classes.temperature == concluded.predictor.temperature


def test_the_weighted_estimate_is_that_of_the_contenders(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]], concluded: Conclusion
) -> None:
    """Against predictions made one trial at a time and scored by hand."""
    assert data.test is not None
    kept = study[1][: len(RATES)]
    valid = mean_and_variance(np.stack([one.scores for one in kept]))
    chosen = likely_best(*valid)
    wrong = []
    for place in chosen:
        predictions = make_committee([kept[place]], data).predict(data.test.inputs)
        wrong.append(predictions.argmax(1) != data.test.targets)
    expected = weighted_estimate(valid[0][chosen], valid[1][chosen], *mean_and_variance(np.stack(wrong)))
    found = concluded.estimates.weighted
    assert len(found.weights) == len(chosen)
    assert found.mean == pytest.approx(expected.mean)
    assert found.deviation == pytest.approx(expected.deviation)


def test_no_decision_depends_on_the_test_part(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]], concluded: Conclusion
) -> None:
    """Other test labels change the test fields and nothing else."""
    assert data.test is not None
    other = dataclasses.replace(data.test, targets=np.random.default_rng(0).permutation(data.test.targets))
    again = conclude(dataclasses.replace(data, test=other), *study, metric="error_rate")
    assert again.winner == concluded.winner
    assert dataclasses.replace(again.committee, member_tests=concluded.committee.member_tests) == concluded.committee
    assert again.estimates.metrics["valid"] == concluded.estimates.metrics["valid"]
    assert again.estimates.metrics["train"] == concluded.estimates.metrics["train"]
    assert again.findings == concluded.findings
    rows = data.valid.inputs
    np.testing.assert_array_equal(again.predictor.predict(rows), concluded.predictor.predict(rows))  # type: ignore[union-attr]
    assert again.committee.member_tests != concluded.committee.member_tests
    assert again.estimates.test != concluded.estimates.test
    assert again.estimates.weighted.mean > 0.8 > concluded.estimates.weighted.mean


def test_without_a_test_part_there_are_no_test_fields(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]], concluded: Conclusion
) -> None:
    blind = conclude(dataclasses.replace(data, test=None), *study, metric="error_rate")
    assert blind.winner == concluded.winner
    assert blind.estimates == Estimates(blind.estimates.metrics)
    assert set(blind.estimates.metrics) == {"train", "valid"}
    assert blind.committee == dataclasses.replace(concluded.committee, member_tests=())
    assert any("no test set" in finding.what for finding in blind.findings)


def test_without_finalists_the_committee_is_of_contenders(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]]
) -> None:
    trials, kept = study[0][: len(RATES)], study[1][: len(RATES)]
    found = decide(data, trials, kept)
    best = min(trials, key=lambda trial: (trial.score, trial.loss))
    assert found.about.kind == "contenders"
    assert found.about.setting == found.winner.number == best.number
    assert found.about.finalists == ()
    assert any("retrained with other seeds" in finding.what for finding in found.findings)
    # Asked for, it is nothing to remark upon, and finalists are left aside.
    asked = decide(data, *study, kind="contenders")
    assert asked.about == found.about
    assert not any("other seeds" in finding.what for finding in asked.findings)


def test_one_network_is_a_predictor_of_its_own(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]]
) -> None:
    found = conclude(data, study[0][:1], study[1][:1], metric="error_rate")
    assert isinstance(found.predictor, Predictor)
    assert found.committee.members == 1
    assert found.committee.member_tests == (found.estimates.test,)


def test_networks_that_are_gone_cost_what_they_must(
    data: EvaluationData, study: tuple[list[Trial], list[TrainedTrial]]
) -> None:
    trials, kept = study
    nothing = conclude(data, trials, [], metric="error_rate")
    assert nothing.predictor is None
    assert (nothing.committee, nothing.estimates) == (None, Estimates())
    assert nothing.winner.corrected is None
    assert any("no trial's network was saved" in finding.what for finding in nothing.findings)
    stranger = dataclasses.replace(kept[0], number=999, scores=np.zeros_like(kept[0].scores))
    assert conclude(data, trials, [stranger, *kept], metric="error_rate").winner == decide(data, trials, kept).winner
    failed = [dataclasses.replace(trial, outcome="diverged", score=math.nan) for trial in trials]
    none = conclude(data, failed, [], metric="error_rate")
    assert none.winner is None
    assert "no winner" in none.findings[0].what


@pytest.mark.slow
def test_the_optimism_of_a_choice_among_equals_is_said() -> None:
    """Labels that are noise: the best of 24 looks better than chance, and the correction takes that back."""
    data = data_of(digits(noise=True))
    assert data.test is not None
    trials, kept = run(data, [recipe_at(rate) for rate in np.geomspace(0.01, 0.3, 24)])
    found = conclude(data, trials, kept, metric="error_rate")
    winner = found.winner
    assert winner.score < 0.87  # looks better than the 0.9 of guessing
    assert winner.corrected.optimism > 0.02
    assert abs(winner.corrected.score - 0.9) < abs(winner.score - 0.9)
    assert winner.corrected.interval[0] < 0.9 < winner.corrected.interval[1]
    assert found.estimates.weighted.mean == pytest.approx(0.9, abs=0.05)
    told = next(finding for finding in found.findings if finding.row == "E2")
    assert "best of 24" in told.what
    assert percent(winner.corrected.score) in told.what


@pytest.mark.slow
def test_numbers_are_weighed_by_their_squared_errors() -> None:
    data = data_of(diabetes(), metric="rmse")
    assert data.test is not None
    trials, kept = run(data, [recipe_at(rate, dataset=data.train) for rate in (0.02, 0.05)])
    found = conclude(data, trials, kept, metric="rmse")
    unit = float(data.units[1][0])
    squares = []
    for one in kept:
        error = make_committee([one], data).predict(data.test.inputs) - data.test.targets
        squares.append((error[:, 0] / unit) ** 2)
    valid = mean_and_variance(np.stack([one.scores for one in kept]))
    assert valid[0] == pytest.approx([one.score for one in kept])
    chosen = likely_best(*valid)
    expected = weighted_estimate(
        valid[0][chosen], valid[1][chosen], *mean_and_variance(np.stack([squares[place] for place in chosen]))
    )
    weighted = found.estimates.weighted
    assert (weighted.mean, weighted.deviation) == pytest.approx((expected.mean, expected.deviation), rel=1e-5)
    assert len(weighted.weights) == 2
    test = measure(
        data.test.task,
        found.predictor.predict(data.test.inputs),
        data.test.targets,
        None,
    )  # type: ignore[union-attr]
    assert found.estimates.test == pytest.approx(test["rmse"])
    assert len(found.estimates.evidence.numbers.predictions) == len(data.test)


@pytest.mark.slow
def test_with_folds_all_examples_judge() -> None:
    data = data_of(digits(200), folds=2)
    pairs = [run_folds(data, recipe_at(rate), number) for number, rate in enumerate((0.1, 0.05))]
    found = conclude(data, [trial for trial, _ in pairs], [kept for _, kept in pairs], metric="error_rate")
    assert found.winner.score == min(trial.score for trial, _ in pairs)
    assert found.committee.members in {2, 4}
    assert len(found.committee.member_tests) == found.committee.members
    # Out of fold: what a network learned from never counts as validation.
    metrics = found.estimates.metrics
    assert metrics["train"]["error_rate"] < metrics["valid"]["error_rate"]
    assert abs(found.estimates.weighted.mean - found.committee.mean_member_test) < 0.1
