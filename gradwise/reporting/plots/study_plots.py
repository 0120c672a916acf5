"""Drawing a study: progress, trials, costs and honest estimates, with the `ax=` convention of `axes.py`.

    study_plots.draw_expected_best(expected_best(scores, chance), ax=ax, best_so_far=so_far)
    study_plots.draw_pareto(pareto_front(study.searched, "seconds"), scale=ScoreScale()).figure.savefig("cost.pdf")

Scores arrive as the search compared them, lower is better; a `ScoreScale` says how a reader wants to see them.
Pictures of single knobs are in `knob_plots.py`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...evaluation.run_figure_data import Curve
from ...evaluation.trials.cost import ParetoFront
from ...evaluation.trials.expected_best import ExpectedBest
from ...records.score_scale import ScoreScale
from ...records.study_analysis import BatchSizeCost, RankCorrelation
from ...records.study_conclusions import Finalist
from .. import wording
from .axes import draw_frame, draw_legend, label_point, name_rows, set_ticks, takes_axes, value_span
from .style import DASHED, DOTTED, FIRST, INK, PAPER, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_DOTS = 800
_ROUND = (1.0, 2.0, 5.0)  # a logarithmic axis has its ticks at these, times a power of ten


def some_dots(count: int) -> np.ndarray:
    """Which of so many dots are drawn: beyond `SHOWN_DOTS` an even choice, since more of them are a blot."""
    return np.linspace(0, count - 1, min(count, SHOWN_DOTS)).round().astype(int)


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two positive ends, evenly spread on a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leading in (_ROUND, (1.0, 3.0), (1.0,)):
        found = [k * 10.0**p for p in powers for k in leading if low <= k * 10.0**p * 1.0000001 and k * 10.0**p <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def set_log_axis(axis: Any, write: Callable[[float], str], ends: tuple[float, float], most: int = 6) -> None:
    """A logarithmic axis with few ticks, at round numbers, between the ends."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax, name = axis.axes, axis.axis_name
    getattr(ax, f"set_{name}scale")("log")
    getattr(ax, f"set_{name}lim")(*ends)
    axis.set_minor_locator(NullLocator())
    ticks = _round_ticks(*ends, most)
    if len(ticks) < 2:  # the axis covers too little for round numbers alone
        return set_ticks(axis, write, most=4)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    return None


def score_axis(axis: Any, values: Iterable[float], scale: ScoreScale) -> None:
    """The axis of scores: logarithmic where they differ by a factor of 8, so that differences between the best show."""
    found = np.array([value for value in values if math.isfinite(value)])
    if not len(found):
        found = np.array([0.0, 1.0])
    low, high = float(found.min()), float(found.max())
    positive = found[found > 0]
    if len(positive) and high > 8 * max(low, 1e-12) and low > 0:
        return set_log_axis(axis, scale.tick, (low / 1.15, high * 1.12))
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    getattr(axis.axes, f"set_{axis.axis_name}lim")(max(0.0, low - margin) if low >= 0 else low - margin, high + margin)
    set_ticks(axis, scale.tick)
    return None


def _counts(ax: "Axes", most: int) -> None:
    """A horizontal axis of numbers of trials, in doublings: each doubling is the same effort again."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_xscale("log", base=2)
    ax.set_xlim(0.93, max(most, 2) * 1.06)
    powers = [2**k for k in range(max(most, 2).bit_length())]
    shown = powers[:: math.ceil(len(powers) / 9)]
    ax.xaxis.set_major_locator(FixedLocator([float(power) for power in shown]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([f"{power:,}" for power in shown])


@takes_axes
def draw_expected_best(
    data: ExpectedBest | None, ax: "Axes", *, best_so_far: np.ndarray, scale: ScoreScale = ScoreScale()
) -> None:
    """The best of N trials as it is to be expected, with its deviation, beside the best that was seen in this order."""
    draw_frame(ax, "number of trials", scale.name)
    drawn = [scale.on(best_so_far)]
    if data is not None:
        mean = scale.on(data.mean)
        # No choice of trials has a best below the best of all, though a mean less its deviation may lie there.
        low = scale.on(np.maximum(data.mean - data.deviation, np.nanmin(data.mean)))
        high = scale.on(data.mean + data.deviation)
        ax.fill_between(data.sizes, low, high, color=SECOND, alpha=0.18, linewidth=0)
        ax.plot(data.sizes, mean, color=SECOND, linewidth=2.1, label="expected best", solid_capstyle="round")
        drawn += [mean, low, high]
    so_far = np.arange(1, len(best_so_far) + 1)
    style = {"linewidth": 1.5, "linestyle": DASHED} if data is not None else {"linewidth": 2.1}
    ax.step(so_far, drawn[0], where="post", color=FIRST, label="best so far", **style)
    _counts(ax, len(best_so_far))
    score_axis(ax.yaxis, np.concatenate(drawn), scale)
    draw_legend(ax)


@takes_axes
def draw_trial_curves(
    data: Sequence[Curve], ax: "Axes", *, best: int | None = None, scale: ScoreScale = ScoreScale()
) -> None:
    """Every trial's validation score against age: all of them faint, the best one (by its place) set off."""
    draw_frame(ax, "age, in examples seen", scale.name)
    shown = [Curve(curve.age, scale.on(curve.value)) for curve in data]
    for place, curve in enumerate(shown):
        if place != best:
            ax.plot(curve.age, curve.value, color=FIRST, linewidth=0.9, alpha=0.3 if len(data) < 80 else 0.18)
    if best is not None:
        curve = shown[best]
        marker: dict[str, Any] = {"marker": "o", "markersize": 5} if len(curve) == 1 else {}
        ax.plot(curve.age, curve.value, color=SECOND, linewidth=2.2, label="best trial", zorder=4, **marker)
    end = max([float(curve.age[-1]) for curve in shown if len(curve)] or [1.0])
    ax.set_xlim(0, end * 1.02)
    set_ticks(ax.xaxis, wording.age)
    score_axis(ax.yaxis, np.concatenate([curve.value for curve in shown] or [np.array([])]), scale)
    if best is not None:
        draw_legend(ax)


