"""Turns a table into a matrix in two steps: `infer` finds the kind of each column, `encode_table` converts it.

    columns, notes = infer(fields, kinds={"zip": "category"})
    encoded = encode_table(fields, columns)   # float64; NaN for missing values and for categories never seen before

Training infers and encodes; `predict`, a test file and a fitted estimator only encode, under the saved schema.
Numbers stay as they are; a category becomes its index in `Column.categories`; a date becomes one column for each part
(year, month, day, weekday, hour) that varies, named `when:year` and so on. Booleans are categories, because "True" in
a text file and True in a Parquet file are the same value. Texts of several words become one column for each place of a
word, named `review:1` and so on. Other text that cannot be a category raises an error with a hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ...runtime.errors import RequestError, nearest
from ...runtime.memory import let_go, make_room, row_blocks
from ...specs.dataset import Column, text_places
from ..text.places import columns_of_text, encode_texts, text_note
from .columns import Field, fields_of, fields_of_frame
from .words_and_dates import DATE_PARTS, date_part
from .written_numbers import is_number, is_plain, parse_written

KINDS = ("number", "category", "date", "text")
FEW_WORDS = 20  # a column with at most so many distinct words is a category whatever they look like
MANY_CATEGORIES = 1000  # each becomes an input of its own, so more of them need `--kind`
FEWEST_WORDS = 3  # of a text, on average; shorter ones that hardly recur look like identifiers
_NOTES_SHOWN = 10
_TOGETHER = 2**26  # bytes


@dataclass(frozen=True)
class Encoded:
    """A table in numbers. `missing` and `unseen` count values by column; columns without any are left out.

    `blank` names the columns that were dropped because they have no values.
    """

    inputs: np.ndarray
    columns: tuple[Column, ...]
    missing: Mapping[str, int]
    unseen: Mapping[str, int]
    notes: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()


def listed(names: Sequence[str], shown: int = 12) -> str:
    """Names for a message, shortened."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"`{name}`" for name in names[:shown]) + more


