"""Drawings of knobs: places, cells, borders and names are those of the data."""

import dataclasses
import math

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from gradwise.evaluation.trials.knob_marginals import marginal, pair, parallel_coordinates
from gradwise.evaluation.trials.knob_relevance import Relevance
from gradwise.reporting.plots import knob_plots
from gradwise.reporting.plots.style import COLOURS
from tests.reporting.planted import RATE, make_study


@pytest.fixture(scope="module")
def study():
    return make_study()


def of(study, path):
    return marginal(study.space, study.searched, path)


def line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


@pytest.mark.parametrize(
    ("paths", "short"),
    [
        (["optimiser.learning_rate", "model.dropout"], ["learning_rate", "dropout"]),
        (["model.widths.each", "model.widths.count", "model.widths.2"], ["widths.each", "widths.count", "widths.2"]),
        (["a.scale", "b.scale", "c.a.scale"], ["a.scale", "b.scale", "c.a.scale"]),
        (["model"], ["model"]),
        ([], []),
    ],
)
def test_paths_are_cut_to_what_tells_them_apart(paths, short):
    assert knob_plots.short_paths(paths) == short


def test_one_knob_shows_trials_mean_minimum_and_failures(study):
    data = of(study, RATE)
    ax = knob_plots.draw_one_knob(data)
    dots = ax.get_lines()[2]  # after the two ends of the interval
    np.testing.assert_allclose(dots.get_xdata(), data.places)
    there = np.isfinite(data.mean)
    np.testing.assert_allclose(line(ax, "mean").get_ydata(), data.mean[there])
    np.testing.assert_allclose(line(ax, "minimum").get_ydata(), data.minimum[there])
    crosses = next(each for each in ax.get_lines() if each.get_marker() == "x")
    assert len(crosses.get_xdata()) == data.failed.sum() > 0
    assert {"0.0001", "10"} <= {text.get_text() for text in ax.get_xticklabels()}


def test_what_was_added_to_the_interval_is_shaded_and_the_old_border_marked(study):
    data = of(study, RATE)
    plain, extended = knob_plots.draw_one_knob(data), knob_plots.draw_one_knob(data, asked=(0.0, 0.6))
    assert len(plain.patches) == 0
    (shade,) = extended.patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((0.6, 1.0))
    upright = [each.get_xdata()[0] for each in extended.get_lines() if len(set(each.get_xdata())) == 1]
    assert 0.6 in upright


def test_the_best_trial_has_a_ring(study):
    data = of(study, RATE)
    best = int(data.numbers[np.nanargmin(data.scores)])
    ring = knob_plots.draw_one_knob(data, best=best).get_lines()[-1]
    assert ring.get_xydata()[0] == pytest.approx((data.places[data.numbers == best][0], np.nanmin(data.scores)))


def test_categories_and_an_exact_zero_are_not_joined(study):
    words = knob_plots.draw_one_knob(of(study, "model.activation"))
    assert [text.get_text() for text in words.get_xticklabels()] == ["Tanh", "Rectifier"]
    assert all(len(lines.get_segments()) == 2 for lines in words.collections)  # mean and minimum of two categories
    data = of(study, "model.dropout")
    numbers = knob_plots.draw_one_knob(data)
    assert data.axis.zero
    assert len(line(numbers, "minimum").get_xdata()) == np.isfinite(data.mean[1:]).sum()
    assert [len(lines.get_segments()) for lines in numbers.collections] == [1, 1]


@pytest.mark.parametrize("of_what", ["minimum", "mean"])
def test_the_best_cell_of_two_knobs_is_the_strongest(study, of_what):
    data = pair(study.space, study.searched, RATE, "model.widths.each")
    ax = knob_plots.draw_two_knobs(data, of=of_what)
    values = getattr(data, of_what)
    assert len(ax.patches) == np.isfinite(values).sum()
    strongest = max(ax.patches, key=lambda patch: patch.get_alpha())
    i, j = np.unravel_index(np.nanargmin(values), values.shape)
    assert strongest.get_xy() == pytest.approx((data.first.edges[i], data.second.edges[j]))


