"""The report of a run: verdict, pictures, numbers, then what was done and how to do it again.

    report(record)                 HTML text
    write_report(folder)           `report.html` in a run folder

The order is the reader's: what was reached comes first, what to do about it next, how it was made last.
"""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis import best_interval, column
from ..core.chapter import ROWS
from ..core.errors import WorkError
from ..core.knob import Declaration
from ..core.record import Fit, read, write_whole
from ..core.tree import knobs, parts
from . import evidence, words
from .figure import Block, Cell, Code, Group, Notice, Page, Prose, Row, Section, Table, Verdict
from .page import render

_SHOWN_COLUMNS = 200


def _source(row: str) -> str:
    """A row of the chapter with its words: "C1, the initial learning rate"."""
    return f"{row}, {ROWS[row]}" if row in ROWS else row


def _measured(record: Fit) -> tuple[str, float]:
    """The most honest part that was measured, and the chosen metric on it."""
    for part in ("test", "valid", "train"):
        value = record.metrics.get(part, {}).get(record.metric)
        if value is not None and math.isfinite(value):
            return part, float(value)
    return "", math.nan


def _ends(record: Fit) -> str:
    low, high = (math.nan if end is None else end for end in record.test_interval)
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    first = words.in_metric(record.metric, low).removesuffix("\u202f%")
    return f"95\u202f% interval {first} – {words.in_metric(record.metric, high)}"


def verdict(record: Fit) -> Verdict:
    """What was reached, how sure that is, how the run ended and how long it took."""
    part, value = _measured(record)
    name = {"test": "Test", "valid": "Validation", "train": "Training"}.get(part, "")
    reached = f"{name} {words.metric_name(record.metric)} {words.in_metric(record.metric, value)}"
    count = record.data.get("rows", {}).get("test")
    ends = _ends(record) if part == "test" else ""
    on = f" on {words.whole(count)} test examples" if count and ends else ""
    best = best_interval(record)
    age = column(record.history, "age_examples")
    kept = f", best at {words.whole(age[best])}" if best is not None else ""
    story = f"{str(record.outcome).capitalize()}{kept}, {words.duration(record.seconds)}."
    if record.outcome.failed:
        before = f"The best parameters before that: {reached[0].lower()}{reached[1:]}" if part else ""
        return Verdict("The run diverged", f"{before}{', ' if before and ends else ''}{ends}", story)
    if not part:
        return Verdict("Nothing could be measured", "", story)
    r2 = record.metrics[part].get("r2")
    beside = f"R² {words.number(r2)}" if record.metric != "r2" and r2 is not None else ""
    optimistic = "" if part == "test" else "No test part: this number helped to choose the network, so it flatters it"
    said = "; ".join(filter(None, (ends + on, beside, optimistic)))
    return Verdict(reached, said[:1].upper() + said[1:] + "." if said else "", story)


def _advice(record: Fit) -> Iterator[Notice]:
    """What the reader must know before any picture: the run failed, or was cut short."""
    if record.outcome.failed:
        rates = [(p, v) for p, _, v in knobs(record.recipe) if p.rpartition(".")[2] == "learning_rate"]
        path, value = rates[0] if rates else ("", None)
        smaller = f"{float(value) / 3:.2g}" if isinstance(value, int | float | np.number) else ""
        how = f": `--set {path}={smaller}`" if smaller else ""
        yield Notice(
            "error",
            "The loss or a parameter was no longer a number, so training stopped.",
            f"divide the learning rate by 3 until it no longer happens{how}. If that does not help, look for extreme "
            "values in the data.",
            _source("C1"),
        )
    elif record.outcome.resumable:
        yield Notice(
            "warning",
            "The run was cut short; this is the best network so far.",
            "go on where it stopped: the same command with `--resume`.",
        )


def _findings(record: Fit) -> tuple[Block, ...]:
    order = {"error": 0, "warning": 1}
    found = sorted(record.findings, key=lambda finding: order.get(finding.level, 2))
    if not found:
        return (Prose("Nothing stood out."),)
    return tuple(Notice(f.level, f.what, f.next, _source(f.row)) for f in found)


def _column_table(record: Fit) -> Table | None:
    columns = (record.data.get("columns") or [])[:_SHOWN_COLUMNS]
    if not columns:
        return None
    rows: list[Row] = []
    for item in columns:
        categories = item.get("categories") or ()
        count = categories if isinstance(categories, int) else len(categories)
        some = "" if isinstance(categories, int) else ", ".join(words.short(name, 20) for name in categories[:6])
        more = f"{count}: {some}{', …' if count > 6 else ''}" if some else (str(count) if count else "")
        constant = "constant" if item.get("constant") else ""
        missing = item.get("missing")
        rows.append((str(item.get("name")), str(item.get("kind", "")), words.whole(missing or 0), more, constant))
    beyond = int(record.data.get("more") or 0)
    note = f"{beyond:,} more columns are not listed." if beyond else ""
    title = f"{len(columns) + beyond:,} column" + ("s" if len(columns) + beyond != 1 else "")
    header = ("column", "kind", "missing", "categories", "")
    return Table(title, header, tuple(rows), (2,), note, folded=len(rows) > 12)


