"""Journals that were cut or edited: what is found, what is told, what is left out."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gradwise.searching.storage import journal
from gradwise.searching.storage.study_store import Store
from tests.searching.storage.test_study_store import make_about, make_trial, refusal


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b'{"a":1}\n{"b":2}\n', b'{"a":1}\n{"b":2}\n'),
        (b'{"a":1}\n{"b"', b'{"a":1}\n'),
        (b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}\n'),
        (b'{"a":1}\n\x00\x00\x00', b'{"a":1}\n'),
        (b'{"a":1}\n{"b"\n', b'{"a":1}\n'),
        (b'{"a":"\xc3', b""),
        (b"", b""),
    ],
)
def test_mending_takes_the_torn_line_alone(tmp_path: Path, content: bytes, left: bytes) -> None:
    path = tmp_path / "study.journal"
    path.write_bytes(content)
    assert journal.mend_journal(path) == (content != left)
    assert path.read_bytes() == left


def test_a_lock_that_is_released_in_time_is_left_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    journal.free_journal(path)  # nothing there
    os.symlink(path, f"{path}.lock")
    start = time.monotonic()
    journal.free_journal(path, seconds=0.1)
    assert time.monotonic() - start >= 0.1
    assert not os.path.lexists(f"{path}.lock")


def damaged(path: Path, trials: int = 4) -> list[bytes]:
    """The lines of a new journal; those of its trials come last."""
    with Store.open(path, create=True, about=make_about()) as store:
        for number in range(trials):
            store.add(make_trial(number))
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "words", "left"),
    [
        (
            lambda lines: [*lines[:-2], lines[-2].replace(b"age", b"eon"), lines[-1]],
            "line {} was changed",
            [0, 1, 3],
        ),
        (lambda lines: [*lines[:-2], lines[-2][:-99] + b"\n", lines[-1]], "line {} is not a record", [0, 1, 3]),
        (lambda lines: [*lines[:-2], lines[-1]], "lines are missing before line {}", [0, 1, 3]),
        (lambda lines: [*lines[:-2], lines[-2][:-3] + b'0"}\n', lines[-1]], "line {} was changed", [0, 1, 3]),
        (lambda lines: [*lines[:-2], lines[-1], lines[-2]], "lines are missing before line {}", [0, 1, 2, 3]),
    ],
    ids=["edited", "cut", "taken out", "another checksum", "exchanged"],
)
def test_a_damaged_trial_is_named_and_left_out(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], words: str, left: list[int]
) -> None:
    path = tmp_path / "study.journal"
    lines = damaged(path)
    spoilt = b"".join(change(lines))
    path.write_bytes(spoilt)
    place = words.format(len(lines) - 1)
    assert place in (told := refusal(str(path), write=False))
    assert told.endswith(f"gradwise search --out {tmp_path} --resume runs again what is missing.")
    with Store.open(path, about=make_about()) as store:
        assert place in store.findings[0].what
        assert [trial.number for trial in store.trials()] == left
        store.add(make_trial(9))
    assert Path(f"{path}.damaged").read_bytes() == spoilt
    with Store.open(path) as store:  # repaired for good
        assert store.findings == ()
        assert [trial.number for trial in store.trials()] == [*left, 9]


def test_a_score_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    content = b"".join(damaged(path, trials=1))
    score = b'\\"score\\":' + str(make_trial(0).score).encode()
    assert score in content
    path.write_bytes(content.replace(score, b'\\"score\\":-9.0'))
    assert "was changed after it was written" in refusal(str(path), write=False)


def test_a_journal_without_checksums_and_lines_of_other_programs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    records = [json.loads(line) for line in damaged(path)]
    for record in records:
        del record["checksum"], record["after"]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with Store.open(path) as store:
        assert len(store) == 4
        store.add(make_trial(4))
        other = {"op_code": 2, "worker_id": "dashboard", "study_id": 0, "user_attr": {"note": "mine"}}
        with open(path, "a") as file:
            file.write(json.dumps(other) + "\n")
        store.add(make_trial(5))
    with Store.open(path) as store:
        assert len(store) == 6
        assert store.findings == ()
