"""Drawing a race of optimisers: the best so far of every training against seconds and against examples.

race_plots.draw_race(study.analysis.break_even, measure="loss")
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records.score_scale import ScoreScale
from ...records.study_analysis import BreakEven, RaceLine
from .. import wording
from .axes import draw_frame, draw_legend, set_ticks, takes_axes
from .study_plots import set_log_axis
from .style import DASHED, DOTTED, FIRST, INK, RING, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (FIRST, SECOND, THIRD)


def _points(line: RaceLine, clock: str, measure: str, shown: Callable[[float], float]) -> tuple[np.ndarray, np.ndarray]:
    """What a logarithmic axis can show of a line: all but its beginning."""
    across, up = (np.asarray(getattr(line, name), float) for name in (clock, measure))
    there = (across > 0) & np.isfinite(up)
    return across[there], np.array([shown(value) for value in up[there]])


def _draw_panel(
    panel: "Axes", data: BreakEven, measure: str, clock: str, shown: Callable[[float], float]
) -> tuple[np.ndarray, np.ndarray]:
    """The lines of one clock; all their points."""
    xs, ys = [np.zeros(0)], [np.zeros(0)]
    for place, method in enumerate((data.stochastic, *data.batch)):
        look: dict[str, Any] = {"color": _COLOURS[place % 3], "linestyle": "-" if place < 3 else DASHED}
        named = False
        for line in data.lines:
            if line.method == method:
                across, up = _points(line, clock, measure, shown)
                panel.plot(across, up, linewidth=1.5, alpha=0.85, label=None if named else method, **look)
                named = True
                xs.append(across)
                ys.append(up)
    return np.concatenate(xs), np.concatenate(ys)


def _mark(panel: "Axes", data: BreakEven, measure: str, clock: str, shown: Callable[[float], float]) -> None:
    for one in data.overtakings:
        if (one.measure, one.clock) == (measure, clock) and np.isfinite(one.at) and one.at > 0:
            panel.axvline(one.at, color=INK, linewidth=0.9, linestyle=DOTTED)
            panel.plot([one.at], [shown(one.level)], **RING)


def _ends(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    return low / 1.15, max(high, low * 1.5) * 1.15


@takes_axes
def draw_race(data: BreakEven, ax: "Axes", *, measure: str, scale: ScoreScale = ScoreScale()) -> None:
    """The best so far of each method, a line for each seed; a ring where a batch method overtakes for good.

    `measure` is "error", the validation score on this `scale`, or "loss", that of all training examples.
    """
    ax.set_axis_off()
    is_error = measure == "error"
    title, write = (scale.name, scale.tick) if is_error else ("training loss", wording.tick)
    shown: Callable[[float], float] = scale.shown if is_error else float
    clocks = (("seconds", "seconds of updates", wording.tick), ("examples", "examples seen", wording.age))
    for place, (clock, across, write_clock) in zip((0.0, 0.56), clocks, strict=True):
        panel = ax.inset_axes((place, 0.0, 0.44, 1.0))
        draw_frame(panel, across, title if clock == "seconds" else "")
        xs, ys = _draw_panel(panel, data, measure, clock, shown)
        _mark(panel, data, measure, clock, shown)
        if len(xs):
            set_log_axis(panel.xaxis, write_clock, _ends(xs), most=5)
        if len(ys) and ys.min() > 0:
            set_log_axis(panel.yaxis, write, _ends(ys), most=5)
        else:
            set_ticks(panel.yaxis, write, most=4)
        if clock == "examples":
            draw_legend(panel)
