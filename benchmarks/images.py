"""Pictures: the recommended convolutional network on MNIST and Fashion-MNIST, without and with augmentation.

    python benchmarks/images.py [--sets mnist fashion-mnist] [--seeds 3] [--rows 60000] [--out images.json]

Beside it, the perceptron of the general recipe. Every network is trained by its recipe on the training pictures, of
which 20 % choose the network of the run; the error is that of the official 10,000 test pictures, which choose nothing.
Seconds are those of one training, compilation included. On an accelerator the same command measures that. What the
file holds of other sets and networks stays.
"""

import argparse
import dataclasses
import json
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import gradwise as gw
from gradwise import defaults
from gradwise.data.reading.read import ReadRequest, read
from gradwise.models.convolution.augmentation import AbstractAugmentation
from gradwise.runtime import keys
from gradwise.specs.dataset import Dataset
from gradwise.specs.paths import replace
from gradwise.specs.recipe import Recipe

HERE = Path(__file__).parent
AUGMENTATIONS: dict[str, AbstractAugmentation] = {
    "mnist": gw.Shift(2),
    "fashion-mnist": gw.Augmentations((gw.Shift(1), gw.Flip())),
}


def recipes(name: str, dataset: Dataset) -> dict[str, Recipe]:
    """What is compared on one set."""
    plain = defaults.for_data(dataset)
    augmented = replace(plain, "model.augmentation", AUGMENTATIONS[name])
    return {"perceptron": defaults.for_task(dataset.task), "filters": plain, "filters, augmented": augmented}


def measure(recipe: Recipe, dataset: Dataset, seed: int) -> tuple[float, float]:
    """The error on the official test pictures, and the seconds of the training."""
    assert dataset.test is not None
    begun = time.perf_counter()
    record = gw.train(recipe, dataset, key=keys.from_seed(seed))
    seconds = time.perf_counter() - begun
    predicted = np.argmax(np.asarray(record.predictor.predict(dataset.test.inputs)), axis=1)
    return float(np.mean(predicted != dataset.test.targets)), seconds


def kept(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What was measured before, by set and network: a run replaces what it measures again."""
    stored = json.loads(path.read_text())["rows"] if path.is_file() else []
    return {(row["set"], row["network"]): row for row in stored}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=[*AUGMENTATIONS], choices=[*AUGMENTATIONS])
    parser.add_argument("--networks", nargs="+", default=["perceptron", "filters", "filters, augmented"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="training pictures, the first ones")
    parser.add_argument("--out", default=str(HERE / "results" / "images.json"))
    chosen = parser.parse_args()
    rows = kept(Path(chosen.out))
    command = "python " + shlex.join(["benchmarks/images.py", *sys.argv[1:]])
    for name in chosen.sets:
        whole = read(name, ReadRequest())
        dataset = dataclasses.replace(whole.take(np.arange(min(chosen.rows, len(whole)))), test=whole.test)
        for label, recipe in recipes(name, dataset).items():
            if label not in chosen.networks:
                continue
            found = [measure(recipe, dataset, seed) for seed in range(chosen.seeds)]
            errors, seconds = zip(*found, strict=True)
            about: dict[str, Any] = {"set": name, "network": label, "rows": len(dataset), "errors": errors}
            about |= {"seconds": float(np.mean(seconds)), "predicted": len(whole.test or ()), "command": command}
            rows[name, label] = about
            print(json.dumps(about), flush=True)
    device = jax.devices()[0]
    result = {
        "rows": [rows[key] for key in sorted(rows)],
        "machine": f"{platform.machine()}, {device.device_kind}",
        "date": time.strftime("%Y-%m-%d"),
    }
    Path(chosen.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
