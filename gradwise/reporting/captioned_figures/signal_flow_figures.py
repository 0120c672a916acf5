"""What flowed through the layers, as figures: of a check, or of a training whose optimiser was watched.

tuple(flow_figures(fit.evidence["flow"]))             means, deviations and histograms over training
tuple(layer_flow_figures(checked.evidence["flow"]))   saturation, gradients, singular values by layer
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from .. import wording
from ..blocks import Block, Figure, Prose, Row, Table
from ..plots import check_plots
from ..plots.check_plots import Dot, RidgeLine, Strip
from .check_figures import dots_figure
from .record_values import SHOWN, Plain, array, as_number, left_of, rows_of, tall_of

Shown = TypeVar("Shown")
FLOW_KINDS = {
    "pre-activation": "inputs of the non-linearities",
    "activation": "outputs of the non-linearities",
    "activation gradient": "gradients at the non-linearities",
    "parameter": "parameters",
    "parameter gradient": "gradients of the parameters",
}


def _slug(kind: str) -> str:
    """A kind as a part of a figure's name."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower())


def _spread(rows: Sequence[Shown]) -> list[Shown]:
    """As many as can be drawn, evenly from the first to the last: of a loop, turns from its beginning to its end."""
    places = np.linspace(0, len(rows) - 1, SHOWN).round().astype(int) if len(rows) > SHOWN else range(len(rows))
    return [rows[place] for place in places]


def _drawn(count: int) -> str:
    return f" {SHOWN} of {count} are shown." if count > SHOWN else ""


def _series(group: Plain, name: str) -> np.ndarray:
    return np.atleast_1d(array(group.get(name)))


def _strip_figures(kind: str, groups: Sequence[Plain], updates: np.ndarray, looks: Sequence[str]) -> Iterator[Figure]:
    known = [
        Strip(str(group.get("layer")), _series(group, "mean"), _series(group, "deviation"))
        for group in groups
        if len(_series(group, "mean")) == len(_series(group, "deviation")) == len(updates)
        and np.isfinite(_series(group, "mean")).any()
    ]
    strips = _spread(known)
    if not strips or len(updates) < 2:
        return
    rows: tuple[Row, ...] = tuple(
        (s.name, *(wording.number(float(v)) for v in (s.mean[0], s.deviation[0], s.mean[-1], s.deviation[-1])))
        for s in strips
    )
    title = FLOW_KINDS.get(kind, kind)
    said = "The line is the mean, the band one standard deviation on each side; each layer has its own scale (right)."
    draw = partial(check_plots.draw_strips, strips, updates=updates, looks=looks)
    header = ("", "mean at first", "deviation", "mean at last", "deviation")
    look: Any = {"width": 430, "height": 56 + 34 * len(strips), "margins": (left_of(s.name for s in strips), 38, 52, 6)}
    name, said = f"flow-{_slug(kind)}", said + _drawn(len(known))
    yield Figure(name, f"Mean and deviation: {title}", said, draw, Table("Numbers", header, rows, (1, 2, 3, 4)), **look)


def _first_and_last(group: Plain) -> RidgeLine | None:
    """The first and the last histogram; edges may be common or one row each."""
    histogram, edges = array(group.get("histogram")), array(group.get("edges"))
    histogram = histogram[None] if histogram.ndim == 1 else histogram
    edges = np.broadcast_to(edges, (len(histogram), len(edges))) if edges.ndim == 1 else edges
    if histogram.ndim != 2 or edges.ndim != 2 or len(edges) != len(histogram) or not len(histogram):
        return None
    usable = [i for i in range(len(edges)) if np.isfinite(edges[i]).all() and np.isfinite(histogram[i]).all()]
    if edges.shape[1] != histogram.shape[1] + 1 or not usable or edges[usable[-1]][-1] <= edges[usable[-1]][0]:
        return None
    first, last = usable[0], usable[-1]
    return RidgeLine(str(group.get("layer")), (edges[first], histogram[first]), (edges[last], histogram[last]))


def _ridge_figures(kind: str, groups: Sequence[Plain]) -> Iterator[Figure]:
    known = [ridge for ridge in map(_first_and_last, groups) if ridge is not None]
    ridges = _spread(known)
    if not ridges:
        return
    title = FLOW_KINDS.get(kind, kind)
    rows: tuple[Row, ...] = tuple(
        (r.name, *(wording.number(float(v)) for v in (r.first[0][0], r.first[0][-1], r.last[0][0], r.last[0][-1])))
        for r in ridges
    )
    said = f"Dashed: first record; filled: last. Each layer has its own scale.{_drawn(len(known))}"
    table = Table("Ends of the histograms", ("", "first from", "to", "last from", "to"), rows, (1, 2, 3, 4))
    draw, name = partial(check_plots.draw_ridges, ridges, across=""), f"histograms-{_slug(kind)}"
    look: Any = {"width": 430, "height": 26 + 44 * len(ridges), "margins": (left_of(r.name for r in ridges), 14, 14, 6)}
    yield Figure(name, f"Histograms: {title}", said, draw, table, **look)


def flow_figures(plain: Plain) -> Iterator[Figure]:
    """Activations, parameters and their gradients by layer over training."""
    updates = array(plain.get("updates"))
    groups = rows_of(plain.get("groups"))
    # A check looks twice, before and after a rehearsal; a watched training often.
    looks = ("before", "after a rehearsal") if not len(updates) else ()
    updates = np.arange(2.0) if looks else updates
    for kind in dict.fromkeys(str(group.get("kind")) for group in groups):
        mine = [group for group in groups if str(group.get("kind")) == kind]
        yield from _strip_figures(kind, mine, updates, looks)
        yield from _ridge_figures(kind, mine)


