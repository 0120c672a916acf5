"""Rows of a table as numbers, with NumPy alone: what an exported `model.py` reads.

    encode_rows({"age": [30, 41], "town": ["Bath", ""]}, columns)           a dictionary of columns
    encode_rows([{"age": 30, "town": "Bath"}], columns)                     rows
    encode_rows(frame, columns)                                             a data frame

`columns` has a name, a kind and the categories for each column. `model.py` holds the source of this module.
"""

import datetime
from typing import Any

import numpy as np

from ..data.reading.delimited import MISSING
from ..data.reading.words_and_dates import category_name, date_part, parse_dates


def _is_missing(value: Any) -> bool:
    return str(value).strip() in MISSING  # NaN, NaT, None and pandas' NA have a text among these too


def _number(value: Any, name: str) -> float:
    if _is_missing(value):
        return np.nan
    try:
        found = float(value)
    except ValueError:
        raise ValueError(f"column `{name}`: {value!r} is not a number.") from None
    if np.isinf(found):
        raise ValueError(f"column `{name}`: {value} is infinite; leave it empty if it is missing.")
    return found


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind in "iufb" and np.isfinite(values).all():
        return values.astype(np.float64)
    return np.array([_number(value, name) for value in values.tolist()])


def _codes(values: np.ndarray, categories: Any) -> np.ndarray:
    place = {text: float(code) for code, text in enumerate(categories)}
    return np.array([np.nan if _is_missing(v) else place.get(category_name(v), np.nan) for v in values.tolist()])


def _moment(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(value, "s")


def _moments(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind == "M":
        return values.astype("datetime64[s]")
    found = np.full(len(values), "NaT", "datetime64[s]")
    given = [(row, value) for row, value in enumerate(values.tolist()) if not _is_missing(value)]
    texts = sorted({value.strip() for _, value in given if isinstance(value, str)})
    moments = parse_dates(texts)
    if moments is None:
        raise ValueError(f"column `{name}` cannot be read as dates, as in 2024-01-31 or 2024-01-31 13:05.")
    known = dict(zip(texts, moments, strict=True))
    for row, value in given:
        found[row] = _moment(known[value.strip()] if isinstance(value, str) else value)
    return found


def _column(rows: Any, name: str) -> np.ndarray:
    if isinstance(rows, list):
        if rows and not any(name in row for row in rows):
            raise ValueError(f"the rows lack the column `{name}`.")
        values = [row.get(name) for row in rows]
    elif name in rows:
        values = rows[name]
    else:
        raise ValueError(f"the rows lack the column `{name}`.")
    # A list becomes objects, since NumPy would make text of a list of numbers and texts.
    return np.atleast_1d(np.asarray(values, dtype=None if hasattr(values, "dtype") else object))


def encode_rows(rows: Any, columns: Any) -> np.ndarray:
    """The rows as an array (n, columns): categories as their index, parts of dates as numbers, NaN where missing."""
    if isinstance(rows, np.ndarray):
        is_text = any(kind in ("category", "date") for _, kind, _ in columns)
        if rows.ndim != 2 or rows.shape[1] != len(columns) or is_text:
            raise ValueError("give the rows as a dictionary of columns, a list of dictionaries or a data frame.")
        return rows.astype(np.float64)
    found, moments = [], {}
    for name, kind, categories in columns:
        if kind == "date":
            name, _, part = name.rpartition(":")
            if name not in moments:
                moments[name] = _moments(_column(rows, name), name)
            found.append(date_part(moments[name], part))
        elif kind == "category":
            found.append(_codes(_column(rows, name), categories))
        else:
            found.append(_numbers(_column(rows, name), name))
    return np.stack(found, axis=1)