_COSTS = {
    "seconds": ("seconds of training", wording.tick),
    "age_examples": ("age, in examples seen", wording.age),
    "parameters": ("parameters of the network", wording.age),
}


@takes_axes
def draw_pareto(data: ParetoFront, ax: "Axes", *, scale: ScoreScale = ScoreScale()) -> None:
    """Error against cost; the line joins the trials that no other beats in both."""
    name, write = _COSTS.get(data.cost, (data.cost.replace("_", " "), wording.tick))
    draw_frame(ax, name, scale.name)
    scores = scale.on(data.scores)
    others = np.setdiff1d(np.arange(len(scores)), data.front)
    others = others[some_dots(len(others))]
    ax.plot(data.costs[others], scores[others], "o", color=FIRST, markersize=4.6, alpha=0.45, markeredgewidth=0)
    front = data.costs[data.front], scores[data.front]
    ax.step(*front, where="post", color=SECOND, linewidth=1.6, zorder=3)
    ax.plot(*front, "o", color=SECOND, markersize=6.5, zorder=4, label="best for its cost")
    low, high = float(np.min(data.costs)), float(np.max(data.costs))
    if low > 0 and high > 8 * low:
        set_log_axis(ax.xaxis, write, (low / 1.2, high * 1.2), most=5)
    else:
        ax.set_xlim(*value_span(data.costs))
        set_ticks(ax.xaxis, write)
    score_axis(ax.yaxis, scores, scale)
    draw_legend(ax)


@takes_axes
def draw_seeds(data: Sequence[float], ax: "Axes", *, scale: ScoreScale = ScoreScale()) -> None:
    """How the score of one recipe varies with the seed alone (row D13)."""
    draw_frame(ax, scale.name, "seeds")
    values = scale.on(data)
    bins = min(40, max(5, round(math.sqrt(len(values)) * 1.5)))
    ax.hist(values, bins=bins, color=FIRST, alpha=0.75, rwidth=0.94)
    mean = float(values.mean())
    ax.axvline(mean, color=SECOND, linewidth=2)
    set_ticks(ax.xaxis, scale.tick, most=5)
    set_ticks(ax.yaxis, wording.whole, most=min(4, max(1, len(values))))
    label_point(ax, f"mean {scale.write(mean)}", (mean, ax.get_ylim()[1] * 0.93), ())


@takes_axes
def draw_committee(data: Sequence[float], ax: "Axes", *, together: float, mean: float, metric: str) -> None:
    """Each member's test value, their mean, and what they reach together."""
    draw_frame(ax, f"test {wording.metric_name(metric)}", "", grid="x")
    ax.plot(data, np.ones(len(data)), "o", color=FIRST, markersize=8, alpha=0.6, markeredgewidth=0)
    ax.plot([mean], [1], "|", color=INK, markersize=24, markeredgewidth=1.8)
    ax.plot([together], [0], "D", color=SECOND, markersize=8.5)
    ax.plot([together, together], [0, 1.4], color=SECOND, linewidth=0.9, linestyle=DOTTED)
    ax.set_yticks([1, 0], ["members", "committee"], color=INK)
    ax.set_ylim(-0.6, 1.6)
    ends = [value for value in (*data, mean, together) if math.isfinite(value)]
    low, high = value_span(np.array(ends))
    ax.set_xlim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    set_ticks(ax.xaxis, lambda value: wording.in_metric(metric, value), most=5)


@takes_axes
def draw_weights(data: Mapping[str, float], ax: "Axes") -> None:
    """The weight of each trial in the ensemble, the largest on top."""
    draw_frame(ax, "weight", "", grid="x")
    ax.barh(name_rows(ax, list(data)), list(data.values()), height=0.55, color=FIRST)
    ax.set_xlim(0.0, 1.05 * max(data.values()))
    set_ticks(ax.xaxis, wording.short_percent, most=5)


