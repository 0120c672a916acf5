"""Pictures of features: the pixels that are drawn, and the words beside them."""

import numpy as np
import pytest

from gradwise.evaluation.run_figure_data import Curve
from gradwise.reporting.plots import feature_plots
from gradwise.reporting.plots.run_plots import colour_of
from gradwise.reporting.plots.style import COLOURS


def drawn(ax):
    (image,) = ax.get_images()
    return np.asarray(image.get_array())


def test_signed_values_are_blue_vermilion_or_nothing():
    image = feature_plots.coloured(np.array([[1.0, -0.5, 0.0]]))
    assert image[0, 0, :3].tolist() == colour_of(COLOURS["first"])
    assert image[0, 1, :3].tolist() == colour_of(COLOURS["second"])
    assert image[0, :, 3].tolist() == [1.0, 0.5, 0.0]


def test_tiles_stand_in_rows_with_gaps_between():
    tiles = np.stack([np.full(4, 1.0), np.full(4, -1.0), np.full(4, 0.5)])
    wall = drawn(feature_plots.draw_tiles(tiles, image=(2, 2), columns=2, signed=True))
    assert wall.shape == (5, 5, 4)
    assert wall[:2, :2, 3].tolist() == [[1, 1], [1, 1]]
    assert wall[0, 3, :3].tolist() == colour_of(COLOURS["second"])
    assert wall[3:, :2, 3].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert not wall[2].any()  # the gap
    assert not wall[3:, 3:].any()  # no fourth tile


def test_colour_images_keep_their_channels():
    pixels = np.array([[0.0, 0.5, 1.0]])
    assert drawn(feature_plots.draw_tiles(pixels, image=(1, 1, 3), columns=1))[0, 0].tolist() == [0.0, 0.5, 1.0, 1.0]
    assert drawn(feature_plots.draw_tiles(2 * pixels - 1, image=(1, 1, 3), columns=1, signed=True))[0, 0].tolist() == [
        *(0.0, 0.5, 1.0),
        1.0,
    ]


def test_a_reconstruction_stands_under_its_input():
    given, made = np.array([[0.2], [0.4], [0.6]]), np.array([[0.3], [0.5], [0.7]])
    wall = drawn(feature_plots.draw_pairs_of_tiles((given, made), image=(1, 1), columns=2))[..., 0]
    assert wall[0, [0, 2]] == pytest.approx([0.2, 0.4])
    assert wall[2, [0, 2]] == pytest.approx([0.3, 0.5])
    assert (wall[6, 0], wall[8, 0]) == pytest.approx((0.6, 0.7))
    assert wall.shape == (9, 3)


def test_a_heat_map_names_rows_and_columns():
    ax = feature_plots.draw_heat_map(np.eye(2), rows=["4", "1"], columns=["age", "$x$"])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["age", "$x$"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["4", "1"]


def test_the_spectrum_marks_the_effective_dimension():
    ax = feature_plots.draw_spectrum([0.5, 0.25, 0.25], effective=2.0)
    curve, _, mark = ax.get_lines()
    assert curve.get_ydata().tolist() == [0.0, 0.5, 0.75, 1.0]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (2.0, 0.75)


def test_shares_are_bars_from_nothing_to_all():
    ax = feature_plots.draw_shares([-0.4, 0.25], names=["a", "b"])
    assert [bar.get_width() for bar in ax.patches] == [0.0, 0.25]  # worse than the mean is nothing kept


def test_a_histogram_has_a_bar_a_bin():
    ax = feature_plots.draw_histogram(([1, 3], [0.0, 0.5, 1.0]))
    assert [bar.get_height() for bar in ax.patches] == [1, 3]


def test_a_layer_s_curve_marks_where_it_was_kept():
    curve = Curve(np.array([10.0, 20.0, 30.0]), np.array([3.0, 1.0, 2.0]))
    ax = feature_plots.draw_layer_curve(curve, name="loss", best=20.0)
    assert (ax.get_lines()[1].get_xdata()[0], ax.get_lines()[1].get_ydata()[0]) == (20.0, 1.0)