def _last(values: Any) -> float:
    found = np.atleast_1d(array(values)) if isinstance(values, list | tuple) else np.atleast_1d(as_number(values))
    return float(found[-1]) if found.ndim == 1 and found.size else math.nan


def _from_groups(groups: Sequence[Plain]) -> list[dict[str, Any]]:
    """The last look at each layer, from groups over training."""
    layers: dict[str, dict[str, Any]] = {}
    for group in groups:
        name = str(group.get("layer"))
        if group.get("kind") == "activation":
            told = {"saturated": _last(group.get("saturated")), "dead": _last(group.get("dead"))}
            layers.setdefault(name, {"name": name}).update(told)
        elif group.get("kind") == "activation gradient":
            layers.setdefault(name, {"name": name})["gradient"] = _last(group.get("rms"))
    return list(layers.values())


def layer_flow_figures(plain: Plain) -> Iterator[Figure]:
    """Saturation, dead units, gradients and singular values, layer by layer."""
    layers = rows_of(plain.get("layers")) or _from_groups(rows_of(plain.get("groups")))
    names = [str(layer.get("name", layer.get("layer"))) for layer in layers]
    flat = [(_last(layer.get("saturated")), _last(layer.get("dead"))) for layer in layers]
    known = [share for pair in flat for share in pair if math.isfinite(share)]
    if known and max(known) > 0:
        shown, drawn = _spread(flat), _spread(names)
        rows: tuple[Row, ...] = tuple(
            (n, wording.percent(s), wording.percent(d)) for n, (s, d) in zip(names, flat, strict=True)
        )
        worst = max(range(len(flat)), key=lambda i: float(np.nansum(flat[i])))
        saturated, dead = map(wording.percent, flat[worst])
        said = f"Most in {names[worst]}: {saturated} saturated, {dead} dead." + _drawn(len(names))
        words: Any = {"names": drawn, "kinds": ("saturated", "dead"), "across": "share of the layer"}
        draw = partial(check_plots.draw_share_pairs, shown, **words)
        table = Table("Numbers", ("layer", "saturated", "dead"), rows, (1, 2))
        look: Any = {"width": 430, "height": tall_of(len(shown)) + 8, "margins": (left_of(drawn), 40, 14, 26)}
        yield Figure("saturation", "Saturated entries and dead units", said, draw, table, **look)
    yield from _gradient_sizes(layers, names)
    yield from _singular_figures(plain)


def _gradient_sizes(layers: Sequence[Plain], names: Sequence[str]) -> Iterator[Figure]:
    sizes = [_last(layer.get("gradient")) for layer in layers]
    dots = [Dot(name, size) for name, size in zip(names, sizes, strict=True) if math.isfinite(size)]
    if len(dots) < 2:
        return
    positive = [dot.value for dot in dots if dot.value > 0]
    spread = max(positive) / min(positive) if positive else math.nan
    rows: tuple[Row, ...] = tuple((dot.name, wording.number(dot.value)) for dot in dots)
    table = Table("Numbers", ("layer", "size"), rows, (1,))
    said = f"From the first layer to the last; the largest is {wording.number(spread)} times the smallest."
    said, across = said + _drawn(len(dots)), "size of the gradient"
    title = "The gradient that arrives at each layer"
    yield dots_figure("gradient-sizes", title, said, _spread(dots), table, across=across)


def _singular_figures(plain: Plain) -> Iterator[Figure]:
    dots: list[Dot] = []
    for one in rows_of(plain.get("maps")):
        values = array(one.get("singular"))
        values = values[np.isfinite(values)]
        name = f"{one.get('source')} → {one.get('target')}"
        if values.size:
            # The smallest of many is next to nothing in any layer: a tenth of them may lie outside on each side.
            low, middle, high = (float(value) for value in np.quantile(values, (0.1, 0.5, 0.9)))
            dots.append(Dot(name, middle, low, high, marked=middle > 10 or high < 0.1))
    if not dots:
        return
    rows: tuple[Row, ...] = tuple((d.name, *(wording.number(v) for v in (d.low, d.value, d.high))) for d in dots)
    said = f"Dots are medians; bars hold 80\u202f% of the values. Near 1, signals pass unchanged.{_drawn(len(dots))}"
    table = Table("Numbers", ("from, to", "10\u202f%", "median", "90\u202f%"), rows, (1, 2, 3))
    title, look = "Singular values of each layer's Jacobian", {"across": "singular values", "told": "1"}
    yield dots_figure("singular", title, said, _spread(dots), table, line=1.0, **look)


def flow_blocks(plain: Plain) -> Iterator[Block]:
    """Everything about the flow: layer by layer, then over training."""
    figures = tuple(layer_flow_figures(plain))
    if figures and not any(figure.name == "saturation" for figure in figures):
        yield Prose("No unit is saturated or dead.")
    yield from figures
    over = tuple(flow_figures(plain))
    if over and len(array(plain.get("updates"))):
        looks = array(plain.get("updates"))
        yield Prose(f"Over training, {len(looks)} looks, the last at update {wording.whole(float(looks[-1]))}:")
    yield from over
