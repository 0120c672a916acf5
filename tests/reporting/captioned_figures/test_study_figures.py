"""Figures of a study: each appears where its data is, says what is seen, and leaves out what was not measured."""

import dataclasses
import math

import numpy as np
import pytest

from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.study_analysis import Analysis, BatchSizes, RankCorrelation, SeedDistribution, ShortRuns
from gradwise.records.study_conclusions import CommitteeSummary, Estimates, WeightedEstimate
from gradwise.records.trial import best_of
from gradwise.reporting.captioned_figures import study_figures as gallery
from gradwise.reporting.svg import picture
from tests.reporting.planted import make_study


@pytest.fixture(scope="module")
def study():
    return make_study()


@pytest.fixture(scope="module")
def numbers():
    return make_study(numbers=True)


@pytest.fixture(scope="module")
def bare():
    return make_study(concluded=False)


def only(figures):
    (figure,) = figures
    return figure


def test_scores_are_read_in_the_unit_of_the_task(study, numbers):
    assert study.scale.say(0.05) == "5.0\u202f%"
    scale = numbers.scale
    assert scale.name == "validation RMSE"
    assert scale.say(0.25) == f"{53.0 * 0.5:.3g}"


def test_validation_and_test_share_an_axis_only_where_they_are_the_same_quantity(study, numbers):
    assert gallery.comparable(study)
    assert gallery.comparable(numbers)
    auc = dataclasses.replace(study, metric="auc")
    assert not gallery.comparable(auc)
    names = [row[0] for row in only(gallery.estimate_figures(auc)).table.rows]
    assert names == ["test, committee"]


def test_every_trial_with_a_curve_is_drawn_and_the_best_named(study):
    figure = only(gallery.trial_curve_figures(study))
    best = best_of(study.searched)
    assert f"each of {sum(t.ok for t in study.trials)} trials" in figure.description
    assert f"trial {best.number} was best, {100 * best.score:.1f}" in figure.description


def test_of_very_many_curves_some_are_drawn_the_best_among_them():
    study = make_study(700)
    figure = only(gallery.trial_curve_figures(study))
    assert " shown)" in figure.description
    curves = figure.draw.args[0]
    best = best_of(study.searched)
    assert len(curves) <= 301
    assert min(curves[figure.draw.keywords["best"]].value) == pytest.approx(min(best.curve["valid_score"]))


def test_progress_names_the_expected_best_only_of_independent_trials(study):
    figure = only(gallery.progress_figures(study))
    assert figure.table.header == ("trials", "expected best", "± one deviation", "best so far")
    last = figure.table.rows[-1]
    assert last[0] == "60"
    assert last[1] == last[3]  # all the trials have one best
    looking_back = only(gallery.progress_figures(dataclasses.replace(study, independent=False)))
    assert "no expected best" in looking_back.description
    assert looking_back.title == "The best so far"


def test_the_honest_error_says_how_much_the_choice_flatters(study):
    figure = only(gallery.estimate_figures(study))
    optimism = study.winner.corrected.optimism
    assert f"by about {100 * optimism:.1f}" in figure.description
    assert [row[0] for row in figure.table.rows] == [
        "validation, best trial",
        "corrected for selection",
        "test, contenders weighted",
        "test, committee",
    ]
    assert figure.table.rows[-1][1] == f"{100 * study.estimates.test:.1f}\u202f%"


def test_a_nested_estimate_is_the_number_to_quote_where_there_is_no_test(study):
    nested = CrossValidationEstimate("error_rate", (0.06, 0.08), 0.07, (0.05, 0.09))
    small = dataclasses.replace(study, estimates=Estimates(nested=nested))
    lines = only(gallery.estimate_figures(small)).draw.args[0]
    assert (lines[-1].name, lines[-1].final, lines[-1].low) == ("nested cross-validation", True, 0.05)


