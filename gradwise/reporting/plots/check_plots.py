"""Drawing what a check measured: differences, learning, rates and the flow through layers, with the `ax=` convention.

    check_plots.draw_difference_curve(DifferenceCurve(epsilons, forward, central), ax=ax)
    check_plots.draw_dots([Dot("layers.0.weight", 2e-9)], ax=ax, across="relative error")

What is drawn arrives as numbers; what is not finite is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records.score_scale import ScoreScale, short_percent
from .. import wording
from .axes import draw_frame, draw_legend, draw_note, name_rows, set_ticks, takes_axes
from .study_plots import set_log_axis
from .style import DASHED, DOTTED, FIRST, INK, QUIET, RING, RULE, SECOND, TEXT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHAPTER_EPSILON = 1e-4


def _ends(values: np.ndarray, room: float = 1.25) -> tuple[float, float]:
    """The ends of a logarithmic axis around positive values."""
    sound = values[np.isfinite(values) & (values > 0)]
    if not sound.size:
        return 0.1, 10.0
    low, high = float(sound.min()), float(sound.max())
    return (low / room, high * room) if high > 3 * low else (low / 3, high * 3)


def power(value: float) -> str:
    """A value on a logarithmic axis: 10⁻⁴ or 2·10⁻⁴ far from 1, else as elsewhere."""
    if value <= 0 or 0.00999 < value < 99999:
        return wording.tick(value)
    digits, _, exponent = f"{value:.1e}".partition("e")
    leading = "" if digits == "1.0" else f"{digits.removesuffix('.0')}·"
    return f"{leading}10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def brief(value: float) -> str:
    """Two digits, for the edge of a picture: 1.9, 0.034, 4.2e-4."""
    if value == 0 or abs(value) >= 0.01:
        return wording.tick(float(f"{value:.2g}"))
    return f"{value:.1e}".replace("e-0", "e-").replace("-", "−")


@dataclass(frozen=True)
class DifferenceCurve:
    """The error of forward and of central differences by the step taken."""

    epsilons: np.ndarray
    forward: np.ndarray
    central: np.ndarray


@takes_axes
def draw_difference_curve(data: DifferenceCurve, ax: "Axes") -> None:
    """Both errors on logarithmic axes; the chapter's step is marked."""
    draw_frame(ax, "step ε", "relative difference")
    floor = 1e-17  # exact agreement has no logarithm
    forward, central = (np.maximum(values, floor) for values in (data.forward, data.central))
    dots: dict[str, Any] = {"marker": "o", "markersize": 4}
    ax.plot(data.epsilons, forward, color=FIRST, linewidth=1.6, linestyle=DASHED, label="forward", **dots)
    ax.plot(data.epsilons, central, color=SECOND, linewidth=2.1, label="central", **dots)
    set_log_axis(ax.xaxis, power, _ends(np.append(data.epsilons, CHAPTER_EPSILON), 1.6))
    set_log_axis(ax.yaxis, power, _ends(np.concatenate([forward, central]), 3.0), 5)
    ax.axvline(CHAPTER_EPSILON, color=INK, linewidth=0.9, linestyle=DOTTED)
    draw_note(ax, "the chapter's", (CHAPTER_EPSILON, 1), (4, -11), xycoords=("data", "axes fraction"))
    draw_legend(ax)


