"""Files whose numbers never lie in memory as a whole: read as small ones are, and a fit of them takes little memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gradwise.data.reading import files, large_files
from gradwise.data.reading.read import ReadRequest, read
from gradwise.runtime import memory
from gradwise.runtime.errors import RequestError

Write = Callable[[Path, np.ndarray, np.ndarray], None]


def _small_is_large(patch: pytest.MonkeyPatch) -> None:
    for module in (memory, files, large_files):
        patch.setattr(module, "LARGE", 500)
    patch.setattr(memory, "_BLOCK", 4096)


def _stored(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(path, X=x, y=y)


def _compressed(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez_compressed(path, X=x, y=y)


def _by_columns(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(path, X=np.asfortranarray(x), y=y)


def _table(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.save(path, np.column_stack([x, y]).astype(np.float32))


def _parquet(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Numbers of several types, with and without missing values, and words."""
    columns: dict[str, object] = {f"x{k + 1}": x[:, k] for k in range(x.shape[1])}
    columns["whole"] = np.arange(len(x), dtype=np.int32) % 7
    columns["some"] = pa.array([None if row % 5 == 0 else row / 3 for row in range(len(x))])
    columns["word"] = [("red", "blue", None)[row % 3] for row in range(len(x))]
    pyarrow.parquet.write_table(pa.table({**columns, "y": y}), path, row_group_size=97)


@pytest.mark.parametrize(
    ("write", "ending", "target"),
    [
        (_stored, "npz", "y"),
        (_compressed, "npz", "y"),
        (_by_columns, "npz", "y"),
        (_table, "npy", "x6"),
        (_parquet, "parquet", "y"),
    ],
)
def test_a_large_file_is_read_as_a_small_one_is(
    write: Write, ending: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((1001, 5)).astype(np.float32), random.integers(0, 3, 1001)
    x[3, 2] = np.nan
    path = tmp_path / f"rows.{ending}"
    write(path, x, y)
    request = ReadRequest(targets=(target,), task="classes")
    small = read(str(path), request)
    before = len(memory._maps)
    _small_is_large(monkeypatch)
    large = read(str(path), request)
    assert len(memory._maps) > before, "the inputs lie in a file"
    np.testing.assert_array_equal(large.inputs, small.inputs)
    np.testing.assert_array_equal(large.targets, small.targets)
    assert large.inputs.dtype == small.inputs.dtype
    assert (large.columns, large.notes, large.warnings) == (small.columns, small.notes, small.warnings)


@pytest.mark.parametrize(("write", "ending"), [(_stored, "npz"), (_compressed, "npz"), (_table, "npy")])
def test_a_large_file_that_ends_too_soon_is_named(
    write: Write, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_is_large(monkeypatch)
    path = tmp_path / f"rows.{ending}"
    write(path, np.random.default_rng(0).standard_normal((1000, 5)).astype(np.float32), np.arange(1000) % 3)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(RequestError, match=r"rows\.np[yz].*: .*rite ") as caught:
        read(str(path), ReadRequest())
    assert "\n" not in str(caught.value)


def _peak(rows: int, folder: Path) -> float:
    """The most bytes that a fit of this many rows of 50 numbers holds."""
    benchmark = Path(__file__).parents[3] / "benchmarks" / "data_memory.py"
    file = folder / f"{rows}.npz"
    subprocess.run([sys.executable, str(benchmark), "--write", str(file), "--rows", str(rows)], check=True)
    command = [sys.executable, "-m", "gradwise", "fit", str(file), "--max-time", "1s", "--out", str(folder / str(rows))]
    child = subprocess.Popen([*command, "--no-report", "--no-baselines", "--quiet"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_maxrss * 1024.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures as Linux does")
def test_a_fit_takes_less_than_1_3_times_its_data(tmp_path: Path) -> None:
    rows = 500_000
    assert _peak(rows, tmp_path) - _peak(2000, tmp_path) < 1.3 * 4 * 50 * rows
