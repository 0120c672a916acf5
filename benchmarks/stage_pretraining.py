"""Do stages of filters that were pre-trained without labels need fewer labels? On scikit-learn's digits.

    python benchmarks/stage_pretraining.py [--seeds 5] [--labels 30 100] [--out stage_pretraining.json]

Two stages of 16 and 32 filters of 3 x 3 places are learned as auto-encoders on 1,200 digits, then fine-tuned on a few
with labels, as many again choosing when to stop; beside it the same network as it is drawn. Both see the same rows, and
the error is that of the other 597 digits. Noise, rates and epochs were not tuned.
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
from sklearn.datasets import load_digits

import gradwise as gw
from gradwise.data.scaling import NoScaling
from gradwise.pretraining.stack import pretrain_layers

HERE = Path(__file__).parent
POOL = 1200
FILTERS = (16, 32)


def stage(units: int, first: bool, winners: int) -> gw.Recipe:
    """The recommended learner of filters, with the kernel of the network that is fine-tuned."""
    recipe = gw.learner("convolutional", units, inputs=np.full(1, 0.5 if first else 2.0))
    model = gw.ConvolutionalAutoEncoder(units=units, kernel=3, winners=winners)
    return dataclasses.replace(recipe, model=model, stopping=gw.Off(epochs=20.0))


def errors(seed: int, labels: int) -> dict[str, float]:
    """Test errors from the same labelled rows, by what the network begins with."""
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8).astype(np.float32) / 16.0
    order, key = np.random.default_rng(seed).permutation(len(images)), jax.random.key(seed)
    pool, apart, few = order[:POOL], order[POOL:], order[: 2 * labels]
    task, nothing = gw.Classes(np.arange(10)), NoScaling()
    test = gw.Dataset(images[apart], digits[apart], task)
    dataset = gw.Dataset(images[few], digits[few], task, test=test)
    unlabelled = gw.Dataset(images[pool], np.zeros((POOL, 0)), gw.Inputs())
    networks = {"drawn": gw.Convolutional(channels=FILTERS, widths=(), dropout=0.0).build((8, 8), 10, key=key)}
    for name, winners in (("pre-trained", 1), ("pre-trained, winners=2", 2)):
        layers = [stage(units, number == 0, winners) for number, units in enumerate(FILTERS)]
        stack = pretrain_layers(layers, unlabelled, nothing.fit(images, ()), key=key)
        networks[name] = stack.network(10, gw.Mlp(widths=(), dropout=0.0), key=key)
    found = {}
    for name, network in networks.items():
        recipe = gw.defaults.classification(
            model=network,
            scaler=nothing,
            split=gw.GivenParts(train=labels, valid=labels),
            batches=gw.Reshuffled(20),
            stopping=gw.Off(epochs=150.0),
        )
        found[name] = float(gw.train(recipe, dataset, key=key).test)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--labels", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "stage_pretraining.json")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for labels in given.labels:
        for seed in range(given.seeds):
            rows.append({"labels": labels, "seed": seed, "errors": errors(seed, labels)})
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "rows": rows,
        "machine": f"{platform.machine()}, {jax.devices()[0].platform}",
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "benchmarks/stage_pretraining.py", *sys.argv[1:]]),
    }
    given.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
