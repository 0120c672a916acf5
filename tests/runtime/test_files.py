"""Files are written whole or not at all; records are written as JSON values."""

import dataclasses
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradwise.runtime import files
from gradwise.runtime.files import finite, remove_torn, write_whole


@dataclasses.dataclass(frozen=True)
class Inner:
    values: np.ndarray
    at: tuple[int, ...]


def test_records_and_arrays_become_what_json_holds() -> None:
    given = {1: Inner(np.array([1.0, math.nan]), (2, 3)), "size": np.float32(0.5), "none": math.inf}
    assert finite(given) == {"1": {"values": [1.0, None], "at": [2, 3]}, "size": 0.5, "none": None}


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, b"old")

    def fail(number: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_a_disk_that_fills_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "big"
    write_whole(path, b"old")
    program = (
        "import pathlib, resource, signal, sys\n"
        "sys.path[:0] = sys.argv[2:]\n"
        "from gradwise.records.fit import write_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_whole(pathlib.Path(sys.argv[1]), b'x' * 100_000)\n"
        "except OSError as problem:\n"
        "    print(problem.errno)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)  # only the other process is limited
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), *filter(None, sys.path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "27"  # EFBIG
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["big"]


def test_a_planted_link_is_never_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the name, nor at one that a temporary file could have, nor where such a name was guessed."""
    target, path = tmp_path / "precious", tmp_path / "report.html"
    target.write_bytes(b"precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "ab" * count)
    guessed = tmp_path / f"report.html.{'ab' * 8}.partial"
    for planted in (path, tmp_path / "report.html.partial", guessed):
        planted.symlink_to(target)
    with pytest.raises(FileExistsError):
        write_whole(path, b"page")
    assert guessed.is_symlink()  # what others put there is theirs to remove
    guessed.unlink()
    write_whole(path, b"page")
    assert (target.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"precious", b"page", False)


def test_a_file_has_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_process_left_half_written_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("model.0123456789abcdef.partial", "mine.partial", "my.0123456789abcdef"):
        (tmp_path / name).touch()
    remove_torn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.partial", "my.0123456789abcdef"}
