"""Drawing a run: each function takes figure data and an optional `ax`, and returns the axes.

run_plots.draw_learning_curves(learning_curves(record), ax=ax)
run_plots.draw_confusion(confusion(record.evidence)).figure.savefig("confusion.pdf")
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...evaluation.run_figure_data import (
    ClassCurves,
    Confusion,
    Curve,
    LearningCurves,
    Pair,
    Residuals,
    window,
)
from ...records.evidence.fit_evidence import (
    ClassEvidence,
    ColumnImportance,
    CrossValidationEstimate,
    ErrorRate,
    Profile,
)
from ...records.score_scale import ScoreScale, short_percent
from .. import wording
from .axes import (
    draw_frame,
    draw_legend,
    draw_line,
    draw_note,
    label_point,
    name_rows,
    set_ticks,
    takes_axes,
    value_span,
)
from .style import DASHED, DOTTED, FIRST, INK, LETTER, ON_CELL, PAPER, QUIET, RING, RULE, SECOND, TEXT_SIZE, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NUMBERED_CLASSES = 30  # beyond it, numbers in the cells of a confusion matrix are too small to read
MAPPED_CLASSES = 100  # beyond it, so are the cells


@takes_axes
def draw_learning_curves(data: LearningCurves, ax: "Axes") -> None:
    """Training and validation score or loss against age; the kept parameters are marked, and where the run diverged."""
    scale = data.scale
    draw_frame(ax, "age, in examples seen", scale.quantity)
    draw_line(ax, data.train, color=FIRST, linewidth=1.5, linestyle=DASHED, label="training")
    draw_line(ax, data.valid, color=SECOND, linewidth=2.1, label="validation")
    low, high = window((data.train, data.valid))
    if scale.is_share:
        high = min(high, 1.0)
    ax.set_ylim(low, high)
    end = max([data.end_examples, *data.train.age, *data.valid.age, 1])
    ax.set_xlim(0, end * 1.02)
    set_ticks(ax.yaxis, scale.tick)
    set_ticks(ax.xaxis, wording.age)
    if data.best is not None:
        age, value = data.best
        ax.plot([age, age], [low, value], color=INK, linewidth=0.9, linestyle=DOTTED)
        ax.plot([age], [value], zorder=5, **RING)
        label_point(ax, f"saved {scale.write(value)}", data.best, (data.train, data.valid))
    if data.diverged:
        ax.axvline(data.end_examples, color=INK, linewidth=1.4)
        label_point(ax, "diverged", (data.end_examples, high - 0.02 * (high - low)), ())
    draw_legend(ax)


@takes_axes
def draw_class_curves(data: ClassCurves, ax: "Axes") -> None:
    """The validation curve of every class: all of them faint, the worst by name, with their training curves thin."""
    scale = data.scale
    draw_frame(ax, "age, in examples seen", scale.quantity)
    styles = [(SECOND, "-"), (FIRST, (0, (4, 1.6))), (THIRD, (0, (1.2, 1.4)))]
    names = wording.short_names(data.classes, 9)
    others = [curve for k, curve in enumerate(data.curves) if k not in data.worst]
    for curve in others[:60]:
        draw_line(ax, curve, color=QUIET, linewidth=1.1, alpha=0.4)
    for k, (colour, dashes) in zip(data.worst, styles, strict=False):
        draw_line(ax, data.curves[k], color=colour, linestyle=dashes, linewidth=2, label=names[k])
        if data.train:
            draw_line(ax, data.train[k], color=colour, linestyle=dashes, linewidth=0.9, alpha=0.7)
    low, high = window(data.curves)
    # With many easy classes the usual window ends below the hardest, which the picture is about.
    high = max([high, *(1.04 * float(data.curves[k].value[len(data.curves[k]) // 10 :].max()) for k in data.worst)])
    ax.set_ylim(low, min(high, 1.0) if scale.is_share else high)
    end = max([float(curve.age[-1]) for curve in data.curves if len(curve)] or [1.0])
    ax.set_xlim(0, end * 1.02)
    set_ticks(ax.yaxis, scale.tick)
    set_ticks(ax.xaxis, wording.age)
    if data.worst:
        draw_legend(ax)


@takes_axes
def draw_one_curve(data: Curve, ax: "Axes", *, name: str) -> None:
    """A quantity of the optimiser against age, on a logarithmic axis where it changes by more than a factor of 30."""
    draw_frame(ax, "age, in examples seen", name)
    draw_line(ax, data, color=FIRST, linewidth=1.8)
    low, high = float(data.value.min()), float(data.value.max())
    if low > 0 and high > 30 * low:
        from matplotlib.ticker import FuncFormatter, NullLocator

        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.tick(value)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.08 * (high - low) or 0.2 * abs(high) or 1.0
        ax.set_ylim(max(0.0, low - margin) if low >= 0 else low - margin, high + margin)
        set_ticks(ax.yaxis, wording.tick)
    ax.set_xlim(0, max(float(data.age[-1]), 1.0) * 1.02)
    set_ticks(ax.xaxis, wording.age)


def colour_of(colour: str) -> list[float]:
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


@takes_axes
def draw_confusion(data: Confusion, ax: "Axes") -> None:
    """Counts by true and predicted class: the right ones in blue, the confused in vermilion, each on its own scale."""
    size = len(data.classes)
    alpha = strength(data)
    image = np.empty((size, size, 4))
    image[..., :3] = colour_of(SECOND)
    image[np.arange(size), np.arange(size), :3] = colour_of(FIRST)
    image[..., 3] = alpha
    draw_frame(ax, "predicted", "true", grid="")
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
            colour = ON_CELL if alpha[i, j] > 0.7 else INK
            letter = min(small, 46 / max(len(digits), 3)) if size > 10 else TEXT_SIZE
            ax.text(j, i, digits, ha="center", va="center_baseline", fontsize=letter, color=colour)
        # A grid of paper between the cells gives each its edge without a line of its own.
        for edge in np.arange(0.5, size - 1):
            ax.axhline(edge, color=PAPER, linewidth=1.2)
            ax.axvline(edge, color=PAPER, linewidth=1.2)


def pair_names(data: Sequence[Pair]) -> list[str]:
    """What each bar of `pairs` is called."""
    names = wording.short_names([name for pair in data for name in (pair.true, pair.predicted)], 13)
    return [f"{true} → {predicted}" for true, predicted in zip(names[::2], names[1::2], strict=True)]


@takes_axes
def draw_pairs(data: Sequence[Pair], ax: "Axes") -> None:
    """The commonest confusions as bars, commonest on top."""
    draw_frame(ax, "test examples", "", grid="x")
    ax.barh(name_rows(ax, pair_names(data), 0.7), [pair.errors for pair in data], height=0.62, color=SECOND)
    set_ticks(ax.xaxis, wording.whole, most=min(4, max(1, max(pair.errors for pair in data))))


@takes_axes
def draw_rates(data: Sequence[ErrorRate], ax: "Axes", *, overall: float = math.nan) -> None:
    """Error rates with their intervals, worst on top; a line at the error of the whole part."""
    draw_frame(ax, "error, with 95\u202f% confidence interval", "", grid="x")
    places = name_rows(ax, wording.short_names([rate.name for rate in data], 18), 0.7)
    values, low, high = (np.array([getattr(rate, name) for rate in data]) for name in ("rate", "low", "high"))
    bounded = np.isfinite(low)
    ax.hlines(places[bounded], low[bounded], high[bounded], color=SECOND, linewidth=3.2, alpha=0.35)
    ax.plot(values, places, "o", color=SECOND, markersize=6.5, clip_on=False)
    if math.isfinite(overall):
        ax.axvline(overall, color=INK, linewidth=0.9, linestyle=DOTTED)
        text = f"all together {wording.percent(overall)}"
        ax.text(overall, len(data) - 0.2, text, color=QUIET, fontsize=TEXT_SIZE, va="bottom", ha="left")
    ax.tick_params(axis="y", pad=9)
    ax.set_xlim(0, min(1.0, max([*values, *high[bounded], 0.01]) * 1.05))
    ax.spines["left"].set_visible(True)
    set_ticks(ax.xaxis, short_percent, most=4)


@takes_axes
def draw_importance(data: Sequence[ColumnImportance], ax: "Axes", *, metric: str) -> None:
    """The rise of the error when a column is shuffled, two standard errors either way, the largest on top."""
    draw_frame(ax, f"rise of the {wording.metric_name(metric)} ± 2 standard errors", "", grid="x")
    places = name_rows(ax, wording.short_names([one.column for one in data], 22), 0.7)
    rise, error = (np.array([getattr(one, name) for one in data]) for name in ("rise", "standard_error"))
    ax.barh(places, rise, height=0.6, color=SECOND)
    ax.hlines(places, rise - 2 * error, rise + 2 * error, color=INK, linewidth=1.3)
    ax.axvline(0, color=RULE, linewidth=0.9)
    set_ticks(ax.xaxis, ScoreScale.of_metric(metric).tick, most=4)


@takes_axes
def draw_profile(data: Profile, ax: "Axes") -> None:
    """The seconds of each phase, beginning where the one before ended, with its share of the whole."""
    draw_frame(ax, "seconds", "", grid="x")
    places = name_rows(ax, [one.name for one in data.phases], 0.7)
    seconds = np.array([one.seconds for one in data.phases])
    ends = np.cumsum(seconds)
    ax.barh(places, seconds, left=ends - seconds, height=0.6, color=SECOND)
    for place, end, one in zip(places, ends, data.phases, strict=True):
        draw_note(ax, wording.percent(data.share(one)), (float(end), float(place)), (5, 0), va="center")
    ax.set_xlim(0, max(float(ends[-1]), 1e-9))
    set_ticks(ax.xaxis, wording.tick, most=4)


@takes_axes
def draw_reliability(data: ClassEvidence, ax: "Axes") -> None:
    """How often the network was right against how sure it was; on the diagonal its probabilities can be believed."""
    draw_frame(ax, "confidence", "accuracy")
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=0.9, linestyle=DOTTED)
    hollow: Any = {
        "color": FIRST,
        "linewidth": 1.3,
        "linestyle": DASHED,
        "markerfacecolor": PAPER,
        "label": "as trained",
    }
    filled: Any = {"color": SECOND, "linewidth": 2, "label": "calibrated"}
    for bins, look in ((data.before, hollow), (data.after, filled)):
        ax.plot(bins.confidence, bins.accuracy, marker="o", markersize=5, **look)
    both = np.concatenate([data.before.confidence, data.after.confidence, data.before.accuracy, data.after.accuracy])
    low = max(0.0, math.floor(10 * float(both.min()) - 0.5) / 10)
    ax.set_xlim(low, 1.02)
    ax.set_ylim(low, 1.02)
    set_ticks(ax.xaxis, short_percent)
    set_ticks(ax.yaxis, short_percent)
    draw_legend(ax)


def _dots(ax: "Axes", across: np.ndarray, up: np.ndarray) -> None:
    size, alpha = (5, 0.55) if len(across) <= 150 else (3.6, 0.35)
    ax.plot(across, up, "o", color=FIRST, markersize=size, alpha=alpha, markeredgewidth=0)


@takes_axes
def draw_predicted(data: Residuals, ax: "Axes") -> None:
    """Predictions against targets; a perfect network has every dot on the diagonal."""
    draw_frame(ax, "true", "predicted")
    ends = value_span(np.concatenate([data.target, data.prediction]))
    ax.plot(ends, ends, color=INK, linewidth=0.9, linestyle=DOTTED)
    _dots(ax, data.target, data.prediction)
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    set_ticks(ax.xaxis, wording.tick, most=4)
    set_ticks(ax.yaxis, wording.tick)


@takes_axes
def draw_errors(data: Residuals, ax: "Axes") -> None:
    """Errors against predictions: a slope or a funnel here is something the network has not learned."""
    draw_frame(ax, "predicted", "predicted − true")
    ax.axhline(0, color=INK, linewidth=0.9, linestyle=DOTTED)
    _dots(ax, data.prediction, data.error)
    ax.set_xlim(*value_span(data.prediction))
    ax.set_ylim(*value_span(np.append(data.error, 0.0)))
    set_ticks(ax.xaxis, wording.tick, most=4)
    set_ticks(ax.yaxis, wording.tick)


@takes_axes
def draw_folds(data: CrossValidationEstimate, ax: "Axes", *, metric: str) -> None:
    """Each fold's value, their mean and its interval."""
    draw_frame(ax, wording.metric_name(metric), "", grid="x")
    values = [value for value in data.values if math.isfinite(value)]
    if math.isfinite(data.interval[0]):
        ax.axvspan(*data.interval, color=SECOND, alpha=0.18, linewidth=0)
    ax.axvline(data.mean, color=SECOND, linewidth=2)
    ax.plot(values, np.zeros(len(values)), "o", color=FIRST, markersize=8, alpha=0.7, markeredgewidth=0)
    ax.set_yticks([])
    ax.set_ylim(-1, 1)
    ends = [value for value in (*values, *data.interval) if math.isfinite(value)]
    low, high = value_span(np.array(ends))
    ax.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    set_ticks(ax.xaxis, lambda value: wording.in_metric(metric, value))
