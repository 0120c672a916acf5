"""What the accounts of single examples cost: time of an update's examples with and without them, on one core.

    taskset -c 0 python benchmarks/example_cost.py

Made-up tables of 20,000 rows, 16 numbers and 26 classes, mini-batches of 64; a network of one small layer, and that of
the recommended recipe for images. Time is that of the processor, the least of several calls that alternate.
"""

import dataclasses
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gradwise as gw
from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.runtime import keys
from gradwise.tracing.example_accounts import Accounts
from gradwise.training.interval import intervals
from gradwise.training.state import init

TURNS = 15
NETWORKS = ((32,), (256, 256))


def problem_of(widths: tuple[int, ...]) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(25_000, 16)).astype(np.float32)
    targets = (inputs @ random.normal(size=(16, 26))).argmax(1).astype(np.int32)
    parts = [
        Examples(jnp.asarray(inputs[rows]), jnp.asarray(targets[rows])) for rows in (slice(20_000), slice(20_000, None))
    ]
    recipe = defaults.classification(model=gw.Mlp(widths=widths))
    return init(recipe, *parts, outputs=26, classes=26, key=keys.from_seed(0))


def measure(widths: tuple[int, ...]) -> dict[str, Any]:
    problem, start = problem_of(widths)
    count = 2 if len(widths) > 1 else 8
    states = {
        "without": start,
        "with": dataclasses.replace(jax.tree.map(jnp.array, start), accounts=Accounts.begin(20_000, 5_000)),
    }
    times: dict[str, list[float]] = {name: [] for name in states}
    for turn in range(TURNS + 1):
        for name in states:
            begun = time.process_time()
            states[name], rows = intervals(problem, states[name], problem.interval_updates, count)
            updates = int(np.count_nonzero(jax.device_get(rows).updates)) * problem.interval_updates
            if turn:  # the first compiles
                times[name].append((time.process_time() - begun) / updates / 64 * 1e9)
    return {"widths": list(widths), "nanoseconds": {name: min(taken) for name, taken in times.items()}}


def main() -> None:
    result = {
        "machine": f"{platform.machine()}, one core",
        "date": time.strftime("%Y-%m-%d"),
        "command": "taskset -c 0 python benchmarks/example_cost.py",
        "rows": [measure(widths) for widths in NETWORKS],
    }
    assert len(os.sched_getaffinity(0)) == 1, "run it on one core: taskset -c 0"
    (Path(__file__).parent / "results" / "example_cost.json").write_text(json.dumps(result, indent=1) + "\n")
    print(result["rows"])


if __name__ == "__main__":
    main()
