"""How often the test set of a run was read (row E2).

    next_reading(folder)             1 the first time, 2 when the run was gone on with, ...
    write_readings(count, folder)    beside the score that it told

The first reading is honest: nothing was decided by it. Whoever goes on after looking, and stops when the score is good,
has chosen by the test set, so each further reading makes its score a little optimistic. The run's folder remembers;
what was measured and never written down, because the process was killed, was not read by anybody.
"""

import json
from pathlib import Path

from ..runtime.errors import WorkError
from ..runtime.files import write_whole
from .finding import Finding

READINGS = "test_readings.json"


def next_reading(folder: Path | None) -> int:
    """How many readings of the test set of the run in this folder there are with the present one."""
    if folder is None:
        return 1
    note = folder / READINGS
    try:
        earlier = json.loads(note.read_text()) if note.is_file() else 0
    except (OSError, ValueError):
        earlier = None
    if type(earlier) is not int or earlier < 0:
        raise WorkError(f"{note} is damaged: it should hold a number, how often the test set was read. Delete it.")
    return earlier + 1


def write_readings(count: int, folder: Path) -> None:
    """Writes down how often the test set was read; nothing where there is none."""
    if count:
        write_whole(folder / READINGS, str(count).encode())


def in_words(count: int) -> str:
    """once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def find_readings(count: int) -> tuple[Finding, ...]:
    """What a reader of the test score should know from the second reading on."""
    if count < 2:
        return ()
    return (
        Finding(
            "warning",
            f"the test set has been read {in_words(count)}: going on until its score is good chooses by it, so this "
            "score is a little optimistic.",
            row="E2",
            next="quote the first reading, or measure on rows that were never used: gradwise predict RUN NEW_DATA.",
        ),
    )
