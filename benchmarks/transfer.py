"""What layers of another run gain: digits of the post office after those of MNIST (rows A9, G7).

    python benchmarks/transfer.py                 both steps; writes results/transfer.json
    python benchmarks/transfer.py --seeds 2 --labels 100

Thousands of MNIST's digits, cut to their ink and made 16 x 16 pixels, are learned as `gradwise fit` learns them. Then
few digits of USPS are labelled, as many to choose by as to learn from. The rate of layers taken over, as a share of
that of the new output, is chosen by validation error on draws that are used for nothing else. Reported are, on the same
draws and the 2,007 official test digits, the network alone, with the layers taken and trained on, and with the layers
taken and held still. Test digits choose nothing.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import gradwise as gw
from gradwise.pretraining.transfer import slower_below

HERE = Path(__file__).parent
DEVELOPMENT = 1_000_000  # draws for choosing are numbered from here
FACTORS = (1.0, 0.3, 0.1, 0.03)
WAYS = {"alone": None, "taken": 0, "frozen": 2}  # how many layers are held still


def shrunk(image: np.ndarray) -> np.ndarray:
    """A digit cut to its ink, of 16 x 16 pixels, as those of USPS are."""
    from PIL import Image

    rows, columns = (np.flatnonzero(image.max(axis) > 20) for axis in (1, 0))
    ink = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.asarray(Image.fromarray(ink).resize((16, 16), Image.Resampling.BILINEAR))


def learn_source(count: int, folder: str) -> gw.Model:
    digits = gw.read("mnist")
    rows = np.random.default_rng(0).permutation(len(digits))[:count]
    images = np.stack([shrunk(image) for image in digits.inputs[rows]]).astype(np.float32) / 255.0
    parts = {"model": gw.Mlp(), "progress": False}  # layers of filters cannot be taken over
    return gw.fit(images, digits.targets[rows], out=folder, **parts, no_report=True, no_baselines=True)


def post_office() -> tuple[np.ndarray, np.ndarray, gw.Dataset]:
    with np.load(Path(os.environ["GRADWISE_DATA"]) / "usps" / "usps.npz") as stored:
        arrays = dict(stored)
    x, test = (arrays[name].astype(np.float32).reshape(-1, 16, 16) / 2000.0 for name in ("X_train", "X_test"))
    return x, arrays["y_train"].astype(np.int64), gw.Dataset(test, arrays["y_test"].astype(np.int64), TASK)


TASK = gw.Classes(np.arange(10))


def trained(dataset: gw.Dataset, labels: int, seed: int, source: str, frozen: int | None, factor: float) -> Any:
    recipe = gw.defaults.classification(split=gw.GivenParts(train=labels, valid=labels))
    if frozen is not None:
        slower = slower_below(recipe.optimiser, source, freeze=frozen)
        slower = gw.replace(slower, "optimiser.factor", factor)
        parts: dict[str, Any] = {
            "model": gw.Transferred(source, above=gw.Mlp(widths=())),
            "scaler": gw.ScalerOf(source),
        }
        recipe = dataclasses.replace(recipe, **parts, optimiser=slower)
    return gw.train(recipe, dataset, key=jax.random.key(seed))


def drawn(x: np.ndarray, y: np.ndarray, test: gw.Dataset | None, labels: int, draw: int) -> gw.Dataset:
    rows = np.random.default_rng([draw, labels]).permutation(len(x))[: 2 * labels]
    return gw.Dataset(x[rows], y[rows], TASK, test=test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--digits", type=int, default=12_000, help="of MNIST that the layers are learned from")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "transfer.json")
    chosen = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "mnist")
        error = learn_source(chosen.digits, source).test
        x, y, test = post_office()
        tuned = {}
        for factor in FACTORS:
            scores = [
                trained(drawn(x, y, None, n, DEVELOPMENT + seed), n, seed, source, 0, factor).metrics["valid"][
                    "error_rate"
                ]
                for n in (100, 300)
                for seed in range(5)
            ]
            tuned[str(factor)] = statistics.fmean(scores)
            print(f"factor {factor}: validation {tuned[str(factor)]:.2%}", flush=True)
        factor = float(min(tuned, key=lambda one: tuned[one]))
        errors: dict[str, dict[str, list[float]]] = {}
        for n in chosen.labels:
            errors[str(n)] = {way: [] for way in WAYS}
            for seed in range(chosen.seeds):
                dataset = drawn(x, y, test, n, seed)
                for way, frozen in WAYS.items():
                    errors[str(n)][way].append(float(trained(dataset, n, seed, source, frozen, factor).test))
            means = {way: f"{statistics.fmean(found):.2%}" for way, found in errors[str(n)].items()}
            print(f"{n} labels: {means}, {time.monotonic() - begun:.0f} s", flush=True)
    result = {
        "digits": chosen.digits,
        "source_error": error,
        "tuned": tuned,
        "factor": factor,
        "errors": errors,
        "seeds": chosen.seeds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python benchmarks/transfer.py", *sys.argv[1:]]),
    }
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
