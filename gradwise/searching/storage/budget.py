"""How much to search. Imports no library, so that the command line can show its help at once."""

import math
import re
from dataclasses import dataclass

from ...runtime.durations import parse_duration
from ...runtime.errors import RequestError


@dataclass(frozen=True)
class Budget:
    """How much to search: a time, a number of trials, or (`more`) that many trials beyond those there are.

    Without either there is no limit.
    """

    seconds: float | None = None
    trials: int | None = None
    more: bool = False

    def __str__(self) -> str:
        if self.trials is not None:
            return f"{'+' if self.more else ''}{self.trials} trial{'' if self.trials == 1 else 's'}"
        if self.seconds is None:
            return "no limit"
        for unit, size in (("h", 3600.0), ("min", 60.0)):
            if self.seconds >= size and self.seconds % size == 0:
                return f"{int(self.seconds // size)}{unit}"
        return f"{self.seconds:.15g}s"


def parse_budget(text: str) -> Budget:
    """A budget: `90s`, `10min`, `1h30min`; `32 trials`; `+50 trials` to extend a study.

    >>> parse_budget("+50 trials")
    Budget(seconds=None, trials=50, more=True)
    """
    whole = re.sub(r"\s+", "", str(text)).lower()
    trials = re.fullmatch(r"(\+?)(\d{1,12})trials?", whole)
    if trials:
        if int(trials[2]) == 0:
            raise RequestError(f"invalid budget {text!r}: give at least 1 trial.")
        return Budget(trials=int(trials[2]), more=bool(trials[1]))
    seconds = parse_duration(whole)
    if seconds is None:
        hint = " Did you mean trials or seconds?" if re.fullmatch(r"\+?\d+(\.\d+)?", whole) else ""
        raise RequestError(
            f"invalid budget {text!r}.{hint} Give a time (60s, 10min, 2h) or a number (32 trials, +50 trials)."
        )
    if not 0 < seconds < math.inf:
        raise RequestError(f"invalid budget {text!r}: give a time above 0, such as 60s, 10min or 2h.")
    return Budget(seconds=seconds)
