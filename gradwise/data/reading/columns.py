"""One raw column of a table, and four ways to read it: as numbers, categories, dates or text.

    Field("age", array).numbers()        float64, NaN where missing
    Field("colour", array).words         which word each row holds, and the words
    Field("when", array).moments         datetime64, NaT where missing; None if these are not dates
    Field("review", array).texts         the words of each text, in their order

Arrow's types are the common ground: delimited text, Parquet and pandas frames all come as Arrow arrays.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ..text.words import split_words
from .delimited import MISSING
from .words_and_dates import category_name, parse_dates
from .written_numbers import decimal_mark, parse_written

_DATE_LIKE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}\D|\d{4}[-/]\d{1,2}[-/]\d{1,2}$|\d{1,2}[./]\d{1,2}[./]\d{4}")


class Field:
    """One column of a table; `array` is a chunked Arrow array."""

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def nature(self) -> str:
        """What the values are: "integer", "real", "boolean", "text", "date", "declared" (as categories) or "other"."""
        import pyarrow.types as types

        kind = self.array.type
        tests = {
            "integer": (types.is_integer,),
            "real": (types.is_floating, types.is_decimal, types.is_time, types.is_duration, types.is_null),
            "boolean": (types.is_boolean,),
            "text": (types.is_string, types.is_large_string, types.is_string_view),
            "declared": (types.is_dictionary,),
            "date": (types.is_date, types.is_timestamp),
        }  # a column of missing values alone is null
        return next((nature for nature, several in tests.items() if any(test(kind) for test in several)), "other")

    def plain(self) -> Field:
        """The same values without their declaration as categories."""
        return Field(self.name, self.array.cast(self.array.type.value_type)) if self.nature == "declared" else self

    @cached_property
    def words(self) -> tuple[np.ndarray, list[str]]:
        """For each row the index of its word (-1 where missing), and the distinct words in order."""
        if self.nature == "other":
            raise RequestError(f"column `{self.name}` contains {self.array.type} values, which cannot be categories.")
        encoded = self.array
        if self.nature != "declared":
            encoded = encoded.dictionary_encode()
        chunks = encoded.unify_dictionaries().chunks
        if not chunks:
            return np.zeros(0, np.int64), []
        # Widened first: a Parquet file may hold its codes in an unsigned type, which has no -1.
        codes = np.concatenate([chunk.indices.cast("int64").fill_null(-1).to_numpy() for chunk in chunks])
        raw = [None if value is None else category_name(value) for value in chunks[0].dictionary.to_pylist()]
        distinct = sorted({text for text in raw if text is not None and text not in MISSING})
        place = {text: index for index, text in enumerate(distinct)}
        moved = np.array([*(place.get(text, -1) if text is not None else -1 for text in raw), -1], np.int64)
        return moved[codes], distinct  # code -1 reads the last entry, -1 again

    @cached_property
    def texts(self) -> list[list[str]]:
        """The words of the text in each row; none where it is missing."""
        codes, distinct = self.words
        read = [*map(split_words, distinct), []]
        return [read[code] for code in codes.tolist()]

    @cached_property
    def moments(self) -> np.ndarray | None:
        """The values as times in seconds (UTC if they have a zone), or None if they are not dates."""
        import pyarrow as pa

        if self.nature == "date":
            return np.asarray(self.array.cast(pa.timestamp("s"), safe=False).to_numpy(), "datetime64[s]")
        codes, distinct = self.words
        parsed = parse_dates(distinct)
        if parsed is None or not distinct:
            return None
        known = np.append(np.array(parsed, "datetime64[s]"), np.datetime64("NaT", "s"))
        return np.asarray(known[codes])

    @cached_property
    def decimal(self) -> str:
        """The decimal mark of numbers written with symbols, such as $1,200.50; empty for other columns."""
        return decimal_mark(self.words[1]) if self.nature == "text" and self.words[1] else ""

    @cached_property
    def is_blank(self) -> bool:
        """Whether every value is missing."""
        if self.nature == "real":
            return bool(np.isnan(np.asarray(self.natural(), np.float64)).all())
        return self.array.null_count == len(self) or (self.nature == "text" and not self.words[1])

    def looks_dated(self) -> bool:
        """Whether every text value looks like a date."""
        _, distinct = self.words
        return bool(distinct) and all(map(_DATE_LIKE.match, distinct)) and self.moments is not None

    def first(self, code: int) -> int:
        """The first row, counted from 1, that holds the word with this index."""
        return int(np.argmax(self.words[0] == code)) + 1

    def natural(self) -> np.ndarray:
        """Numbers in their original type; integers with missing values become floats with NaN."""
        import pyarrow as pa
        import pyarrow.types as types

        array = self.array
        if types.is_null(array.type):
            return np.full(len(array), np.nan)
        if types.is_decimal(array.type):
            array = array.cast(pa.float64())
        elif types.is_time(array.type) or types.is_duration(array.type):
            per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
            whole = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
            return np.asarray(whole.to_numpy(), np.float64) / per_second
        return np.asarray(array.to_numpy())

    def numbers(self, remedy: str = "", decimal: str = "") -> np.ndarray:
        """The values as float64, NaN where missing; raises on other values. `decimal` is the mark of written ones."""
        if self.nature in ("integer", "real"):
            return np.asarray(self.natural(), np.float64)
        if self.nature == "date":
            assert self.moments is not None
            seconds = self.moments.astype(np.int64).astype(np.float64)
            return np.where(np.isnat(self.moments), np.nan, seconds)
        codes, distinct = self.words
        values = np.full(len(distinct) + 1, np.nan)
        for index, text in enumerate(distinct):
            if self.nature == "boolean":
                values[index] = float(text == "True")
                continue
            written = parse_written(text, decimal or self.decimal) if decimal or self.decimal else None
            try:
                values[index] = float(text) if written is None else written
            except ValueError:
                raise RequestError(
                    f"column `{self.name}`: {text[:40]!r} in data row {self.first(index)} is not a number.{remedy}"
                ) from None
        return np.asarray(values[codes])


def fields_of(table: Any) -> dict[str, Field]:
    """The columns of an Arrow table by name."""
    return {str(name): Field(str(name), table.column(index)) for index, name in enumerate(table.column_names)}


def fields_of_frame(frame: Any) -> dict[str, Field]:
    """The columns of a pandas frame by name."""
    import pyarrow as pa

    fields = {}
    for index, name in enumerate(map(str, frame.columns)):
        series = frame.iloc[:, index]
        if name in fields:
            raise RequestError(f"the column name `{name}` appears twice: give each column its own name.")
        try:
            array = pa.array(series, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several kinds in one column: all become text
            array = pa.array(
                [None if missing else str(value) for value, missing in zip(series, series.isna(), strict=True)]
            )
        fields[name] = Field(name, array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))
    return fields
