"""Numbers as a reader wants them: few digits, units in words, and a dash for what was not measured.

>>> percent(0.0222), number(1234.5), age(61000), duration(75)
('2.2\\u202f%', '1,234', '61k', '1 min 15 s')
"""

import math
import unicodedata
from typing import Any

import numpy as np

NOTHING = "–"
_THIN = "\u202f"  # a narrow space that does not break: "2.2 %" stays on one line
_CONTROL = {"Cc", "Cs", "Co"}
_DIRECTION = set(range(0x202A, 0x202F)) | set(range(0x2066, 0x206A))

METRICS = {
    "error_rate": "error",
    "balanced_error_rate": "balanced error",
    "subset_error_rate": "subset error",
    "log_loss": "log-loss",
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}


def _missing(value: Any) -> bool:
    return value is None or not math.isfinite(value)


def percent(share: float | None) -> str:
    """A fraction in percent, with as many decimals as it takes to tell it from zero."""
    if share is None or _missing(share):
        return NOTHING
    hundredths = 100.0 * share
    if hundredths == 0:
        return f"0{_THIN}%"
    decimals = 1 if abs(hundredths) >= 0.1 else 2
    return f"{hundredths:.{decimals}f}{_THIN}%"


def number(value: float | None) -> str:
    """Three or four significant digits; very large and very small numbers as powers of ten."""
    if value is None or _missing(value):
        return NOTHING
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e7:
        digits, _, power = f"{value:.3g}".partition("e")
        return f"{digits} × 10{_superscript(int(power))}" if power else digits
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def whole(value: float | None) -> str:
    """A count, with separators."""
    return NOTHING if value is None or _missing(value) else f"{round(value):,}"


def age(examples: float) -> str:
    """An age on an axis: 43k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(examples) >= size:
            return f"{examples / size:.3g}{letter}"
    return f"{examples:.3g}"


def duration(seconds: float | None) -> str:
    """A time as one says it: 0.4 s, 3.1 s, 2 min 5 s, 1 h 12 min."""
    if seconds is None or _missing(seconds):
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def metric_name(name: str) -> str:
    return METRICS.get(name, name.replace("_", " "))


def in_metric(name: str, value: float | None) -> str:
    """A value of this metric: error rates in percent, everything else as a number."""
    return percent(value) if name.endswith("error_rate") else number(value)


def clean(text: Any) -> str:
    """Text from outside, without characters that are invisible or turn the line around."""
    return "".join(
        "\ufffd" if unicodedata.category(c) in _CONTROL or ord(c) in _DIRECTION else c
        for c in " ".join(str(text).split())
    )


def short(text: Any, length: int) -> str:
    """At most so many characters, the middle left out: ends often tell names apart better than middles."""
    whole_text = clean(text)
    if len(whole_text) <= length:
        return whole_text
    tail = (length - 1) // 3
    return whole_text[: length - 1 - tail] + "…" + whole_text[len(whole_text) - tail :]


def setting(value: Any) -> str:
    """The value of a knob or switch, as one would type it."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, tuple | list):
        return ", ".join(setting(item) for item in value) if value else "none"
    if isinstance(value, str):
        return clean(value) or "none"
    return NOTHING if value is None else clean(type(value).__name__ if hasattr(value, "__dict__") else value)
