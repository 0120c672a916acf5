"""Figures of a study: each function selects the data, writes the caption and adds a table."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...evaluation.run_figure_data import Curve
from ...evaluation.trials.cost import pareto_front
from ...evaluation.trials.expected_best import best_so_far, expected_best, scores_of
from ...records.study import Study
from ...records.study_conclusions import CommitteeSummary
from ...records.trial import Trial
from .. import wording
from ..blocks import Cell, Figure, Row, Table
from ..plots import knob_plots, study_plots
from ..plots.study_plots import EstimateLine
from .record_values import some_rows

_SHOWN_CURVES = 300
_SHOWN_ROWS = 60
ROW_HEIGHT = 24
LEAST_TRIALS = 4  # with a score; fewer show nothing about a knob


def comparable(study: Study) -> bool:
    """Whether validation scores and the metric of the study are the same quantity, so that one axis can hold both."""
    return study.task == "inputs" or study.scale.is_in(study.metric)


def sortable_setting(value: Any) -> str:
    """The value of a knob in a table: four digits, and never a form that does not sort."""
    return f"{value:.4g}" if isinstance(value, float) else knob_plots.value_name(wording.setting(value))


def short_path_names(study: Study) -> dict[str, str]:
    """Each path with its short name."""
    paths = list(dict.fromkeys((*study.space.paths, *(path for trial in study.trials for path in trial.values))))
    return dict(zip(paths, knob_plots.short_paths(paths), strict=True))


def margin(names: Sequence[str], longest: int = 22) -> int:
    """Room for names at the left of a picture."""
    return 26 + round(6.6 * min(longest, max([len(name) for name in names] or [1])))


def trial_curve_figures(study: Study) -> Iterator[Figure]:
    """The validation curves of all trials."""
    scale = study.scale
    kept: list[tuple[Trial, Curve]] = []
    for trial in study.searched:
        ages, scores = (np.array(trial.curve.get(name) or [], dtype=float) for name in ("age_examples", "valid_score"))
        there = np.isfinite(scores) if len(ages) == len(scores) else np.zeros(0, dtype=bool)
        if there.any():
            kept.append((trial, Curve(ages[there], scores[there])))
    if not kept:
        return
    best = min((trial for trial, _ in kept if trial.ok), key=lambda t: (t.score, t.loss, t.number), default=None)
    step = math.ceil(len(kept) / _SHOWN_CURVES)
    shown = [pair for place, pair in enumerate(kept) if place % step == 0 or pair[0] is best]
    place = next((i for i, (trial, _) in enumerate(shown) if trial is best), None)
    rest = " before borders, refinement and finals" if len(study.searched) < len(study.trials) else ""
    said = f"The validation curve of each of {len(kept):,} trials{rest}"
    said += f" ({len(shown):,} shown)" if len(shown) < len(kept) else ""
    if best is not None:
        said += f"; trial {best.number} was best, {scale.say(best.score)} at age {wording.whole(best.best_age)}"
    rows = tuple(
        (str(trial.number), wording.whole(trial.age_examples), wording.whole(trial.best_age), scale.say(trial.score))
        for trial, _ in shown[:_SHOWN_ROWS]
    )
    draw = partial(study_plots.draw_trial_curves, [curve for _, curve in shown], best=place, scale=scale)
    table = Table("Numbers", ("trial", "age at the end", "best at age", scale.name), rows, (0, 1, 2, 3))
    yield Figure("trial-curves", "Every trial during training", f"{said}.", draw, table)


def progress_figures(study: Study) -> Iterator[Figure]:
    """The expected best of N trials beside the best so far (row E10)."""
    trials, scale = study.searched, study.scale
    if not any(trial.ok for trial in trials):
        return
    scores = scores_of(trials, study.chance)
    so_far = best_so_far(scores)
    curve = expected_best(scores, study.chance) if study.independent else None
    if curve is not None:
        said = "The best of N trials: mean and standard deviation over all subsets of N trials. Beside it the best "
        said += "so far, in the order they ran."
        rows = []
        for i in some_rows(len(curve.sizes)):
            n, mean, deviation = int(curve.sizes[i]), curve.mean[i], curve.deviation[i]
            between = f"{scale.say(max(mean - deviation, 0))} – {scale.say(mean + deviation)}"
            rows.append((f"{n:,}", scale.say(mean), between, scale.say(so_far[n - 1])))
        header = ("trials", "expected best", "± one deviation", "best so far")
        table = Table("Numbers", header, tuple(rows), (0, 1, 2, 3))
    else:
        said = "The best so far, in the order the trials ran. They are not independent draws, so there is no "
        said += "expected best of N."
        few = tuple((f"{i + 1:,}", scale.say(so_far[i])) for i in some_rows(len(so_far)))
        table = Table("Numbers", ("trials", "best so far"), few, (0, 1))
    draw = partial(study_plots.draw_expected_best, curve, best_so_far=so_far, scale=scale)
    yield Figure("progress", "The best of N trials" if curve is not None else "The best so far", said, draw, table)


def cost_figures(study: Study) -> Iterator[Figure]:
    """Error against the cost of training and of predicting (row E15)."""
    scale = study.scale
    for cost, title, unit in (
        ("seconds", "Error against time", "trained in"),
        ("parameters", "Error against size", "parameters"),
    ):
        usable = [t for t in study.trials if t.ok and getattr(t, cost) > 0]
        if len(usable) < 2 or len({getattr(t, cost) for t in usable}) < 2:
            continue
        data = pareto_front(usable, cost)
        front = [(int(data.numbers[i]), float(data.costs[i]), float(data.scores[i])) for i in data.front]
        write = wording.duration if cost == "seconds" else wording.whole
        cheap, best = front[0], front[-1]
        of = " parameters" if cost == "parameters" else ""
        said = f"From {scale.say(cheap[2])} ({write(cheap[1])}{of}) to {scale.say(best[2])} ({write(best[1])}{of}): "
        said += f"{len(front)} of {len(usable):,} trials are Pareto-optimal."
        rows = tuple((str(number), write(value), scale.say(score)) for number, value, score in front[:_SHOWN_ROWS])
        draw = partial(study_plots.draw_pareto, data, scale=scale)
        yield Figure(f"cost-{cost}", title, said, draw, Table("Numbers", ("trial", unit, scale.name), rows, (0, 1, 2)))


def batch_figures(study: Study) -> Iterator[Figure]:
    """The U-curve of the batch size (row B4)."""
    found = study.analysis.batch_size
    if found is None or len(found.table) < 2:
        return
    rows = []
    for one in found.table:
        costs = (wording.number(one.seconds), wording.whole(one.examples))
        rows.append((str(one.size), *costs, "yes" if one.reached else "no"))
    said = f"{wording.sentence(found.sentence)} The cost of reaching the same score with each size."
    if not all(one.reached for one in found.table):
        said += " Hollow: not reached, so the true value is higher."
    draw = partial(study_plots.draw_batch_sizes, found.table, recommended=found.recommended)
    table = Table("Numbers", ("batch size", "seconds", "examples", "reached"), tuple(rows), (0, 1, 2))
    look: Any = {"width": 700, "height": 240, "margins": (46, 40, 12, 26), "wide": True}
    yield Figure("batch-size", "Batch size", said, draw, table, **look)


def short_run_figures(study: Study) -> Iterator[Figure]:
    """How far short runs can be trusted (row E15)."""
    found = study.analysis.short_runs
    pairs = () if found is None else zip(found.ages, found.correlations, strict=True)
    points = [(age, one) for age, one in pairs if math.isfinite(one.value)]
    if found is None or not points:
        return
    rows = tuple(
        (wording.whole(age), wording.number(one.value), f"{wording.number(one.low)} – {wording.number(one.high)}")
        for age, one in points
    )
    said = f"{wording.sentence(found.sentence)} At 1, they would choose the same trial. Bars: 95\u202f% confidence "
    said += "intervals."
    draw = partial(study_plots.draw_short_runs, points)
    table = Table("Numbers", ("age", "rank correlation", "95 % confidence interval"), rows, (0, 1, 2))
    yield Figure("short-runs", "Do short runs rank trials like full runs?", said, draw, table)


def seed_figures(study: Study) -> Iterator[Figure]:
    """The distribution over random seeds at one recipe (row D13)."""
    found, scale = study.analysis.seeds, study.scale
    ordered = [] if found is None else sorted(score for score in found.scores if math.isfinite(score))
    if len(ordered) < 2:
        return
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    rows = tuple((wording.short_percent(level), scale.say(float(np.quantile(ordered, level)))) for level in levels)
    said = f"{len(ordered):,} seeds: from {scale.say(ordered[0])} to {scale.say(ordered[-1])}. Differences within this "
    said += "spread are chance."
    draw = partial(study_plots.draw_seeds, ordered, scale=scale)
    table = Table("Numbers", ("quantile", scale.name), rows, (1,))
    yield Figure("seeds", "The same recipe with other seeds", said, draw, table)


def _estimate_lines(study: Study) -> Iterator[EstimateLine]:
    winner, found, shown = study.winner, study.estimates, study.scale.shown
    if comparable(study) and winner is not None:
        yield EstimateLine("validation, best trial", shown(winner.score))
        if winner.corrected is not None:
            low, high = winner.corrected.interval
            yield EstimateLine("corrected for selection", shown(winner.corrected.score), shown(low), shown(high))
        if found.weighted is not None:
            mean, spread = found.weighted.mean, 1.96 * found.weighted.deviation
            ends = shown(max(mean - spread, 0.0)), shown(mean + spread)
            yield EstimateLine("test, contenders weighted", shown(mean), *ends, part="test")
    if study.committee is not None and study.committee.honest is not None:
        final = found.test is None and found.nested is None
        yield EstimateLine("ensemble, held-out folds", study.committee.honest, final=final)
    if found.nested is not None:
        final = found.test is None
        yield EstimateLine("nested cross-validation", found.nested.mean, *found.nested.interval, "test", final)
    if found.test is not None:
        several = study.committee is not None and study.committee.members > 1
        name = "test, committee" if several else "test"
        yield EstimateLine(name, found.test, *found.test_interval, part="test", final=True)


def estimate_figures(study: Study) -> Iterator[Figure]:
    """From the score that won to the error to quote (row E2)."""
    lines = [line for line in _estimate_lines(study) if math.isfinite(line.value)]
    if not lines:
        return
    metric, corrected = study.metric, study.winner.corrected if study.winner is not None else None
    said = "The winner was chosen by its validation score, which is therefore optimistic"
    said += f", by about {study.scale.say(corrected.optimism)}" if corrected and study.scale.is_share else ""
    said += ". Filled: the number to report. Bars: 95\u202f% confidence intervals."
    rows = []
    for line in lines:
        value, low, high = (wording.in_metric(metric, one) for one in (line.value, line.low, line.high))
        rows.append((line.name, value, f"{low} – {high}" if math.isfinite(line.low) else wording.NOTHING))
    draw = partial(study_plots.draw_estimates, lines, metric=metric)
    table = Table("Numbers", ("", wording.metric_name(metric), "95 % confidence interval"), tuple(rows), (1, 2))
    tall, margins = 30 * len(lines) + 70, (margin([line.name for line in lines], 26), 40, 14, 12)
    yield Figure("estimates", "Error estimates", said, draw, table, height=tall, margins=margins)


def _weights(study: Study, found: CommitteeSummary) -> Iterator[Figure]:
    """Which trials answer, and how much each counts."""
    weights = found.weights
    if not weights:
        return
    trials = {trial.number: trial for trial in study.trials}
    scale, metric = study.scale, study.metric
    ordered = sorted(weights, key=lambda number: -weights[number])[:_SHOWN_ROWS]
    lines: tuple[Row, ...] = tuple(
        (
            f"trial {number}",
            wording.percent(weights[number]),
            scale.say(trials[number].score) if number in trials else wording.NOTHING,
            _values(trials[number].values, study) if number in trials else "",
        )
        for number in ordered
    )
    said = f"The ensemble averages {len(weights)} of {found.trials} trials by weight."
    if found.honest is not None:
        said += f" On held-out rows: {wording.in_metric(metric, found.honest)}; the best trial "
        said += f"alone {wording.in_metric(metric, found.best_trial)}."
    named = {f"trial {number}": weights[number] for number in ordered}
    draw = partial(study_plots.draw_weights, named)
    table = Table("Numbers", ("", "weight", scale.name, "values"), lines, (1, 2))
    tall, margins = ROW_HEIGHT * len(ordered) + 66, (margin(list(named), 26), 40, 14, 12)
    yield Figure("weights", "The ensemble", said, draw, table, height=tall, margins=margins)


def committee_figures(study: Study) -> Iterator[Figure]:
    """The committee against its members, and the finalists it was chosen from."""
    found, metric, scale = study.committee, study.metric, study.scale
    if found is None:
        return
    tests = [value for value in found.member_tests if math.isfinite(value)]
    together, mean = study.estimates.test, found.mean_member_test
    if len(tests) > 1 and together is not None:
        rows: tuple[Row, ...] = (
            *((f"member {i + 1}", wording.in_metric(metric, value)) for i, value in enumerate(tests[:_SHOWN_ROWS])),
            ("their mean", wording.in_metric(metric, mean)),
            (Cell("committee", strong=True), wording.in_metric(metric, together)),
        )
        how = {
            "bagging": ", each on its own draw of the examples",
            "inputs": ", each on its own inputs",
            "contenders": " of the best trials",
            "ensemble": " of different trials, by weight",
        }
        said = f"{len(tests)} networks{how.get(found.kind, ' of one setting')}: "
        said += f"{wording.in_metric(metric, mean)} on average, {wording.in_metric(metric, together)} together."
        draw = partial(study_plots.draw_committee, tests, together=together, mean=mean, metric=metric)
        table = Table("Numbers", ("", f"test {wording.metric_name(metric)}"), rows, (1,))
        title, margins = "The committee against its members", (86, 40, 16, 12)
        yield Figure("committee", title, said, draw, table, height=150, margins=margins)
    yield from _weights(study, found)
    settings = found.finalists
    if settings:
        lines: list[Row] = []
        for one in settings:
            lines.append((f"trial {one.number}", scale.say(one.mean), str(len(one.scores)), _values(one.values, study)))
        count = len(settings[0].scores)
        which = f"{len(settings)} best settings" if len(settings) > 1 else "best setting"
        said = f"The {which} retrained with {count} seeds each: a dot per seed, a bar at the mean."
        said += f" The committee is from trial {found.setting}."
        draw = partial(study_plots.draw_finalists, settings, scale=scale)
        table = Table("Numbers", ("setting", "mean", "seeds", "values"), tuple(lines), (1, 2))
        margins = (margin([str(one.number) for one in settings]) + 40, 40, 14, 12)
        tall = ROW_HEIGHT * len(settings) + 66
        yield Figure("finalists", "The finalists with other seeds", said, draw, table, height=tall, margins=margins)


def _values(values: dict[str, Any], study: Study) -> str:
    short = short_path_names(study)
    return ", ".join(f"{short.get(path, path)} {sortable_setting(value)}" for path, value in values.items())
