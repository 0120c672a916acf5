"""How a run was made: the data as read, the recipe knob by knob, and the commands that repeat it."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...records.commands import by_recipe
from ...records.data_read import DataRead
from ...records.finding import Finding
from ...records.fit import Fit
from ...runtime.errors import RequestError
from ...specs.chapter_rows import ROWS
from ...specs.knobs import Declaration
from ...specs.paths import knobs, parts
from ...specs.serialisation import from_json, to_json
from .. import wording
from ..blocks import Block, Cell, CodeLines, HeadingRow, Items, Notice, Prose, Row, Table

_ARGUMENT = r"^gw\.fit\((?:\w+, )?%s[,)]"  # an object of the caller's, among the first two arguments


def chapter_row(row: str) -> str:
    """A row of the chapter with its words: "C1, the initial learning rate"."""
    return f"{row}, {ROWS[row]}" if row in ROWS else row


def _column_table(data: DataRead) -> Table | None:
    if not data.columns:
        return None
    rows: list[Row] = [
        (one.name, one.kind, wording.whole(one.missing), str(one.categories or ""), "constant" if one.constant else "")
        for one in data.columns
    ]
    note = f"{data.more:,} more columns are not listed." if data.more else ""
    total = len(data.columns) + data.more
    title = f"{total:,} column" + ("s" if total != 1 else "")
    header = ("column", "kind", "missing", "categories", "remark")
    kept = [i for i in range(len(header)) if i < 3 or any(row[i] for row in rows)]
    shown = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table(title, tuple(header[i] for i in kept), shown, (2,), note, folded=len(rows) > 12)


def _kinds(data: DataRead) -> str:
    """One sentence on all columns: how many of each kind, how many with gaps."""
    columns = data.columns
    if not columns:
        return ""
    counts = Counter(one.kind for one in columns)
    said = ", ".join(f"{wording.clean(kind)} ({count:,})" for kind, count in counts.items())
    gaps = sum(one.missing > 0 for one in columns)
    fixed = sum(one.constant for one in columns)
    total = len(columns) + data.more
    listed = "" if total == len(columns) else f" (of the first {len(columns):,})"
    return (
        f"{total:,} column{'s' if total != 1 else ''}{listed}: {said}; "
        f"{gaps or 'none'} with missing values, {fixed or 'none'} constant."
    )


def _split(text: str) -> str:
    """How the data were split: a sentence as it is, the name of a split as code."""
    if not text:
        return ""
    return f" {text[:1].upper()}{text[1:].rstrip('.')}." if " " in text else f" Split by `{text}`."


def data_blocks(data: DataRead) -> Iterator[Block]:
    """How the data were read: rows, columns and their kinds, preprocessing."""
    rows = data.rows
    if rows.total:
        titles = ((rows.train, "training"), (rows.valid, "validation"), (rows.test, "test"))
        counted = ", ".join(f"{wording.whole(count)} for {title}" for count, title in titles)
        yield Prose(f"{rows.total:,} rows: {counted}.{_split(wording.clean(data.split))}")
    if len(data.shape) > 1:
        yield Prose("Each example has the shape " + " × ".join(wording.setting(size) for size in data.shape) + ".")
    if kinds := _kinds(data):
        yield Prose(kinds)
    if remarks := (*data.scaling, *data.notes):
        yield Items(remarks)
    if table := _column_table(data):
        yield table


def _is_changed(declaration: Declaration, value: Any) -> bool:
    if isinstance(value, tuple | list) or isinstance(declaration.default, tuple | list):
        return wording.setting(value) != wording.setting(declaration.default)
    return bool(np.any(np.asarray(value != declaration.default)))


def _knob_row(name: str, declaration: Declaration, value: Any) -> Row:
    changed = _is_changed(declaration, value)
    off = declaration.off is not None and np.ndim(value) == 0 and value == declaration.off
    return (
        Cell(name, code=True),
        Cell(wording.setting(value) + (" (off)" if off else ""), strong=changed),
        wording.setting(declaration.default),
        chapter_row(declaration.row),
        declaration.about,
    )


def _part_row(owner: Any, name: str, part: Any) -> Row:
    """A part without knobs of its own is one choice of the part that holds it."""
    chosen = type(part).__name__
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    default = next((field.default for field in fields if field.name == name), dataclasses.MISSING)
    usual = "" if default is dataclasses.MISSING else type(default).__name__
    return (Cell(name, code=True), Cell(chosen, strong=bool(usual) and usual != chosen), usual, "", "")


def _recipe_rows(recipe: Any) -> list[Row | HeadingRow]:
    """Every knob under the part it belongs to, in the order of the recipe."""
    owners = {"": recipe, **dict(parts(recipe))}
    groups: dict[str, list[Row]] = {name: [] for name in owners}
    for path, declaration, value in knobs(recipe):
        owner, _, name = path.rpartition(".")
        groups[owner].append(_knob_row(name, declaration, value))
    rows: list[Row | HeadingRow] = []
    for path, part in owners.items():
        above = path.rpartition(".")[0]
        nested = any(name.startswith(f"{path}.") for name in owners)
        if path and not groups[path] and not nested and above in owners and above:
            groups[above].append(_part_row(owners[above], path.rpartition(".")[2], part))
    for path, part in owners.items():
        lines = groups[path]
        if path and (lines or "." not in path):
            rows.append(HeadingRow(path, type(part).__name__))
        rows.extend(lines)
    return rows


def recipe_blocks(record: Fit) -> Iterator[Block]:
    """Every choice of the run, with those that differ from the defaults highlighted."""
    states = [_is_changed(declaration, value) for _, declaration, value in knobs(record.recipe)]
    if any(states):
        said = f"{sum(states)} of {len(states)} knobs differ from their defaults: these are highlighted."
    else:
        said = f"All {len(states)} knobs have their default values."
    yield Prose(f"{said} A letter with a number is the row of the chapter that a knob comes from.")
    header = ("knob", "value", "default", "row of the chapter", "what it does")
    yield Table("", header, tuple(_recipe_rows(record.recipe)), wordy=True)


def _can_be_read(recipe: Any) -> bool:
    """Whether the file of the recipe is all that it takes, without code of the user's own."""
    try:
        from_json(to_json(recipe))
    except RequestError:
        return False
    return True


