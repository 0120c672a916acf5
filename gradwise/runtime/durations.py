"""Durations as people write them: 90s, 10min, 1h30min.

`pandas.Timedelta` is not used: importing pandas takes 0.4 s of every command, it reads 1,5h as fifteen hours, and 90 as
nanoseconds.
"""

import re

_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float | None:
    """The seconds of a duration with its units; None if the text is not one.

    >>> parse_duration("1h 30min")
    5400.0
    """
    whole = "".join(text.split()).lower()
    pieces = re.findall(r"(\d+(?:\.\d+)?)([a-z]+)", whole)
    if not pieces or "".join(map("".join, pieces)) != whole or any(unit not in _UNITS for _, unit in pieces):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)
