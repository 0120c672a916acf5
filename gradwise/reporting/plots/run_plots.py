"""Drawing: each function takes figure data and, by matplotlib's custom, an optional `ax`, and returns the axes.

    draw.learning_curves(analysis.learning_curves(record), ax=ax)
    draw.confusion(analysis.confusion(record)).figure.savefig("confusion.pdf")

The colours below are roles: each occurs for one reason only, so that `picture.py` can find it in a drawing and hand it
over to the page's style sheet, which knows whether it is light or dark.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np

from ...evaluation.curves import (
    ClassCurves,
    Confusion,
    Curve,
    Folds,
    LearningCurves,
    Pair,
    Rate,
    Reliability,
    Residuals,
    window,
)
from .. import wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue and vermilion of Okabe and Ito's palette: told apart by every kind of colour vision, and in print by weight.
COLOURS = {
    "ink": "#1c2127",
    "quiet": "#5d6773",
    "rule": "#dfe3e7",
    "first": "#0069a8",
    "second": "#c94f00",
    "third": "#8a4d94",
    "paper": "#fefefe",
    "on-cell": "#fffffe",
}
_INK, _QUIET, _RULE, _FIRST, _SECOND, _THIRD, _PAPER, _ON_CELL = COLOURS.values()

NUMBERED_CLASSES = 30  # beyond it, numbers in the cells of a confusion matrix are too small to read
MAPPED_CLASSES = 100  # beyond it, so are the cells
TEXT_SIZE = 11.5
LETTER = 6.6  # about the width of one letter at that size
_Given = ParamSpec("_Given")
_Data = TypeVar("_Data")


def _drawing(
    function: Callable[Concatenate[_Data, "Axes", _Given], None],
) -> Callable[..., "Axes"]:
    """Gives a drawing function the `ax=` custom: drawn into the axes given, or into new ones."""

    @functools.wraps(function)
    def draw(data: _Data, ax: "Axes | None" = None, *args: _Given.args, **options: _Given.kwargs) -> "Axes":
        if ax is None:
            from matplotlib.figure import Figure as Canvas

            ax = Canvas(figsize=(5.6, 3.7)).add_subplot()
        function(data, ax, *args, **options)
        return ax

    return draw


def _frame(ax: "Axes", across: str, up: str, *, grid: Literal["x", "y", ""] = "y") -> None:
    """The house look: hairlines to read values by, no box, labels that do not shout."""
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom" and grid != "x")
        spine.set_color(_RULE)
    ax.tick_params(length=0, colors=_QUIET, labelsize=TEXT_SIZE, pad=5)
    ax.set_xlabel(across, color=_QUIET, fontsize=TEXT_SIZE, labelpad=4)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=_RULE, linewidth=0.8)
    # The name of the vertical axis stands above it, where it is read without turning one's head.
    ax.annotate(
        up,
        (0, 1),
        (0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="left",
        color=_QUIET,
        fontsize=TEXT_SIZE,
    )


def _ticks(axis: Any, write: Callable[[float], str], most: int = 5) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def _short_percent(share: float) -> str:
    return f"{100 * share:.3g}\u202f%"


def _legend(ax: "Axes") -> None:
    """Names of the lines above the picture, at the right, in ink: the line beside each name has the colour."""
    legend = ax.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
        frameon=False,
        fontsize=TEXT_SIZE,
        labelcolor=_INK,
        borderpad=0,
        borderaxespad=0.25,
        handlelength=1.7,
        handletextpad=0.5,
        columnspacing=1.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _line(ax: "Axes", curve: Curve, **style: Any) -> None:
    """A curve; one point alone is a dot, because a line through it would be nothing."""
    if len(curve) == 1:
        style = {**style, "marker": "o", "markersize": 5}
    ax.plot(curve.age, curve.value, solid_capstyle="round", **style)


def _say(ax: "Axes", text: str, at: tuple[float, float], curves: Sequence[Curve]) -> None:
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
    ax.annotate(
        text,
        at,
        (7 if is_right else -7, 8 if is_above else -16),
        textcoords="offset points",
        ha="left" if is_right else "right",
        color=_INK,
        fontsize=TEXT_SIZE,
        weight="bold",
        zorder=6,
    )


@_drawing
def draw_learning_curves(data: LearningCurves, ax: "Axes") -> None:
    """Training and validation score or loss against age; the kept parameters are marked, and where the run diverged."""
    share = data.kind == "error"
    _frame(ax, "age, in examples seen", wording.SCORES.get(data.kind, data.kind))
    _line(ax, data.train, color=_FIRST, linewidth=1.5, linestyle=(0, (3.5, 1.6)), label="training")
    _line(ax, data.valid, color=_SECOND, linewidth=2.1, label="validation")
    low, high = window((data.train, data.valid))
    if share:
        high = min(high, 1.0)
    ax.set_ylim(low, high)
    end = max([data.end_examples, *data.train.age, *data.valid.age, 1])
    ax.set_xlim(0, end * 1.02)
    _ticks(ax.yaxis, _short_percent if share else wording.tick)
    _ticks(ax.xaxis, wording.age)
    if data.best is not None:
        age, value = data.best
        ax.plot([age, age], [low, value], color=_INK, linewidth=0.9, linestyle=(0, (1, 2)))
        ax.plot([age], [value], "o", color=_PAPER, markeredgecolor=_INK, markeredgewidth=1.8, markersize=7.5, zorder=5)
        text = f"best {wording.percent(value) if share else wording.number(value)}"
        _say(ax, text, data.best, (data.train, data.valid))
    if data.diverged:
        ax.axvline(data.end_examples, color=_INK, linewidth=1.4)
        _say(ax, "diverged", (data.end_examples, high - 0.02 * (high - low)), ())
    _legend(ax)


@_drawing
def draw_class_curves(data: ClassCurves, ax: "Axes") -> None:
    """The validation score of every class against age: all of them faint, the worst by name."""
    share = data.kind == "error"
    _frame(ax, "age, in examples seen", wording.SCORES.get(data.kind, data.kind))
    styles = [(_SECOND, "-"), (_FIRST, (0, (4, 1.6))), (_THIRD, (0, (1.2, 1.4)))]
    names = wording.short_names(data.classes, 9)
    others = [curve for k, curve in enumerate(data.curves) if k not in data.worst]
    for curve in others[:60]:
        _line(ax, curve, color=_QUIET, linewidth=1.1, alpha=0.4)
    for k, (colour, dashes) in zip(data.worst, styles, strict=False):
        _line(ax, data.curves[k], color=colour, linestyle=dashes, linewidth=2, label=names[k])
    low, high = window(data.curves)
    ax.set_ylim(low, min(high, 1.0) if share else high)
    end = max([float(curve.age[-1]) for curve in data.curves if len(curve)] or [1.0])
    ax.set_xlim(0, end * 1.02)
    _ticks(ax.yaxis, _short_percent if share else wording.tick)
    _ticks(ax.xaxis, wording.age)
    if data.worst:
        _legend(ax)


@_drawing
def draw_one_curve(data: Curve, ax: "Axes", *, name: str) -> None:
    """A quantity of the optimiser against age, on a logarithmic axis where it changes by more than a factor of 30."""
    _frame(ax, "age, in examples seen", name)
    _line(ax, data, color=_FIRST, linewidth=1.8)
    low, high = float(data.value.min()), float(data.value.max())
    if low > 0 and high > 30 * low:
        from matplotlib.ticker import FuncFormatter, NullLocator

        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.tick(value)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.08 * (high - low) or 0.2 * abs(high) or 1.0
        ax.set_ylim(max(0.0, low - margin) if low >= 0 else low - margin, high + margin)
        _ticks(ax.yaxis, wording.tick)
    ax.set_xlim(0, max(float(data.age[-1]), 1.0) * 1.02)
    _ticks(ax.xaxis, wording.age)


def _rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def strength(data: Confusion) -> np.ndarray:
    """How strongly each cell is coloured: square roots, so that a confusion of one in a hundred can be seen."""
    shares = np.sqrt(data.shares())
    errors = shares.copy()
    np.fill_diagonal(errors, 0.0)
    scaled = errors / max(float(errors.max()), 0.35)
    np.fill_diagonal(scaled, np.diag(shares) * 0.9)
    return np.where(data.counts > 0, 0.08 + 0.92 * scaled, 0.0)


def is_numbered(data: Confusion) -> bool:
    """Whether the cells are large enough for their numbers."""
    return len(data.classes) <= NUMBERED_CLASSES


def class_names(data: Confusion) -> list[str]:
    """The names beside the rows and columns of a confusion matrix: with many classes, of some of them only."""
    step = 1 if is_numbered(data) else math.ceil(len(data.classes) / 24)
    return wording.short_names(data.classes, 12 if is_numbered(data) else 8)[::step]


def is_upright(names: Sequence[str], cell: float) -> bool:
    """Whether the names under cells so many pixels wide must be turned."""
    return LETTER * max(map(len, names)) > cell - 4


@_drawing
def draw_confusion(data: Confusion, ax: "Axes") -> None:
    """Counts by true and predicted class: the right ones in blue, the confused in vermilion, each on its own scale."""
    size = len(data.classes)
    alpha = strength(data)
    image = np.empty((size, size, 4))
    image[..., :3] = _rgb(_SECOND)
    image[np.arange(size), np.arange(size), :3] = _rgb(_FIRST)
    image[..., 3] = alpha
    _frame(ax, "predicted", "true", grid="")
    ax.imshow(image, interpolation="none", aspect="auto")
    ax.spines["bottom"].set_visible(False)
    numbered, names = is_numbered(data), class_names(data)
    places = range(0, size, math.ceil(size / len(names)))
    small = TEXT_SIZE if size <= 20 else 9.5
    cell = ax.bbox.width * 72 / ax.figure.dpi / size
    ax.set_xticks(places, names, rotation=90 if is_upright(names, cell) else 0, parse_math=False, fontsize=small)
    ax.set_yticks(places, names, parse_math=False, fontsize=small)
    if numbered:
        for i, j in zip(*np.nonzero(data.counts), strict=True):
            count = data.counts[i, j]
            digits = f"{count:.0f}" if count == round(count) else f"{count:.1f}"
            ax.text(
                j,
                i,
                digits,
                ha="center",
                va="center_baseline",
                fontsize=min(small, 46 / max(len(digits), 3)) if size > 10 else TEXT_SIZE,
                color=_ON_CELL if alpha[i, j] > 0.7 else _INK,
            )
    # A grid of paper between the cells gives each its edge without a line of its own.
    if numbered:
        for edge in np.arange(0.5, size - 1):
            ax.axhline(edge, color=_PAPER, linewidth=1.2)
            ax.axvline(edge, color=_PAPER, linewidth=1.2)


def pair_names(data: Sequence[Pair]) -> list[str]:
    """What each bar of `pairs` is called."""
    names = wording.short_names([name for pair in data for name in (pair.true, pair.predicted)], 13)
    return [f"{true} → {predicted}" for true, predicted in zip(names[::2], names[1::2], strict=True)]


@_drawing
def draw_pairs(data: Sequence[Pair], ax: "Axes") -> None:
    """The commonest confusions as bars, commonest on top."""
    _frame(ax, "test examples", "", grid="x")
    places = np.arange(len(data))[::-1]
    ax.barh(places, [pair.errors for pair in data], height=0.62, color=_SECOND)
    ax.set_yticks(places, pair_names(data), parse_math=False, color=_INK)
    ax.set_ylim(-0.7, len(data) - 0.3)
    _ticks(ax.xaxis, wording.whole, most=min(4, max(1, max(pair.errors for pair in data))))


@_drawing
def draw_rates(data: Sequence[Rate], ax: "Axes", *, overall: float = math.nan) -> None:
    """Error rates with their intervals, worst on top; a line at the error of the whole part."""
    _frame(ax, "error, with 95\u202f% interval", "", grid="x")
    places = np.arange(len(data))[::-1]
    values = np.array([rate.rate for rate in data])
    bounded = [(place, rate) for place, rate in zip(places, data, strict=True) if math.isfinite(rate.low)]
    ax.hlines(
        [place for place, _ in bounded],
        [rate.low for _, rate in bounded],
        [rate.high for _, rate in bounded],
        color=_SECOND,
        linewidth=3.2,
        alpha=0.35,
    )
    ax.plot(values, places, "o", color=_SECOND, markersize=6.5, clip_on=False)
    if math.isfinite(overall):
        ax.axvline(overall, color=_INK, linewidth=0.9, linestyle=(0, (1, 2)))
        text = f"all together {wording.percent(overall)}"
        ax.text(overall, len(data) - 0.2, text, color=_QUIET, fontsize=TEXT_SIZE, va="bottom", ha="left")
    ax.set_yticks(places, wording.short_names([rate.name for rate in data], 18), parse_math=False, color=_INK)
    ax.tick_params(axis="y", pad=9)
    ax.set_ylim(-0.7, len(data) - 0.3)
    highest = max([*values, *(rate.high for _, rate in bounded), 0.01])
    ax.set_xlim(0, min(1.0, highest * 1.05))
    ax.spines["left"].set_visible(True)
    _ticks(ax.xaxis, _short_percent, most=4)


@_drawing
def draw_reliability(data: Reliability, ax: "Axes") -> None:
    """How often the network was right against how sure it was; on the diagonal its probabilities can be believed."""
    _frame(ax, "confidence", "accuracy")
    ax.plot([0, 1], [0, 1], color=_QUIET, linewidth=0.9, linestyle=(0, (1, 2)))
    ax.plot(
        data.before.confidence,
        data.before.accuracy,
        marker="o",
        markersize=5,
        markerfacecolor=_PAPER,
        color=_FIRST,
        linewidth=1.3,
        linestyle=(0, (3.5, 1.6)),
        label="as trained",
    )
    ax.plot(
        data.after.confidence,
        data.after.accuracy,
        marker="o",
        markersize=5.5,
        color=_SECOND,
        linewidth=2,
        label="calibrated",
    )
    both = np.concatenate([data.before.confidence, data.after.confidence, data.before.accuracy, data.after.accuracy])
    low = max(0.0, math.floor(10 * float(both.min()) - 0.5) / 10)
    ax.set_xlim(low, 1.02)
    ax.set_ylim(low, 1.02)
    _ticks(ax.xaxis, _short_percent)
    _ticks(ax.yaxis, _short_percent)
    _legend(ax)


def _dots(ax: "Axes", across: np.ndarray, up: np.ndarray) -> None:
    few = len(across) <= 150
    ax.plot(
        across,
        up,
        "o",
        color=_FIRST,
        markersize=5 if few else 3.6,
        alpha=0.55 if few else 0.35,
        markeredgewidth=0,
    )


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


@_drawing
def draw_predicted(data: Residuals, ax: "Axes") -> None:
    """Predictions against targets; a perfect network has every dot on the diagonal."""
    _frame(ax, "true", "predicted")
    ends = _span(np.concatenate([data.target, data.prediction]))
    ax.plot(ends, ends, color=_INK, linewidth=0.9, linestyle=(0, (1, 2)))
    _dots(ax, data.target, data.prediction)
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    _ticks(ax.xaxis, wording.tick, most=4)
    _ticks(ax.yaxis, wording.tick)


@_drawing
def draw_errors(data: Residuals, ax: "Axes") -> None:
    """Errors against predictions: a slope or a funnel here is something the network has not learned."""
    _frame(ax, "predicted", "predicted − true")
    ax.axhline(0, color=_INK, linewidth=0.9, linestyle=(0, (1, 2)))
    _dots(ax, data.prediction, data.error)
    ax.set_xlim(*_span(data.prediction))
    ax.set_ylim(*_span(np.append(data.error, 0.0)))
    _ticks(ax.xaxis, wording.tick, most=4)
    _ticks(ax.yaxis, wording.tick)


@_drawing
def draw_folds(data: Folds, ax: "Axes", *, metric: str) -> None:
    """Each fold's value, their mean and its interval."""
    _frame(ax, wording.metric_name(metric), "", grid="x")
    values = [value for value in data.values if math.isfinite(value)]
    if math.isfinite(data.low):
        ax.axvspan(data.low, data.high, color=_SECOND, alpha=0.18, linewidth=0)
    ax.axvline(data.mean, color=_SECOND, linewidth=2)
    ax.plot(values, np.zeros(len(values)), "o", color=_FIRST, markersize=8, alpha=0.7, markeredgewidth=0)
    ax.set_yticks([])
    ax.set_ylim(-1, 1)
    ends = [value for value in (*values, data.low, data.high) if math.isfinite(value)]
    low, high = _span(np.array(ends))
    ax.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    _ticks(ax.xaxis, lambda value: wording.in_metric(metric, value))
