"""The machine (row G1): what it is, where compiled programs are kept, and whether the data will fit."""

import datetime
import functools
import math
import os
import platform
from pathlib import Path
from typing import Any

from .errors import RequestError

_GROUP = Path("/sys/fs/cgroup")


@functools.cache
def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, so that a second run starts at once.

    A cache that somebody configured already is left as it is; `GRADWISE_CACHE=` (empty) switches ours off.
    """
    import jax

    chosen = os.environ.get("GRADWISE_CACHE")
    if chosen == "" or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else home / "gradwise"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home: nothing is lost but time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


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


def describe_machine() -> dict[str, Any]:
    """Device, cores and versions, for the record."""
    import jax

    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
