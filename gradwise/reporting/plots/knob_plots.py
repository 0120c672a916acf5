"""Drawing the knobs of a study (rows E11 and E13): one, two, all of them, which matter, where trials went wrong.

    knob_plots.draw_one_knob(marginal(space, trials, "optimiser.learning_rate"), ax=ax)
    knob_plots.draw_relevance(relevance_of(space, trials, worst=chance)).figure.savefig("relevance.pdf")

The data lays each knob out from 0 to 1 in its prior's own scale: a knob with a logarithmic prior has a logarithmic
axis, a choice has one place for each of its values.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...evaluation.trials.knob_marginals import Axis, Marginal, PairMarginal, Parallel
from ...evaluation.trials.knob_relevance import Relevance
from ...records.score_scale import ScoreScale
from .. import wording
from .axes import draw_frame, draw_legend, draw_note, name_rows, set_ticks, takes_axes
from .study_plots import score_axis, some_dots
from .style import DASHED, DOTTED, FIRST, INK, LETTER, PAPER, QUIET, RING, RULE, SECOND, TEXT_SIZE, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMALL = 10.0
SHOWN_LINES = 300  # of parallel coordinates: more of them make a carpet
SHOWN_BEST = 30  # of them that are there in any case


def value_name(text: str) -> str:
    """The name of a value: a part with nothing but defaults, "Tanh()", is its name alone."""
    return text.removesuffix("()")


def short_paths(paths: Sequence[str]) -> list[str]:
    """The shortest ends of paths that still tell them apart: "learning_rate", "widths.each".

    >>> short_paths(["optimiser.learning_rate", "model.widths.each", "model.widths.count"])
    ['learning_rate', 'widths.each', 'widths.count']
    """
    split = [path.split(".") for path in paths]

    def end(parts: list[str]) -> str:
        for length in range(1, len(parts) + 1):
            name = parts[-length:]
            inner = name[0] in {"count", "each"} or name[0].isdigit()  # means nothing alone
            if not inner and sum(other[-length:] == name for other in split) == 1:
                return ".".join(name)
        return ".".join(parts)

    return [end(parts) for parts in split]


def _ticks_of(data: Axis, room: float) -> list[tuple[float, str]]:
    """The ticks of an axis so many pixels long, without those that would touch the one before."""
    kept: list[tuple[float, str]] = []
    free = -math.inf
    for place, text in zip(data.ticks, data.tick_labels, strict=True):
        name = wording.short(value_name(text), 14)
        half = 0.5 * LETTER * len(name) / max(room, 1.0)
        if place - half > free:
            kept.append((float(place), name))
            free = place + half + 0.02
    return kept


def _room(ax: "Axes", share: float = 1.0) -> float:
    return float(ax.bbox.width) * 72 / ax.figure.dpi * share


def _lay_out(ax: "Axes", data: Axis) -> None:
    """The horizontal axis of a knob."""
    ticks = _ticks_of(data, _room(ax))
    ax.set_xticks([place for place, _ in ticks], [text for _, text in ticks], parse_math=False)
    ax.set_xlim(-0.025, 1.025)


@takes_axes
def draw_one_knob(
    data: Marginal,
    ax: "Axes",
    *,
    name: str = "",
    asked: tuple[float, float] = (0.0, 1.0),
    best: int | None = None,
    scale: ScoreScale = ScoreScale(),
) -> None:
    """Score against one knob: each trial, and the mean and minimum over all other knobs.

    `asked` are the places where the interval began and ended at first; what was added beyond it is shaded.
    """
    draw_frame(ax, name or data.axis.path, scale.name)
    for low, high in ((0.0, asked[0]), (asked[1], 1.0)):
        if high - low > 1e-6:
            ax.axvspan(low, high, color=THIRD, alpha=0.12, linewidth=0)
    for edge in (*((0.0, 1.0) if data.axis.numeric else ()), *(place for place in asked if 1e-6 < place < 1 - 1e-6)):
        ax.axvline(edge, color=QUIET, linewidth=0.9, linestyle=DOTTED)
    scores, mean, minimum = (scale.on(column) for column in (data.scores, data.mean, data.minimum))
    few = len(scores) <= 150
    dots = some_dots(len(scores))
    size = 4.6 if few else 3
    ax.plot(data.places[dots], scores[dots], "o", color=FIRST, markersize=size, alpha=0.45, markeredgewidth=0)
    middles = 0.5 * (data.axis.edges[1:] + data.axis.edges[:-1])
    there = np.isfinite(mean)
    # Categories are not joined, nor is an exact zero: there is nothing between them and their neighbours.
    apart = np.full(len(middles), not data.axis.numeric)
    apart[0] |= data.axis.zero
    for level, colour, width, dashes, label in (
        (mean, FIRST, 1.5, DASHED, "mean"),
        (minimum, SECOND, 2.1, "-", "minimum"),
    ):
        joined, alone = there & ~apart, there & apart
        style: dict[str, Any] = {"color": colour, "linewidth": width, "linestyle": dashes}
        left, right = data.axis.edges[:-1][alone], data.axis.edges[1:][alone]
        inset = 0.15 * (right - left)
        ax.hlines(level[alone], left + inset, right - inset, label="" if joined.any() else label, **style)
        if joined.sum() == 1:
            style |= {"marker": "o", "markersize": 5}
        if joined.any():
            ax.plot(middles[joined], level[joined], label=label, **style)
    score_axis(ax.yaxis, scores, scale)
    bad = data.places[~np.isfinite(scores)]
    bad = bad[some_dots(len(bad))]
    if len(bad):
        heights = np.full(len(bad), 0.985)
        ax.plot(bad, heights, "x", color=INK, markersize=4.5, alpha=0.6, transform=ax.get_xaxis_transform())
    for place, score in zip(data.places[data.numbers == best], scores[data.numbers == best], strict=True):
        ax.plot([place], [score], zorder=5, **RING)
    _lay_out(ax, data.axis)
    if there.any():
        draw_legend(ax)


def _strengths(values: np.ndarray) -> np.ndarray:
    """How strongly each cell is coloured: by rank, the best fully, so that one bad cell hides nothing."""
    order = np.argsort(np.argsort(values[np.isfinite(values)]))
    found = np.full(values.shape, math.nan)
    found[np.isfinite(values)] = 1.0 - 0.92 * order / max(len(order) - 1, 1)
    return found


@takes_axes
def draw_two_knobs(
    data: PairMarginal, ax: "Axes", *, of: str = "minimum", names: tuple[str, str] = ("", ""), best: int | None = None
) -> None:
    """Score against two knobs: the stronger a cell, the better its minimum (or its mean); dots are trials."""
    from matplotlib.patches import Rectangle

    draw_frame(ax, names[0] or data.first.path, names[1] or data.second.path, grid="")
    ax.spines["bottom"].set_visible(False)
    strengths = _strengths(np.asarray(getattr(data, of), dtype=float))
    for i, j in zip(*np.nonzero(np.isfinite(strengths)), strict=True):
        corner = data.first.edges[i], data.second.edges[j]
        size = data.first.edges[i + 1] - corner[0], data.second.edges[j + 1] - corner[1]
        ax.add_patch(Rectangle(corner, *size, facecolor=FIRST, alpha=float(strengths[i, j]) * 0.8, linewidth=0))
    for edges, line in ((data.first.edges, ax.axvline), (data.second.edges, ax.axhline)):
        for edge in edges:
            line(edge, color=PAPER, linewidth=1.4)
    bad = ~np.isfinite(np.asarray(data.scores, dtype=float))
    across, up = data.places[:, 0], data.places[:, 1]
    looks: tuple[dict[str, Any], ...] = (
        {"marker": "o", "color": INK, "markersize": 2.6, "alpha": 0.55, "markeredgewidth": 0},
        {"marker": "x", "color": SECOND, "markersize": 5, "markeredgewidth": 1.3},
    )
    for these, look in zip((np.flatnonzero(~bad), np.flatnonzero(bad)), looks, strict=True):
        dots = these[some_dots(len(these))]
        ax.plot(across[dots], up[dots], linestyle="none", **look)
    winner = data.numbers == best
    ax.plot(across[winner], up[winner], linestyle="none", **RING)
    _lay_out(ax, data.first)
    ax.set_yticks(
        data.second.ticks, [wording.short(value_name(text), 10) for text in data.second.tick_labels], parse_math=False
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)


@takes_axes
def draw_relevance(data: Relevance, ax: "Axes", *, names: Sequence[str] = ()) -> None:
    """Which knobs matter: share of the variance (left) and relevance by a Gaussian process (right), largest on top."""
    ax.set_axis_off()
    weight = np.where(np.isfinite(data.fanova), data.fanova, -1.0)
    order = np.argsort(-weight, kind="stable")
    titles = [(names or short_paths(data.paths))[k] for k in order]
    panels = (
        (0.0, data.fanova, None, SECOND, "share of the variance", wording.short_percent),
        (0.55, data.ard, data.ard_spread, FIRST, "relevance 1/length", wording.tick),
    )
    for place, values, spread, colour, title, write in panels:
        panel = ax.inset_axes((place, 0.0, 0.45, 1.0))
        draw_frame(panel, title, "", grid="x")
        drawn = np.where(np.isfinite(values[order]), values[order], 0.0)
        places = name_rows(panel, titles if place == 0.0 else [""] * len(titles), 0.7)
        panel.barh(places, drawn, height=0.6, color=colour)
        if spread is not None:
            ends = np.where(np.isfinite(spread[order]), spread[order], 0.0)
            panel.hlines(places, np.maximum(drawn - ends, 0), drawn + ends, color=INK, linewidth=1.3)
        panel.set_xlim(left=0)
        panel.spines["left"].set_visible(True)
        set_ticks(panel.xaxis, write, most=4)


def _smooth(across: np.ndarray, up: np.ndarray) -> Any:
    """A line that leaves and enters each of its points level, so that it can be followed through a crossing."""
    from matplotlib.path import Path

    points, codes = [(across[0], up[0])], [Path.MOVETO]
    for x0, y0, x1, y1 in zip(across, up, across[1:], up[1:], strict=False):
        middle = 0.5 * (x0 + x1)
        points += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(points, codes)


def shown_lines(data: Parallel) -> np.ndarray:
    """Which trials parallel coordinates draw, the worst first so that the best lie on top.

    Where there are too many, the best and an even choice of the others.
    """
    order = np.argsort(np.where(np.isfinite(data.ranks), data.ranks, 2.0), kind="stable")
    if len(order) > SHOWN_LINES:
        rest = np.linspace(SHOWN_BEST, len(order) - 1, SHOWN_LINES - SHOWN_BEST).round().astype(int)
        order = order[np.concatenate([np.arange(SHOWN_BEST), rest])]
    return order[::-1]


_ABSENT = -0.1  # the height at which a trial passes an axis that it has no value on


def _line_look(rank: float, best: float, thin: float) -> dict[str, Any]:
    """How a trial of this rank is drawn; many lines must be thin enough to let one another through."""
    if not math.isfinite(rank):
        return {"edgecolor": QUIET, "linewidth": 0.9, "alpha": 0.5 * thin, "linestyle": DOTTED}
    if rank == best:
        return {"edgecolor": SECOND, "linewidth": 2.4}
    if rank <= 0.1:
        return {"edgecolor": SECOND, "linewidth": 1.4, "alpha": 0.8 * thin}
    return {"edgecolor": FIRST, "linewidth": 1.0, "alpha": (0.5 - 0.38 * rank) * thin}


def _upright(ax: "Axes", place: int, title: str, ticks: Sequence[tuple[float, str]], *, last: bool) -> None:
    """One axis of parallel coordinates: its name on top, its values beside it."""
    ax.plot([place, place], [0, 1], color=INK, linewidth=1.1)
    ax.text(place, 1.06, wording.short(title, 18), ha="center", color=INK, fontsize=TEXT_SIZE, parse_math=False)
    for height, text in ticks:
        look = {"ha": "right" if last else "left", "va": "center", "fontsize": _SMALL, "weight": "bold", "zorder": 5}
        away = (-5 if last else 5, 0)
        draw_note(ax, wording.short(value_name(text), 12), (place, height), away, parse_math=False, **look)


@takes_axes
def draw_parallel(data: Parallel, ax: "Axes", *, names: Sequence[str] = ()) -> None:
    """Each trial as a line across all knobs, coloured by rank: the best tenth stands out, failures are dotted."""
    from matplotlib.patches import PathPatch

    ax.set_axis_off()
    count, shown = len(data.axes), shown_lines(data)
    titles = names or short_paths([axis.path for axis in data.axes])
    best, thin = float(np.nanmin([*data.ranks, 1.0])), min(1.0, math.sqrt(100 / max(len(shown), 1)))
    heights = np.column_stack([data.places, 1.0 - data.ranks])
    heights = np.where(np.isfinite(heights), heights, _ABSENT)
    for k in shown:
        path = _smooth(np.arange(count + 1.0), heights[k])
        ax.add_patch(PathPatch(path, facecolor="none", **_line_look(float(data.ranks[k]), best, thin)))
    for place, axis in enumerate(data.axes):
        ticks = list(zip(axis.ticks, axis.tick_labels, strict=True))
        if not np.isfinite(data.places[:, place]).all():
            ticks.append((_ABSENT, "inactive"))
        _upright(ax, place, titles[place], ticks, last=False)
    without = [] if np.isfinite(data.ranks).all() else [(_ABSENT, "no model")]
    _upright(ax, count, "rank", [(1.0, "best"), (0.0, "worst"), *without], last=True)
    ax.set_xlim(0, max(count, 1))
    ax.set_ylim(-0.16, 1.02)


@takes_axes
def draw_failures(data: Sequence[Marginal], ax: "Axes", *, names: Sequence[str] = ()) -> None:
    """Where trials went wrong: one strip for each knob, the stronger a cell, the larger its share of failures."""
    from matplotlib.patches import Rectangle

    draw_frame(ax, "", "", grid="")
    ax.spines["bottom"].set_visible(False)
    titles = names or short_paths([one.axis.path for one in data])
    places = name_rows(ax, [wording.short(title, 22) for title in titles])
    middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": _SMALL, "parse_math": False}
    for place, one in zip(places, data, strict=True):
        for cell, (left, right) in enumerate(zip(one.axis.edges, one.axis.edges[1:], strict=False)):
            bad = int(one.failed[cell])
            total = int(one.count[cell]) + bad
            share = bad / total if total else 0.0
            face = {"facecolor": SECOND, "alpha": 0.12 + 0.8 * share} if bad else {"facecolor": RULE}
            ax.add_patch(Rectangle((left, place - 0.22), right - left, 0.44, edgecolor=PAPER, linewidth=1.4, **face))
            if total:
                ax.text(0.5 * (left + right), place, f"{bad}/{total}", color=INK, **middle)
        for tick, text in _ticks_of(one.axis, _room(ax)):
            ax.text(tick, place - 0.42, text, color=QUIET, **middle)
    ax.set_xticks([])
    ax.set_xlim(-0.002, 1.002)
    ax.set_ylim(-0.62, len(data) - 0.6)
