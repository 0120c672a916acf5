"""How much memory a fit of many rows takes: `gradwise fit` of 2 million rows of 50 inputs, from files of four formats.

    python benchmarks/data_memory.py [--rows 2000000] [--formats npz npy parquet csv]

The file is written by a process of its own, and each fit is one too: the command line as a user types it, with its
report, simple models and importance of columns. Its peak is what the system says that it held at most
(`ru_maxrss`, which is VmHWM), mapped pages of files included. The data are the numbers as 32-bit floats.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FORMATS = ("npz", "npy", "parquet", "csv")
TIMES, FIXED = 1.3, 5e8  # what is aimed at: times the data, plus bytes
SECONDS = 20  # of training


def write(path: Path, rows: int, inputs: int) -> None:
    """Inputs of several distributions, and a class that depends on them."""
    import numpy as np

    random = np.random.default_rng(0)
    x = np.empty((rows, inputs), np.float32)
    for start in range(0, rows, 100_000):
        block = random.standard_normal((min(100_000, rows - start), inputs), np.float32)
        block[:, ::5] = np.exp(block[:, ::5])
        x[start : start + 100_000] = block
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(np.int8)
    if path.suffix == ".npz":
        np.savez(path, X=x, y=y)
    elif path.suffix == ".npy":
        np.save(path, np.column_stack([x, y.astype(np.float32)]))
    else:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        columns = {f"x{column + 1}": x[:, column] for column in range(inputs)}
        table = pa.table({**columns, f"x{inputs + 1}": y})
        if path.suffix == ".csv":
            pa.csv.write_csv(table, path)
        else:
            pa.parquet.write_table(table, path, row_group_size=100_000)


def measure(file: Path, target: str, seconds: float) -> tuple[float, float]:
    """The peak of `gradwise fit` in bytes, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradwise", "fit", str(file), "--target", target, "--task", "classes"]
        command += ["--max-time", f"{seconds:g}s", "--out", f"{folder}/run"]
        begun = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert child.stdout is not None
        told = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with code {child.returncode}:\n{told}")
        return usage.ru_maxrss * 1024.0, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--inputs", type=int, default=50)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--write", type=Path, help="only write this file")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    if chosen.write:
        write(chosen.write, chosen.rows, chosen.inputs)
        return
    data = 4.0 * chosen.rows * chosen.inputs
    wanted = TIMES * data + FIXED
    found: dict[str, Any] = {}
    for form in chosen.formats:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"rows.{form}"
            own = [sys.executable, __file__, "--write", str(file), "--rows", str(chosen.rows)]
            subprocess.run([*own, "--inputs", str(chosen.inputs)], check=True)
            target = "y" if form == "npz" else f"x{chosen.inputs + 1}"
            peak, seconds = measure(file, target, SECONDS)
            found[form] = {"file": file.stat().st_size, "peak": peak, "seconds": seconds}
            print(f"{form}: {peak / 1e6:.0f} MB at most (wanted: {wanted / 1e6:.0f} MB), {seconds:.0f} s", flush=True)
    result = {
        "rows": chosen.rows,
        "inputs": chosen.inputs,
        "data": data,
        "asked": wanted,
        "formats": found,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/data_memory.py",
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "data_memory.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
