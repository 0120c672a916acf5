"""How often the test set of a run was read (row E2).

    next_reading(folder)             1 the first time, 2 when the run was resumed, ...
    write_readings(count, folder)    saved beside the score, or in the folder of the checkpoints

The first reading is unbiased: nothing was decided by it. Resuming after looking, and stopping when the score is good,
selects by the test set, so each further reading makes its score a little optimistic. The count is saved in the run's
folder; a score that was never saved, because the process was killed, does not count.
"""

import json
from pathlib import Path

from ..runtime.errors import WorkError
from ..runtime.files import write_whole
from .finding import Finding

READINGS = "test_readings.json"


def next_reading(folder: Path | None) -> int:
    """The number of readings of this run's test set, including the present one."""
    if folder is None:
        return 1
    note = folder / READINGS
    try:
        earlier = json.loads(note.read_text()) if note.is_file() else 0
    except (OSError, ValueError):
        earlier = None
    if type(earlier) is not int or earlier < 0:
        raise WorkError(f"{note} is damaged: expected the number of times the test set was read. Delete the file.")
    return earlier + 1


def write_readings(count: int, folder: Path) -> None:
    """Saves how often the test set was read; does nothing without a test set."""
    if count:
        write_whole(folder / READINGS, str(count).encode())


def in_words(count: int) -> str:
    """once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def find_readings(count: int) -> tuple[Finding, ...]:
    """A warning about the test score, from the second reading on."""
    if count < 2:
        return ()
    return (
        Finding(
            "warning",
            f"the test set has been read {in_words(count)}: resuming until its score is good selects by it, so this "
            "score is a little optimistic.",
            row="E2",
            next="report the first reading, or evaluate on unused rows: gradwise predict RUN NEW_DATA.",
        ),
    )
