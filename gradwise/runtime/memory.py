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


def require_memory(needed: float, what: str, remedy: str, *, share: float = 1.0, free: float | None = None) -> None:
    """Refuses what needs more bytes than this share of the free memory: better than being killed half way.

    `what` begins the sentence, with its verb: "the inputs need". `free` is a device's own memory.
    """
    free = available_bytes() if free is None else free
    if needed > share * free:
        least = f"{share:.0%} of the " if needed <= free else ""
        raise RequestError(f"{what} {needed / 2**30:.1f} GiB, more than {least}{free / 2**30:.1f} GiB free. {remedy}")


def check_memory(inputs: Any) -> None:
    """Refuses inputs whose dense 32-bit form would not fit."""
    sparse = "sparse " if hasattr(inputs, "indptr") else ""
    what = f"the {sparse}inputs {tuple(inputs.shape)}, as dense 32-bit numbers, need"
    require_memory(4 * math.prod(map(int, inputs.shape)), what, "Use fewer rows or columns.", share=0.8)
