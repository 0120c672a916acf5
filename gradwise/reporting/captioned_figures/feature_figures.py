"""From a record to pictures of features: of a run without a target, or of the layers of a pre-trained network.

    tuple(feature_figures(record.evidence.features))        filters, reconstructions, activity, spectrum
    tuple(pretrained_layer_figures(record))                 each layer's curve, and the first one's filters

The evidence is that of `gradwise.training.final_measurement`: bytes in base 64 for what is only looked at.
"""

import base64
import binascii
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ...evaluation.run_figure_data import Curve
from ...records.evidence.fit_evidence import FeatureEvidence, Filters, UnitActivity
from ...records.fit import Fit
from .. import wording
from ..blocks import Figure, Row, Table
from ..plots import feature_plots
from ..plots.style import LETTER

_MAPPED_UNITS = 24
_MAPPED_INPUTS = 48
_BARS = 24
_ROW_HEIGHT = 24
_SHOWN_LAYERS = 6
_FILTERS = "What the units look for"


def unpacked(text: str, width: int, low: float, high: float) -> np.ndarray:
    """Rows of so many numbers from bytes, 0 at `low` and 255 at `high`; none where the text holds no whole rows."""
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError):
        return np.zeros((0, max(width, 1)))
    if width < 1 or flat.size % width:
        return np.zeros((0, max(width, 1)))
    return low + (high - low) * flat.reshape(-1, width) / 255.0


def _names(features: FeatureEvidence) -> tuple[str, ...]:
    return features.names or tuple(f"input {number + 1}" for number in range(features.width))


def _filter_table(filters: Filters) -> Table:
    rows: tuple[Row, ...] = tuple(
        (str(unit + 1), wording.number(norm)) for unit, norm in zip(filters.units, filters.norms, strict=True)
    )
    return Table("Numbers", ("unit", "norm of its weights"), rows, (0, 1))


def filter_figures(features: FeatureEvidence) -> Iterator[Figure]:
    """What the units of the first layer look for: pictures of images, a map of a table's columns."""
    filters = features.filters
    if filters is None:
        return
    values = unpacked(filters.bytes, math.prod(filters.image) if filters.image else features.width, -1.0, 1.0)
    if not len(values):
        return
    image, total = filters.image or features.image, filters.of
    many = f"The {len(values)} with the largest norms of {total:,}" if len(values) < total else f"All {total:,}"
    said = f"{many}, each on its own scale. Blue: the input excites the unit. Vermilion: it inhibits the unit."
    if image:
        columns = min(len(values), max(1, math.ceil(math.sqrt(len(values) * image[0] / image[1]))))
        rows = math.ceil(len(values) / columns)
        width = min(400, 64 * columns)
        said = said if len(image) == 2 else f"{many}, each on its own scale, grey where it has no weight."
        draw = partial(feature_plots.draw_tiles, values, image=image, columns=columns, signed=True)
        size: Any = {"width": width, "height": max(60, round(width * rows * image[0] / (columns * image[1])))}
        yield Figure("filters", _FILTERS, said, draw, _filter_table(filters), **size, margins=(0, 2, 0, 2))
        return
    names = _names(features)[:_MAPPED_INPUTS]
    shown = values[:_MAPPED_UNITS, : len(names)]
    labels = wording.short_names(names, 16)
    below = 12 + round(5.6 * max(map(len, labels)))
    left = 44
    width = max(400, left + 14 * len(names) + 12)
    cut = f" The first {len(names)} of {values.shape[1]:,} inputs." if len(names) < values.shape[1] else ""
    strongest = _names(features)[int(np.abs(values[0]).argmax())] if len(_names(features)) == values.shape[1] else ""
    first = f" The first one depends most on {wording.short(strongest, 40)}." if strongest else ""
    few = many.replace(str(len(values)), str(len(shown)), 1)
    said = f"{few}, each row on its own scale.{first}{cut} Blue: excites; vermilion: inhibits."
    units = [str(unit + 1) for unit in filters.units[: len(shown)]]
    yield Figure(
        "filters",
        _FILTERS,
        said,
        partial(feature_plots.draw_heat_map, shown, rows=units, columns=labels),
        _filter_table(filters),
        width=width,
        height=below + 14 * len(shown) + 30,
        margins=(left, below, 12, 26),
        wide=width > 480,
    )


