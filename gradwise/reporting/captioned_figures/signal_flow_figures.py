"""What flowed through the layers, as figures: of a check, or of a training whose optimiser was watched.

flow = fit.evidence.flow
tuple(flow_blocks(flow.groups, flow.updates))         means, deviations and histograms over training
flow = checked.evidence.flow
tuple(layer_flow_figures(flow.layers, flow.maps))     saturation, gradients, singular values by layer
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...records.evidence.check_evidence import LayerFlow, LayerMap
from ...records.evidence.recorded_flow import FlowGroup
from .. import wording
from ..blocks import Block, Figure, Prose, Row, Table
from ..plots import check_plots
from ..plots.check_plots import Dot, RidgeLine, Strip
from .check_figures import dots_figure
from .record_values import SHOWN, left_of, tall_of

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


def _strip_figures(
    kind: str, groups: Sequence[FlowGroup], updates: np.ndarray, looks: Sequence[str]
) -> Iterator[Figure]:
    known = [
        Strip(group.layer, np.array(group.mean), np.array(group.deviation))
        for group in groups
        if len(group.mean) == len(updates) and np.isfinite(group.mean).any()
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


def _first_and_last(group: FlowGroup) -> RidgeLine | None:
    """The first and the last histogram that can be drawn."""
    histogram, edges = np.array(group.histogram), np.array(group.edges)
    usable = [i for i in range(len(edges)) if np.isfinite(edges[i]).all() and np.isfinite(histogram[i]).all()]
    if not usable or edges[usable[-1]][-1] <= edges[usable[-1]][0]:
        return None
    first, last = usable[0], usable[-1]
    return RidgeLine(group.layer, (edges[first], histogram[first]), (edges[last], histogram[last]))


def _ridge_figures(kind: str, groups: Sequence[FlowGroup]) -> Iterator[Figure]:
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


def flow_figures(groups: Sequence[FlowGroup], updates: Sequence[int] = ()) -> Iterator[Figure]:
    """Activations, parameters and their gradients by layer over training."""
    # A check looks twice, before and after a rehearsal; a watched training often.
    looks = () if updates else ("before", "after a rehearsal")
    across = np.array(updates or (0, 1), float)
    for kind in dict.fromkeys(group.kind for group in groups):
        mine = [group for group in groups if group.kind == kind]
        yield from _strip_figures(kind, mine, across, looks)
        yield from _ridge_figures(kind, mine)


def _from_groups(groups: Sequence[FlowGroup]) -> tuple[LayerFlow, ...]:
    """The last look at each layer, from groups over training."""
    layers: dict[str, LayerFlow] = {}
    for group in groups:
        layer = layers.get(group.layer, LayerFlow(group.layer))
        if group.kind == "activation" and group.dead:
            layers[group.layer] = dataclasses.replace(layer, saturated=group.saturated[-1], dead=group.dead[-1])
        elif group.kind == "activation gradient" and group.rms:
            layers[group.layer] = dataclasses.replace(layer, gradient=group.rms[-1])
    return tuple(layers.values())


def layer_flow_figures(layers: Sequence[LayerFlow], maps: Sequence[LayerMap] = ()) -> Iterator[Figure]:
    """Saturation, dead units, gradients and singular values, layer by layer."""
    names = [layer.name for layer in layers]
    flat = [(layer.saturated, layer.dead) for layer in layers]
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
    yield from _gradient_sizes(layers)
    yield from _singular_figures(maps)


def _gradient_sizes(layers: Sequence[LayerFlow]) -> Iterator[Figure]:
    dots = [Dot(layer.name, layer.gradient) for layer in layers if math.isfinite(layer.gradient)]
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


def _singular_figures(maps: Sequence[LayerMap]) -> Iterator[Figure]:
    # The smallest of many is next to nothing in any layer: a tenth of them may lie outside on each side.
    dots = [
        Dot(f"{one.source} → {one.target}", one.median, one.low, one.high, marked=one.median > 10 or one.high < 0.1)
        for one in maps
    ]
    if not dots:
        return
    rows: tuple[Row, ...] = tuple((d.name, *(wording.number(v) for v in (d.low, d.value, d.high))) for d in dots)
    said = f"Dots are medians; bars hold 80\u202f% of the values. Near 1, signals pass unchanged.{_drawn(len(dots))}"
    table = Table("Numbers", ("from, to", "10\u202f%", "median", "90\u202f%"), rows, (1, 2, 3))
    title, look = "Singular values of each layer's Jacobian", {"across": "singular values", "told": "1"}
    yield dots_figure("singular", title, said, _spread(dots), table, line=1.0, **look)


def flow_blocks(
    groups: Sequence[FlowGroup],
    updates: Sequence[int] = (),
    layers: Sequence[LayerFlow] = (),
    maps: Sequence[LayerMap] = (),
) -> Iterator[Block]:
    """Everything about the flow: layer by layer, then over training."""
    figures = tuple(layer_flow_figures(layers or _from_groups(groups), maps))
    if figures and not any(figure.name == "saturation" for figure in figures):
        yield Prose("No unit is saturated or dead.")
    yield from figures
    over = tuple(flow_figures(groups, updates))
    if over and updates:
        yield Prose(f"Over training, {len(updates)} looks, the last at update {wording.whole(updates[-1])}:")
    yield from over
