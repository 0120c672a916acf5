"""The journal file of a study: sealed lines, and what is done about lines that were damaged.

    journal = SealedJournal(path)             what `optuna.storages.JournalStorage` reads and writes
    damage, last = inspect_journal(path)      "line 9 was changed after it was written"
    repair_journal(path)                      leaves out what is damaged, keeps a copy beside it

Every line that gradwise writes ends with a checksum of its text and names the checksum of the line before. A line that
was edited does not match its own; where one was taken out, the next one names another. Lines without a checksum are
those of other programs, such as a dashboard's notes: they are read as they are. Lines missing at the end look like a
study that was stopped earlier, which only the record of a finished study can tell apart.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...runtime.files import write_whole

_SEAL = re.compile(rb',"checksum":"([0-9a-f]{16})"\}\s*$')


@dataclasses.dataclass(frozen=True)
class Damage:
    """What is wrong with a line of a journal, and whether the line itself can be read."""

    line: int
    problem: str
    readable: bool

    def __str__(self) -> str:
        return f"line {self.line} {self.problem}" if not self.readable else f"{self.problem} before line {self.line}"


def _read_line(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _as_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"  # as Optuna writes it


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _seal(record: dict[str, Any], after: str) -> dict[str, Any]:
    """The record with the checksum of the line before and its own, which is of the text without it."""
    linked = {**record, "after": after}
    return {**linked, "checksum": _checksum(_as_line(linked)[:-1])}


def inspect_journal(path: Path) -> tuple[list[Damage], str]:
    """What is damaged, and the checksum of the last line that has one. A last line without an end is not looked at."""
    damage: list[Damage] = []
    last: str | None = ""  # None: unknown, since the line itself is damaged
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            seal, record = _SEAL.search(line), _read_line(line)
            if record is None:
                damage.append(Damage(number, "is not a record", readable=False))
                last = seal[1].decode() if seal else None
            elif seal is None:
                if "checksum" in record:
                    damage.append(Damage(number, "was changed after it was written", readable=False))
                    last = None
            else:
                own = seal[1].decode()
                if _checksum(line[: seal.start()] + b"}") != own:
                    damage.append(Damage(number, "was changed after it was written", readable=False))
                elif last is not None and record.get("after") != last:
                    damage.append(Damage(number, "lines are missing", readable=True))
                last = own
    return damage, last or ""


def describe_damage(damage: list[Damage]) -> str:
    """The first three places, and how many more there are."""
    more = f" and {len(damage) - 3} more places" if len(damage) > 3 else ""
    return ", ".join(map(str, damage[:3])) + more


class SealedJournal:
    """Optuna's journal file, whose lines are sealed as they are written."""

    def __init__(self, path: Path) -> None:
        from optuna.storages.journal import JournalFileBackend

        self._path, self._file = path, JournalFileBackend(str(path))
        self._last: str | None = None  # unknown until something is written, and again after that failed

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        return self._file.read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        last, self._last = inspect_journal(self._path)[1] if self._last is None else self._last, None
        sealed = []
        for log in logs:
            sealed.append(_seal(log, last))
            last = sealed[-1]["checksum"]
        self._file.append_logs(sealed)
        self._last = last


def _describes_study(record: dict[str, Any]) -> bool:
    return "gradwise" in record.get("user_attr", ())


def _without_damage(content: bytes, damage: list[Damage]) -> list[dict[str, Any]]:
    """The records that are not damaged, those of gradwise linked again."""
    left_out, last, records = {one.line for one in damage if not one.readable}, "", []
    for number, line in enumerate(content.splitlines(), 1):
        record = None if number in left_out else _read_line(line)
        if record is not None and "checksum" in record:
            record = _seal({name: value for name, value in record.items() if name not in {"after", "checksum"}}, last)
            last = record["checksum"]
        if record is not None:
            records.append(record)
    return records


def is_repairable(path: Path, damage: list[Damage]) -> bool:
    """Whether what says which study it is has not been damaged itself."""
    return any(
        _describes_study(record) and "checksum" in record for record in _without_damage(path.read_bytes(), damage)
    )


def repair_journal(path: Path) -> list[Damage]:
    """Leaves out the damaged lines, as far as there is a study without them; what there was stays in `FILE.damaged`.

    Only the owner may. A trial that is lost by it is run again when the study is resumed.
    """
    damage = inspect_journal(path)[0]
    if not damage or not is_repairable(path, damage):
        return []
    records = _without_damage(path.read_bytes(), damage)
    shutil.copyfile(path, f"{path}.damaged")
    write_whole(path, b"".join(_as_line(record) for record in records))
    return damage


def mend_journal(path: Path) -> bool:
    """Takes away a last line that was not written to its end; whether there was one.

    Only the owner may: another process could be in the midst of writing it. Without this the next line would be
    glued to the torn one, and both be lost.
    """
    with open(path, "rb+") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end < len(content):  # no end of line
            if _read_line(content[end:]) is not None:
                file.write(b"\n")
            else:
                file.truncate(end)
            return True
        start = content.rfind(b"\n", 0, end - 1) + 1
        if end and _read_line(content[start:end]) is None:
            file.truncate(start)
            return True
    return False


def free_journal(path: Path, seconds: float = 1.0) -> None:
    """Takes away Optuna's own lock where a killed process left it; otherwise each writing would wait for half a minute.

    Optuna holds it for a millisecond or so. Who calls this owns the study, so the only others are viewers.
    """
    link = Path(f"{path}.lock")
    end = time.monotonic() + seconds
    while os.path.lexists(link) and time.monotonic() < end:
        time.sleep(0.02)
    link.unlink(missing_ok=True)
