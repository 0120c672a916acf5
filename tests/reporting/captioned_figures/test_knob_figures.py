"""Figures of the knobs of a study: which are shown, in which order, and what is said of them."""

import dataclasses

import numpy as np
import pytest

from gradwise.evaluation.trials.knob_marginals import pair
from gradwise.evaluation.trials.knob_relevance import Relevance
from gradwise.reporting.captioned_figures import knob_figures as gallery
from tests.reporting.planted import RATE, all_diverged, make_study


@pytest.fixture(scope="module")
def study():
    return make_study()


@pytest.fixture(scope="module")
def relevance(study):
    """As planted: the rate above all, then the activation, then the width; no need to estimate it here."""
    order = dict.fromkeys(study.space.paths, 0.01) | {RATE: 0.8, "model.activation": 0.1, "model.widths.each": 0.05}
    shares = np.array([order[path] for path in study.space.paths])
    return Relevance(study.space.paths, 5 * shares, 0.1 * shares, shares, 60)


@pytest.fixture(scope="module")
def marginals(study, relevance):
    return gallery.marginals_of(study, relevance)


def test_the_knob_that_matters_most_comes_first(marginals):
    assert [one.axis.path for one in marginals[:3]] == [RATE, "model.activation", "model.widths.each"]
    assert len(marginals) == 6


def test_a_knob_that_never_varied_is_not_drawn(study):
    fixed = tuple(dataclasses.replace(t, values={**t.values, "model.dropout": 0.0}) for t in study.trials)
    found = gallery.marginals_of(dataclasses.replace(study, trials=fixed), None)
    assert "model.dropout" not in [one.axis.path for one in found]


def test_relevance_recovers_what_was_planted_and_says_it(study):
    found = gallery.study_relevance(study, refits=1)
    (figure,) = gallery.relevance_figures(study, found)
    assert figure.description.startswith("`learning_rate` matters most")
    assert figure.table.rows[0][0].text == RATE


@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_trials_say_nothing_of_relevance(count):
    study = make_study(count)
    assert gallery.study_relevance(study) is None
    assert list(gallery.relevance_figures(study, None)) == []


def test_each_knob_says_where_it_was_best_and_what_was_added(study, marginals):
    figures = {figure.title: figure for figure in gallery.knob_figures(study, marginals)}
    best = study.best
    rate = figures["learning_rate"].description
    assert rate.startswith(f"Best at {best.values[RATE]:.4g}: {100 * best.score:.1f}\u202f%")
    assert "Shaded: added to the requested range." in rate
    assert "Shaded" not in figures["widths.each"].description
    assert figures["learning_rate"].draw.keywords["asked"] == pytest.approx((0.0, 0.6))  # 1e-4 to 0.1 of 1e-4 to 10
    assert [row[0] for row in figures["activation"].table.rows] == ["Tanh", "Rectifier"]


def test_the_two_that_matter_most_are_drawn_together(study, marginals):
    minimum, mean = gallery.pair_figures(study, marginals)
    assert minimum.title == "learning_rate and activation, at their best"
    data = pair(study.space, study.searched, RATE, "model.activation")
    cells = [text for row in minimum.table.rows for text in row[1:] if text]
    assert len(cells) == np.isfinite(data.minimum).sum()
    assert minimum.table.rows != mean.table.rows


def test_all_knobs_at_once_take_the_whole_width(study, marginals):
    (figure,) = gallery.parallel_figures(study, marginals)
    assert figure.wide
    assert figure.table.rows[0][0] == str(study.best.number)
    assert "drawn" not in figure.description


def test_of_many_knobs_those_that_matter_are_laid_out(study, marginals, monkeypatch):
    monkeypatch.setattr(gallery, "_SHOWN_AXES", 3)
    (figure,) = gallery.parallel_figures(study, marginals)
    assert {axis.path for axis in figure.draw.args[0].axes} == {RATE, "model.activation", "model.widths.each"}
    assert "The 3 of 6 knobs that matter most." in figure.description


def test_failures_are_drawn_where_some_trials_went_well(study, marginals):
    (figure,) = gallery.failure_figures(study, marginals)
    rows = [row for row in figure.table.rows if row[0].text == "learning_rate"]
    assert rows[-1][2] == rows[-1][3] != "0"  # all of the largest rates
    bad = all_diverged()
    assert list(gallery.failure_figures(bad, gallery.marginals_of(bad, None))) == []
    well = dataclasses.replace(study, trials=tuple(trial for trial in study.trials if trial.ok))
    assert list(gallery.failure_figures(well, gallery.marginals_of(well, None))) == []
