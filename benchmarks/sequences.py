"""Sequences: spoken digits, long-range problems, and what skipping the steps beyond every end saves.

    GRADWISE_DATA=... python benchmarks/sequences.py --out sequences.json

| task            | what                                                                                              |
|-----------------|---------------------------------------------------------------------------------------------------|
| spoken digits   | 32 log-mel bands, 10 ms a step; the official test set: takes 0 to 4 of each speaker and digit     |
| held-out speaker| the same by `GroupHoldOut`: nobody of the test set was heard in training                          |
| adding          | the sum of the two marked numbers among many (Hochreiter and Schmidhuber 1997)                    |
| copying         | the first symbol of a sequence, after so many steps of noise (the latch of Bengio et al. 1994)    |
| skipping        | a pass over spoken digits, forward and backward, with chunks skipped at run time and without      |

The recipe is the recommended one; it was chosen on validation sets of the training part.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import gradwise as gw
from gradwise.evaluation.baselines import compare_with_baselines
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import trainable


def digits() -> tuple[gw.Sequences, dict[str, np.ndarray]]:
    """The recordings, with digit, speaker and take of each."""
    with np.load(Path(os.environ["GRADWISE_DATA"]) / "fsdd" / "fsdd_logmel32.npz") as file:
        beside = {name: file[name].astype(np.int64) for name in ("y", "speaker", "take")}
        return gw.Sequences(file["frames"], file["offsets"]), beside


def _dataset(held_out: bool) -> gw.Dataset:
    recordings, beside = digits()
    task = gw.Classes(np.arange(10), "digit")
    if held_out:
        return gw.Dataset(recordings, beside["y"], task, groups=beside["speaker"], name="spoken digits")
    known = beside["take"] >= 5
    test = gw.Dataset(recordings[~known], beside["y"][~known], task)
    return gw.Dataset(recordings[known], beside["y"][known], task, test=test, name="spoken digits")


def spoken(seed: int, held_out: bool) -> dict[str, Any]:
    """One training by the recommended recipe, and the linear model on each recording's summaries."""
    dataset = _dataset(held_out)
    split = gw.GroupHoldOut() if held_out else gw.HoldOut()
    recipe = gw.defaults.for_data(dataset, split=split)
    begun = time.monotonic()
    record = gw.train(recipe, dataset, key=gw.from_seed(seed))
    took = time.monotonic() - begun
    train, _, test = split(dataset, key=jr.fold_in(gw.from_seed(seed), 1))
    linear = None
    if not held_out and test is not None:
        found = compare_with_baselines(train, test, "error_rate", record.predictor.predict(test.inputs))
        linear = found[0].metrics["error_rate"]
    return {
        "test": record.metrics["test"]["error_rate"],
        "valid": record.metrics["valid"]["error_rate"],
        "linear": linear,
        "rows": record.data.rows.train,
        "epochs": record.history["age_examples"][-1] / record.data.rows.train,
        "seconds": took,
    }


def adding(count: int, least: int, most: int, seed: int) -> tuple[gw.Sequences, np.ndarray]:
    """Numbers beside marks, of which two are 1; the target is the sum of the numbers there."""
    random = np.random.default_rng(seed)
    rows, targets = [], np.zeros((count, 1))
    for place, steps in enumerate(random.integers(least, most + 1, count)):
        numbers, marks = random.uniform(size=steps), np.zeros(steps)
        chosen = random.choice(steps, 2, replace=False)
        marks[chosen] = 1.0
        targets[place] = numbers[chosen].sum()
        rows.append(np.stack([numbers, marks], axis=1))
    return gw.Sequences.from_list(rows), targets


def add(cell: Any, least: int, most: int, epochs: float, seed: int = 0) -> dict[str, Any]:
    """The squared error on new sequences, of a network with this cell that sees the last state alone."""
    train, targets = adding(3000, least, most, seed)
    test, wanted = adding(1000, least, most, seed + 1000)
    dataset = gw.Dataset(train, targets, gw.Numbers(("sum",)), test=gw.Dataset(test, wanted, gw.Numbers(("sum",))))
    model = gw.Recurrent(cell=cell, units=(32,), pooling=gw.LastState(), dropout=0.0)
    recipe = gw.defaults.sequences("numbers", model=model, stopping=gw.Off(epochs=epochs))
    begun = time.monotonic()
    record = gw.train(recipe, dataset, key=gw.from_seed(seed))
    return {
        "cell": title_of(cell),
        "steps": f"{least} to {most}",
        "squared": record.metrics["test"]["rmse"] ** 2,
        "constant": float(np.var(wanted)),
        "seconds": time.monotonic() - begun,
    }


