"""The report of a run, a study or a check: result, figures and tables, then the recipe and how to repeat it.

    report(record)                 HTML text
    write_report(folder)           `report.html` in the folder of a run, of a study or of a check

The result comes first, then what to do next, then how it was obtained.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation.run_figure_data import best_interval, column
from ..records.check import FILE as CHECK_FILE
from ..records.check import Checked, read_checked
from ..records.fit import Fit, read_fit
from ..records.score_scale import ScoreScale, confidence_interval
from ..records.study import Study
from ..records.study_files import is_study, read_study
from ..runtime.errors import WorkError
from ..runtime.files import write_whole
from ..specs.paths import knobs
from . import wording
from .blocks import Block, Items, Notice, Page, Prose, Section, Verdict
from .captioned_figures import (
    example_figures,
    feature_figures,
    importance_figures,
    layerwise_figures,
    run_figures,
    signal_flow_figures,
    threshold_figures,
)
from .html import render
from .pages.check_page import check_page, check_verdict
from .pages.provenance import chapter_row, data_blocks, recipe_blocks, repeat_blocks
from .pages.study_page import finding_blocks, study_page, study_verdict


def _measured(record: Fit) -> tuple[str, float]:
    """The least biased set that was measured (test, then validation), and the chosen metric on it."""
    for part in ("test", "valid", "train"):
        value = record.metrics.get(part, {}).get(record.metric)
        if value is not None and math.isfinite(value):
            return part, float(value)
    return "", math.nan


def _best_or_kept(record: Fit, interval: int) -> str:
    """The word for the interval whose parameters were kept: a rule may prefer a later one to the best score."""
    scores = column(record.history, "valid_score")
    return "kept" if np.any(scores < scores[interval]) else "best"


def _fit_verdict(record: Fit) -> Verdict:
    part, value = _measured(record)
    trained_on = part == "train" or (part == "valid" and record.data.judged_on == "train")
    name = "Training" if trained_on else {"test": "Test", "valid": "Validation"}.get(part, "")
    reached = f"{name} {wording.metric_name(record.metric)} {wording.in_metric(record.metric, value)}"
    ends = confidence_interval(record.metric, record.test_interval) if part == "test" else ""
    on = wording.tested_on(record.data) if ends else ""
    best = best_interval(record)
    age = column(record.history, "age_examples")
    kept = f", {_best_or_kept(record, best)} at {wording.whole(age[best])}" if best is not None else ""
    story = f"{str(record.outcome).capitalize()}{kept}, {wording.duration(record.seconds)}."
    if record.outcome.failed:
        before = f"The best parameters before that: {reached[0].lower()}{reached[1:]}" if part else ""
        return Verdict("The run diverged", f"{before}{', ' if before and ends else ''}{ends}", story)
    if not part:
        return Verdict("Nothing could be measured", "", story)
    r2 = record.metrics[part].get("r2")
    beside = f"R² {wording.number(r2)}" if record.metric != "r2" and r2 is not None else ""
    why = "was measured on training rows" if trained_on else "was used to choose the network"
    optimistic = "" if part == "test" else f"No test set: this number {why}, so it is optimistic"
    said = "; ".join(filter(None, (ends + on, beside, optimistic)))
    return Verdict(reached, said[:1].upper() + said[1:] + "." if said else "", story)


def verdict(record: Fit | Study | Checked) -> Verdict:
    """The result with its confidence interval, how the run ended and how long it took; for a check, the problem."""
    if isinstance(record, Checked):
        return check_verdict(record)
    return study_verdict(record) if isinstance(record, Study) else _fit_verdict(record)


def _advice(record: Fit) -> Iterator[Notice]:
    """Notices for the top of the page: the run failed or was interrupted."""
    if record.outcome.failed:
        rates = [(p, v) for p, _, v in knobs(record.recipe) if p.rpartition(".")[2] == "learning_rate"]
        path, value = rates[0] if rates else ("", None)
        smaller = f"{float(value) / 3:.2g}" if isinstance(value, int | float | np.number) else ""
        brief = re.sub(r"\b(\w+)\.\1\.", r"\1.", path)  # an optimiser within an optimiser is named once
        how = f": `--set {brief}={smaller}`" if smaller else ""
        yield Notice(
            "error",
            "The loss or a parameter became NaN or infinite, so training stopped.",
            f"divide the learning rate by 3 until this no longer happens{how}. If that does not help, look for extreme "
            "values in the data.",
            chapter_row("C1"),
        )
    elif record.outcome.resumable:
        yield Notice(
            "warning",
            "The run was interrupted; this is the best network so far.",
            "continue with the same command and `--resume`.",
        )


def _sections(record: Fit) -> Iterator[Section]:
    if features := tuple(feature_figures.feature_figures(record.evidence.features)):
        yield Section("features", "Features", features)
    curves = tuple(run_figures.run_curve_figures(record))
    yield Section("curves", "Learning curves", curves or (Prose("No interval was completed."),), "Curves")
    evidence = record.evidence
    errors: tuple[Block, ...] = (
        *run_figures.confusion_figures(evidence),
        *run_figures.residual_figures(evidence),
        *run_figures.error_rate_figures(evidence, record.metrics.get("test", {}).get("error_rate")),
        *threshold_figures.threshold_figures(evidence, record.metrics.get("test", {})),
        *run_figures.class_curve_figures(record),
        *run_figures.reliability_figures(evidence),
    )
    if errors:
        yield Section("errors", "Errors on the test set", errors, "Errors")
    if examples := tuple(example_figures.example_figures(record.examples)):
        yield Section("examples", "Examples", examples)
    if columns := tuple(importance_figures.importance_figures(evidence.importance)):
        yield Section("importance", "Which columns matter", columns, "Columns")
    if chosen := record.evidence.layerwise:
        scale = ScoreScale.of_run(record.recipe, record.task)
        steps = tuple(layerwise_figures.layerwise_figures(chosen, scale))
        yield from (Section("layerwise", "Layer by layer", steps),) if steps else ()
    if layers := tuple(feature_figures.pretrained_layer_figures(record)):
        yield Section("pretraining", "Pre-training", layers)
    tables = (
        feature_figures.layer_table(record),
        *run_figures.metric_tables(record),
        run_figures.baseline_table(evidence, record.metric, record.metrics.get("test", {}).get(record.metric)),
        run_figures.residual_table(evidence),
        run_figures.worst_table(evidence),
    )
    numbers: tuple[Block, ...] = (
        *run_figures.fold_figures(record),
        *(table for table in tables if table is not None and table.rows),
    )
    if numbers:
        yield Section("numbers", "Numbers", numbers)
    count = f" ({len(record.findings)})" if record.findings else ""
    yield Section("findings", "Findings", finding_blocks(record.findings), f"Findings{count}")
    said = record.evidence.verdict
    if said is not None and said.remedies:
        sentences = tuple(one[:1].upper() + one[1:] for one in said.remedies)
        yield Section("next", "What to try next", (Prose(said.sentence), Items(sentences)), "Next")
    if optimiser := tuple(run_figures.optimiser_figures(record)):
        yield Section("optimiser", "What the optimiser did", optimiser, "Optimiser")
    if flow := tuple(signal_flow_figures.flow_blocks(record.evidence.flow.groups, record.evidence.flow.updates)):
        yield Section("flow", "Activations and gradients by layer", flow, "Flow")
    if time := tuple(run_figures.profile_figures(record.evidence.profile)):
        yield Section("profile", "Where the time went", time, "Time")
    yield Section("data", "The data as read", tuple(data_blocks(record.data)) or (Prose("Not recorded."),), "Data")
    yield Section("recipe", "The recipe", tuple(recipe_blocks(record)), "Recipe")
    yield Section("repeat", "How to repeat it", tuple(repeat_blocks(record)), "Repeat")


def _page(record: Fit) -> Page:
    said = verdict(record)
    name = wording.short(record.data.name or "data", 80)
    seen = record.evidence
    outputs = seen.classes.classes or seen.labels or seen.numbers.names
    total = record.data.rows.total
    about = [f"{total:,} examples"] if total else []
    counted = "targets" if record.task == "numbers" else record.task
    about += [f"{len(outputs):,} {counted}"] if len(outputs) > 1 else []
    date = wording.clean(record.machine.get("date") or "")
    made = f"Made by gradwise {wording.clean(record.version)}" + (f" on {date}" if date else "") + "."
    return Page(
        f"{name}: {said.headline[:1].lower()}{said.headline[1:]}",
        name,
        " · ".join(about),
        said,
        tuple(_advice(record)),
        tuple(_sections(record)),
        made,
    )


def read_record(folder: Path | str, classes: tuple[Any, ...] = ()) -> Fit | Study | Checked:
    """The record in a folder, of a run, of a study or of a check.

    `classes` are the user's own parts that its recipes name. A run that was checked as well is read as the run.
    """
    place = Path(folder)
    if is_study(folder):
        return read_study(folder, classes)
    if (place / CHECK_FILE).is_file() and not (place / "result.json").is_file():
        return read_checked(place)
    return read_fit(place, classes)


def page_of(record: Fit | Study | Checked) -> Page:
    """The page of a record: its sections, figures and tables, not yet written as HTML."""
    if isinstance(record, Checked):
        return check_page(record)
    return study_page(record) if isinstance(record, Study) else _page(record)


def report(record_or_folder: Fit | Study | Checked | Path | str, *, classes: tuple[Any, ...] = ()) -> str:
    """The report of a record, or of the run, study or check in a folder, as the text of one HTML page.

    `classes` are the user's own parts that a recipe on disk names (see `records.fit.read_fit`).
    """
    given = record_or_folder
    return render(page_of(given if isinstance(given, Fit | Study | Checked) else read_record(given, classes)))


def write_report(
    folder: Path | str, record: Fit | Study | Checked | None = None, *, classes: tuple[Any, ...] = ()
) -> Path:
    """Writes `report.html` into the folder of a run, study or check and returns its path.

    A record at hand spares reading it again.
    """
    path = Path(folder) / "report.html"
    text = report(Path(folder) if record is None else record, classes=classes)
    try:
        write_whole(path, text.encode())
    except OSError as problem:
        raise WorkError(f"could not write {path}: {problem.strerror or problem}.") from problem
    return path
