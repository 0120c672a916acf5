"""What it costs to watch: training with and without `FlowMonitor`, a look every 100 updates, as a ratio of times.

    python benchmarks/watched.py [--name cpu]

Both runs alternate, so that a noisy machine disturbs them alike; the median of the ratios counts. Asked: under 1.10.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import jax  # noqa: E402
import jax.random as jr  # noqa: E402
import numpy as np  # noqa: E402

import gradwise  # noqa: E402
from gradwise.curvature.objective import Examples  # noqa: E402
from gradwise.data.batches import Reshuffled  # noqa: E402
from gradwise.models.mlp import Mlp  # noqa: E402
from gradwise.optimisers.adaptive.adam import Adam  # noqa: E402
from gradwise.tracing.flow_monitor import FlowMonitor  # noqa: E402
from gradwise.training.state import init  # noqa: E402

EVERY = 100
CELLS = {
    "64-256-256-10, B = 64 (digits)": (64, (256, 256), 64, 1000),
    "784-500-500-10, B = 32": (784, (500, 500), 32, 400),
}


def _run(monitor: FlowMonitor | None, inputs: int, widths: tuple[int, ...], batch: int) -> Any:
    """A training that goes on by intervals: each call advances it and waits."""
    random = np.random.default_rng(0)
    targets = random.integers(0, 10, 6000).astype(np.int32)
    rows = (random.normal(size=(10, inputs))[targets] + random.normal(size=(6000, inputs))).astype(np.float32)
    train, valid = (
        Examples(jax.numpy.asarray(rows[part]), jax.numpy.asarray(targets[part]))
        for part in (slice(0, 5800), slice(5800, None))
    )
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=widths), optimiser=Adam(), batches=Reshuffled(size=batch)
    )
    problem, state = init(recipe, train, valid, outputs=10, classes=10, monitor=monitor, key=jr.key(0))
    held = {"state": state}

    def advance(updates: int) -> float:
        begun = time.perf_counter()
        held["state"], row = gradwise.interval(problem, held["state"], updates)
        jax.block_until_ready(row.train_loss)
        return time.perf_counter() - begun

    return advance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--name", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    chosen = parser.parse_args()
    device = jax.devices()[0]
    rows = []
    for name, (inputs, widths, batch, updates) in CELLS.items():
        plain, watched = (_run(monitor, inputs, widths, batch) for monitor in (None, FlowMonitor(every=EVERY)))
        for run in (plain, watched):
            run(updates)  # compiles
        ratios, seconds = [], []
        for number in range(chosen.rounds):
            order = (plain, watched) if number % 2 == 0 else (watched, plain)
            took = {run: run(updates) for run in order}
            ratios.append(took[watched] / took[plain])
            seconds.append(took[plain])
        middle = statistics.median(ratios)
        rows.append({"net": name, "ratio": middle, "ratios": ratios, "microseconds": 1e6 * min(seconds) / updates})
        print(f"{name}: {middle:.3f} times, {rows[-1]['microseconds']:.0f} µs an update without", flush=True)
    result = {
        "rows": rows,
        "every": EVERY,
        "machine": f"{device.device_kind}, {os.cpu_count()} cores",
        "date": f"{datetime.date.today()}",
        "command": f"python benchmarks/watched.py --name {chosen.name}",
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / f"watched_{chosen.name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
