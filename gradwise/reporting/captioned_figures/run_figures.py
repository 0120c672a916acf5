"""Figures of a record: each function selects the data, writes the caption and adds a table."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from ...evaluation.run_figure_data import (
    Confusion,
    LearningCurves,
    best_interval,
    class_curves,
    column,
    confusion,
    learning_curves,
    optimiser_curves,
    residuals,
    worst_error_rates,
)
from ...records.evidence.fit_evidence import Baseline, FitEvidence, Profile
from ...records.fit import Fit
from .. import wording
from ..blocks import Cell, Figure, Row, Table
from ..plots import run_plots
from ..plots.style import LETTER
from .record_values import some_rows

_SHOWN_ROWS = 60  # of a table that would have more; the files of the run hold all
_SHOWN_RATES = 20
_SHOWN_PAIRS = 15
_SHOWN_OUTPUTS = 6
_SHOWN_DOTS = 1000
_SHOWN_WORST = 8
_ROW_HEIGHT = 24


def _history_table(record: Fit, curves: LearningCurves) -> Table:
    history = record.history
    age, epoch = column(history, "age_examples"), column(history, "epoch")
    scale = curves.scale
    train, valid = (scale.on(column(history, f"{part}_{curves.quantity}")) for part in ("train", "valid"))
    best = best_interval(record)
    picked = some_rows(len(age), best)
    rows = tuple(
        (
            wording.whole(age[i]),
            wording.number(epoch[i]),
            scale.write(train[i]),
            scale.write(valid[i]),
            "kept" if i == best else "",
        )
        for i in picked
    )
    left_out = len(age) - len(picked)
    note = "Training values are measured during training, before each update."
    note += f" {left_out:,} more intervals are in `history.parquet`." if left_out else ""
    return Table("Numbers", ("age", "epoch", "training", "validation", ""), rows, (0, 1, 2, 3), note)


def _curve_words(curves: LearningCurves) -> str:
    """What the picture shows, in a sentence or two."""
    name, write = "loss" if curves.scale.kind == "loss" else "error", curves.scale.write
    if curves.best is None or len(curves.valid) == 0:
        last = curves.train if len(curves.train) else curves.valid
        return f"The {name} was last {write(last.value[-1])}."
    age, value = curves.best
    best, at = write(value), f"at age {wording.whole(age)}"
    if len(curves.valid) == 1:
        said = f"Validation {name} was measured once, {at}: {best}"
    elif curves.quantity != "score" or value > curves.valid.value.min():
        said = f"Validation {name} was {best} {at}, where the parameters were saved"
    elif write(curves.valid.value[0]) == best:
        said = f"Validation {name} was best, {best}, {at}"
    else:
        said = f"Validation {name} went from {write(curves.valid.value[0])} to its best, {best}, {at}"
    there = curves.train.value[curves.train.age == age]
    beside = f"; training {name} there {write(there[0])}" if len(there) else ""
    unit = " The unit is the target's standard deviation: always predicting the mean would give about 1."
    if curves.scale.kind == "relative":
        unit = " It is relative to the best constant, which makes 1; errors of numbers are squared."
    return f"{said}{beside}." + (unit if curves.scale.kind in ("squared", "absolute", "relative") else "")


def _score_title(record: Fit) -> str:
    """The score that chose the network, if it is not an error: without a target, the criterion's own measure."""
    name = wording.metric_name(record.metric) if record.task == "inputs" else "score"
    return name[:1].upper() + name[1:]


def run_curve_figures(record: Fit) -> Iterator[Figure]:
    """Score and loss against age."""
    for quantity, title in (("score", "Error during training"), ("loss", "Loss during training")):
        curves = learning_curves(record, quantity)
        if len(curves.train) or len(curves.valid):
            own = curves.scale.kind == "loss" and quantity != "loss"
            title = f"{_score_title(record)} during training" if own else title
            draw, table = partial(run_plots.draw_learning_curves, curves), _history_table(record, curves)
            yield Figure(quantity, title, _curve_words(curves), draw, table)


def optimiser_figures(record: Fit) -> Iterator[Figure]:
    """What the optimiser did, where it changed at all."""
    titles = {"learning_rate": "Learning rate", "gradient_norm": "Size of the gradient"}
    for name, curve in optimiser_curves(record).items():
        if len(curve) < 2 or curve.value.min() == curve.value.max():
            continue
        rows = tuple((wording.whole(curve.age[i]), wording.number(curve.value[i])) for i in some_rows(len(curve)))
        title, first, last = titles[name], wording.number(curve.value[0]), wording.number(curve.value[-1])
        draw = partial(run_plots.draw_one_curve, curve, name=title.lower())
        table = Table("Numbers", ("age", title.lower()), rows, (0, 1))
        said = f"From {first} at the start to {last} at the end."
        yield Figure(name.replace("_", "-"), title, said, draw, table, height=210)