def python_lines(record: Fit) -> list[str]:
    """The run again, in Python. What only the user has, such as data in memory, is left open as `...`."""
    command = record.data.command
    written = _can_be_read(record.recipe)
    call = by_recipe(command, record.seed) if written or not command.startswith("gw.") else command
    lines = ["import gradwise as gw", ""]
    lines += [f"{name} = ...  # as in this run" for name in ("data", "targets") if re.search(_ARGUMENT % name, call)]
    if "recipe=recipe" in call and not written:
        lines.append("recipe = ...  # the recipe of this run, with code of your own")
    elif written:
        lines += ['with open("recipe.json") as file:  # beside this report', "    recipe = gw.from_json(file.read())"]
    return [*lines, f"model = {call}"]


def repeat_blocks(record: Fit) -> Iterator[Block]:
    """The lines that repeat the run, and on what it ran."""
    command = record.data.command
    if command.startswith("gradwise "):
        yield CodeLines("In the shell", command)
    yield CodeLines("In Python", "\n".join(python_lines(record)))
    machine = {name: wording.clean(value) for name, value in record.machine.items() if value}
    facts = [f"seed {record.seed}", f"gradwise {wording.clean(record.version)}"]
    for name, form in (("jax", "JAX {}"), ("python", "Python {}"), ("cores", "{} cores")):
        facts += [form.format(machine[name])] if name in machine else []
    facts += [wording.device(machine["device"])] if "device" in machine else []
    yield Prose("With " + ", ".join(facts) + ". The same versions on the same machine give the same numbers.")


def finding_notice(finding: Finding) -> Notice:
    """What, where, what next; the code of a finding leads to the page that explains it."""
    what = finding.what
    if finding.where and finding.where not in what:
        what = f"{what.rstrip()} Where: `{finding.where}`."
    source = ", ".join(filter(None, (finding.code, chapter_row(finding.row) if finding.row else "")))
    return Notice(finding.level, what, finding.next, source)
