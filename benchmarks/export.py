"""What does an exported model weigh, and how long does it take to predict one row?

    python benchmarks/export.py

The default network of digits, and that of a table of 20,640 rows and 8 columns (the size of california-housing),
briefly trained: how well a network predicts changes neither. One row goes in as users have it (an image; a dictionary
of columns), except for StableHLO, which takes encoded rows. The time of one row is the median of many calls in one
process, that of a start the fastest of three fresh processes, from their beginning to their first prediction.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PROGRAMS = {
    "gradwise": """
import gradwise
model = gradwise.load(file)
call = lambda: model.predict(row if image else pd.DataFrame(row))
""",
    "ONNX Runtime": """
import onnxruntime
session = onnxruntime.InferenceSession(file)
feed = {"inputs": row} if image else {name: np.array(values) for name, values in row.items()}
call = lambda: session.run(None, feed)
""",
    "StableHLO": """
import jax
jax.config.update("jax_enable_x64", True)
exported = jax.export.deserialize(bytearray(open(file, "rb").read()))
program = jax.jit(exported.call)
encoded = row if image else np.array(list(row.values())).T
call = lambda: np.asarray(program(encoded))
""",
    "Python file": """
import os, sys
sys.path.insert(0, os.path.dirname(file))
import model
call = lambda: model.predict(row)
""",
}
RUN = """
import json, sys, time
import numpy as np
file, data, image, times = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "image", int(sys.argv[4])
if {pandas}: import pandas as pd
row = np.array(data, float) if image else data
{program}
call()
taken = []
for _ in range(times):
    start = time.perf_counter()
    call()
    taken.append(time.perf_counter() - start)
print(json.dumps(taken))
"""
FILES = {"ONNX Runtime": "model.onnx", "StableHLO": "model.stablehlo", "Python file": "model.py"}


def houses() -> pd.DataFrame:
    """A table of the size of california-housing."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(20_640, 8)), columns=[f"column_{number}" for number in range(8)])
    frame["price"] = np.sin(frame["column_0"]) + frame["column_1"] * frame["column_2"] + draw.normal(size=len(frame))
    return frame


def measure(form: str, file: Path, row: Any, times: int) -> dict[str, float]:
    program = RUN.format(program=PROGRAMS[form], pandas=form == "gradwise")
    kind = "image" if isinstance(row, list) else "table"

    def run(count: int) -> list[float]:
        command = [sys.executable, "-c", program, str(file), json.dumps(row), kind, str(count)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        found: list[float] = json.loads(done.stdout.splitlines()[-1])
        return found

    starts = []
    for _ in range(3):
        start = time.perf_counter()
        run(0)
        starts.append(time.perf_counter() - start)
    return {"microseconds": 1e6 * statistics.median(run(times)), "start_seconds": min(starts)}


def measure_model(name: str, folder: Path, row: Any, times: int) -> list[dict[str, Any]]:
    import gradwise

    model = gradwise.load(folder)
    rows = []
    for form in PROGRAMS:
        file = folder if form == "gradwise" else model.export(folder / FILES[form])
        size = (folder / "model.safetensors" if form == "gradwise" else file).stat().st_size
        rows.append({"model": name, "form": form, "bytes": size, **measure(form, file, row, times)})
        print(rows[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    from sklearn.datasets import load_digits

    from gradwise.cli.main import run_program

    with tempfile.TemporaryDirectory() as place:
        digits, table = Path(place) / "digits", Path(place) / "table"
        frame = houses()
        frame.to_csv(f"{table}.csv", index=False)
        short = ["--set", "stopping.epochs=1", "--quiet"]
        run_program(["fit", "digits", "--out", str(digits), *short])
        run_program(["fit", f"{table}.csv", "--target", "price", "--out", str(table), *short])
        first = {name: [float(frame[name][0])] for name in frame if name != "price"}
        rows = measure_model("digits", digits, load_digits().images[:1].tolist(), chosen.times)
        rows += measure_model("table of 20,640 rows", table, first, chosen.times)
    result = {
        "rows": rows,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/export.py",
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "export.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