def _matrix_table(data: Confusion) -> Table:
    if run_plots.is_numbered(data):
        names = wording.short_names(data.classes, 24)
        rows = tuple(
            (name, *(wording.whole(count) for count in counts)) for name, counts in zip(names, data.counts, strict=True)
        )
        return Table("Numbers", ("true \\ predicted", *names), rows, tuple(range(1, len(names) + 1)))
    pairs = data.pairs(_SHOWN_ROWS)
    rows = tuple((pair.true, pair.predicted, wording.whole(pair.errors), wording.whole(pair.count)) for pair in pairs)
    return Table("Numbers", ("true", "predicted", "examples", "of"), rows, (2, 3))


def confusion_figures(evidence: FitEvidence) -> Iterator[Figure]:
    """The matrix if its cells are large enough; the commonest confusions if its numbers are not."""
    data = confusion(evidence)
    size = len(data.classes)
    if not size:
        return
    wrong = data.counts.sum() - np.trace(data.counts)
    common = data.pairs(_SHOWN_PAIRS)
    said = f"{wording.whole(wrong)} of {wording.whole(data.counts.sum())} test examples were misclassified."
    if common:
        first = common[0]
        said += f" Most often {wording.short(first.true, 40)} for {wording.short(first.predicted, 40)}: "
        said += f"{first.errors} of {first.count}."
    if size <= run_plots.MAPPED_CLASSES:
        names = run_plots.class_names(data)
        edge = 30 + round(LETTER * max(map(len, names)))
        side = min(330, 60 * size + 60) if size <= 12 else min(660, 24 * size) if run_plots.is_numbered(data) else 480
        below = edge + 12 if run_plots.is_upright(names, side / size) else 44
        yield Figure(
            "confusion",
            "Confusion matrix",
            said + " Blue: right. Vermilion: confused.",
            partial(run_plots.draw_confusion, data),
            _matrix_table(data),
            width=edge + side + 10,
            height=below + round(side * 0.92) + 26,
            margins=(edge, below, 10, 26),
            wide=size > 12,
        )
    if not run_plots.is_numbered(data) and common:
        also = "" if size <= 100 else f" {said}"
        said = f"The {len(common)} commonest confusions, true class → predicted class.{also}"
        draw, tall = partial(run_plots.draw_pairs, common), _ROW_HEIGHT * len(common) + 52
        margins = (14 + round(6.2 * max(map(len, run_plots.pair_names(common)))), 40, 12, 12)
        yield Figure("pairs", "Commonest confusions", said, draw, _matrix_table(data), height=tall, margins=margins)


def error_rate_figures(evidence: FitEvidence, overall: float | None) -> Iterator[Figure]:
    """The error of each class or label with its interval, worst first; `overall` is that of all together."""
    rates = worst_error_rates(evidence)
    if len(rates) < 2:
        return
    of = "label" if evidence.labels else "class"
    shown = rates[:_SHOWN_RATES]
    worst = shown[0]
    among = f" of its {wording.whole(worst.count)} examples" if of == "class" else ""
    many = f" The {len(shown)} worst of {len(rates):,} are shown." if len(shown) < len(rates) else ""
    rows: list[Row] = []
    for rate in rates[:300]:
        between = f"{wording.percent(rate.low)} – {wording.percent(rate.high)}"
        between = between if math.isfinite(rate.low) else wording.NOTHING
        counts = (wording.whole(rate.count), wording.whole(rate.errors))
        rows.append((rate.name, *counts, wording.percent(rate.rate), between))
    longest = min(18, max(len(wording.clean(rate.name)) for rate in shown))
    said = f"Highest for {of} {wording.short(worst.name, 40)}: {wording.percent(worst.rate)}{among}.{many}"
    draw = partial(run_plots.draw_rates, shown, overall=math.nan if overall is None else overall)
    header = (of, "examples", "errors", "error", "95 % confidence interval")
    table, margins = Table("Numbers", header, tuple(rows), (1, 2, 3, 4)), (26 + round(6.6 * longest), 40, 18, 26)
    tall = _ROW_HEIGHT * len(shown) + 66
    yield Figure("rates", f"Error of each {of}", said, draw, table, height=tall, margins=margins)


