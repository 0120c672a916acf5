"""Drawings of a study: what is on the axes is what the data says."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from gradwise.evaluation.run_figure_data import Curve
from gradwise.evaluation.trials.cost import ParetoFront
from gradwise.evaluation.trials.expected_best import best_so_far, expected_best
from gradwise.records.score_scale import ScoreScale
from gradwise.records.study_analysis import BatchSizeCost, RankCorrelation
from gradwise.records.study_conclusions import Finalist
from gradwise.reporting.plots import study_plots
from gradwise.reporting.plots.study_plots import EstimateLine

ERRORS = np.array([0.3, 0.05, 0.9, 0.12, 0.06])


def axes():
    return Canvas().add_subplot()


def line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_expected_best_draws_mean_band_and_best_so_far():
    data, so_far = expected_best(ERRORS, 0.9), best_so_far(ERRORS)
    ax = axes()
    assert study_plots.draw_expected_best(data, ax=ax, best_so_far=so_far) is ax
    np.testing.assert_allclose(line(ax, "expected best").get_ydata(), data.mean)
    np.testing.assert_allclose(line(ax, "best so far").get_ydata(), so_far)
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.05)  # never below the best of all
    assert band[:, 1].max() == pytest.approx((data.mean + data.deviation).max())
    assert ax.get_xscale() == "log"
    assert labels(ax.xaxis) == ["1", "2", "4"]


def test_trials_that_look_back_have_no_expected_best():
    ax = study_plots.draw_expected_best(None, best_so_far=best_so_far(ERRORS))
    assert [each.get_label() for each in ax.get_lines()] == ["best so far"]
    assert not ax.collections


def test_scores_over_a_wide_range_get_a_logarithmic_axis_with_round_ticks():
    ax = axes()
    study_plots.score_axis(ax.yaxis, [0.02, 0.9, math.nan], ScoreScale())
    assert ax.get_yscale() == "log"
    assert "2\u202f%" in labels(ax.yaxis)
    assert "50\u202f%" in labels(ax.yaxis)
    near = axes()
    study_plots.score_axis(near.yaxis, [0.02, 0.03], ScoreScale())
    assert near.get_yscale() == "linear"


@pytest.mark.parametrize("values", [[], [math.nan], [0.0, 0.5], [0.0], [0.3], [1e-9, 1.0], [3e-5, 4e4]])
def test_a_score_axis_is_made_of_anything(values):
    ax = axes()
    study_plots.score_axis(ax.yaxis, values, ScoreScale("loss"))
    low, high = ax.get_ylim()
    assert low < high
    assert all(low <= value <= high for value in values if math.isfinite(value))
    assert 1 <= len(ax.get_yticks()) <= 8


def test_every_curve_is_drawn_and_the_best_by_name():
    curves = [Curve(np.array([1.0, 2.0]), np.array([0.5, level])) for level in (0.4, 0.1, 0.3)]
    ax = study_plots.draw_trial_curves(curves, best=1)
    assert len(ax.get_lines()) == 3
    np.testing.assert_allclose(line(ax, "best trial").get_ydata(), [0.5, 0.1])
    assert study_plots.draw_trial_curves([], best=None).get_legend() is None


def test_the_front_is_joined_cheapest_first():
    data = ParetoFront(
        "seconds", np.arange(4), np.array([1.0, 20.0, 5.0, 6.0]), np.array([0.5, 0.1, 0.2, 0.3]), np.array([0, 2, 1])
    )
    ax = study_plots.draw_pareto(data)
    np.testing.assert_allclose(line(ax, "best for its cost").get_xydata(), [[1.0, 0.5], [5.0, 0.2], [20.0, 0.1]])
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[6.0, 0.3]])
    assert ax.get_xscale() == "log"


def test_a_thousand_dots_are_thinned_evenly():
    dots = study_plots.some_dots(5000)
    assert len(dots) == study_plots.SHOWN_DOTS
    assert (dots[0], dots[-1]) == (0, 4999)
    assert np.diff(dots).max() <= 7
    np.testing.assert_array_equal(study_plots.some_dots(3), [0, 1, 2])


def test_the_histogram_of_seeds_counts_all_and_marks_the_mean():
    scores = np.random.default_rng(0).normal(0.05, 0.01, 300)
    ax = study_plots.draw_seeds(scores)
    assert sum(bar.get_height() for bar in ax.patches) == 300
    assert ax.get_lines()[0].get_xdata()[0] == pytest.approx(scores.mean())


def test_the_largest_weight_is_on_top():
    ax = study_plots.draw_weights({"trial 3": 0.7, "trial 1": 0.3})
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.7, 0.3])
    assert ax.patches[0].get_y() > ax.patches[1].get_y()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["trial 3", "trial 1"]


def test_a_committee_stands_below_its_members():
    ax = study_plots.draw_committee([0.03, 0.04, 0.05], together=0.025, mean=0.04, metric="error_rate")
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[0.03, 1], [0.04, 1], [0.05, 1]])
    assert tuple(ax.get_lines()[2].get_xydata()[0]) == (0.025, 0)
    assert labels(ax.yaxis) == ["members", "committee"]


def test_estimates_have_intervals_and_the_one_to_quote_is_filled():
    lines = [EstimateLine("validation", 0.02), EstimateLine("test", 0.03, 0.01, 0.05, part="test", final=True)]
    ax = study_plots.draw_estimates(lines, metric="error_rate")
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment[:, 0], [0.01, 0.05])
    hollow, filled = ax.get_lines()
    assert hollow.get_markerfacecolor() != hollow.get_markeredgecolor()
    assert filled.get_markerfacecolor() == filled.get_markeredgecolor()
    assert ax.get_yticks()[0] > ax.get_yticks()[1]


def test_finalists_show_each_seed_and_the_mean():
    settings = [Finalist(8, {}, (0.02, 0.03), 0.025, 0.007), Finalist(4, {}, (0.04,), 0.04, math.nan)]
    ax = study_plots.draw_finalists(settings)
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [0.02, 0.03])
    assert ax.get_lines()[1].get_xdata()[0] == 0.025
    assert labels(ax.yaxis) == ["trial 8", "trial 4"]


def test_batch_sizes_that_did_not_reach_the_score_are_hollow():
    table = [
        BatchSizeCost(16, 4.0, 1000, True, 0.1),
        BatchSizeCost(64, 2.0, 1500, True, 0.1),
        BatchSizeCost(256, 5.0, 4000, False, 0.1),
    ]
    ax = study_plots.draw_batch_sizes(table, recommended=64)
    seconds, examples = ax.child_axes
    np.testing.assert_allclose(seconds.get_lines()[0].get_xydata(), [[16, 4], [64, 2], [256, 5]])
    reached, not_reached = seconds.get_lines()[1:3]
    assert list(not_reached.get_xdata()) == [256]
    assert not_reached.get_markerfacecolor() != reached.get_markerfacecolor()
    assert examples.get_lines()[0].get_ydata().tolist() == [1000, 1500, 4000]
    assert seconds.get_lines()[3].get_xdata()[0] == 64


def test_short_runs_draw_the_correlation_and_the_line_at_one():
    found = [(100, RankCorrelation(-0.2, -0.4, 0.1, 9)), (200, RankCorrelation(0.9, 0.8, 0.95, 9))]
    ax = study_plots.draw_short_runs(found)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), [-0.2, 0.9])
    assert ax.get_ylim()[0] < -0.4
