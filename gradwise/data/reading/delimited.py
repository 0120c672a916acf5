"""Reads delimited text of any dialect into an Arrow table.

    age;height          age,height          age<tab>height
    31;1,75             31,1.75             31<tab>1.75

are the same table: the separator (comma, tab, semicolon, bar) and the decimal comma are detected from the first lines.
Arrow parses the text, because it is strict: a row that is too short or too long is an error, never a guess. Text that
Arrow rejects is read again, slowly, to find the line. If the first line is data already (all numbers, or values that
recur below it), there is no header row, and the columns are named x1, x2, ...
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import RequestError

# Ordered by how seldom each occurs inside values: of two separators that fit equally well the rarer one is meant.
SEPARATORS = {"\t": "tabs", "|": "bars", ";": "semicolons", ",": "commas"}
# fmt: off
MISSING = frozenset((
    "", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-NaN", "-nan", "NULL", "Null", "null", "None", "#N/A",
    "#N/A N/A", "#NA", "<NA>", "<na>", "NaT", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN",
))
# fmt: on
_SAMPLE_LINES = 200
_SAMPLE_BYTES = 1 << 18
# Columns beyond which one block and one thread are used: at 10^5 they took 5 s against 7 to 21 s for threads and small
# blocks. Where between 20 and 10^5 the balance turns was not measured.
_WIDE = 2000
_BLOCK_BYTES = 1 << 20
_BLOCK_LIMIT = (1 << 31) - 2


@dataclass(frozen=True)
class Parsed:
    """A table, whether its columns were named by position, and notes on its format."""

    table: Any
    headless: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Dialect:
    separator: str
    decimal: str
    names: tuple[str, ...]
    headless: bool
    header_lines: int
    unnamed: frozenset[int]


def _not_utf8(data: bytes, start: int, label: str) -> RequestError:
    """The error for text that is not UTF-8, with the position of the first bad byte."""
    line = data.count(b"\n", 0, start) + 1
    return RequestError(
        f"{label} is not UTF-8 text: byte 0x{data[start]:02x} at position {start}, line {line}. Convert it, for "
        "example with: iconv -f LATIN1 -t UTF-8."
    )


def _check_utf8(data: bytes, label: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        raise _not_utf8(data, problem.start, label) from None


def _sample(data: bytes, label: str) -> str:
    """The first lines as text; raises if the data are not text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise RequestError(f"{label} is UTF-16 text. Convert it with: iconv -f UTF-16 -t UTF-8.")
    end = at = 0
    for line in range(_SAMPLE_LINES):
        at = data.find(b"\n", at) + 1
        if at == 0:
            end = len(data)
            break
        end = at
        if end > _SAMPLE_BYTES and line >= 5:
            break
    head = data[:end]
    odd = sum(head.count(byte) for byte in (b"\0", b"\1", b"\2", b"\3", b"\4", b"\5", b"\6", b"\x0e", b"\x7f"))
    if b"\0" in head or odd > len(head) / 100:
        raise RequestError(f"{label} is not a text table: it contains binary data. Check its extension.")
    try:
        return head.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        raise _not_utf8(data, problem.start, label) from None


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except csv.Error:
        return []


def _is_number(cell: str, decimal: str) -> bool:
    cell = cell.strip()
    if cell in MISSING:
        return True
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _is_data(rows: list[list[str]], decimal: str) -> bool:
    """Whether the first row is data rather than a header row."""
    first = [cell.strip() for cell in rows[0]]
    numbers = [_is_number(cell, decimal) for cell in first]
    if all(numbers):
        counted = [str(index) for index in range(len(first))]
        blank = all(cell in MISSING for cell in first)
        return not blank and (len(first) < 3 or first != counted)  # 0,1,2,... are the names pandas gives
    below = rows[1:]
    recurs = [
        not number and any(len(row) > index and row[index].strip() == cell for row in below)
        for index, (cell, number) in enumerate(zip(first, numbers, strict=True))
    ]
    real = [number and cell not in MISSING for cell, number in zip(first, numbers, strict=True)]
    return any(recurs) and 2 * (sum(recurs) + sum(real)) > len(first)