def test_the_weights_of_an_ensemble_are_drawn_and_told(study):
    numbers = [trial.number for trial in study.trials[:2]]
    weights = {numbers[0]: 0.25, numbers[1]: 0.75}
    found = CommitteeSummary("ensemble", 0, tuple(numbers), 2, 5, weights=weights, honest=0.081, best_trial=0.1)
    (figure,) = gallery.committee_figures(dataclasses.replace(study, committee=found))
    assert figure.description.startswith("The ensemble averages 2 of 5 trials")
    assert "8.1\u202f%; the best trial alone 10.0\u202f%" in figure.description
    assert [row[:2] for row in figure.table.rows] == [
        (f"trial {numbers[1]}", "75.0\u202f%"),
        (f"trial {numbers[0]}", "25.0\u202f%"),
    ]


def test_the_committee_stands_against_its_mean_member(study):
    committee, finalists = gallery.committee_figures(study)
    found = study.committee
    assert f"{100 * found.mean_member_test:.1f}\u202f% on average" in committee.description
    assert f"{100 * study.estimates.test:.1f}\u202f% together" in committee.description
    assert len(finalists.table.rows) == 4
    assert f"The committee is from trial {found.setting}." in finalists.description
    assert "learning_rate" in finalists.table.rows[0][-1]


def test_cost_lists_the_front_cheapest_first(study):
    seconds, parameters = gallery.cost_figures(study)
    for figure, name in ((seconds, "seconds"), (parameters, "parameters")):
        numbers = [int(row[0]) for row in figure.table.rows]
        costs = [getattr(study.trials[number], name) for number in numbers]
        scores = [study.trials[number].score for number in numbers]
        assert costs == sorted(costs)
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] == best_of(study.trials).score


def test_batch_sizes_short_runs_and_seeds_come_from_the_analysis(study):
    batch, runs = only(gallery.batch_figures(study)), only(gallery.short_run_figures(study))
    assert batch.description.startswith("A batch of 64 reached")
    assert [row[3] for row in batch.table.rows] == ["yes"] * 5 + ["no"]
    assert "a third of the length rank 60 trials" in runs.description
    assert runs.table.rows[0] == ("1,079", "0.31", "0.1 – 0.5")
    seeds = only(gallery.seed_figures(study))
    scores = study.analysis.seeds.scores
    assert seeds.table.rows[3][1] == f"{100 * np.median(scores):.1f}\u202f%"


def test_what_was_not_concluded_is_left_out(bare):
    for figures in (
        gallery.estimate_figures,
        gallery.committee_figures,
        gallery.batch_figures,
        gallery.short_run_figures,
        gallery.seed_figures,
    ):
        assert list(figures(bare)) == []


def test_empty_analyses_are_no_analyses(study):
    """What there is nothing to draw of is left out: no sizes compared, no correlation defined, one seed."""
    nothing = RankCorrelation(math.nan, math.nan, math.nan, 2)
    odd = Analysis(
        batch_size=BatchSizes((), 8, 0.1, math.nan, "the batch size stays 8."),
        short_runs=ShortRuns((100,), (nothing,), 300, "too few.", False),
        seeds=SeedDistribution((0.1, math.nan), 0.1, math.nan, {}, {}, "too few."),
    )
    for analysis in (odd, Analysis()):
        for figures in (gallery.batch_figures, gallery.short_run_figures, gallery.seed_figures):
            assert list(figures(dataclasses.replace(study, analysis=analysis))) == []


def test_intervals_that_are_not_known_are_dashes(study):
    winner = dataclasses.replace(study.winner, corrected=None)
    unknown = (math.nan, math.nan)
    weighted = WeightedEstimate(0.03, math.nan, (1.0,))
    estimates = dataclasses.replace(study.estimates, test_interval=unknown, weighted=weighted)
    figure = only(gallery.estimate_figures(dataclasses.replace(study, winner=winner, estimates=estimates)))
    assert [row[2] for row in figure.table.rows] == ["–", "–", "–"]
    assert "is therefore optimistic." in figure.description


def test_numbers_are_drawn_without_a_warning(numbers):
    figures = [
        *gallery.estimate_figures(numbers),
        *gallery.trial_curve_figures(numbers),
        *gallery.seed_figures(numbers),
    ]
    assert all(picture(figure).startswith("<svg") for figure in figures)
