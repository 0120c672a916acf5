"""What stands out in the data as they were read, before any split: empty columns, row identifiers, very few rows.

    refuse_unlearnable(dataset)                    raises: one class, a constant target, no inputs
    find_as_read(dataset)                          GW203 (identifiers), GW205 (no values), GW214, warnings of reading
    join_findings(find_as_read(dataset), others)   without what both found

The order of the rows is still that of the file, which tells a column that numbers them.
"""

import re
import shlex
from collections.abc import Iterable

import numpy as np

from ...records.finding import Finding, worst_first
from ...runtime.errors import RequestError
from ...runtime.memory import copy_in_blocks
from ...specs.dataset import FEW_ROWS, Column, Dataset
from ..codes import found

_FEWEST = 10  # rows; by chance fewer values may all differ
_COLUMNS = 2048
_LISTED = 5
_IDENTIFIER = re.compile(r"(?i:(^|.*[_ .-])(id|uuid|guid|row_?id|row_?number|index)|unnamed: 0)|.*[a-z0-9](Id|ID)")


def _is_dense(dataset: Dataset) -> bool:
    return isinstance(dataset.inputs, np.ndarray)


def _blank_columns(dataset: Dataset) -> np.ndarray:
    """Which columns of a table have no values."""
    inputs = dataset.inputs
    if not _is_dense(dataset) or inputs.ndim != 2 or inputs.dtype.kind != "f":
        return np.zeros(0, bool)
    blank = np.isnan(inputs[0])
    blank[blank] = np.isnan(inputs[:, blank]).all(0)
    return blank


def refuse_unlearnable(dataset: Dataset) -> None:
    """Raises if the target never varies, or if no input has a value."""
    blank = _blank_columns(dataset)
    if len(blank) and blank.all():
        raise RequestError("every input is missing in every row: there is nothing to learn from. Check how X is made.")
    task, targets = dataset.task, dataset.targets[dataset.labelled]
    if task.kind == "inputs" or len(targets) < 2 or np.any(targets != targets[:1]):
        return
    name = task.names[0]
    if task.kind == "classes":
        only = str(task.labels[int(targets[0])])[:40]  # type: ignore[union-attr]
        raise RequestError(f"target `{name}` is {only!r} in every row: classes need at least two.")
    raise RequestError(f"target `{name}` is {float(targets[0, 0]):g} in every row: there is nothing to learn.")


def _is_identifier(column: Column, values: np.ndarray) -> str:
    """Why the values look like the names of rows, or empty. Few columns need a look at all of their values."""
    if column.kind == "category":
        known = int(np.count_nonzero(~np.isnan(copy_in_blocks(values, np.float64))))
        every = known >= _FEWEST and len(column.categories) == known
        return "has a different text in every row" if every else ""
    if column.kind != "number" or column.decimal:
        return ""
    few = np.asarray(values[:50], np.float64)
    if not (np.isfinite(few).all() and (few == np.round(few)).all()) or len(np.unique(few)) < len(few):
        return ""
    values = copy_in_blocks(values, np.float64)
    if not (np.isfinite(values).all() and (values == np.round(values)).all()):
        return ""
    steps = np.diff(values)
    if len(values) >= _FEWEST and (bool(np.all(steps > 0)) or bool(np.all(steps < 0))):
        return "has a whole number that increases from row to row" if steps[0] > 0 else "counts the rows backwards"
    if _IDENTIFIER.fullmatch(column.name) and len(np.unique(values)) == len(values):
        return "has a different whole number in every row"
    return ""


def _find_identifiers(dataset: Dataset) -> list[Finding]:
    """GW203: columns that name or number the rows."""
    if not _is_dense(dataset) or dataset.inputs.ndim != 2 or dataset.inputs.shape[1] < 2:
        return []
    listed = enumerate(dataset.columns[:_COLUMNS])
    told = {column.name: _is_identifier(column, dataset.inputs[:, k]) for k, column in listed}
    found_ = []
    for name in [name for name, why in told.items() if why][:_LISTED]:
        what = f"`{name}` {told[name]}, so it looks like a row identifier: a network can memorise rows by it, which "
        step = f"if it identifies rows, leave it out: --drop {shlex.quote(name)}"
        found_.append(found("GW203", what + "does not generalise.", where=name, next=step))
    return found_


def _find_blank(dataset: Dataset) -> list[Finding]:
    """GW205: columns without values that were not dropped, because arrays keep their columns."""
    numbers = np.flatnonzero(_blank_columns(dataset)).tolist()
    if not numbers:
        return []
    names = [dataset.columns[k].name if dataset.columns else f"X[:, {k}]" for k in numbers]
    listed = ", ".join(f"`{name}`" for name in names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    what = f"{listed} {'has' if len(names) == 1 else 'have'} no values: set to 0, so they teach nothing."
    step = "remove them, and find out why they are empty."
    return [found("GW205", what, where=names[0], next=step, level="warning", columns=numbers[:50])]


def _find_few(dataset: Dataset) -> list[Finding]:
    """GW214."""
    rows = int(np.count_nonzero(dataset.labelled))
    if dataset.task.kind == "inputs" or rows >= FEW_ROWS:
        return []
    what = f"only {rows} rows: an error measured on a few of them is little more than a guess, since one row changes "
    what += f"it by {1 / max(1, rows // 5):.0%} or so." if dataset.task.kind == "classes" else "it a lot."
    step = f"collect more rows ({FEW_ROWS} at the least, better hundreds) before relying on any number here."
    return [found("GW214", what, where="rows", next=step, rows=rows)]


def _find_written(dataset: Dataset) -> list[Finding]:
    """A note on numbers that were written with symbols."""
    names = [column.name for column in dataset.columns if column.decimal]
    if not names:
        return []
    listed = ", ".join(f"`{name}`" for name in names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    what = f"{listed}: text with a currency, percent signs or thousands separators, read as numbers."
    return [Finding("note", what, "D10", f"if they are names, not amounts: --kind {shlex.quote(names[0])}=category")]


def find_as_read(dataset: Dataset) -> tuple[Finding, ...]:
    """Warnings of reading, GW203 for identifiers, GW205 for columns without values, and GW214; worst first."""
    told = [Finding("warning", f"{line}.", "D10") for line in dataset.warnings]
    told += _find_few(dataset) + _find_blank(dataset) + _find_identifiers(dataset) + _find_written(dataset)
    return worst_first(told)


def join_findings(first: Iterable[Finding], others: Iterable[Finding]) -> tuple[Finding, ...]:
    """Both, without those of the second that repeat a code at the same place."""
    told = tuple(first)
    known = {(one.code, one.where) for one in told if one.code}
    return worst_first((*told, *(one for one in others if (one.code, one.where) not in known)))