def check_names(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raises if a column does not exist, with the closest name."""
    present = set(known)
    for name in asked:
        if name not in present:
            hint = nearest(name, known) or f" The columns are {listed(known)}."
            raise RequestError(f"{what}: unknown column `{name}`.{hint}")


def check_kinds(kinds: Mapping[str, str], known: Sequence[str]) -> None:
    """Raises if a kind or its column does not exist."""
    check_names(list(kinds), known, "--kind")
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise RequestError(f"--kind {name}={kind}: unknown kind; choose from {', '.join(KINDS)}.")


def _hardly_recurs(field: Field) -> bool:
    """Whether a text column has too many different values for a category."""
    codes, distinct = field.words
    present = int(np.count_nonzero(codes >= 0))
    seldom_twice = len(distinct) > present / 2 and len(distinct) > FEW_WORDS
    return seldom_twice or len(distinct) > max(4, 0.9 * present) or len(distinct) > MANY_CATEGORIES


def _is_free_text(field: Field) -> bool:
    """Whether the values are texts of several words, and no numbers that were written as text."""
    distinct = field.words[1]
    if field.nature != "text" or not _hardly_recurs(field):
        return False
    if sum(len(text.split()) for text in distinct) < FEWEST_WORDS * len(distinct):
        return False
    return 2 * sum(map(is_number, distinct)) <= len(distinct)


def _objection(field: Field) -> str:
    """Why a text column cannot be a category, or empty if it can."""
    codes, distinct = field.words
    present = int(np.count_nonzero(codes >= 0))
    if not _hardly_recurs(field):
        return ""
    if all(map(is_plain, distinct)):
        return "contains numbers stored as text (--kind {name}=number reads them)"
    odd = [index for index, text in enumerate(distinct) if not is_number(text)]
    if not odd:
        return f"contains numbers with different symbols, such as {distinct[0][:40]!r} (write all in one unit)"
    if len(odd) < len(distinct) / 2:
        first = min(odd[:100], key=field.first)
        return f"contains numbers, but {distinct[first][:40]!r} in data row {field.first(first)} is not one (fix it)"
    if len(distinct) > present / 2:
        return f"has {len(distinct)} distinct values in {present} rows, so it looks like an identifier"
    return f"has {len(distinct)} categories, more than {MANY_CATEGORIES}"


def _kind_of(field: Field) -> str:
    """The apparent kind of a column; text may still fail to be a category."""
    if field.nature in ("integer", "real"):
        return "number"
    if field.nature == "date" or (field.nature == "text" and field.looks_dated()):
        return "date"
    if field.decimal:
        return "number"
    if field.nature == "other":
        raise RequestError(
            f"column `{field.name}` contains {field.array.type} values, which cannot be converted to numbers: drop it "
            f"(--drop {field.name})."
        )
    return "text" if _is_free_text(field) else "category"


def _date_columns(field: Field) -> list[Column]:
    moments = field.moments
    if moments is None:
        raise RequestError(
            f"column `{field.name}` cannot be read as dates: use the format 2024-01-31 or 2024-01-31 13:05."
        )
    known = moments[~np.isnat(moments)]
    return [
        Column(f"{field.name}:{part}", "date")
        for part in DATE_PARTS
        if len(known) and np.ptp(date_part(known, part)) > 0
    ]


def _refuse(objections: dict[str, str]) -> None:
    names = list(objections)
    also = f" (likewise {listed(names[1:], 5)})" if len(names) > 1 else ""
    drops = " ".join(f"--drop {name}" for name in names[:6]) + (" ..." if len(names) > 6 else "")
    why = objections[names[0]].replace("{name}", names[0])
    raise RequestError(
        f"column `{names[0]}` {why}{also}: drop it ({drops}), or read it as a category (--kind {names[0]}=category)."
    )


def _is_blank(field: Field) -> bool:
    let_go()  # of the columns before it
    return field.is_blank


def without_blank(fields: Mapping[str, Field], label: str) -> tuple[dict[str, Field], tuple[str, ...]]:
    """The columns that have values, and the names of the others; raises if none has."""
    blank = tuple(name for name, field in fields.items() if _is_blank(field))
    if fields and len(blank) == len(fields):
        refuse_blank(label, blank)
    return {name: field for name, field in fields.items() if name not in blank}, blank


def refuse_blank(label: str, names: Sequence[str]) -> NoReturn:
    raise RequestError(
        f"{label} has no values in any input column ({listed(names, 5)}): empty, NA and ? count as missing."
    )


def blank_warning(names: Sequence[str]) -> tuple[str, ...]:
    """A warning about columns that were dropped, if there are any."""
    if not names:
        return ()
    columns, have = ("column", "has") if len(names) == 1 else ("columns", "have")
    return (f"{columns} {listed(names, 5)} {have} no values: dropped",)


def written_notes(field: Field) -> list[str]:
    """A note on numbers that were written with symbols, with an example."""
    if not field.decimal:
        return []
    text = max(field.words[1], key=len)
    value = parse_written(text, field.decimal)
    return [f"column `{field.name}`: text such as {text[:40]!r} read as numbers, here {value:.12g}"]


def infer(fields: Mapping[str, Field], kinds: Mapping[str, str]) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The schema of these columns, with notes; `kinds` overrides what they look like."""
    columns: list[Column] = []
    objections: dict[str, str] = {}
    notes: list[str] = []
    for name, field in fields.items():
        let_go()  # of the columns before it
        kind = kinds.get(name) or _kind_of(field)
        if kind == "number":
            columns.append(Column(name, decimal=field.decimal))
            notes += written_notes(field)
            if len(field) > FEW_WORDS and field.nature == "integer" and _counts(field):
                notes.append(f"column `{name}` counts the rows: if it is an identifier, drop it (--drop {name})")
        elif kind == "date":
            parts = _date_columns(field)
            columns.extend(parts)
            read = ", ".join(part.name.rpartition(":")[2] for part in parts) or "nothing, since no part varies"
            notes.append(f"column `{name}`: dates, read as {read}")
        elif kind == "text":
            columns.extend(columns_of_text(name, field.texts))
            notes.append(text_note(name, field.texts))
        else:
            reason = "" if name in kinds or field.nature in ("declared", "boolean") else _objection(field)
            if reason:
                objections[name] = reason
            else:
                columns.append(Column(name, "category", tuple(field.words[1])))
    if objections:
        _refuse(objections)
    return tuple(columns), tuple(notes)


def _counts(field: Field) -> bool:
    values = field.natural()
    return values.dtype.kind in "iu" and bool(np.all(np.diff(values[:1000]) == 1) and np.all(np.diff(values) == 1))


def source_of(column: Column) -> str:
    """The table column of an encoded column."""
    return column.name.rpartition(":")[0] if column.kind in ("date", "text") else column.name


def _encode_one(field: Field, column: Column) -> tuple[np.ndarray, int]:
    """One encoded column, and how many of its values are categories not in the schema."""
    if column.kind == "date":
        if field.moments is None and field.nature != "real" and field.words[1]:
            raise RequestError(f"column `{field.name}` contained dates in training, but cannot be read as dates here.")
        if field.moments is None:  # nothing but missing values
            return np.full(len(field), np.nan), 0
        return date_part(field.moments, column.name.rpartition(":")[2]), 0
    if column.kind not in ("category", "text"):
        return field.numbers(" Fix it, or leave it empty if it is missing.", column.decimal), 0
    codes, distinct = field.words
    place = {text: index for index, text in enumerate(column.categories)}
    moved = np.array([*(place.get(text, np.nan) for text in distinct), np.nan])
    values = moved[codes]
    return values, int(np.count_nonzero(np.isnan(values) & (codes >= 0)))


def _refuse_infinite(name: str, value: float, row: int) -> NoReturn:
    raise RequestError(
        f"column `{name}`: {value} in data row {row + 1}. Replace infinite values, or leave them empty to mark them as "
        "missing."
    )


def _encode_all(fields: Mapping[str, Field], columns: Sequence[Column]) -> Iterator[tuple[np.ndarray, int, int]]:
    """Each encoded column, how many of its values are missing, and how many are categories not in the schema."""
    texts = text_places(columns)
    for column in columns:
        name = source_of(column)
        if column.kind == "text":
            if column == columns[texts[name][0]]:
                every = encode_texts(fields[name].texts, [columns[place] for place in texts[name]])
                places = iter(every.T)
                missing = int(np.count_nonzero(np.isnan(every[:, 0])))
            yield next(places), missing, 0
            missing = 0  # the end of a text leaves its other places empty
            continue
        values, strange = _encode_one(fields[name], column)
        yield values, int(np.count_nonzero(np.isnan(values))) - strange, strange


def encode_table(fields: Mapping[str, Field], columns: Sequence[Column]) -> Encoded:
    """These columns as numbers under a schema; other columns are ignored."""
    lacking = [name for name in dict.fromkeys(map(source_of, columns)) if name not in fields]
    if lacking:
        hint = nearest(lacking[0], list(fields)) if len(lacking) == 1 else ""
        raise RequestError(f"the table lacks columns that the model needs: {listed(lacking)}.{hint}")
    count = len(next(iter(fields.values()))) if fields else 0
    inputs = make_room((count, len(columns)), np.float64)
    missing: dict[str, int] = {}
    unseen: dict[str, int] = {}
    together: list[np.ndarray] = []  # columns that are written at once, since each page of a large table holds all
    for index, (values, blank, strange) in enumerate(_encode_all(fields, columns)):
        name = source_of(columns[index])
        together.append(values)
        if len(together) * values.nbytes > _TOGETHER or index + 1 == len(columns):
            first = index + 1 - len(together)
            for start, rows in row_blocks(inputs):
                for place, written in enumerate(together, start=first):
                    rows[:, place] = written[start : start + len(rows)]
            together = []
        infinite = np.isinf(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            _refuse_infinite(name, values[row], row)
        if blank:
            missing[name] = blank
        if strange:
            unseen[name] = strange
    return Encoded(inputs, tuple(columns), missing, unseen)


def missing_notes(missing: Mapping[str, int], count: int) -> list[str]:
    """Notes on missing values."""
    notes = [f"column `{name}`: {blank} of {count} missing" for name, blank in missing.items()]
    if len(notes) > _NOTES_SHOWN:
        total = sum(missing.values())
        notes = [*notes[:_NOTES_SHOWN], f"{total} values are missing in {len(notes)} columns in total"]
    return notes


def _is_plain(frame: Any) -> bool:
    """Whether a pandas frame holds only NumPy numbers, so that columns need not be inspected."""
    return all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in frame.dtypes)


def _of_plain(frame: Any, first: bool) -> Encoded:
    """Converts a frame of numbers at once: 10^5 columns one by one take seconds. `first` drops those without values."""
    names = list(map(str, frame.columns))
    inputs = np.array(frame.to_numpy(), np.float64)
    infinite = np.isinf(inputs)
    if infinite.any():
        row, index = (int(place) for place in np.argwhere(infinite)[0])
        _refuse_infinite(names[index], inputs[row, index], row)
    blank = np.count_nonzero(np.isnan(inputs), axis=0)
    dropped = (blank == len(inputs)) & first
    if len(inputs) and dropped.any():
        if dropped.all():
            refuse_blank("the data frame", names)
        kept = [name for name, drop in zip(names, dropped, strict=True) if not drop]
        return replace(_of_plain(frame[kept], False), blank=tuple(np.array(names)[dropped].tolist()))
    missing = {names[index]: int(blank[index]) for index in np.nonzero(blank)[0]}
    return Encoded(inputs, tuple(map(Column, names)), missing, {})


def from_frame(frame: Any, columns: Sequence[Column] | None = None, kinds: Mapping[str, str] | None = None) -> Encoded:
    """A pandas frame (or an Arrow table) as numbers, under a saved schema or its own inferred one."""
    notes: tuple[str, ...] = ()
    is_arrow = hasattr(frame, "schema")
    if not is_arrow and not kinds and _is_plain(frame):
        names = list(map(str, frame.columns))
        if len(set(names)) == len(names) and (columns is None or [*map(Column, names)] == [*columns]):
            encoded = _of_plain(frame, columns is None)
            return replace(encoded, notes=tuple(missing_notes(encoded.missing, len(encoded.inputs))))
    fields = fields_of(frame) if is_arrow else fields_of_frame(frame)
    blank: tuple[str, ...] = ()
    if columns is None:
        check_kinds(kinds or {}, list(fields))
        fields, blank = without_blank(fields, "the table")
        columns, notes = infer(fields, kinds or {})
    encoded = encode_table(fields, columns)
    notes += tuple(missing_notes(encoded.missing, len(encoded.inputs)))
    return replace(encoded, notes=notes, blank=blank)
