"""Memory (row G1): how much is free, and whether the data will fit."""

import math
from pathlib import Path
from typing import Any

from .errors import RequestError

_GROUP = Path("/sys/fs/cgroup")


def _number_in(file: Path, name: str = "") -> int | None:
    """The number that follows a name in a file of the system, or the file's only one; None where there is none."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next((int(words[bool(name)]) for words in lines if words and (not name or words[0] == name)), None)
    except (OSError, ValueError, IndexError):  # another system, or "max": no limit
        return None


def available_bytes() -> float:
    """Memory that can be taken without harm: the system's word, or the control group's if it is less."""
    kilobytes = _number_in(Path("/proc/meminfo"), "MemAvailable:")
    free = math.inf if kilobytes is None else 1024.0 * kilobytes
    limit, used = _number_in(_GROUP / "memory.max"), _number_in(_GROUP / "memory.current")
    if limit is None or used is None:
        return free
    files = _number_in(_GROUP / "memory.stat", "inactive_file") or 0  # counted as used, but given back when asked for
    return min(free, max(0, limit - used + files))


def check_memory(inputs: Any) -> None:
    """Refuses inputs whose dense 32-bit form would not fit, and says how much it would need."""
    needed = 4
    for size in inputs.shape:
        needed *= int(size)
    if needed > 0.8 * available_bytes():
        sparse = "sparse " if hasattr(inputs, "indptr") else ""
        raise RequestError(
            f"the {sparse}inputs {tuple(inputs.shape)} need {needed / 2**30:.1f} GiB as dense 32-bit numbers, and only "
            f"{available_bytes() / 2**30:.1f} GiB are free. Take fewer rows, or drop columns."
        )