def class_curve_figures(record: Fit) -> Iterator[Figure]:
    """How the error and the loss of each class came about."""
    for quantity, name, title in (
        ("score", "class-curves", "Each class during training"),
        ("loss", "class-losses", "Loss of each class during training"),
    ):
        curves = class_curves(record, quantity)
        own = curves.scale.kind == "loss" and quantity == "score"  # the score is the loss: once is enough
        if own or not curves.worst or max(map(len, curves.curves)) <= 1:
            continue
        write = curves.scale.write
        rows = []
        for place, (label, curve) in enumerate(zip(curves.classes[:300], curves.curves, strict=False)):
            if len(curve):
                lowest, at = write(curve.value.min()), wording.whole(curve.age[int(curve.value.argmin())])
                learned = curves.train[place].value if curves.train else np.zeros(0)
                rows.append(
                    (label, lowest, at, write(curve.value[-1]), write(learned[-1]) if len(learned) else wording.NOTHING)
                )
        said = f"Validation {curves.scale.quantity} of every class; the highest at the saved parameters are named."
        said += " Thin: the same on the training set." if curves.train else ""
        header = ("class", "lowest", "at age", "at the end", "training at the end")
        table = Table("Numbers", header, tuple(rows), (1, 2, 3, 4))
        yield Figure(name, title, said, partial(run_plots.draw_class_curves, curves), table)


def reliability_figures(evidence: FitEvidence) -> Iterator[Figure]:
    """Whether the probabilities can be believed."""
    data = evidence.classes
    if not data.after.count:
        return
    rows = tuple(
        (state, wording.percent(confidence), wording.percent(accuracy), wording.whole(count))
        for state, bins in (("as trained", data.before), ("calibrated", data.after))
        for confidence, accuracy, count in zip(bins.confidence, bins.accuracy, bins.count, strict=True)
    )
    said = f"Confidence and accuracy differ by {wording.percent(data.before.error)} on average as trained, "
    said += f"{wording.percent(data.after.error)} after calibration"
    said += f" (temperature {wording.number(data.temperature)})." if math.isfinite(data.temperature) else "."
    table = Table("Numbers", ("", "confidence", "accuracy", "examples"), rows, (1, 2, 3))
    draw = partial(run_plots.draw_reliability, data)
    yield Figure("reliability", "Are the probabilities calibrated?", said, draw, table)


def residual_figures(evidence: FitEvidence) -> Iterator[Figure]:
    """Predictions against targets for each output, the least explained first; the errors too when there are few."""
    data = residuals(evidence)
    shown = data[:_SHOWN_OUTPUTS]
    for index, output in enumerate(shown):
        step = max(1, math.ceil(len(output.target) / _SHOWN_DOTS))
        few = type(output)(output.name, output.target[::step], output.prediction[::step], output.r2)
        name = wording.short(output.name, 40)
        rows = tuple(
            (wording.number(output.target[i]), wording.number(output.prediction[i]), wording.number(output.error[i]))
            for i in some_rows(len(output.target))
        )
        table = Table("Numbers (a sample)", ("true", "predicted", "difference"), rows, (0, 1, 2))
        said = f"On the dotted line a prediction is exact. R² {wording.number(output.r2)} on these "
        said += f"{len(few.target):,} test examples."
        if index == 0 and len(data) > len(shown):
            said += f" The {len(shown)} of {len(data)} outputs with the lowest R² are shown."
        title, draw = f"Predicted against true: {name}", partial(run_plots.draw_predicted, few)
        yield Figure(f"predicted-{index}", title, said, draw, table, height=330)
        if len(data) <= 2:
            spread = wording.number(float(np.median(np.abs(output.error))))
            said = f"Half of the predictions are within {spread} of the target. A slope or a funnel here is structure "
            said += "that the network has not learned."
            draw = partial(run_plots.draw_errors, few)
            yield Figure(f"errors-{index}", f"Residuals: {name}", said, draw, table, height=330)


def fold_figures(record: Fit) -> Iterator[Figure]:
    """The k-fold estimate, where one was made."""
    data = record.evidence.estimate
    if data is None or not any(math.isfinite(value) for value in data.values):
        return
    metric = record.metric
    name = wording.metric_name(metric)
    mean, low, high = (wording.in_metric(metric, value) for value in (data.mean, *data.interval))
    interval = f" (95 % confidence interval {low} – {high})" if math.isfinite(data.interval[0]) else ""
    rows = tuple((str(i + 1), wording.in_metric(metric, value)) for i, value in enumerate(data.values))
    title = f"Estimate by {len(data.values)}-fold cross-validation"
    said = f"Mean {name} {mean}{interval}; each dot is one fold."
    draw, table = partial(run_plots.draw_folds, data, metric=metric), Table("Numbers", ("fold", name), rows, (0, 1))
    yield Figure("folds", title, said, draw, table, height=130, margins=(20, 40, 16, 12))


