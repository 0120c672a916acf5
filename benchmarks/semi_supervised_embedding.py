"""MNIST with few labels: neighbours embedded at the output, beside Weston, Ratle and Collobert (2008) (row G4).

    python benchmarks/semi_supervised_embedding.py                  all; writes results/semi_supervised_embedding.json
    python benchmarks/semi_supervised_embedding.py --labels 100     adds to it, if the other options are its own

Of a draw of training digits the first few are labelled. All of them have a label to learn from or none: the length of
the run is fixed and nothing is validated on. Coefficient, margin, dropout and length were chosen on other draws, by
digits of the training set that were in neither (`--development` draws and measures so); reported are fresh draws, and
the 10,000 test digits. Beside it the same network in the same updates without pairs. The paper labels as many of
60,000.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import gradwise as gw
from gradwise.specs.contracts import AbstractSplit
from gradwise.training.loop import RunOptions

HERE = Path(__file__).parent
DEVELOPMENT = 1_000_000  # draws for choosing are numbered from here
PAPER = {"100": (25.81, 16.86), "600": (11.44, 5.97), "1000": (10.70, 5.73), "3000": (6.04, 3.59)}  # NN, EmbedNN, %
WAYS = {"alone": 0.0, "embedded": 0.1}


class Everything(AbstractSplit):
    """All rows are trained on; the labelled ones stand in for a validation set, which decides nothing."""

    def __call__(self, dataset: gw.Dataset, *, key: Any) -> tuple[gw.Dataset, gw.Dataset, gw.Dataset | None]:
        return dataset, dataset.take(np.arange(len(dataset))), dataset.test


def drawn(digits: gw.Dataset, labels: int, rows: int, draw: int) -> gw.Dataset:
    order = np.random.default_rng(draw).permutation(len(digits))
    targets = digits.targets[order[:rows]].copy()
    targets[labels:] = -1
    test = digits.test if draw < DEVELOPMENT else digits.take(order[rows : rows + 10_000])
    return gw.Dataset(digits.inputs[order[:rows]], targets, digits.task, digits.columns, test=test)


def error(dataset: gw.Dataset, coefficient: float, epochs: float, seed: int) -> float:
    recipe = gw.defaults.classification(
        split=Everything(),
        model=gw.Mlp(widths=(256, 256), dropout=0.3),
        criterion=gw.EmbedNeighbours(coefficient=coefficient, margin=10.0, labelled=100),
        batches=gw.Reshuffled(size=100),
        optimiser=gw.MovingAverage(gw.Adam(1e-3)),
        stopping=gw.Off(epochs=epochs, keep="last"),
    )
    found = gw.train(recipe, dataset, key=jax.random.key(seed), options=RunOptions(examples=False))
    return float(found.metrics["test"]["error_rate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 600, 1000, 3000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=25_000, help="digits to learn from, labelled ones included")
    parser.add_argument("--epochs", type=float, default=25.0)
    parser.add_argument("--development", action="store_true", help="other draws, no test digits, nothing written")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "semi_supervised_embedding.json")
    chosen = parser.parse_args()
    digits, begun = gw.read("mnist"), time.monotonic()
    settings: dict[str, Any] = {"rows": chosen.rows, "epochs": chosen.epochs, "seeds": chosen.seeds}
    earlier = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {}
    errors: dict[str, Any] = earlier["errors"] if earlier.get("settings") == settings else {}
    for labels in chosen.labels:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in range(chosen.seeds):
            draw = seed + (DEVELOPMENT if chosen.development else 0)
            dataset = drawn(digits, labels, chosen.rows, draw)
            for way, coefficient in WAYS.items():
                found[way].append(error(dataset, coefficient, chosen.epochs, draw))
        errors[str(labels)] = found
        means = {way: f"{statistics.fmean(each):.2%}" for way, each in found.items()}
        print(f"{labels} labels: {means}, {time.monotonic() - begun:.0f} s", flush=True)
        result = {
            "errors": dict(sorted(errors.items(), key=lambda one: int(one[0]))),
            "paper": PAPER,
            "settings": settings,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": datetime.date.today().isoformat(),
            "command": f"python benchmarks/semi_supervised_embedding.py --rows {chosen.rows} --seeds {chosen.seeds}",
        }
        if not chosen.development:
            chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
