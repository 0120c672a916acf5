"""Pictures of a check: where values are drawn and what is written beside them."""

import math

import numpy as np
import pytest

from gradwise.records.score_scale import ScoreScale
from gradwise.reporting.plots import check_plots
from gradwise.reporting.plots.check_plots import DifferenceCurve, Dot, GrowthCurve, RidgeLine, Strip
from gradwise.reporting.plots.style import COLOURS


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels() if text.get_text()]


def test_the_difference_curve_marks_the_chapters_step():
    epsilons = np.geomspace(1e-10, 1e-1, 10)
    ax = check_plots.draw_difference_curve(DifferenceCurve(epsilons, epsilons, epsilons**2 + 1e-12))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    forward, central, mark = ax.get_lines()
    assert np.asarray(forward.get_ydata()) == pytest.approx(epsilons)
    assert np.asarray(central.get_ydata())[-1] == pytest.approx(1e-2)
    assert mark.get_xdata()[0] == 1e-4
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["forward", "central"]


def test_exact_agreement_can_be_drawn():
    ax = check_plots.draw_difference_curve(DifferenceCurve(np.array([1e-4, 1e-2]), np.zeros(2), np.zeros(2)))
    assert ax.get_ylim()[0] > 0


def test_wrong_values_are_set_off_and_zero_stands_at_the_left():
    dots = [Dot("a", 2.0, marked=True), Dot("b", 1e-8), Dot("c", 0.0)]
    ax = check_plots.draw_dots(dots, across="error")
    right, wrong = (line for line in ax.get_lines() if len(line.get_xdata()) in (1, 2) and line.get_marker() in "oD")
    assert (right.get_color(), wrong.get_color()) == (COLOURS["first"], COLOURS["second"])
    assert list(wrong.get_xdata()) == [2.0]
    assert right.get_xdata()[1] == pytest.approx(1e-8 / 1.25)
    assert labels(ax.yaxis) == ["a", "b", "c"]
    assert ax.get_xlim()[0] < 1e-8 < 2.0 < ax.get_xlim()[1]


@pytest.mark.parametrize("values", [[1.0], [3.0, 3.01], [0.0, 0.0], [math.nan, 1.0], [1e-30, 1e30]])
def test_any_values_give_a_logarithmic_axis_with_plain_labels(values):
    ax = check_plots.draw_dots([Dot(str(i), v) for i, v in enumerate(values)], across="x", line=1e-3, told="rule")
    ax.figure.draw_without_rendering()
    assert ax.get_xscale() == "log"
    every = [*labels(ax.xaxis), *(t.get_text() for t in ax.get_xticklabels(minor=True))]
    assert not any("$" in text for text in every)


def test_powers_of_ten_are_written_shortly():
    assert [check_plots.power(v) for v in (1e-9, 2e-9, 0.01, 1.0, 1000.0, 1e7)] == [
        *("10⁻⁹", "2·10⁻⁹", "0.01", "1", "1,000", "10⁷"),
    ]
    assert [check_plots.brief(v) for v in (0.0, 1.94, 0.034, 4.21e-4)] == ["0", "1.9", "0.034", "4.2e−4"]


def test_a_loss_that_falls_far_is_logarithmic_and_the_best_is_strong():
    curves = [np.geomspace(1, 1e-6, 50), np.geomspace(1, 1e-2, 50)]
    ax = check_plots.draw_falling(curves)
    assert ax.get_yscale() == "log"
    assert [line.get_color() for line in ax.get_lines()] == [COLOURS["second"], COLOURS["quiet"]]
    assert check_plots.draw_falling([np.linspace(2, 1, 9)]).get_yscale() == "linear"
    check_plots.draw_falling([np.array([1.0, math.nan, math.nan])])


def test_growth_shows_the_law_and_twice_the_examples():
    counts = np.array([10.0, 100.0, 1000.0])
    law = (0.05, 1.0, 0.5)
    valid = 0.05 + counts**-0.5
    predicted = 0.05 + 2000**-0.5
    data = GrowthCurve(counts, 0 * counts, valid, 0 * counts, 0 * counts + 0.01, law, predicted)
    ax = check_plots.draw_growth(data, scale=ScoreScale("error"))
    train, measured, drawn, mark = ax.get_lines()
    assert np.asarray(measured.get_ydata()) == pytest.approx(valid)
    assert drawn.get_ydata()[-1] == pytest.approx(predicted)
    assert np.interp(100.0, drawn.get_xdata(), drawn.get_ydata()) == pytest.approx(valid[1], rel=0.01)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (2000, predicted)
    assert "7.2\u202f%" in [text.get_text() for text in ax.texts]
    del train
    without = check_plots.draw_growth(
        GrowthCurve(counts, valid, valid, 0 * counts, 0 * counts), scale=ScoreScale("loss")
    )
    assert len(without.get_lines()) == 2


def test_the_ladder_crosses_out_what_failed():
    rates = np.array([0.1, 1.0, 10.0, 100.0])
    ax = check_plots.draw_ladder((rates, np.array([2.0, 1.0, 0.5, math.nan])), largest=10.0)
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[100.0]]
    assert [text.get_text() for text in ax.texts][-2:] == ["yours", "largest"]


def test_strips_hold_mean_and_deviation_on_their_own_scale():
    updates = np.array([0.0, 100.0, 200.0])
    ax = check_plots.draw_strips(
        [Strip("a", np.zeros(3), np.full(3, 5.0)), Strip("b", np.ones(3), np.zeros(3))], updates=updates
    )
    assert labels(ax.yaxis) == ["b", "a"]  # from below
    lines = [np.asarray(line.get_ydata()) for line in ax.get_lines() if len(line.get_xdata()) == 3]
    assert lines[0] == pytest.approx(0 + 0.42)  # b: a mean of 1, as far as it reaches
    assert lines[1] == pytest.approx(1)  # a: around 0
    assert {"±5", "±1"} <= {text.get_text() for text in ax.texts}
    named = check_plots.draw_strips(
        [Strip("a", np.zeros(2), np.ones(2))], updates=np.arange(2.0), looks=("before", "after")
    )
    assert labels(named.xaxis) == ["before", "after"]


def test_ridges_are_densities_over_one_range():
    first = (np.linspace(-1, 1, 5), np.full(4, 0.25))
    last = (np.linspace(-2, 2, 5), np.full(4, 0.25))
    ax = check_plots.draw_ridges([RidgeLine("a", first, last)], across="")
    after, before = (line for line in ax.get_lines() if len(line.get_xdata()) == 10)
    assert (before.get_xdata()[0], before.get_xdata()[-1]) == (0.25, 0.75)
    assert max(before.get_ydata()) == pytest.approx(2 * max(after.get_ydata()))  # half as wide, twice as high
    assert {"−2", "2"} <= {text.get_text() for text in ax.texts}


def test_shares_and_counts_are_bars():
    ax = check_plots.draw_share_pairs(
        [(0.2, math.nan), (0.0, 0.4)], names=["a", "b"], kinds=("saturated", "dead"), across="share"
    )
    assert [bar.get_width() for bar in ax.patches] == [0.2, 0.0, 0.0, 0.4]
    ax = check_plots.draw_counts([9, 3], names=["$x$", "no"])
    assert [bar.get_width() for bar in ax.patches] == [9, 3]
    assert labels(ax.yaxis) == ["$x$", "no"]