def profile_figures(found: Profile | None) -> Iterator[Figure]:
    """The phases, each beginning where the one before it ended."""
    if found is None or not found.phases:
        return
    largest = max(found.phases, key=lambda one: one.seconds)
    said = (
        f"{wording.duration(found.seconds)} in all, up to the writing of this page: {largest.name} took most, "
        f"{wording.duration(largest.seconds)} ({wording.percent(found.share(largest))}). What is compiled belongs to "
        "compiling, wherever it happens. The bars follow one another, so together they are the whole."
    )
    table = Table("Numbers", wording.PROFILE_HEADER, tuple(wording.profile_rows(found)), (1, 2))
    longest = max(len(one.name) for one in found.phases)
    margins = (26 + round(6.6 * longest), 40, 56, 12)
    height = _ROW_HEIGHT * len(found.phases) + 66
    draw = partial(run_plots.draw_profile, found)
    yield Figure("profile", "Seconds of each phase", said, draw, table, height=height, margins=margins)


def metric_tables(record: Fit) -> tuple[Table, ...]:
    """Every metric of every part; of several kinds of targets a table for each of them."""
    parts = [part for part in ("train", "valid", "test") if record.metrics.get(part)]
    names = list(dict.fromkeys(name for part in parts for name in record.metrics[part]))
    owners = {name: name.rpartition(".")[0] if record.task == "several" else "" for name in names}
    titles = {"train": "training", "valid": "validation", "test": "test"}
    found = []
    for owner in dict.fromkeys(owners.values()):
        rows: tuple[Row, ...] = tuple(
            (
                wording.metric_name(name.removeprefix(f"{owner}.")) + (" (chosen)" if name == record.metric else ""),
                *(wording.in_metric(name, record.metrics[part].get(name)) for part in parts),
            )
            for name in names
            if owners[name] == owner
        )
        note = "" if owner else wording.optimism(record.metric, record.metrics, record.data.judged_on)
        title = f"Every metric of {wording.short(owner, 80)}" if owner else "Every metric"
        found.append(Table(title, ("", *(titles[part] for part in parts)), rows, tuple(range(1, len(parts) + 1)), note))
    return tuple(found)


def baseline_table(evidence: FitEvidence, metric: str, own: float | None, members: int = 1) -> Table | None:
    """Simple models on the same training and test rows; what they gain is of rows compared one by one."""
    if not evidence.baselines:
        return None

    def gain(baseline: Baseline) -> str:
        low, high = baseline.gain_interval
        return f"{wording.in_metric(metric, low)} – {wording.in_metric(metric, high)}" if math.isfinite(low) else ""

    rows: list[Row] = [
        (one.name, wording.whole(one.rows), wording.in_metric(metric, one.metrics[metric]), gain(one))
        for one in evidence.baselines
    ]
    rows.append((Cell(wording.model_name(members), strong=True), "", wording.in_metric(metric, own), ""))
    header = ("", "training rows", f"test {wording.metric_name(metric)}", "better by, 99 % confidence interval")
    note = "Fixed settings, nothing tuned. Below 0 a model is worse than the network."
    return Table("Simpler models on the same test rows", header, tuple(rows), (1, 2, 3), note)


def residual_table(evidence: FitEvidence) -> Table | None:
    """Quantiles of the errors: one column for each output."""
    found = evidence.numbers
    names = found.names[:_SHOWN_OUTPUTS]
    rows: tuple[Row, ...] = tuple(
        (wording.short_percent(one.level), *(wording.number(value) for value in one.errors[: len(names)]))
        for one in found.quantiles
    )
    header = ("quantile", *names)
    title = "Quantiles of the errors (predicted − true)"
    return Table(title, header, rows, tuple(range(1, len(header)))) if rows else None


def worst_table(evidence: FitEvidence) -> Table | None:
    """The test examples that went worst: rows worth a look, since some of them are wrongly labelled."""
    classes, numbers = evidence.classes.worst[:_SHOWN_WORST], evidence.numbers.worst[:_SHOWN_WORST]

    def several(values: tuple[float, ...]) -> str:
        return ", ".join(map(wording.number, values))

    header: tuple[str, ...] = ("row", "true", "predicted", "error")
    right: tuple[int, ...] = (0, 1, 2, 3)
    rows: tuple[Row, ...]
    if numbers:
        wrong = "wrongly recorded"
        rows = tuple(
            (str(one.row), several(one.true), several(one.predicted), wording.number(one.error)) for one in numbers
        )
    else:
        header, right, wrong = ("row", "true", "predicted", "probability", "loss"), (0, 3, 4), "wrongly labelled"
        shown = [(wording.clean(one.true), wording.clean(one.predicted)) for one in classes]
        rows = tuple(
            (str(one.row), *names, wording.percent(one.probability), wording.number(one.loss))
            for one, names in zip(classes, shown, strict=True)
        )
    note = f"Rows are counted from 0 in the data, or in the official test set. Check them: some may be {wrong}."
    return Table("The test examples with the largest errors", header, rows, right, note) if rows else None
