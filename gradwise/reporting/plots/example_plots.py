"""Drawing what became of the examples of a training.

example_plots.draw_losses(group_losses(record.examples)).figure.savefig("losses.pdf")
"""

from typing import TYPE_CHECKING

import numpy as np

from ...evaluation.example_evidence import LossGroups
from .. import wording
from .axes import draw_frame, draw_legend, set_ticks, takes_axes
from .study_plots import set_log_axis
from .style import FIRST, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@takes_axes
def draw_losses(data: LossGroups, ax: "Axes") -> None:
    """How many examples have which mean loss, the groups on top of one another."""
    draw_frame(ax, "mean loss of an example", "examples")
    below = np.zeros(len(data.edges) - 1)
    for (name, count), colour in zip(data.counts.items(), (FIRST, SECOND, THIRD), strict=False):
        ax.bar(data.edges[:-1], count, np.diff(data.edges), bottom=below, align="edge", color=colour, label=name)
        below = below + count
    set_log_axis(ax.xaxis, wording.number, (float(data.edges[0]), float(data.edges[-1])), 5)
    set_ticks(ax.yaxis, wording.whole)
    draw_legend(ax)
