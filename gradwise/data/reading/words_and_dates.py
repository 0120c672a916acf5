"""Single values of a table: the text that names a category, and dates as text, with NumPy and no other library.

    category_name(1.0)                                     "1", as for 1
    parse_dates(["31.1.2024", "1.2.2024 13:05"])           moments, or None if these are not dates
    date_part(moments, "weekday")                          Monday 0; NaN where missing

An exported `model.py` holds the source of this module.
"""

import datetime
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

DATE_PARTS = ("year", "month", "day", "weekday", "hour")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


def category_name(value: Any) -> str:
    """A value as the text that names its category; whole floats drop their point, so that 1 and 1.0 agree."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _iso(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        parts = re.fullmatch(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(.*)", text)
        if parts is None:
            return None
        year, month, day, rest = parts.groups()
        try:
            moment = datetime.datetime.fromisoformat(f"{year}-{month:0>2}-{day:0>2}{rest}")
        except ValueError:
            return None
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _by_format(day: str, text: str) -> datetime.datetime | None:
    for time in _TIMES:
        try:
            return datetime.datetime.strptime(text, day + time)
        except ValueError:
            continue
    return None


def parse_dates(texts: list[str]) -> list[datetime.datetime] | None:
    """These texts as dates: ISO 8601, or 31.1.2024, or 31/1/2024 if day and month are unambiguous."""
    readings = []
    readers: list[Callable[[str], datetime.datetime | None]] = [_iso, *(partial(_by_format, day) for day in _DAYS)]
    for read in readers:
        moments = []
        for text in texts:
            moment = read(text)
            if moment is None:
                break
            moments.append(moment)
        else:
            readings.append(moments)
            if read is _iso:
                break
    return readings[0] if len(readings) == 1 else None


def date_part(moments: np.ndarray, part: str) -> np.ndarray:
    """Year, month (1 to 12), day (1 to 31), weekday (Monday 0) or hour of each moment; NaN where it is missing."""
    days = moments.astype("datetime64[D]")
    months = moments.astype("datetime64[M]")
    if part == "year":
        values = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    elif part == "month":
        values = months.astype(np.int64) % 12 + 1
    elif part == "day":
        values = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    elif part == "weekday":
        values = (days.astype(np.int64) + 3) % 7
    else:
        values = moments.astype("datetime64[h]").astype(np.int64) % 24
    return np.where(np.isnat(moments), np.nan, values.astype(np.float64))
