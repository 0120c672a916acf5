"""Drawing features: filters, reconstructions and what the units of a code do, with the `ax=` convention of `axes.py`.

    feature_plots.draw_tiles(filters, ax=ax, image=(28, 28), signed=True)
    feature_plots.draw_heat_map(filters, ax=ax, rows=("unit 3", "unit 1"), columns=("age", "income"))

What is drawn arrives as arrays: signed values from -1 to 1, others from 0 to 1.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...evaluation.run_figure_data import Curve
from ...records.score_scale import short_percent
from .. import wording
from .axes import draw_frame, draw_line, label_point, name_rows, set_ticks, takes_axes
from .run_plots import colour_of
from .style import DOTTED, FIRST, INK, PAPER, RING, SECOND, TEXT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def coloured(values: np.ndarray) -> np.ndarray:
    """Signed values as colours: blue for more, vermilion for less; the paper shows through where there is nothing."""
    image = np.empty((*values.shape, 4))
    image[..., :3] = np.where(values[..., None] >= 0, colour_of(FIRST), colour_of(SECOND))
    image[..., 3] = np.clip(np.abs(values), 0.0, 1.0)
    return image


def _tile(values: np.ndarray, image: tuple[int, ...], signed: bool) -> np.ndarray:
    """One picture in colours with transparency."""
    shaped = values.reshape(image)
    if len(image) == 3:  # colour channels show themselves; a filter is grey where it is nothing
        shade = 0.5 + 0.5 * shaped if signed else shaped
        return np.concatenate([np.clip(shade, 0.0, 1.0), np.ones((*image[:2], 1))], axis=2)
    if signed:
        return coloured(shaped)
    grey = np.clip(shaped, 0.0, 1.0)[..., None]
    return np.concatenate([grey, grey, grey, np.ones_like(grey)], axis=2)


def _wall(ax: "Axes", tiles: list[np.ndarray], columns: int, gap: int, between: int) -> None:
    """Tiles in rows, so many pixels apart across and from row to row."""
    height, width = tiles[0].shape[:2]
    rows = math.ceil(len(tiles) / columns)
    wall = np.zeros((rows * (height + between) - between, columns * (width + gap) - gap, 4))
    for number, tile in enumerate(tiles):
        top, left = (number // columns) * (height + between), (number % columns) * (width + gap)
        wall[top : top + height, left : left + width] = tile
    ax.imshow(wall, interpolation="none", aspect="equal")
    ax.set_axis_off()


def _gap(image: tuple[int, ...]) -> int:
    return max(1, round(max(image[:2]) / 14))


@takes_axes
def draw_tiles(data: np.ndarray, ax: "Axes", *, image: tuple[int, ...], columns: int, signed: bool = False) -> None:
    """Small pictures in rows, a gap between them."""
    _wall(ax, [_tile(values, image, signed) for values in data], columns, _gap(image), _gap(image))


@takes_axes
def draw_pairs_of_tiles(
    data: tuple[np.ndarray, np.ndarray], ax: "Axes", *, image: tuple[int, ...], columns: int
) -> None:
    """Pictures in rows, each above its reconstruction; the pairs of a row stand close, rows of pairs apart."""
    gap = _gap(image)
    above, below = ([_tile(values, image, signed=False) for values in part] for part in data)
    space = np.zeros((gap, *above[0].shape[1:]))
    pairs = [np.concatenate([one, space, two]) for one, two in zip(above, below, strict=True)]
    _wall(ax, pairs, columns, gap, 3 * gap)


@takes_axes
def draw_heat_map(data: np.ndarray, ax: "Axes", *, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Signed values of rows by columns, the columns named below."""
    draw_frame(ax, "", "unit", grid="")
    ax.imshow(coloured(data), interpolation="none", aspect="auto")
    ax.spines["bottom"].set_visible(False)
    ax.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False, fontsize=9.5)
    ax.set_yticks(range(len(rows)), rows, fontsize=9.5)


@takes_axes
def draw_shares(data: Sequence[float], ax: "Axes", *, names: Sequence[str]) -> None:
    """Shares as bars, one below the other."""
    draw_frame(ax, "share of its variance explained by the code", "", grid="x")
    ax.barh(name_rows(ax, names), np.clip(np.asarray(data, float), 0.0, 1.0), height=0.62, color=FIRST)
    ax.set_xlim(0, 1)
    set_ticks(ax.xaxis, short_percent)


@takes_axes
def draw_histogram(data: tuple[Sequence[float], Sequence[float]], ax: "Axes") -> None:
    """How many units have which mean activity."""
    counts, edges = data
    draw_frame(ax, "mean activity", "units")
    ax.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=FIRST, edgecolor=PAPER, linewidth=0.8)
    if max(map(abs, edges)) <= 1:
        ax.set_xlim(min(0.0, edges[0]), 1.0)
    set_ticks(ax.xaxis, wording.tick)
    set_ticks(ax.yaxis, wording.tick, most=max(1, min(5, int(max(counts)))))


@takes_axes
def draw_spectrum(data: Sequence[float], ax: "Axes", *, effective: float) -> None:
    """The share of the codes' variance in their first directions, together."""
    together = np.concatenate([[0.0], np.cumsum(data)])
    draw_frame(ax, "directions, the widest first", "share of the codes' variance")
    curve = Curve(np.arange(len(together), dtype=float), together)
    draw_line(ax, curve, color=FIRST, linewidth=2.1)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(0, max(len(together) - 1, 1))
    set_ticks(ax.yaxis, short_percent)
    set_ticks(ax.xaxis, wording.tick)
    place = (effective, float(np.interp(effective, curve.age, curve.value)))
    ax.plot([place[0]] * 2, [0, place[1]], color=INK, linewidth=0.9, linestyle=DOTTED)
    ax.plot(*place, zorder=5, **RING)
    label_point(ax, f"effectively {wording.number(effective)}", place, (curve,))


@takes_axes
def draw_layer_curve(data: Curve, ax: "Axes", *, name: str, best: float) -> None:
    """The validation score of one layer against age, and where it was kept."""
    draw_frame(ax, "age, in examples seen", name)
    draw_line(ax, data, color=SECOND, linewidth=2.1)
    low, high = float(data.value.min()), float(data.value.max())
    margin = 0.08 * (high - low) or 0.2 * abs(high) or 1.0
    ax.set_ylim(low - margin, high + margin)
    ax.set_xlim(0, max(float(data.age[-1]), 1.0) * 1.02)
    set_ticks(ax.xaxis, wording.age)
    set_ticks(ax.yaxis, wording.tick)
    value = float(np.interp(best, data.age, data.value))
    ax.plot([best], [value], zorder=5, **RING)
    ax.tick_params(labelsize=TEXT_SIZE)
    label_point(ax, f"best {wording.number(value)}", (best, value), (data,))
