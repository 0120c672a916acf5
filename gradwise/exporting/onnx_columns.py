"""The columns of a table as inputs of an ONNX graph, encoded there as `gradwise predict` encodes them.

| column    | input, one entry for each row | encoded                                                              |
|-----------|-------------------------------|----------------------------------------------------------------------|
| number    | 64-bit float, NaN if missing  | as it is                                                             |
| category  | text, empty if missing        | the index of its category; NaN if it has none                        |
| date      | text, empty if missing        | year, month, day, weekday, hour; NaN if it has none of the forms     |

Dates may be `2024-01-31`, `2024/1/31` or `31.1.2024`, alone or with a time as in `2024-01-31 13:05`. An offset from
UTC other than `Z` or `+00:00` is not read.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.reading.tables import source_of
from ..specs.dataset import Column
from .onnx_graph import OnnxGraph

_YEAR, _MONTH, _DAY = r"\d{4}", "(0?[1-9]|1[0-2])", r"(0?[1-9]|[12]\d|3[01])"
_TIME = r"([T ]([01]?\d|2[0-3])(:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]00:?00)?)?)?"
# How dates are written: the sign between the numbers, and which of them is the year, the month and the day.
_FORMS = (("-", (0, 1, 2)), ("/", (0, 1, 2)), (".", (2, 1, 0)))


def _text(graph: OnnxGraph, text: str) -> str:
    return graph.constant(np.array(text, object))


def _pieces(graph: OnnxGraph, texts: str, sign: str, count: int) -> list[str]:
    """The pieces between the signs, of texts that all have so many; the last keeps further signs."""
    found, _ = graph.node("StringSplit", texts, outputs=2, delimiter=sign, maxsplit=count - 1)
    return [graph.node("Gather", found, graph.constant(np.array(place, np.int64)), axis=1) for place in range(count)]


def _matching(graph: OnnxGraph, texts: str, pattern: str, otherwise: str) -> tuple[str, str]:
    """Which texts match, and the texts with those that do not replaced."""
    matches = graph.node("RegexFullMatch", texts, pattern=pattern)
    return matches, graph.node("Where", matches, texts, _text(graph, otherwise))


def _day_and_time(graph: OnnxGraph, texts: str) -> tuple[str, str]:
    """Texts such as `31`, `31 13:05` and `31T13` as the first number and the hour, which is 0 if there is none."""
    day, hour = texts, _text(graph, "0")
    for sign in (" ", "T"):
        has, timed = _matching(graph, day, rf"\d+{sign}.*", f"1{sign}0")
        first, time = _pieces(graph, timed, sign, 2)
        clock, clocked = _matching(graph, time, r"\d+:.*", "0:")  # else an hour alone
        hours = graph.node("Where", clock, _pieces(graph, clocked, ":", 2)[0], time)
        day, hour = graph.node("Where", has, first, day), graph.node("Where", has, hours, hour)
    return day, hour


def _moments(graph: OnnxGraph, texts: str) -> tuple[str, dict[str, str]]:
    """Which texts are dates, and year, month, day and hour of those, as integers; of the others, of any date."""
    known = ""
    numbers: dict[str, str] = {}
    for sign, order in _FORMS:
        patterns = [(_YEAR, _MONTH, _DAY)[order.index(place)] for place in range(3)]
        example = [("1970", "1", "1")[order.index(place)] for place in range(3)]
        matches, safe = _matching(graph, texts, re.escape(sign).join(patterns) + _TIME, sign.join(example))
        pieces = _pieces(graph, safe, sign, 3)
        pieces[2], hour = _day_and_time(graph, pieces[2])
        read = dict(zip(("year", "month", "day"), (pieces[place] for place in order), strict=True)) | {"hour": hour}
        read = {part: graph.cast(text, np.int64) for part, text in read.items()}
        numbers = {part: graph.node("Where", matches, read[part], old) for part, old in numbers.items()} or read
        known = graph.node("Or", known, matches) if known else matches
    return known, numbers


def _arithmetic(graph: OnnxGraph) -> Any:
    """Integer arithmetic on names and numbers."""

    def calculate(kind: str, *operands: Any) -> str:
        names = [one if isinstance(one, str) else graph.constant(np.array(one, np.int64)) for one in operands]
        found: str = graph.node(kind, *names)
        return found

    return calculate


def _weekday(graph: OnnxGraph, date: dict[str, str]) -> str:
    """Monday 0 to Sunday 6, by the count of days since 1 March of the year 0 (Howard Hinnant's `days_from_civil`)."""
    do = _arithmetic(graph)
    early = graph.cast(do("LessOrEqual", date["month"], 2), np.int64)
    year = do("Sub", date["year"], early)
    month = do("Add", do("Sub", date["month"], 3), do("Mul", early, 12))
    days = do("Div", do("Add", do("Mul", month, 153), 2), 5)
    leaps = do("Add", do("Sub", do("Div", year, 4), do("Div", year, 100)), do("Div", year, 400))
    total = do("Add", do("Add", do("Mul", year, 365), leaps), do("Add", days, date["day"]))
    return do("Mod", do("Add", total, 1), 7)  # 1 March of the year 0 was a Wednesday


def _date_parts(graph: OnnxGraph, texts: str) -> dict[str, str]:
    known, date = _moments(graph, texts)
    date = date | {"weekday": _weekday(graph, date)}
    missing = graph.constant(np.array(np.nan))
    return {part: graph.node("Where", known, graph.cast(name, np.float64), missing) for part, name in date.items()}


def _category(graph: OnnxGraph, texts: str, categories: Sequence[str]) -> str:
    codes = graph.node(
        "LabelEncoder",
        texts,
        domain="ai.onnx.ml",
        keys_strings=list(categories),
        values_int64s=list(range(len(categories))),
        default_int64=-1,
    )
    codes = graph.cast(codes, np.float64)
    known = graph.node("GreaterOrEqual", codes, graph.constant(np.array(0.0)))
    return graph.node("Where", known, codes, graph.constant(np.array(np.nan)))


def encoded_rows(graph: OnnxGraph, columns: Sequence[Column]) -> str:
    """Adds the encoding of inputs that are named as the columns; returns the name of the rows (n, columns)."""
    dates: dict[str, dict[str, str]] = {}
    found = []
    for column in columns:
        name = source_of(column)
        if column.kind == "date":
            if name not in dates:
                dates[name] = _date_parts(graph, name)
            encoded = dates[name][column.name.rpartition(":")[2]]
        elif column.kind == "category":
            encoded = _category(graph, name, column.categories)
        else:
            encoded = name
        found.append(graph.node("Unsqueeze", encoded, graph.constant(np.array([1], np.int64))))
    return graph.node("Concat", *found, axis=1)