@dataclass(frozen=True)
class Dot:
    """A value by its name, perhaps with a range; a `marked` one is set off."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    marked: bool = False


@takes_axes
def draw_dots(data: Sequence[Dot], ax: "Axes", *, across: str, line: float = math.nan, told: str = "") -> None:
    """Values by name, one below the other, on a logarithmic axis; a line where they should lie."""
    draw_frame(ax, across, "", grid="x")
    places = name_rows(ax, wording.short_names([dot.name for dot in data], 26), 0.7)
    numbers = np.array([[dot.value, dot.low, dot.high] for dot in data])
    # What is exactly 0 stands at the left end.
    least = _ends(np.append(numbers, line))[0]
    values = np.where(numbers[:, 0] > 0, numbers[:, 0], least)
    ends = _ends(np.concatenate([values, numbers[:, 1], numbers[:, 2], [line]]), 1.6)
    for place, dot in zip(places, data, strict=True):
        if dot.high > 0:
            colour = SECOND if dot.marked else FIRST
            ax.plot([max(dot.low, ends[0]), dot.high], [place] * 2, color=colour, linewidth=3.2, alpha=0.35)
    for marked, shape in ((False, "o"), (True, "D")):
        chosen = [i for i, dot in enumerate(data) if dot.marked == marked]
        colour = SECOND if marked else FIRST
        ax.plot(values[chosen], places[chosen], shape, color=colour, markersize=6, clip_on=False, zorder=4)
    if math.isfinite(line):
        ax.axvline(line, color=INK, linewidth=0.9, linestyle=DOTTED)
        side = "right" if math.log(line / ends[0]) > 0.7 * math.log(ends[1] / ends[0]) else "left"
        ax.text(line, len(data) - 0.35, told, color=QUIET, fontsize=TEXT_SIZE, va="bottom", ha=side)
    set_log_axis(ax.xaxis, power, ends, 5)
    ax.tick_params(axis="y", pad=9)


@takes_axes
def draw_share_pairs(
    data: Sequence[tuple[float, float]], ax: "Axes", *, names: Sequence[str], kinds: tuple[str, str], across: str
) -> None:
    """Two shares by name as bars, one below the other."""
    draw_frame(ax, across, "", grid="x")
    places = name_rows(ax, wording.short_names(names, 26))
    both = np.nan_to_num(np.asarray(data, float).reshape(-1, 2))
    for side, (colour, kind) in enumerate(zip((FIRST, SECOND), kinds, strict=True)):
        ax.barh(places + (0.19, -0.19)[side], both[:, side], height=0.34, color=colour, label=kind)
    ax.set_xlim(0, min(1.0, max(0.1, 1.15 * float(both.max(initial=0.0)))))
    set_ticks(ax.xaxis, short_percent)
    draw_legend(ax)


@takes_axes
def draw_falling(data: Sequence[np.ndarray], ax: "Axes", *, across: str = "updates", up: str = "loss") -> None:
    """Curves of a loss; on a logarithmic axis where it falls far. The best is drawn strong."""
    draw_frame(ax, across, up)
    sound = [np.where(np.isfinite(curve), curve, np.nan) for curve in data]
    last = [float(curve[np.isfinite(curve)][-1]) if np.isfinite(curve).any() else math.inf for curve in sound]
    best = int(np.argmin(last))
    for number, curve in enumerate(sound):
        colour, width, order = (SECOND, 2.1, 3) if number == best else (QUIET, 0.9, 2)
        ax.plot(np.arange(len(curve)), curve, color=colour, linewidth=width, zorder=order)
    every = np.concatenate(sound)
    every = every[np.isfinite(every)]
    if every.size and every.max() > 30 * max(float(every.min()), 1e-12) and every.min() >= 0:
        set_log_axis(ax.yaxis, power, _ends(np.maximum(every, 1e-12 * float(every.max())), 1.6), 5)
    else:
        set_ticks(ax.yaxis, wording.tick)
    ax.set_xlim(0, max(1, max(map(len, sound)) - 1) * 1.02)
    set_ticks(ax.xaxis, wording.tick)


@dataclass(frozen=True)
class GrowthCurve:
    """Errors by number of examples, their spread, the law a + b n^-c and the error at twice the largest."""

    counts: np.ndarray
    train: np.ndarray
    valid: np.ndarray
    train_spread: np.ndarray
    valid_spread: np.ndarray
    law: tuple[float, float, float] | None = None
    predicted: float = math.nan


@takes_axes
def draw_growth(data: GrowthCurve, ax: "Axes", *, scale: ScoreScale) -> None:
    """Training error rises and validation error falls with more examples; dotted what twice as many would give."""
    draw_frame(ax, "training examples", scale.quantity)
    for values, spread, colour, dashes, label in (
        (data.train, data.train_spread, FIRST, DASHED, "training"),
        (data.valid, data.valid_spread, SECOND, "-", "validation"),
    ):
        ax.fill_between(data.counts, values - spread, values + spread, color=colour, alpha=0.15, linewidth=0)
        ax.plot(data.counts, values, color=colour, linewidth=2, linestyle=dashes, marker="o", markersize=4, label=label)
    largest = float(data.counts[-1])
    right = largest
    if data.law is not None and math.isfinite(data.predicted):
        a, b, c = data.law
        right = 2 * largest
        across = np.geomspace(float(data.counts[0]), right, 60)
        ax.plot(across, a + b * across**-c, color=INK, linewidth=1.1, linestyle=DOTTED)
        ax.plot([right], [data.predicted], zorder=5, clip_on=False, **RING)
        told = scale.write(data.predicted)
        draw_note(ax, told, (right, data.predicted), (-9, 8), ha="right", color=INK, weight="bold")
    set_log_axis(ax.xaxis, wording.age, (float(data.counts[0]), right), 6)
    ax.set_xlim(float(data.counts[0]) / 1.1, right * 1.12)
    top = float(np.nanmax([data.train + data.train_spread, data.valid + data.valid_spread]))
    ax.set_ylim(0, 1.08 * top if top > 0 else 1.0)
    set_ticks(ax.yaxis, scale.tick)
    draw_legend(ax)


@takes_axes
def draw_ladder(data: tuple[np.ndarray, np.ndarray], ax: "Axes", *, largest: float) -> None:
    """The loss after a short training against a factor on all updates; crosses diverged. A line at the rate in use."""
    rates, losses = data
    draw_frame(ax, "learning rate, as a multiple of yours", "loss after a short training")
    sound = np.isfinite(losses)
    ax.plot(rates[sound], losses[sound], color=FIRST, linewidth=1.8, marker="o", markersize=5)
    highest = float(losses[sound].max()) if sound.any() else 1.0
    lowest = float(losses[sound].min()) if sound.any() else 0.0
    if sound.any() and lowest > 0 and highest > 30 * lowest:
        set_log_axis(ax.yaxis, power, _ends(losses[sound], 1.6), 5)
    else:
        margin = 0.12 * (highest - lowest) or 0.2 * abs(highest) or 1.0
        ax.set_ylim(lowest - margin, highest + margin)
        set_ticks(ax.yaxis, wording.tick)
    top = ax.get_ylim()[1]
    ax.plot(rates[~sound], np.full((~sound).sum(), top), "x", color=SECOND, markersize=7, clip_on=False)
    for rate, colour, told in ((1.0, INK, "yours"), (largest, SECOND, "largest")):
        if math.isfinite(rate) and rate > 0:
            ax.axvline(rate, color=colour, linewidth=1.0, linestyle=DOTTED)
            draw_note(ax, told, (rate, 0), (4, 5), xycoords=("data", "axes fraction"), color=INK, weight="bold")
    set_log_axis(ax.xaxis, power, _ends(np.append(rates, 1.0), 1.3), 7)


@dataclass(frozen=True)
class Strip:
    """One layer's mean and deviation over training."""

    name: str
    mean: np.ndarray
    deviation: np.ndarray