SYMBOLS = 8


def copying(count: int, steps: int, seed: int) -> tuple[gw.Sequences, np.ndarray]:
    """A symbol as one of eight channels at the first step, then noise in all of them; the target is the symbol."""
    random = np.random.default_rng(seed)
    symbols = random.integers(0, SYMBOLS, count)
    lengths = random.integers(steps, steps + steps // 10 + 1, count)
    rows = [0.2 * random.normal(size=(length, SYMBOLS)) for length in lengths]
    for row, symbol in zip(rows, symbols, strict=True):
        row[0, symbol] += 1.0
    return gw.Sequences.from_list(rows), symbols


def title_of(cell: Any) -> str:
    """The cell, with the span of its longest memory if it has one."""
    span = getattr(cell, "span", 0.0)
    return type(cell).__name__ + (f", span {span:.0f}" if span else "")


def copy(cell: Any, steps: int, epochs: float, seed: int = 0) -> dict[str, Any]:
    """The errors on new sequences, of a network with this cell that sees the last state alone."""
    task = gw.Classes(np.arange(SYMBOLS))
    train, symbols = copying(2000, steps, seed)
    test, wanted = copying(1000, steps, seed + 1000)
    dataset = gw.Dataset(train, symbols, task, test=gw.Dataset(test, wanted, task))
    model = gw.Recurrent(cell=cell, units=(32,), pooling=gw.LastState(), dropout=0.0)
    recipe = gw.defaults.sequences("classes", model=model, stopping=gw.Off(epochs=epochs))
    begun = time.monotonic()
    record = gw.train(recipe, dataset, key=gw.from_seed(seed))
    took = time.monotonic() - begun
    return {"cell": title_of(cell), "steps": steps, "error": record.metrics["test"]["error_rate"], "seconds": took}


def skipping(repeats: int = 20) -> dict[str, Any]:
    """Milliseconds for a gradient of 32 recordings in the room of the longest: as it is, and with nothing skipped."""
    recordings, _ = digits()
    recipe = gw.defaults.sequences("classes")
    network = recipe.model.build(recordings.shape[1:], 10, key=jr.key(0))
    parameters, rest = trainable(network)
    rows = recipe.scaler.fit(recordings).apply(recordings[:: len(recordings) // 32][:32])
    full = np.where(np.isnan(rows), 0.0, rows)  # as long as the longest: no chunk is skipped

    @jax.jit
    def slope(parameters: Any, rows: jax.Array) -> Any:
        return jax.grad(lambda p: jnp.sum(apply_batch(eqx.combine(p, rest), rows, None) ** 2))(parameters)

    told = {"longest": int((~np.isnan(rows[..., 0])).sum(1).max()), "room": int(rows.shape[1])}
    batches = {"skipped": jnp.asarray(rows), "whole": jnp.asarray(full)}
    took: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(repeats + 1):  # in turn, so that both meet the same company on the machine
        for name, batch in batches.items():
            begun = time.monotonic()
            jax.block_until_ready(slope(parameters, batch))
            took[name].append(1000 * (time.monotonic() - begun))
    return told | {name: min(several[1:]) for name, several in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", default=["official", "speakers", "adding", "copying", "skipping"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", help="a file in benchmarks/results; tasks that are not run stay as they are in it")
    chosen = parser.parse_args()
    path = None if chosen.out is None else Path(__file__).parent / "results" / chosen.out
    result: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.is_file() else {}
    cells = (gw.SimpleCell(), gw.Gru(), gw.Lstm(), gw.Gru(span=100.0), gw.Lstm(span=100.0))
    make = {
        "official": lambda: [spoken(seed, False) for seed in range(chosen.seeds)],
        "speakers": lambda: [spoken(seed, True) for seed in range(chosen.seeds)],
        "adding": lambda: [add(cell, *steps, epochs=40.0) for steps in ((20, 50), (60, 100)) for cell in cells],
        "copying": lambda: [copy(cell, steps, epochs=40.0) for steps in (20, 60, 120) for cell in cells],
        "skipping": skipping,
    }
    for task in chosen.tasks:
        result[task] = make[task]()
        print(task, result[task], flush=True)
    result |= {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python benchmarks/sequences.py",
    }
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