def _check_first_line(text: str, label: str) -> None:
    """Raises if the first line has no separators but later lines do: perhaps a title or a comment."""
    for separator in SEPARATORS:
        widths = Counter(len(row) for row in _rows(text, separator)[1:])
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and 2 * count > widths.total():
            raise RequestError(
                f"{label}, line 1: one value where the lines below have {width}. A table starts with its header row: "
                "delete the lines above it."
            )


def _sniff(text: str, label: str, counted: bool) -> _Dialect:
    """The dialect of the first lines."""
    best: tuple[float, str, list[list[str]]] = (-1.0, ",", [])
    for separator in SEPARATORS:
        rows = _rows(text, separator)
        if not rows:
            continue
        width = len(rows[0])
        fit = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        if fit > best[0] or (fit == best[0] == 0.0 and separator == ","):
            best = (fit, separator, rows)
    _, separator, rows = best
    if not rows:
        raise RequestError(f"{label}: a value in the first lines never ends. Check for an unclosed quotation mark.")
    cells = [cell.strip() for row in rows for cell in row] if separator != "," else []
    commas = sum(re.fullmatch(r"[-+]?\d+,\d+([eE][-+]?\d+)?", cell) is not None for cell in cells)
    points = sum(re.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?", cell) is not None for cell in cells)
    decimal = "," if commas > points else "."
    if best[0] == 0.0:
        _check_first_line(text, label)
    positions = tuple(f"x{index + 1}" for index in range(len(rows[0])))
    if _is_data(rows, decimal) or (counted and not set(positions).intersection(map(str.strip, rows[0]))):
        return _Dialect(separator, decimal, positions, True, 0, frozenset())
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    while not next(reader):
        pass  # blank lines above the header
    names = tuple(" ".join(cell.split()) or f"x{index + 1}" for index, cell in enumerate(rows[0]))
    unnamed = frozenset(index for index, cell in enumerate(rows[0]) if not cell.strip())
    return _Dialect(separator, decimal, names, False, reader.line_num, unnamed)


def _fault(data: bytes, dialect: _Dialect, label: str) -> RequestError | None:
    """The error for the first row that is too short, too long or never ends, found row by row."""
    width = len(dialect.names)
    text = io.StringIO(data.decode("utf-8-sig", errors="replace"), newline="")
    reader = csv.reader(text, delimiter=dialect.separator, strict=True)
    line = 1
    try:
        for row in reader:
            if row and len(row) != width:
                quote = " or quote the value that holds a separator" if len(row) > width else ""
                first = "first line" if dialect.headless else "header"
                got = f"{len(row)} value{'s' * (len(row) > 1)}"
                return RequestError(f"{label}, line {line}: {got} where the {first} has {width}. Fix that line{quote}.")
            line = reader.line_num + 1
    except csv.Error as problem:
        if "end of data" in str(problem) or "field limit" in str(problem):
            return RequestError(f"{label}, line {line}: a quotation mark opened here is never closed.")
        return RequestError(f"{label}, line {line}: {problem}.")
    return None


def _tokens(body: Any, wide: bool) -> list[str]:
    """The texts that mean a missing value.

    Arrow builds a table of them for every column, so for a wide file only those that occur are passed: 10^5 columns of
    200 rows were then read in 6 seconds instead of 30, on two busy cores.
    """
    tokens = list(MISSING)
    blanks = ["", " "]
    if wide:
        data = body.to_pybytes()
        plain = b"0123456789.-+eE,;|\t\r\n"
        used = set(data.translate(None, plain)) | set(plain)
        tokens = [
            token for token in tokens if used.issuperset(token.encode()) and (not token or token.encode() in data)
        ]
        blanks = blanks if ord(" ") in used else [""]
    return [before + token + after for token in tokens for before in blanks for after in blanks]


def _parse(data: bytes, dialect: _Dialect, text: Collection[str], label: str) -> Any:
    """The rows below the header as an Arrow table; columns named in `text` stay text."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    start = 0
    for _ in range(dialect.header_lines):
        start = data.find(b"\n", start) + 1 or len(data)
    body = pa.py_buffer(data).slice(start)
    if not data[start : start + 4096].strip() and not data[start:].strip():
        raise RequestError(f"{label} has a header row but no data rows.")
    wide = len(dialect.names) > _WIDE
    convert = arrow.ConvertOptions(
        null_values=_tokens(body, wide),
        strings_can_be_null=True,
        true_values=[],  # words for truth stay the words they are, so that classes are given back as they came
        false_values=[],
        decimal_point=dialect.decimal,
        column_types={name: pa.string() for name in text if name in dialect.names},
    )
    whole = max(1, min(_BLOCK_LIMIT, body.size))
    # Line breaks inside quoted values cost a fifth of the speed and are rare: allowed for only when they are needed.
    attempts = ((whole if wide else _BLOCK_BYTES, False), (whole, True))
    refused = ""
    for block, breaks in attempts:
        try:
            return arrow.read_csv(
                pa.BufferReader(body),
                read_options=arrow.ReadOptions(
                    column_names=list(dialect.names), block_size=block, use_threads=not wide
                ),
                parse_options=arrow.ParseOptions(delimiter=dialect.separator, newlines_in_values=breaks),
                convert_options=convert,
            )
        except pa.ArrowInvalid as problem:
            refused = " ".join(str(problem).split())
    _check_utf8(data, label)
    raise _fault(data, dialect, label) or RequestError(f"{label} cannot be read as a table: {refused}.")


def _tidy(table: Any, dialect: _Dialect) -> tuple[Any, list[str]]:
    """Drops artefacts of writing the file: an unnamed index, an empty last column."""
    import numpy as np
    import pyarrow as pa

    notes = []
    if dialect.headless:
        notes.append(f"no header row: columns are named x1 to x{len(dialect.names)}")
    if dialect.decimal == ",":
        notes.append(f"separated by {SEPARATORS[dialect.separator]}, with decimal commas")
    for index in sorted(dialect.unnamed, reverse=True):
        column = table.column(index)
        if pa.types.is_null(column.type) and table.num_columns > 1:
            table = table.remove_column(index)
            notes.append(f"column {index + 1} has no name and no values: dropped")
        elif index == 0 and pa.types.is_integer(column.type) and column.null_count == 0 and table.num_columns > 1:
            values = column.to_numpy()
            if values[0] in (0, 1) and np.array_equal(values, np.arange(len(values)) + values[0]):
                table = table.remove_column(0)
                notes.append("column 1 has no name and counts the rows: dropped")
    return table, notes


def parse_delimited(data: bytes, label: str, text: Collection[str] = (), counted: bool = False) -> Parsed:
    """The table in these bytes. `label` names their source in messages; columns named in `text` are kept as text.

    `counted`: no header row is expected, which a few rows alone do not always show.
    """
    import pyarrow as pa

    if not data or data.isspace():
        raise RequestError(f"{label} is empty: a table needs a header row and data rows.")
    if b"\n" not in data and b"\r" in data:
        data = data.replace(b"\r", b"\n")
    dialect = _sniff(_sample(data, label), label, counted)
    twice = [name for name, count in Counter(dialect.names).items() if count > 1]
    if twice:
        places = [str(index + 1) for index, name in enumerate(dialect.names) if name == twice[0]]
        raise RequestError(
            f"{label}: the column name `{twice[0]}` appears {len(places)} times (columns {', '.join(places[:5])}). "
            "Rename one."
        )
    if data.count(b'"') % 2 and (fault := _fault(data, dialect, label)):
        raise fault  # Arrow lets a quotation mark that never closes swallow the rest of the file
    table = _parse(data, dialect, text, label)
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        _check_utf8(data, label)
    table, notes = _tidy(table, dialect)
    return Parsed(table, dialect.headless, tuple(notes))