def _kinds(record: Fit) -> str:
    """One sentence on all columns: how many of each kind, how many with gaps."""
    columns = record.data.get("columns") or []
    if not columns:
        return ""
    counts: dict[str, int] = {}
    for item in columns:
        counts[str(item.get("kind", "number"))] = counts.get(str(item.get("kind", "number")), 0) + 1
    said = ", ".join(f"{words.clean(kind)} ({count:,})" for kind, count in counts.items())
    gaps = sum(1 for item in columns if item.get("missing"))
    fixed = sum(1 for item in columns if item.get("constant"))
    total = len(columns) + int(record.data.get("more") or 0)
    listed = "" if total == len(columns) else f" (of the first {len(columns):,})"
    return (
        f"{total:,} column{'s' if total != 1 else ''}{listed}: {said}; "
        f"{gaps or 'none'} with missing values, {fixed or 'none'} constant."
    )


def _split(text: str) -> str:
    """How the parts were made: a sentence as it is, the name of a split as code."""
    if not text:
        return ""
    return f" {text[:1].upper()}{text[1:].rstrip('.')}." if " " in text else f" Divided by `{text}`."


def _data(record: Fit) -> Iterator[Block]:
    data = record.data
    rows = data.get("rows") or {}
    if rows:
        titles = {"train": "training", "valid": "validation", "test": "test"}
        counted = ", ".join(f"{words.whole(rows.get(part) or 0)} for {title}" for part, title in titles.items())
        total = sum(int(rows.get(part) or 0) for part in titles)
        yield Prose(f"{total:,} rows: {counted}.{_split(words.clean(data.get('split') or ''))}")
    shape = tuple(data.get("shape") or ())
    if len(shape) > 1:
        yield Prose("Each example has the shape " + " × ".join(words.setting(size) for size in shape) + ".")
    if kinds := _kinds(record):
        yield Prose(kinds)
    for sentence in (*(data.get("scaling") or ()), *(data.get("notes") or ())):
        yield Prose(words.clean(sentence))
    if table := _column_table(record):
        yield table


def _is_changed(declaration: Declaration, value: Any) -> bool:
    if isinstance(value, tuple | list) or isinstance(declaration.default, tuple | list):
        return words.setting(value) != words.setting(declaration.default)
    return bool(np.any(np.asarray(value != declaration.default)))


def _knob_row(name: str, declaration: Declaration, value: Any) -> Row:
    changed = _is_changed(declaration, value)
    off = declaration.off is not None and np.ndim(value) == 0 and value == declaration.off
    return (
        Cell(name, code=True),
        Cell(words.setting(value) + (" (off)" if off else ""), strong=changed),
        words.setting(declaration.default),
        _source(declaration.row),
        declaration.about,
    )


def _part_row(owner: Any, name: str, part: Any) -> Row:
    """A part without knobs of its own is one choice of the part that holds it."""
    chosen = type(part).__name__
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    default = next((field.default for field in fields if field.name == name), dataclasses.MISSING)
    usual = "" if default is dataclasses.MISSING else type(default).__name__
    return (Cell(name, code=True), Cell(chosen, strong=bool(usual) and usual != chosen), usual, "", "")


def _recipe_rows(recipe: Any) -> list[Row | Group]:
    """Every knob under the part it belongs to, in the order of the recipe."""
    owners = {"": recipe, **dict(parts(recipe))}
    groups: dict[str, list[Row]] = {name: [] for name in owners}
    for path, declaration, value in knobs(recipe):
        owner, _, name = path.rpartition(".")
        groups[owner].append(_knob_row(name, declaration, value))
    rows: list[Row | Group] = []
    for path, part in owners.items():
        above = path.rpartition(".")[0]
        nested = any(name.startswith(f"{path}.") for name in owners)
        if path and not groups[path] and not nested and above in owners and above:
            groups[above].append(_part_row(owners[above], path.rpartition(".")[2], part))
    for path, part in owners.items():
        lines = groups[path]
        if path and (lines or "." not in path):
            rows.append(Group(path, type(part).__name__))
        rows.extend(lines)
    return rows


