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
from gradwise.runtime.files import finite, write_whole


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