def reconstruction_figures(features: FeatureEvidence) -> Iterator[Figure]:
    """What the code keeps of an input."""
    found = features.reconstructions
    if found is None:
        return
    given, made = (unpacked(text, features.width, 0.0, 1.0) for text in (found.given, found.made))
    kept = list(zip(_names(features), found.kept, strict=False))  # of many inputs the first are known
    rows: tuple[Row, ...] = tuple((name, wording.percent(share)) for name, share in kept)
    table = Table("Numbers", ("input", "share of its variance explained"), rows, (1,))
    share = wording.percent(found.kept_of_all) if found.kept_of_all > 0 else "nothing"
    said = f" The code explains {share} of the variance of all inputs."
    image = features.image
    if image and len(given) and len(given) == len(made):
        columns = min(6, len(given))
        pairs = math.ceil(len(given) / columns)
        said = f"{len(given)} held-out inputs, each with its reconstruction below.{said}"
        draw = partial(feature_plots.draw_pairs_of_tiles, (given, made), image=image, columns=columns)
        tall = round(400 * (2.35 * pairs - 0.2) * image[0] / (columns * image[1] * 1.07))
        title = "Inputs and their reconstructions"
        yield Figure("reconstructions", title, said, draw, table, height=tall, margins=(0, 2, 0, 2))
        return
    known = sorted(((name, share) for name, share in kept if math.isfinite(share)), key=lambda one: one[1])
    if image or not known:
        return
    shown = known if len(known) <= _BARS else [*known[: _BARS // 2], *known[-_BARS // 2 :]]
    names = wording.short_names([name for name, _ in shown], 18)
    some = f" The {_BARS // 2} worst and best explained of {len(known):,} are shown." if len(shown) < len(known) else ""
    said = f"Least of {wording.short(known[0][0], 40)}: {wording.percent(known[0][1])}.{some}{said}"
    draw = partial(feature_plots.draw_shares, [share for _, share in shown], names=names)
    margins = (16 + round(LETTER * max(map(len, names))), 40, 18, 12)
    title, tall = "Variance of each input explained by the code", _ROW_HEIGHT * len(shown) + 52
    yield Figure("reconstructions", title, said, draw, table, height=tall, margins=margins)


def _unit_words(units: UnitActivity) -> str:
    count, dead, on = units.count, units.dead, units.always_on
    if not dead and not on:
        return f"All {count:,} units are active on some examples and inactive on others."
    said = [f"{dead:,} are never active (dead)" if dead else "", f"{on:,} are always active" if on else ""]
    return f"Of {count:,} units {' and '.join(filter(None, said))}."


def code_figures(features: FeatureEvidence) -> Iterator[Figure]:
    """How often the units answer, and how many directions their codes use."""
    units, spread = features.units, features.spectrum
    counts, edges = units.histogram, units.edges
    if counts and edges[-1] > edges[0]:
        rows: tuple[Row, ...] = tuple(
            (f"{wording.number(low)} to {wording.number(high)}", wording.whole(count))
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        )
        said = f"{_unit_words(units)} Their mean activity is {wording.number(units.mean)}."
        draw = partial(feature_plots.draw_histogram, (counts, edges))
        table = Table("Numbers", ("mean activity", "units"), rows, (0, 1))
        yield Figure("activity", "Activity of the units", said, draw, table, height=220)
    parts, effective = spread.shares, spread.effective
    if len(parts) > 1:
        together = np.cumsum(parts)
        rows = tuple(
            (str(i + 1), wording.percent(parts[i]), wording.percent(together[i])) for i in range(min(40, len(parts)))
        )
        half = int(np.searchsorted(together, 0.5)) + 1
        said = f"The codes vary as if in {wording.number(effective)} directions of equal weight; half of the "
        said += f"variance is in the first{f' {half}' if half > 1 else ''}."
        draw = partial(feature_plots.draw_spectrum, parts, effective=effective)
        table = Table("Numbers", ("direction", "share", "together"), rows, (0, 1, 2))
        yield Figure("spectrum", "Effective dimension of the codes", said, draw, table, height=220)


def feature_figures(features: FeatureEvidence | None) -> Iterator[Figure]:
    """All pictures of what a run without a target has learned."""
    if features is None:
        return
    yield from filter_figures(features)
    yield from reconstruction_figures(features)
    yield from code_figures(features)


def pretrained_layer_figures(record: Fit) -> Iterator[Figure]:
    """What the first layer of a pre-trained network looks for, and how each layer was learned."""
    layers = record.evidence.layers
    for layer in layers[:1]:
        if layer.features is not None:
            yield from filter_figures(layer.features)
            yield from reconstruction_figures(layer.features)
    for layer in layers[:_SHOWN_LAYERS]:
        points = [(age, value) for age, value in zip(layer.age, layer.curve, strict=True) if math.isfinite(value)]
        if not points:
            continue
        curve = Curve(np.array([age for age, _ in points], float), np.array([value for _, value in points], float))
        name, best = wording.metric_name(layer.metric), float(layer.best_age)
        units = UnitActivity(layer.units) if layer.features is None else layer.features.units
        step = max(1, math.ceil(len(points) / 40))
        rows: tuple[Row, ...] = tuple((wording.whole(age), wording.number(value)) for age, value in points[::step])
        title = f"Layer {layer.layer}: {wording.clean(layer.learner)}, {layer.units} units"
        said = f"Validation {name} went from {wording.number(curve.value[0])} to {wording.number(layer.valid)}. "
        said += _unit_words(units)
        draw = partial(feature_plots.draw_layer_curve, curve, name=name, best=best)
        table = Table("Numbers", ("age", name), rows, (0, 1))
        yield Figure(f"layer-{layer.layer}", title, said, draw, table, height=210)


def layer_table(record: Fit) -> Table | None:
    """One line a layer."""
    layers = record.evidence.layers
    if not layers:
        return None
    rows: tuple[Row, ...] = tuple(
        (
            str(layer.layer),
            layer.learner,
            wording.whole(layer.units),
            wording.whole(layer.rows or None),
            f"{wording.metric_name(layer.metric)} {wording.number(layer.valid)}",
            wording.number(None if layer.features is None else layer.features.spectrum.effective),
            wording.whole(None if layer.features is None else layer.features.units.dead),
            wording.duration(layer.seconds),
            layer.outcome,
        )
        for layer in layers
    )
    header = ("layer", "learner", "units", "rows", "validation", "effective directions", "dead", "time", "ended")
    return Table("Pre-training", header, rows, (0, 2, 3, 5, 6, 7))
