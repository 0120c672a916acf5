"""The columns of the inputs one by one: their units, constant columns, and NaN or infinite values.

    columns = measure_columns((train, test), missing_allowed=False)
    find_columns(columns, names)                           GW203 (identifiers), GW204, GW205, GW209

Spread is compared between columns that vary: a border pixel or a rare symbol is nearly always 0, whatever the units.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.column_statistics import moments_of, range_of
from ...records.finding import Finding
from ...runtime.memory import copy_in_blocks, row_blocks
from ..codes import found
from .predictability import Part

_SAMPLE, _COLUMNS = 2000, 2048
_RATIO, _OFFSET, _LARGE, _SMALL = 100.0, 20.0, 50.0, 0.005
_IDENTIFIER = re.compile(
    r"(^|[_ .-])(id|uuid|guid|rowid|index|user|patient|subject|customer|session|speaker)$", re.IGNORECASE
)


@dataclass(frozen=True)
class ColumnsMeasured:
    """Statistics of each training column, from a sample of rows; and NaN or infinite values, from all rows.

    `varies` marks columns whose most common value is in fewer than 9 of 10 rows. `broken` holds, for each set with
    NaN or infinite values: its name, "inputs" or "targets", how many rows, the first of them, and a column.
    """

    mean: np.ndarray
    spread: np.ndarray
    varies: np.ndarray
    constant: np.ndarray
    seen: bool  # whether these are the network's inputs
    image: bool
    identifiers: tuple[tuple[int, int, float], ...] = ()  # column, distinct values, share of test values in training
    numbered: tuple[int, ...] = ()  # columns that number the rows
    broken: tuple[tuple[str, str, int, tuple[int, ...], int], ...] = ()


def _broken_rows(values: Any, missing_allowed: bool) -> tuple[np.ndarray, int]:
    """The rows with infinite values (or missing ones, unless they are allowed), and the first such column."""
    if values is None or values.dtype.kind != "f":
        return np.zeros(0, int), 0
    if hasattr(values, "tocsr"):
        bad = np.isinf(values.data) if missing_allowed else ~np.isfinite(values.data)
        spots = np.flatnonzero(bad)
        rows = np.unique(np.searchsorted(values.indptr, spots, side="right") - 1)
        return rows, int(values.indices[spots[0]]) if len(spots) else 0
    kept: list[np.ndarray] = []
    column = 0
    for start, rows_ in row_blocks(values):
        block = rows_.reshape(len(rows_), -1)
        bad = np.isinf(block) if missing_allowed else ~np.isfinite(block)
        rows = np.flatnonzero(bad.any(1))
        if len(rows):
            column = column if kept else int(bad[rows[0]].argmax())
            kept.append(rows + start)
    return (np.concatenate(kept) if kept else np.zeros(0, int)), column


def _identifiers(train: Part, other: Part | None, names: tuple[str, ...]) -> tuple[tuple[int, int, float], ...]:
    """Columns named like identifiers whose values recur in the other set."""
    told = []
    for number, name in enumerate(names[: train.inputs.shape[1]]):
        if other is None or not _IDENTIFIER.search(name) or hasattr(train.inputs, "tocsr"):
            continue
        ours, theirs = np.unique(train.inputs[:, number]), np.unique(other.inputs[:, number])
        if len(ours) > 5:
            told.append((number, len(ours), float(np.isin(theirs, ours).mean())))
    return tuple(told)


def _numbered(parts: tuple[Part, ...], dates: Collection[int]) -> tuple[int, ...]:
    """Columns in which every row of every set has a different integer, without large gaps."""
    if any(hasattr(part.inputs, "tocsr") or len(part.shape) > 1 for part in parts) or parts[0].inputs.shape[1] < 2:
        return ()
    found_ = []
    total = sum(len(part) for part in parts)
    for number in range(min(parts[0].inputs.shape[1], 200) if total >= 30 else 0):
        few = np.asarray(parts[0].inputs[:50, number], np.float64)
        whole = np.isfinite(few).all() and (few == np.round(few)).all()
        if number in dates or not whole or len(np.unique(few)) < len(few):
            continue
        values = np.concatenate([copy_in_blocks(part.inputs[:, number], np.float64) for part in parts])
        if np.isfinite(values).all() and len(np.unique(values)) == total and np.ptp(values) < 1.1 * total:
            found_.append(number)
    return tuple(found_)


def _commonest(values: np.ndarray) -> np.ndarray:
    """Whether one value makes up 9 of 10 rows of each column."""
    ordered = np.sort(values, axis=0)
    length = max(1, int(np.ceil(0.9 * len(values))))  # a value in 9 of 10 rows fills a window of that length
    same = ordered[length - 1 :] == ordered[: len(ordered) - length + 1]
    return np.asarray(same.any(0))


def measure_columns(
    parts: tuple[Part, ...],
    random: np.random.Generator,
    *,
    names: tuple[str, ...] = (),
    seen: bool = True,
    missing_allowed: bool = False,
    dates: Collection[int] = (),
) -> ColumnsMeasured:
    """Measures the columns; the first of `parts` is the training set."""
    train = parts[0]
    rows = np.sort(random.permutation(len(train))[:_SAMPLE])
    values = train.table(rows, np.arange(min(train.inputs.shape[1], _COLUMNS)))
    mean, spread = moments_of(values)
    low, high = range_of(values)
    constant = ~(high > low)
    if constant.any() and len(rows) < len(train):  # a sample may miss the one that differs
        places = np.flatnonzero(constant)
        if hasattr(train.inputs, "tocsr"):
            few = train.inputs[:, places]
            constant[places] = few.max(0).toarray()[0] == few.min(0).toarray()[0]
        else:
            few = np.concatenate([copy_in_blocks(train.inputs[:, [place]], np.float64) for place in places], axis=1)
            constant[places] = ~(np.nanmax(few, 0, initial=-np.inf) > np.nanmin(few, 0, initial=np.inf))
    tokens = train.inputs.dtype.kind in "biu" and len(train.shape) < 2
    broken = []
    for part in parts:
        for kind, held in (("inputs", part.inputs), ("targets", part.targets)):
            bad, column = _broken_rows(held, missing_allowed)
            if len(bad):
                broken.append((part.name, kind, len(bad), tuple(int(row) for row in bad[:5]), column))
    return ColumnsMeasured(
        mean,
        spread,
        ~_commonest(values) & ~constant,
        constant,
        seen and not tokens,
        len(train.shape) > 1,
        _identifiers(train, parts[-1] if len(parts) > 1 else None, names),
        _numbered(parts, dates),
        tuple(broken),
    )


def _named(number: int, names: tuple[str, ...]) -> str:
    return names[number] if number < len(names) else f"column {number}"


def _find_units(columns: ColumnsMeasured, names: tuple[str, ...]) -> tuple[Finding, ...]:
    """GW204: one finding, of the worst fault of units."""
    kept = np.flatnonzero(columns.varies & (columns.spread > 0))
    if not columns.seen or len(kept) == 0:
        return ()
    spread, mean = columns.spread[kept], columns.mean[kept]
    wide, narrow = int(kept[spread.argmax()]), int(kept[spread.argmin()])
    ratio = float(spread.max() / spread.min())
    offsets = np.abs(mean) / spread
    offset = float(np.median(offsets) if columns.image else offsets.max())
    size = float(np.sqrt((mean**2 + spread**2).mean()))
    mend = "standardise with the training set: gradwise.data.Standardise(), or (x - mean) / deviation of each column."
    numbers: dict[str, Any] = {"ratio": ratio, "offset": offset, "size": size}
    if ratio > _RATIO and not columns.image:
        told = f"standard deviations differ by a factor of {ratio:,.0f} (`{_named(wide, names)}` {spread.max():.3g}, "
        what = told + f"`{_named(narrow, names)}` {spread.min():.3g}): one learning rate cannot suit both."
        return (found("GW204", what, where=_named(wide, names), next=mend, **numbers),)
    if offset > _OFFSET:
        at = int(kept[offsets.argmax()])
        what = f"`{_named(at, names)}` has mean {columns.mean[at]:.3g} and standard deviation "
        what += f"{columns.spread[at]:.3g}: it is nearly constant, which makes the problem ill-conditioned."
        return (found("GW204", what, where=_named(at, names), next=mend, **numbers),)
    if size > _LARGE or size < _SMALL:
        how = "saturate units and make large rates diverge" if size > 1 else "give tiny gradients"
        what = f"the root mean square of the inputs is {size:.3g}; the usual initial weights expect about 1: "
        return (found("GW204", what + f"such inputs {how}.", where="inputs", next=mend, **numbers),)
    return ()


def _find_identifiers(columns: ColumnsMeasured, names: tuple[str, ...]) -> tuple[Finding, ...]:
    """GW203 from the inputs themselves."""
    shared = [each for each in columns.identifiers if each[2] > 0]
    number = columns.numbered[0] if columns.numbered else shared[0][0] if shared else -1
    if number < 0:
        return ()
    name = _named(number, names)
    if columns.numbered:
        what = f"`{name}` numbers the rows: a network can learn the order of the file, which does not generalise."
    else:
        _, groups, share = shared[0]
        what = f"`{name}` looks like an identifier of {groups:,} groups, and {share:.0%} of its test values occur in "
        what += "training: the network can recognise groups instead of generalising."
    step = f"drop it from the inputs; if it identifies groups, split by it: gradwise fit DATA --group '{name}'"
    return (found("GW203", what, where=name, next=step, column=number),)


def find_columns(columns: ColumnsMeasured, names: tuple[str, ...]) -> tuple[Finding, ...]:
    """GW203 (identifiers), GW204, GW205 and GW209."""
    findings = [*_find_identifiers(columns, names), *_find_units(columns, names)]
    if columns.constant.any():
        numbers = np.flatnonzero(columns.constant)
        listed = ", ".join(f"`{_named(int(number), names)}`" for number in numbers[:3])
        what = f"{len(numbers)} of {len(columns.constant)} inputs are constant in training ({listed}"
        what += ", ...)." if len(numbers) > 3 else ")."
        step = "drop them: their weights learn nothing, and a new value would meet untrained weights."
        where = _named(int(numbers[0]), names)
        findings.append(found("GW205", what, where=where, next=step, columns=numbers[:50].tolist()))
    for part, kind, count, first, column in columns.broken:
        name = _named(column, names) if kind == "inputs" else "the target"
        what = f"{count:,} {part} row{'s' if count > 1 else ''} with NaN or infinite {kind}, first in {name}: "
        what += "one such row makes the loss of its batch NaN, and then every parameter."
        listed = ", ".join(str(row) for row in first)
        step = f"correct or drop: np.flatnonzero(~np.isfinite({part}_{kind}).reshape(len({part}_{kind}), -1).all(1))"
        findings.append(found("GW209", what, where=f"{part} row {listed}", next=step, rows=list(first), count=count))
    return tuple(findings)
