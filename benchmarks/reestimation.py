"""The rates of a re-estimation (row C4): all in one product, one after another in one program, or a call each.

    python benchmarks/reestimation.py                    writes results/reestimation_cpu.json, or _gpu on an accelerator
    python benchmarks/reestimation.py --rounds 3 --shapes 20-16

A re-estimation tries 8 rates from the same point on 512 fixed examples, in mini-batches of 64: 64 updates in all, by
which its time is divided. The networks have tanh layers and 10 classes; plain SGD. The rounds of the three ways are
interleaved, since the machine may be busy with other things. Told are the shortest times, which other programs disturb
least, and the medians of the ratios of the rounds, with their quartiles; of processor time too, the steadier measure on
a busy machine. Compiling is not counted. All three must find the same losses: the largest relative difference is told.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

import gradwise as gw
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.optimisers.adaptive.reestimated_rate import is_faster_together
from gradwise.specs.paths import trainable

HERE = Path(__file__).parent
SHAPES = ("20-16", "64-32", "64-100-100", "784-50", "784-100", "784-200", "784-500", "784-1000-1000")
RATES, EXAMPLES, SIZE, CLASSES = 8, 512, 64, 10
WAYS = {"together": "vectorised", "in turn": "one by one", "calls": "a call each"}


def setting(shape: str) -> tuple[Objective, Any]:
    """The criterion of a network of this shape, and its parameters."""
    inputs, *widths = map(int, shape.split("-"))
    random = np.random.default_rng(0)
    x = jnp.asarray(random.normal(size=(2048, inputs)), jnp.float32)
    train = Examples(x, jnp.asarray(random.integers(0, CLASSES, 2048), jnp.int32))
    network = gw.Mlp(widths=tuple(widths), activation=gw.Tanh(), dropout=0.0).build((inputs,), CLASSES, key=jr.key(1))
    parameters, rest = trainable(network)
    batch = gather(train, jnp.arange(SIZE), jnp.ones(SIZE))
    criterion = gw.Supervised(gw.SoftmaxLoss(), penalties=())
    return Objective(
        criterion, gw.Reshuffled(SIZE), rest, train, jr.key(2), jnp.zeros((), jnp.int32), batch
    ), parameters


@eqx.filter_jit
def attempt(objective: Objective, parameters: Any, rates: Array, subset: gw.Subset, together: bool) -> Array:
    optimiser = gw.Sgd(0.1)
    state = optimiser.build().init(parameters)
    return gw.try_continuing(optimiser, state, parameters, objective, rates, subset, together)


def ways_of(shape: str) -> dict[str, Callable[[], np.ndarray]]:
    objective, parameters = setting(shape)
    subset = eqx.filter_jit(gw.fixed_subset)(objective, EXAMPLES)
    rates = jnp.asarray(0.1 * 2.0 ** (np.arange(RATES) - RATES // 2), jnp.float32)
    each = [rates[n : n + 1] for n in range(RATES)]

    def run(several: Array, together: bool) -> np.ndarray:
        return np.asarray(attempt(objective, parameters, several, subset, together))

    return {
        "together": lambda: run(rates, True),
        "in turn": lambda: run(rates, False),
        "calls": lambda: np.concatenate([run(one, False) for one in each]),
    }


def used(shape: str) -> bool:
    """Whether gradwise trains the rates together here."""
    objective, parameters = setting(shape)
    return is_faster_together(parameters, gw.fixed_subset(objective, EXAMPLES))


def measure(shape: str, rounds: int) -> dict[str, Any]:
    ways = ways_of(shape)
    found = {name: way() for name, way in ways.items()}  # compiles
    seconds: dict[str, list[list[float]]] = {name: [] for name in ways}
    begun = time.perf_counter()
    ways["in turn"]()
    repeats = max(1, round(0.05 / (time.perf_counter() - begun)))  # a small network takes too little to be timed alone
    for number in range(rounds):
        names = list(ways)
        for name in names[number % 3 :] + names[: number % 3]:
            begun, busy = time.perf_counter(), time.process_time()
            for _ in range(repeats):
                ways[name]()
            times = (time.perf_counter() - begun, time.process_time() - busy)
            seconds[name].append([one / repeats for one in times])
    updates = RATES * -(-EXAMPLES // SIZE)
    table = {name: np.asarray(times) for name, times in seconds.items()}
    ratios = np.quantile(table["together"] / table["in turn"], (0.25, 0.5, 0.75), axis=0)
    row = {
        "shape": shape,
        "used": "together" if used(shape) else "in turn",
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(setting(shape)[1])),
        "milliseconds": {name: 1e3 * float(times[:, 0].min()) / updates for name, times in table.items()},
        "ratio": ratios[:, 0].tolist(),
        "processor_ratio": ratios[:, 1].tolist(),
        "difference": max(float(np.max(np.abs(one / found["in turn"] - 1.0))) for one in found.values()),
    }
    words = ", ".join(f"{WAYS[name]} {value:.4g}" for name, value in row["milliseconds"].items())
    ends = [f"{row[name][1]:.2f} ({row[name][0]:.2f} to {row[name][2]:.2f})" for name in ("ratio", "processor_ratio")]
    print(f"{shape}: {words} ms an update; ratio {ends[0]}, of processor time {ends[1]}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    where = f"{os.cpu_count()} cores, {platform.machine()}" if on_cpu else device.device_kind
    result = {
        "rates": RATES,
        "examples": EXAMPLES,
        "size": SIZE,
        "rounds": chosen.rounds,
        "rows": [measure(shape, chosen.rounds) for shape in chosen.shapes],
        "machine": f"{where}, JAX {jax.__version__}",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python benchmarks/reestimation.py", *sys.argv[1:]]),
    }
    place = chosen.out or HERE / "results" / f"reestimation_{'cpu' if on_cpu else 'gpu'}.json"
    place.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