def _recipe(record: Fit) -> Iterator[Block]:
    states = [_is_changed(declaration, value) for _, declaration, value in knobs(record.recipe)]
    if any(states):
        said = f"{sum(states)} of {len(states)} knobs differ from their defaults: these are set off."
    else:
        said = f"All {len(states)} knobs stand at their defaults."
    yield Prose(f"{said} A letter with a number is the row of the chapter that a knob comes from.")
    header = ("knob", "value", "default", "row of the chapter", "what it does")
    yield Table("", header, tuple(_recipe_rows(record.recipe)), wordy=True)


def _python(record: Fit) -> str:
    return "\n".join(
        [
            "import json",
            "import gradwise",
            "from gradwise.core.recipe import from_json",
            "",
            'recipe = from_json(open("recipe.json").read())  # beside this report',
            f"result = gradwise.fit(recipe, dataset, key=jax.random.key({record.seed}))",
        ]
    )


def _repeat(record: Fit) -> Iterator[Block]:
    if command := record.data.get("command"):
        yield Code("In the shell", str(command))
    yield Code("In Python", _python(record))
    machine = {name: words.clean(value) for name, value in record.machine.items() if value}
    facts = [f"seed {record.seed}", f"gradwise {words.clean(record.version)}"]
    for name, form in (("jax", "JAX {}"), ("python", "Python {}"), ("cores", "{} cores")):
        facts += [form.format(machine[name])] if name in machine else []
    facts += [words.device(machine["device"])] if "device" in machine else []
    yield Prose("With " + ", ".join(facts) + ". The same versions on the same machine give the same numbers.")


def _sections(record: Fit) -> Iterator[Section]:
    curves = tuple(evidence.curve_figures(record))
    yield Section("curves", "Learning curves", curves or (Prose("No interval was completed."),), "Curves")
    errors: tuple[Block, ...] = (
        *evidence.confusion_figures(record),
        *evidence.residual_figures(record),
        *evidence.rate_figures(record),
        *evidence.reliability_figures(record),
    )
    if errors:
        yield Section("errors", "Errors on the test part", errors, "Errors")
    tables = (evidence.metric_table(record), evidence.residual_table(record), evidence.worst_table(record))
    numbers: tuple[Block, ...] = (
        *evidence.fold_figures(record),
        *(table for table in tables if table is not None and table.rows),
    )
    if numbers:
        yield Section("numbers", "Numbers", numbers)
    count = f" ({len(record.findings)})" if record.findings else ""
    yield Section("findings", "Findings", _findings(record), f"Findings{count}")
    if optimiser := tuple(evidence.optimiser_figures(record)):
        yield Section("optimiser", "What the optimiser did", optimiser, "Optimiser")
    yield Section("data", "The data as understood", tuple(_data(record)) or (Prose("Not recorded."),), "Data")
    yield Section("recipe", "The recipe", tuple(_recipe(record)), "Recipe")
    yield Section("repeat", "How to repeat it", tuple(_repeat(record)), "Repeat")


def _page(record: Fit) -> Page:
    said = verdict(record)
    name = words.short(record.data.get("name") or "data", 80)
    outputs = record.evidence.get("classes") or record.evidence.get("labels") or record.evidence.get("names") or ()
    total = sum(int(count or 0) for count in (record.data.get("rows") or {}).values())
    about = [f"{total:,} examples"] if total else []
    about += [f"{len(outputs):,} {record.task}"] if len(outputs) > 1 else []
    date = words.clean(record.machine.get("date") or "")
    made = f"Made by gradwise {words.clean(record.version)}" + (f" on {date}" if date else "") + "."
    return Page(
        f"{name}: {said.headline[:1].lower()}{said.headline[1:]}",
        name,
        " · ".join(about),
        said,
        tuple(_advice(record)),
        tuple(_sections(record)),
        made,
    )


def report(record_or_folder: Fit | Path | str, *, classes: tuple[Any, ...] = ()) -> str:
    """The report of a record, or of the run in a folder, as the text of one HTML page.

    `classes` are the user's own parts that a recipe on disk names (see `core.record.read`).
    """
    if isinstance(record_or_folder, Fit):
        return render(_page(record_or_folder))
    return render(_page(read(Path(record_or_folder), classes)))


def write_report(folder: Path | str, record: Fit | None = None, *, classes: tuple[Any, ...] = ()) -> Path:
    """Writes `report.html` into a run folder and returns its path; a record at hand spares reading it again."""
    path = Path(folder) / "report.html"
    text = report(Path(folder) if record is None else record, classes=classes)
    try:
        write_whole(path, text.encode())
    except OSError as problem:
        raise WorkError(f"{path} could not be written: {problem.strerror or problem}.") from problem
    return path