def test_relevance_puts_the_largest_share_on_top_in_both_pictures():
    data = Relevance(
        ("a.x", "a.y", "a.z"), np.array([0.5, 2.0, math.nan]), np.full(3, 0.1), np.array([0.1, 0.7, math.nan]), 50
    )
    share, length = knob_plots.draw_relevance(data).child_axes
    assert [text.get_text() for text in share.get_yticklabels()] == ["y", "x", "z"]
    assert [bar.get_width() for bar in share.patches] == [0.7, 0.1, 0.0]
    assert [bar.get_width() for bar in length.patches] == [2.0, 0.5, 0.0]
    np.testing.assert_allclose(length.collections[0].get_segments()[0][:, 0], [1.9, 2.1])


def test_parallel_coordinates_draw_each_trial_across_all_axes_and_its_rank(study):
    data = parallel_coordinates(study.space, study.searched)
    ax = knob_plots.draw_parallel(data)
    assert len(ax.patches) == len(study.searched)
    best = ax.patches[-1]  # drawn last, so that it lies on top
    row = int(np.nanargmin(data.ranks))
    ends = best.get_path().vertices[::3]
    np.testing.assert_allclose(ends[:, 0], range(len(data.axes) + 1))
    np.testing.assert_allclose(ends[-1, 1], 1.0)
    expected = np.where(np.isfinite(data.places[row]), data.places[row], ends[:-1, 1].min())
    np.testing.assert_allclose(ends[:-1, 1], expected)
    said = [text.get_text() for text in ax.texts]
    assert {"inactive", "no model", "best", "worst", "learning_rate", "Tanh"} <= set(said)


def test_the_best_tenth_has_a_colour_of_its_own_and_failures_are_dotted(study):
    data = parallel_coordinates(study.space, study.searched)
    patches = knob_plots.draw_parallel(data).patches
    colours = [matplotlib_hex(patch) for patch in patches]
    assert colours.count(COLOURS["second"]) == np.sum(data.ranks <= 0.1)
    assert sum(patch.get_linestyle() != "solid" for patch in patches) == np.isnan(data.ranks).sum()


def matplotlib_hex(patch):
    from matplotlib.colors import to_hex

    return to_hex(patch.get_edgecolor())


def test_of_many_lines_the_best_and_an_even_choice_are_drawn(study):
    data = parallel_coordinates(study.space, study.searched)
    many = dataclasses.replace(data, ranks=np.linspace(0, 1, 2000), places=np.zeros((2000, 6)))
    shown = knob_plots.shown_lines(many)
    assert len(set(shown)) == knob_plots.SHOWN_LINES
    assert set(range(knob_plots.SHOWN_BEST)) <= set(shown)
    assert shown[0] == 1999
    assert shown[-1] == 0


def test_failures_are_counted_in_each_cell(study):
    data = [of(study, path) for path in (RATE, "model.activation")]
    ax = knob_plots.draw_failures(data)
    said = [text.get_text() for text in ax.texts]
    cells = [f"{bad}/{n + bad}" for one in data for n, bad in zip(one.count, one.failed, strict=True) if n + bad]
    assert [text for text in said if "/" in text] == cells
    strongest = max(ax.patches, key=lambda patch: patch.get_alpha() or 0.0)
    assert strongest.get_x() + strongest.get_width() == pytest.approx(1.0)  # the largest rates diverge


def test_names_with_dollars_are_not_mathematics(study):
    data = of(study, "model.activation")
    odd = dataclasses.replace(data.axis, tick_labels=(r"$\frac{", "$$"), labels=(r"$\frac{", "$$"))
    for draw in (knob_plots.draw_one_knob, lambda one: knob_plots.draw_failures([one])):
        ax = draw(dataclasses.replace(data, axis=odd))
        ax.figure.draw_without_rendering()  # matplotlib parses here, and would raise
    everything = parallel_coordinates(study.space, study.searched)
    ax = knob_plots.draw_parallel(dataclasses.replace(everything, axes=(odd,) * 6), ax=Canvas().add_subplot())
    ax.figure.draw_without_rendering()