@dataclasses.dataclass(frozen=True)
class EstimateLine:
    """One line of the picture of honest estimates; `part` is what it was measured on, `final` the one to quote."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    part: str = "validation"
    final: bool = False


@takes_axes
def draw_estimates(data: Sequence[EstimateLine], ax: "Axes", *, metric: str) -> None:
    """From the score that won to the error to quote: dots with their intervals, one line for each."""
    draw_frame(ax, wording.metric_name(metric), "", grid="x")
    for place, line in zip(name_rows(ax, [line.name for line in data]), data, strict=True):
        colour = SECOND if line.part == "test" else FIRST
        if math.isfinite(line.low) and math.isfinite(line.high):
            ax.hlines([place], [line.low], [line.high], color=colour, linewidth=3.4, alpha=0.35)
        face = colour if line.final else PAPER
        ax.plot([line.value], [place], "o", color=face, markeredgecolor=colour, markersize=8, markeredgewidth=1.9)
    ends = np.array([x for line in data for x in (line.value, line.low, line.high) if math.isfinite(x)])
    low, high = value_span(ends)
    ax.set_xlim(max(0.0, low) if ends.min() >= 0 else low, high)
    set_ticks(ax.xaxis, lambda value: wording.in_metric(metric, value), most=5)


@takes_axes
def draw_finalists(data: Sequence[Finalist], ax: "Axes", *, scale: ScoreScale = ScoreScale()) -> None:
    """The best settings again with other seeds: each dot a seed, the bar their mean; the best setting on top."""
    draw_frame(ax, scale.name, "", grid="x")
    places = name_rows(ax, [f"trial {setting.number}" for setting in data])
    everything = [np.array([])]
    for place, setting in zip(places, data, strict=True):
        scores = scale.on(setting.scores)
        colour = SECOND if place == places[0] else FIRST
        ax.plot(scores, np.full(len(scores), place), "o", color=colour, markersize=6, alpha=0.5, markeredgewidth=0)
        ax.plot([scale.shown(setting.mean)], [place], "|", color=INK, markersize=17, markeredgewidth=1.8)
        everything.append(scores)
    found = np.concatenate(everything)
    ax.set_xlim(*value_span(found if len(found) else np.array([0.0, 1.0])))
    set_ticks(ax.xaxis, scale.tick, most=5)


@takes_axes
def draw_batch_sizes(data: Sequence[BatchSizeCost], ax: "Axes", *, recommended: int | None = None) -> None:
    """The U-curve of the batch size: seconds (left) and examples (right) it took to reach the same score.

    Where the score was not reached the dot is hollow: the truth lies above it.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_axis_off()
    sizes = np.array([float(line.size) for line in data])
    reached = np.array([line.reached for line in data])
    panels = (("seconds", "seconds needed", SECOND, wording.tick), ("examples", "examples needed", FIRST, wording.age))
    for place, (name, title, colour, write) in zip((0.0, 0.58), panels, strict=True):
        panel = ax.inset_axes((place, 0.0, 0.42, 1.0))
        draw_frame(panel, "batch size", title)
        values = np.array([float(getattr(line, name)) for line in data])
        panel.plot(sizes, values, color=colour, linewidth=1.8)
        for state, face in ((reached, colour), (~reached, PAPER)):
            look: dict[str, Any] = {"color": face, "markeredgecolor": colour, "markersize": 6, "markeredgewidth": 1.5}
            panel.plot(sizes[state], values[state], "o", **look)
        panel.set_xscale("log", base=2)
        panel.set_xlim(sizes.min() / 1.4, sizes.max() * 1.4)
        shown = sizes[:: math.ceil(len(sizes) / 5)]
        panel.xaxis.set_major_locator(FixedLocator(list(shown)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticklabels([wording.age(size) for size in shown])
        panel.set_ylim(0, np.nanmax([*values, 1e-9]) * 1.12)
        set_ticks(panel.yaxis, write, most=4)
        if recommended is not None:
            panel.axvline(recommended, color=INK, linewidth=0.9, linestyle=DOTTED)


@takes_axes
def draw_short_runs(data: Sequence[tuple[int, RankCorrelation]], ax: "Axes") -> None:
    """How well short runs rank the settings: rank correlation with the full runs against the age of the short ones."""
    points = [(age, found.value, found.low, found.high) for age, found in data]
    ages, correlation, low, high = np.array(points, dtype=float).T
    draw_frame(ax, "age of the short run, in examples seen", "rank correlation with full runs")
    ax.axhline(1, color=INK, linewidth=0.9, linestyle=DOTTED)
    ax.vlines(ages, low, high, color=THIRD, linewidth=1.2, alpha=0.5)
    ax.plot(ages, correlation, "o-", color=THIRD, linewidth=1.8, markersize=5)
    ax.set_xlim(0, max(float(ages.max()), 1.0) * 1.04)
    ax.set_ylim(min(0.0, float(np.nanmin([*correlation, *low, 0.0])) * 1.1), 1.05)
    set_ticks(ax.xaxis, wording.age)
    set_ticks(ax.yaxis, wording.tick)
