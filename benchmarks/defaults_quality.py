"""How good is the general recipe, untuned? Ten seeds on two sets of images, beside scikit-learn's network.

    GRADWISE_DATA=... python benchmarks/defaults_quality.py            about 40 minutes on 2 cores
    python benchmarks/defaults_quality.py --sets digits                what ships with scikit-learn

Each seed draws its own split. gradwise trains on the training part and stops on the validation part;
scikit-learn's network, which by default does not stop early, gets both parts to train on and the same scaling a user
would give it (pixels divided by their maximum). Both are measured once on the same test part.
"""

import argparse
import datetime
import json
import math
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import gradwise
from gradwise import defaults
from gradwise.data.reading.read import ReadRequest, read
from gradwise.runtime import keys

ASKED = {
    "digits": ("error_rate", "<", 0.025),
    "mnist": ("error_rate", "<", 0.017),
}


def peer(dataset: Any, seed: int) -> float:
    """scikit-learn's `MLPClassifier()` on the same split."""
    from sklearn.neural_network import MLPClassifier

    recipe = defaults.for_task(dataset.task)
    train, valid, test = recipe.split(dataset, key=keys.named(keys.from_seed(seed), "split"))
    assert test is not None
    flat = [np.asarray(part.inputs, np.float64).reshape(len(part), -1) for part in (train, valid, test)]
    x, x_test = np.concatenate(flat[:2]), flat[2]
    y = np.concatenate([train.targets, valid.targets])
    top = x.max()
    net = MLPClassifier(random_state=seed).fit(x / top, y)
    return float(np.mean(net.predict(x_test / top) != test.targets))


def run_set(name: str, seeds: int, peer_seeds: int) -> dict[str, Any]:
    dataset = read(name, ReadRequest())
    metric, sign, asked = ASKED[name]
    ours, theirs, seconds, their_seconds, ages = [], [], [], [], []
    for seed in range(seeds):
        start = time.perf_counter()
        result = gradwise.train(defaults.for_task(dataset.task), dataset, key=keys.from_seed(seed))
        seconds.append(time.perf_counter() - start)
        ours.append(result.metrics["test"][metric])
        ages.append(result.outcome.age_examples / result.data.rows.train)
        if seed < peer_seeds:
            start = time.perf_counter()
            theirs.append(peer(dataset, seed))
            their_seconds.append(time.perf_counter() - start)
        print(
            f"{name} seed {seed}: {metric} {ours[-1]:.4f} in {seconds[-1]:.1f} s", *theirs[seed : seed + 1], flush=True
        )
    mean = float(np.mean(ours))
    return {
        "set": name,
        "metric": metric,
        "asked": f"{sign} {asked}",
        "reached": bool(mean < asked if sign == "<" else mean > asked),
        "mean": mean,
        "standard_error": float(np.std(ours, ddof=1) / math.sqrt(len(ours))) if len(ours) > 1 else None,
        "values": ours,
        "seconds": float(np.median(seconds)),
        "epochs": float(np.median(ages)),
        "scikit_learn": {"mean": float(np.mean(theirs)), "values": theirs, "seconds": float(np.median(their_seconds))}
        if theirs
        else None,
    }


def show(rows: list[dict[str, Any]]) -> None:
    print("| data | metric | gradwise, mean of seeds | asked | seconds | scikit-learn's defaults | its seconds |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
        theirs = row["scikit_learn"] or {"mean": math.nan, "seconds": math.nan}
        print(
            f"| {row['set']} | {row['metric']} | {row['mean']:.4f}{error} | {row['asked']} | {row['seconds']:.1f} "
            f"| {theirs['mean']:.4f} | {theirs['seconds']:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=list(ASKED), default=list(ASKED))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--peer-seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "defaults_quality.json"
    rows = []
    for name in chosen.sets:
        # scikit-learn takes minutes for each of MNIST's runs: one is enough to compare with.
        rows.append(run_set(name, chosen.seeds, min(chosen.peer_seeds, 1 if name == "mnist" else chosen.peer_seeds)))
        result = {
            "rows": rows,
            "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
            f"{jax.devices()[0].device_kind}",
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "command": "python benchmarks/defaults_quality.py",
        }
        path.write_text(json.dumps(result, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
