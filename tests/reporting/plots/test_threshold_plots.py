"""The curves on the axes are those of the record, each with its area in the legend."""

import numpy as np
import pytest

from gradwise.records.evidence.fit_evidence import ThresholdCurve
from gradwise.reporting.plots import threshold_plots

CURVES = tuple(
    ThresholdCurve(name, 5, (0.0, 0.5, 1.0), (0.4, 0.8, 1.0), (1.0, 0.7, 0.5), 0.7 + k / 100, 0.6 + k / 100)
    for k, name in enumerate("abcdefghij")
)


def texts(ax: object) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_roc_begins_where_nothing_is_taken() -> None:
    ax = threshold_plots.draw_roc(CURVES)
    diagonal, first, *_ = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(first.get_xydata(), [[0, 0], [0, 0.4], [0.5, 0.8], [1, 1]])
    assert texts(ax)[:2] == ["a  0.700", "b  0.710"]


def test_precision_is_a_step_over_recall() -> None:
    ax = threshold_plots.draw_precision_recall(CURVES[:2])
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [[0, 1], [0.4, 1], [0.8, 0.7], [1, 0.5]])
    assert ax.get_lines()[0].get_drawstyle() == "steps-pre"
    assert texts(ax) == ["a  0.600", "b  0.610"]


@pytest.mark.parametrize("draw", [threshold_plots.draw_roc, threshold_plots.draw_precision_recall])
def test_ten_lines_look_different(draw: object) -> None:
    lines = [line for line in draw(CURVES).get_lines() if not line.get_label().startswith("_")]
    assert len({(line.get_color(), str(line.get_linestyle()), str(line._dash_pattern)) for line in lines}) == 10
