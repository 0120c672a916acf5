"""What all plots share: the `ax=` convention, frames, ticks, legends and labels."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np

from ...evaluation.run_figure_data import Curve
from .style import INK, QUIET, RULE, TEXT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Given = ParamSpec("_Given")
_Data = TypeVar("_Data")


def takes_axes(function: Callable[Concatenate[_Data, "Axes", _Given], None]) -> Callable[..., "Axes"]:
    """Gives a drawing function the `ax=` convention: drawn into the axes given, or into new ones."""

    @functools.wraps(function)
    def draw(data: _Data, ax: "Axes | None" = None, *args: _Given.args, **options: _Given.kwargs) -> "Axes":
        if ax is None:
            from matplotlib.figure import Figure as Canvas

            ax = Canvas(figsize=(5.6, 3.7)).add_subplot()
        function(data, ax, *args, **options)
        return ax

    return draw


def draw_note(ax: "Axes", text: str, at: tuple[float, float], away: tuple[float, float], **look: Any) -> None:
    """Words so many points away from a place."""
    ax.annotate(text, at, away, **{"textcoords": "offset points", "color": QUIET, "fontsize": TEXT_SIZE, **look})


def name_rows(ax: "Axes", names: Sequence[str], room: float = 0.6) -> np.ndarray:
    """Names the rows of a picture, the first on top; their heights."""
    places = np.arange(len(names))[::-1]
    ax.set_yticks(places, names, parse_math=False, color=INK)
    ax.set_ylim(-room, len(names) - 1 + room)
    return places


def draw_frame(ax: "Axes", across: str, up: str, *, grid: Literal["x", "y", ""] = "y") -> None:
    """The house look: hairlines to read values by, no box, labels that do not shout."""
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom" and grid != "x")
        spine.set_color(RULE)
    ax.tick_params(length=0, colors=QUIET, labelsize=TEXT_SIZE, pad=5)
    ax.set_xlabel(across, color=QUIET, fontsize=TEXT_SIZE, labelpad=4)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=RULE, linewidth=0.8)
    # The name of the vertical axis stands above it, where it is read without turning one's head.
    draw_note(ax, up, (0, 1), (0, 7), xycoords="axes fraction")


def set_ticks(axis: Any, write: Callable[[float], str], most: int = 5) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def draw_legend(ax: "Axes", corner: str = "") -> None:
    """Names of the lines above the picture, at the right, or below one another in a corner of it that is empty.

    The names are in ink: the line beside each has the colour.
    """
    place: Any = {"loc": corner, "ncols": 1} if corner else {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3}
    legend = ax.legend(
        **place,
        frameon=False,
        fontsize=TEXT_SIZE,
        labelcolor=INK,
        borderpad=0,
        borderaxespad=0.7 if corner else 0.25,
        handlelength=1.7,
        handletextpad=0.5,
        columnspacing=1.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw_line(ax: "Axes", curve: Curve, **style: Any) -> None:
    """A curve; one point alone is a dot, because a line through it would be nothing."""
    if len(curve) == 1:
        style = {**style, "marker": "o", "markersize": 5}
    ax.plot(curve.age, curve.value, solid_capstyle="round", **style)


def label_point(ax: "Axes", text: str, at: tuple[float, float], curves: Sequence[Curve]) -> None:
    """Words beside a point, at the corner of it where the fewest curves pass.

    They are bold, and the page gives bold words a halo, so that they can be read even across a line.
    """
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    wide, tall = 0.02 * len(text) * (right - left), 0.09 * (high - low)

    def covered(corner: tuple[bool, bool]) -> float:
        is_right, is_above = corner
        across = at[0] + wide * np.linspace(0.05, 1, 12) * (1 if is_right else -1)
        bottom = at[1] + (0.3 * tall if is_above else -1.5 * tall)
        outside = across.max() > right or across.min() < left or bottom < low or bottom + tall > high
        drawn = [np.interp(across, curve.age, curve.value) for curve in curves if len(curve)]
        return 100.0 * outside + float(sum(((y > bottom) & (y < bottom + tall)).mean() for y in drawn))

    is_right, is_above = min([(True, True), (True, False), (False, True), (False, False)], key=covered)
    away = (7 if is_right else -7, 8 if is_above else -16)
    draw_note(ax, text, at, away, ha="left" if is_right else "right", color=INK, weight="bold", zorder=6)


def value_span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