@takes_axes
def draw_strips(data: Sequence[Strip], ax: "Axes", *, updates: np.ndarray, looks: Sequence[str] = ()) -> None:
    """Mean and deviation of each layer over training, one strip below the other, each on its own scale.

    `looks` are names for the updates where they are few.
    """
    draw_frame(ax, "" if looks else "updates", "", grid="")
    for place, strip in enumerate(reversed(data)):
        reach = np.abs(strip.mean) + strip.deviation
        size = float(np.nanmax(reach[np.isfinite(reach)], initial=0.0)) or 1.0
        middle, half = place, 0.42 / size
        ax.axhline(middle, color=RULE, linewidth=0.8)
        low, high = strip.mean - strip.deviation, strip.mean + strip.deviation
        ax.fill_between(updates, middle + half * low, middle + half * high, color=FIRST, alpha=0.22, linewidth=0)
        ax.plot(updates, middle + half * strip.mean, color=FIRST, linewidth=1.8)
        draw_note(ax, f"±{brief(size)}", (1, middle), (6, -4), xycoords=("axes fraction", "data"), fontsize=10)
    ax.set_ylim(-0.6, len(data) - 0.4)
    ax.set_xlim(float(updates[0]), max(float(updates[-1]), float(updates[0]) + 1e-9))
    names = wording.short_names([strip.name for strip in data], 24)[::-1]
    ax.set_yticks(range(len(data)), names, parse_math=False, color=INK)
    if looks:  # the outermost names stay within the picture
        ticks = ax.set_xticks(updates, looks)
        ticks[0].label1.set_horizontalalignment("left")
        ticks[-1].label1.set_horizontalalignment("right")
    else:
        set_ticks(ax.xaxis, wording.age)


