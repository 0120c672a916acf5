"""Formats numbers for readers: few digits, units in words, and a dash for missing values.

>>> percent(0.0222), number(1234.5), age(61000), duration(75)
('2.2\\u202f%', '1,234', '61k', '1 min 15 s')
"""

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..records.data_read import DataRead
from ..records.evidence.fit_evidence import Baseline, Profile
from ..records.readings import in_words
from ..records.score_scale import (
    METRICS,
    NOTHING,
    in_metric,
    is_missing,
    metric_name,
    number,
    percent,
    short_percent,
    tick,
)

_CONTROL = {"Cc", "Cs", "Co"}
_DIRECTION = set(range(0x202A, 0x202F)) | set(range(0x2066, 0x206A))

# From the score's scale.
__all__ = ["METRICS", "NOTHING", "in_metric", "metric_name", "number", "percent", "short_percent", "tick"]


def whole(value: float | None) -> str:
    """A count, with separators."""
    return NOTHING if value is None or is_missing(value) else f"{round(value):,}"


def age(examples: float) -> str:
    """An age on an axis: 43k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(examples) >= size:
            return f"{examples / size:.3g}{letter}"
    return f"{examples:.3g}"


def duration(seconds: float | None) -> str:
    """A duration: 0.4 s, 3.1 s, 2 min 5 s, 1 h 12 min."""
    if seconds is None or is_missing(seconds):
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


PROFILE_HEADER = ("where the time went", "seconds", "share")


def profile_rows(found: Profile) -> list[tuple[str, str, str]]:
    """The phases of a run with their seconds and shares, and their sum."""
    rows = [(one.name, f"{one.seconds:.2f}", percent(found.share(one))) for one in found.phases]
    return [*rows, ("in all", f"{found.seconds:.2f}", percent(1.0))]


def tested_on(data: DataRead) -> str:
    """The size of the test set and how often it was read, as the end of a clause; nothing without a test set."""
    read = f", read {in_words(data.test_readings)}" if data.test_readings else ""
    return f" on {whole(data.rows.test)} test examples{read}" if data.rows.test else ""


def optimism(metric: str, metrics: Mapping[str, Mapping[str, Any]], judged_on: str = "valid") -> str:
    """A warning that training and validation figures are optimistic."""
    parts = {part: (metrics.get(part) or {}).get(metric) for part in ("train", "valid", "test")}
    known = {part: in_metric(metric, value) for part, value in parts.items() if not is_missing(value)}
    if "train" not in known:
        return ""
    told = f"Training {known['train']} is optimistic: the network was trained on these rows"
    quote = f"quote the test, {known['test']}." if "test" in known else ""
    if judged_on == "train":
        return f"{told}, and validation rows are the same; {quote or 'nothing was held out.'}"
    if quote:
        return f"{told}. Validation was used to choose it; {quote}"
    return f"{told}. Validation {known.get('valid', NOTHING)} was used to choose it, so it is a little optimistic too."


def model_name(members: int = 1) -> str:
    """What is compared with other models."""
    return "this network" if members == 1 else "this committee"


def baselines(found: Sequence[Baseline], metric: str, own: float | None, members: int = 1) -> str:
    """The chosen metric of simple models on the same test rows, beside the network's; nothing without them."""
    each = [f"{one.name} {in_metric(metric, one.metrics.get(metric))}" for one in found]
    if not each:
        return ""
    return f"Test {metric_name(metric)}: {', '.join([*each, f'{model_name(members)} {in_metric(metric, own)}'])}."


def sentence(text: str) -> str:
    """The text with a capital at its beginning."""
    said = text.strip()
    return said[:1].upper() + said[1:]


def clean(text: Any) -> str:
    """Text from the user's data, without invisible or direction-changing characters."""
    return "".join(
        "\ufffd" if unicodedata.category(c) in _CONTROL or ord(c) in _DIRECTION else c
        for c in re.sub(r"[ \t\r\n\f\v]+", " ", str(text)).strip(" ")
    )


def short(text: Any, length: int) -> str:
    """The text shortened in the middle: the ends of names usually distinguish them better."""
    whole_text = clean(text)
    if len(whole_text) <= length:
        return whole_text
    tail = (length - 1) // 3
    return whole_text[: length - 1 - tail] + "…" + whole_text[len(whole_text) - tail :]


def _shared(names: list[str]) -> int:
    """How many characters all names begin with."""
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False)))


def short_names(names: Sequence[Any], length: int) -> list[str]:
    """Names shortened to a length but still distinct: if two become equal, what all share is left out instead."""
    full = [clean(name) for name in names]
    cut = [short(name, length) for name in full]
    if len(set(cut)) == len(set(full)):
        return cut
    before = _shared(full)
    after = _shared([name[before:][::-1] for name in full])
    middles = [name[before : len(name) - after] for name in full]
    return [short(f"…{middle}" + ("…" if after else ""), length) for middle in middles]


def device(text: Any) -> str:
    """The name of the device: "cpu: cpu" is the CPU, "gpu: NVIDIA H200" the NVIDIA H200."""
    platform, _, kind = clean(text).partition(": ")
    return platform.upper() if kind in ("", platform) else kind


def setting(value: Any) -> str:
    """The value of a knob or switch, as it would be typed."""
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
