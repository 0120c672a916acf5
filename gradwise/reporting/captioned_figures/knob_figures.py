"""Figures of the knobs of a study: relevance, one knob, two knobs, all knobs, and failed trials."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...evaluation.trials.knob_marginals import Marginal, marginal, pair, parallel_coordinates, places_of
from ...evaluation.trials.knob_relevance import Relevance, relevance_of
from ...records.score_scale import ScoreScale
from ...records.study import Study
from .. import wording
from ..blocks import Cell, Figure, Table
from ..plots import knob_plots
from ..plots.study_plots import SHOWN_DOTS
from .study_figures import LEAST_TRIALS, ROW_HEIGHT, margin, short_path_names, sortable_setting

_SHOWN_KNOBS = 12
_SHOWN_AXES = 9


def study_relevance(study: Study, refits: int = 10) -> Relevance | None:
    """Which knobs matter, where enough trials left a model to say so."""
    trials = study.searched
    if sum(trial.ok for trial in trials) < 2 * LEAST_TRIALS or len(study.space.dimensions) < 2:
        return None
    return relevance_of(study.space, trials, worst=study.chance, seed=study.seed, refits=refits)


def _wide(height: int, margins: tuple[int, int, int, int], width: int = 700) -> dict[str, Any]:
    return {"width": width, "height": height, "margins": margins, "wide": True}


def relevance_figures(study: Study, found: Relevance | None) -> Iterator[Figure]:
    """Relevance by two methods side by side (row E13)."""
    if found is None or not np.isfinite([*found.fanova, *found.ard]).any():
        return
    short = short_path_names(study)
    names = [short[path] for path in found.paths]
    order = sorted(range(len(names)), key=lambda k: -(found.fanova[k] if math.isfinite(found.fanova[k]) else -1.0))
    first = names[order[0]]
    share = found.fanova[order[0]]
    most = f"`{first}` matters most: alone it explains {wording.percent(share)} of the variance of the score. "
    said = (most if math.isfinite(share) else "") + "Left by variance decomposition (fANOVA), right by a Gaussian "
    said += f"process (ARD, with its spread over refits); {found.trials:,} trials."
    rows = []
    for k in order:
        lengths = (wording.number(found.ard[k]), wording.number(found.ard_spread[k]))
        rows.append((Cell(found.paths[k], code=True), wording.percent(found.fanova[k]), *lengths))
    draw = partial(knob_plots.draw_relevance, found, names=[wording.short(name, 22) for name in names])
    table = Table("Numbers", ("knob", "share of variance", "1/length", "spread"), tuple(rows), (1, 2, 3))
    look = _wide(ROW_HEIGHT * len(names) + 66, (margin(names), 40, 14, 12))
    yield Figure("relevance", "How much each knob matters", said, draw, table, **look)


def _asked(study: Study, found: Marginal) -> tuple[float, float]:
    """Where on the axis the requested range begins and ends."""
    path = found.axis.path
    if not found.axis.numeric or path not in study.asked.paths or not study.asked[path].numeric:
        return 0.0, 1.0
    asked: Any = study.asked[path].scale
    now: Any = study.space[path].scale
    low, high = places_of(study.space[path], (asked.low, asked.high), found.axis)
    return float(low) if asked.low > now.low else 0.0, float(high) if asked.high < now.high else 1.0


def marginals_of(study: Study, found: Relevance | None) -> list[Marginal]:
    """The knobs that took more than one value, those that matter most first."""
    weight = {} if found is None else dict(zip(found.paths, np.nan_to_num(found.fanova, nan=-1.0), strict=True))
    varied = []
    for path in study.space.paths:
        values = {str(trial.values[path]) for trial in study.searched if path in trial.values}
        if len(values) > 1:
            varied.append(path)
    varied.sort(key=lambda path: -weight.get(path, 0.0))
    return [marginal(study.space, study.searched, path) for path in varied]


def _knob_words(found: Marginal, asked: tuple[float, float], scale: ScoreScale) -> str:
    place = int(np.nanargmin(found.scores))
    said = f"Best at {sortable_setting(found.values[place])}: {scale.say(found.scores[place])}"
    said += ", with mean and minimum over everything else."
    bad = int(found.failed.sum())
    said += f" Crosses: {bad:,} without a model." if bad else ""
    said += f" {SHOWN_DOTS:,} of {len(found.scores):,} dots are shown." if len(found.scores) > SHOWN_DOTS else ""
    said += " Shaded: added to the requested range." if asked != (0.0, 1.0) else ""
    return said


def knob_figures(study: Study, found: Sequence[Marginal]) -> Iterator[Figure]:
    """The score against each knob (row E11)."""
    scale, short, best = study.scale, short_path_names(study), _best_searched(study)
    for one in found[:_SHOWN_KNOBS]:
        if np.isfinite(one.scores).sum() < LEAST_TRIALS:
            continue
        name, asked = short[one.axis.path], _asked(study, one)
        rows = tuple(
            (knob_plots.value_name(label), f"{int(n):,}", f"{int(bad):,}", scale.say(mean), scale.say(low))
            for label, n, bad, mean, low in zip(
                one.axis.labels, one.count, one.failed, one.mean, one.minimum, strict=True
            )
        )
        draw = partial(knob_plots.draw_one_knob, one, name=name, asked=asked, best=best, scale=scale)
        table = Table("Numbers", (name, "trials", "without a model", "mean", "minimum"), rows, (1, 2, 3, 4))
        place, said = f"knob-{one.axis.path.replace('.', '-')}", _knob_words(one, asked, scale)
        yield Figure(place, name, said, draw, table)


def _best_searched(study: Study) -> int | None:
    found = min((t for t in study.searched if t.ok), key=lambda t: (t.score, t.loss, t.number), default=None)
    return None if found is None else found.number


def pair_figures(study: Study, found: Sequence[Marginal]) -> Iterator[Figure]:
    """The two knobs that matter most, together: by minimum and by mean."""
    usable = [one for one in found if np.isfinite(one.scores).sum() >= 3 * LEAST_TRIALS]
    if len(usable) < 2:
        return
    first, second = usable[0].axis.path, usable[1].axis.path
    data, scale, short = pair(study.space, study.searched, first, second), study.scale, short_path_names(study)
    names = short[first], short[second]
    left = margin([wording.short(knob_plots.value_name(text), 10) for text in data.second.tick_labels])
    for of, title in (("minimum", "at their best"), ("mean", "on average")):
        values = getattr(data, of)
        rows = tuple(
            (knob_plots.value_name(label), *(scale.say(value) if math.isfinite(value) else "" for value in line))
            for label, line in zip(data.first.labels, values, strict=True)
        )
        said = f"The darker a cell, the lower the {of} over all other knobs. Dots are trials, the ring is the best"
        said += ", crosses have no model." if int(data.failed.sum()) else "."
        draw = partial(knob_plots.draw_two_knobs, data, of=of, names=names, best=_best_searched(study))
        header = (f"{names[0]} \\ {names[1]}", *map(knob_plots.value_name, data.second.labels))
        table = Table("Numbers", header, rows, tuple(range(1, len(header))))
        title = f"{names[0]} and {names[1]}, {title}"
        yield Figure(f"pair-{of}", title, said, draw, table, height=300, margins=(left, 40, 12, 26))


def parallel_figures(study: Study, found: Sequence[Marginal]) -> Iterator[Figure]:
    """Every trial across every knob at once, or across those that matter most where there are many."""
    trials = study.searched
    if sum(trial.ok for trial in trials) < LEAST_TRIALS or not found:
        return
    chosen = [one.axis.path for one in found[:_SHOWN_AXES]]
    data = parallel_coordinates(study.space.only(chosen), trials)
    short, scale = {path: name for path, name in short_path_names(study).items() if path in chosen}, study.scale
    names = [short[axis.path] for axis in data.axes]
    shown = len(knob_plots.shown_lines(data))
    order = sorted((trial for trial in trials if trial.ok), key=lambda t: (t.score, t.loss, t.number))[:20]
    rows = []
    for t in order:
        values = (sortable_setting(t.values[p]) if p in t.values else wording.NOTHING for p in short)
        rows.append((str(t.number), scale.say(t.score), *values))
    said = "Each line is a trial; the best tenth is vermilion, the best of all thick, trials without a model dotted."
    said += f" The {len(chosen)} of {len(found)} knobs that matter most." if len(chosen) < len(found) else ""
    said += f" {shown:,} of {len(trials):,} are shown, including the best." if shown < len(trials) else ""
    draw = partial(knob_plots.draw_parallel, data, names=names)
    table = Table("The best 20", ("trial", scale.name, *short.values()), tuple(rows), tuple(range(2 + len(short))))
    look = _wide(330, (46, 10, 46, 34), max(760, 112 * (len(names) + 1)))
    yield Figure("parallel", "All knobs at once", said, draw, table, **look)


def failure_figures(study: Study, found: Sequence[Marginal]) -> Iterator[Figure]:
    """Where trials went wrong, knob by knob."""
    bad, good = sum(int(one.failed.sum()) for one in found), sum(int(one.count.sum()) for one in found)
    if not (bad and good):  # if every trial failed, no region stands out
        return
    short, shown = short_path_names(study), found[:_SHOWN_KNOBS]
    names = [short[one.axis.path] for one in shown]
    rows = tuple(
        (Cell(name, code=True), knob_plots.value_name(label), f"{int(n + bad):,}", f"{int(bad):,}")
        for name, one in zip(names, shown, strict=True)
        for label, n, bad in zip(one.axis.labels, one.count, one.failed, strict=True)
    )
    said = "The number of trials without a model in each section of a knob's range: the darker, the larger their share."
    draw = partial(knob_plots.draw_failures, shown, names=names)
    table = Table("Numbers", ("knob", "value", "trials", "without a model"), rows, (2, 3))
    look = _wide(50 * len(shown) + 16, (margin(names), 6, 12, 10))
    yield Figure("failures", "Where trials went wrong", said, draw, table, **look)