@dataclass(frozen=True)
class RidgeLine:
    """Histograms of one layer, the first and the last: edges and shares."""

    name: str
    first: tuple[np.ndarray, np.ndarray]
    last: tuple[np.ndarray, np.ndarray]


def _outline(edges: np.ndarray, shares_: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """A histogram as a density over the common range, as steps."""
    widths = np.maximum(np.diff(edges), 1e-30)
    height = np.asarray(shares_, float) / max(float(np.sum(shares_)), 1e-30) / widths
    across = np.repeat((edges - low) / max(high - low, 1e-30), 2)
    return across, np.concatenate([[0.0], np.repeat(height, 2), [0.0]])


def _tallest(outline: np.ndarray) -> float:
    """The height to draw a histogram by: a spike at one place must not flatten the rest."""
    filled = outline[outline > 0]
    return min(float(filled.max()), 12 * float(np.median(filled))) if filled.size else 1.0


@takes_axes
def draw_ridges(data: Sequence[RidgeLine], ax: "Axes", *, across: str) -> None:
    """Histograms one below the other: dashed at the start, filled at the end, each pair on its own scale."""
    draw_frame(ax, across, "", grid="")
    ax.spines["bottom"].set_visible(False)
    for place, ridge in enumerate(reversed(data)):
        low = min(float(ridge.first[0][0]), float(ridge.last[0][0]))
        high = max(float(ridge.first[0][-1]), float(ridge.last[0][-1]))
        before, after = (_outline(*pair, low, high) for pair in (ridge.first, ridge.last))
        tallest = max(_tallest(outline) for _, outline in (before, after))
        scale = 0.82 / max(tallest, 1e-30)
        after_y, before_y = (place + np.minimum(scale * y, 0.92) for y in (after[1], before[1]))
        ax.fill_between(after[0], place, after_y, color=FIRST, alpha=0.3, linewidth=0)
        ax.plot(after[0], after_y, color=FIRST, linewidth=1.2)
        ax.plot(before[0], before_y, color=SECOND, linewidth=1.1, linestyle=DASHED)
        ax.axhline(place, color=RULE, linewidth=0.8)
        for end, value, side in ((0, low, "left"), (1, high, "right")):
            draw_note(ax, brief(value), (end, place), (0, -9), ha=side, fontsize=8.5)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-0.3, len(data))
    ax.set_xticks([])
    names = wording.short_names([ridge.name for ridge in data], 24)[::-1]
    ax.set_yticks(np.arange(len(data)) + 0.3, names, parse_math=False, color=INK)


@takes_axes
def draw_counts(data: Sequence[int], ax: "Axes", *, names: Sequence[str]) -> None:
    """Numbers of examples as bars, one below the other."""
    draw_frame(ax, "training examples", "", grid="x")
    ax.barh(name_rows(ax, wording.short_names(names, 18)), data, height=0.62, color=FIRST)
    set_ticks(ax.xaxis, wording.age, most=4)
