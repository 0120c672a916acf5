"""Drawing how well classes are told apart at every threshold.

threshold_plots.draw_roc(record.evidence.thresholds, ax=ax)
threshold_plots.draw_precision_recall(record.evidence.thresholds).figure.savefig("precision_recall.pdf")
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...records.evidence.fit_evidence import ThresholdCurve
from ...records.score_scale import short_percent
from .. import wording
from .axes import draw_frame, draw_legend, set_ticks, takes_axes
from .style import DOTTED, FIRST, QUIET, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.4, 1.2, 1.4)))
_LETTERS = 12


def _looks() -> Iterator[dict[str, Any]]:
    """A look for each line: the three colours, then the same with other dashes."""
    for dashes, colour in itertools.product(_DASHES, (FIRST, SECOND, THIRD)):
        yield {"color": colour, "linestyle": dashes, "linewidth": 1.7}


def _names(data: Sequence[ThresholdCurve], metric: str, areas: Sequence[float]) -> list[str]:
    names = wording.short_names([curve.name for curve in data], _LETTERS)
    return [f"{name}  {wording.in_metric(metric, area)}" for name, area in zip(names, areas, strict=True)]


def _draw_shares(ax: "Axes", across: str, up: str, corner: str) -> None:
    draw_frame(ax, across, up)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(0, 1.02)
    set_ticks(ax.xaxis, short_percent)
    set_ticks(ax.yaxis, short_percent)
    draw_legend(ax, corner)


@takes_axes
def draw_roc(data: Sequence[ThresholdCurve], ax: "Axes") -> None:
    """The share of each class that is found against the share of the others that is taken for it."""
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=0.9, linestyle=DOTTED)
    for curve, name, look in zip(data, _names(data, "auc", [curve.auc for curve in data]), _looks(), strict=False):
        ax.plot((0.0, *curve.false_positive), (0.0, *curve.true_positive), label=name, **look)
    _draw_shares(ax, "false positive rate", "true positive rate", "lower right")


@takes_axes
def draw_precision_recall(data: Sequence[ThresholdCurve], ax: "Axes") -> None:
    """How many of those taken for a class are of it, against how many of it are found.

    The precision holds until more are found: a step, not a slope.
    """
    areas = [curve.average_precision for curve in data]
    for curve, name, look in zip(data, _names(data, "average_precision", areas), _looks(), strict=False):
        recall, precision = (0.0, *curve.true_positive), (curve.precision[0], *curve.precision)
        ax.plot(recall, precision, label=name, drawstyle="steps-pre", **look)
    _draw_shares(ax, "recall", "precision", "lower left")
