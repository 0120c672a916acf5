"""Planted wrong labels: how many of those that a training calls suspect are wrong, and how many of the wrong it finds.

    GRADWISE_DATA=... python benchmarks/label_errors.py --half report --seeds 3 --out label_errors.json
    GRADWISE_DATA=... python benchmarks/label_errors.py --half development      the sets on which the limits were chosen

A share of all labels is replaced by another class, uniformly. A network is trained by the recommended recipe, which
knows nothing of it; the examples of its training and validation sets are judged by `model.examples`. Beside it stands
the plain rule that the largest last losses are the wrong labels. The area under the ROC curve needs no limit. For the
plain rule, which has none, precision is that of as many rows as are suspect. Labels that were wrong before count as
false alarms.
"""

import argparse
import gzip
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.metrics import roc_auc_score
from table_sets import load

import gradwise as gw
from gradwise.data.reading.tables import from_frame
from gradwise.runtime import keys
from gradwise.specs.dataset import Classes, Dataset

SETS = {
    "development": (
        *("digits", "letter", "spambase", "vehicle", "german", "ionosphere", "phoneme", "adult"),
        "covertype_subset",
    ),
    "report": (
        *("usps", "fashion_mnist", "dna", "mammography", "optdigits", "pimaindiansdiabetes", "texture"),
        *("vowel", "banknote"),
    ),
}
SHARES = (0.0, 0.01, 0.05, 0.1)
MOST = 4000  # rows of a set: the first so many of one permutation
FASHION = "/usr/share/datasets/fashion-mnist"  # where Debian's package dataset-fashion-mnist puts it


def _pictures(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        return found.images.astype(np.float32), found.target
    if name == "usps":
        with np.load(Path(os.environ["GRADWISE_DATA"]) / "usps" / "usps.npz") as file:
            arrays = dict(file)
        inputs = np.concatenate([one for one in arrays.values() if one.ndim > 1]).astype(np.float32) / 2000
        targets = [one for one in arrays.values() if one.ndim == 1 and one.dtype.kind in "iu"]
        return inputs.reshape(-1, 16, 16), np.concatenate(targets).astype(np.int64)
    folder = Path(os.environ.get("FASHION_MNIST", FASHION))
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = np.frombuffer(images, np.uint8).reshape(-1, 28, 28)
    return pixels.astype(np.float32), np.frombuffer(labels, np.uint8).astype(np.int64)


def read(name: str) -> Dataset:
    """The set with its labels as they are, at most `MOST` rows of it."""
    if name in ("digits", "usps", "fashion_mnist"):
        inputs, targets = _pictures(name)
        columns: Any = ()
    else:
        frame, targets, _ = load(name)
        encoded = from_frame(frame)
        inputs, columns = np.asarray(encoded.inputs), encoded.columns
    rows = np.random.default_rng(0).permutation(len(targets))[:MOST]
    classes, targets = np.unique(targets[rows], return_inverse=True)
    return Dataset(inputs[rows], targets, Classes(np.arange(len(classes))), columns, name=name)


def planted(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, np.ndarray]:
    """The set with a share of wrong labels, and which they are."""
    random = np.random.default_rng([seed, round(1000 * share)])
    wrong = np.zeros(len(dataset), bool)
    wrong[random.permutation(len(dataset))[: round(share * len(dataset))]] = True
    count = dataset.task.outputs
    moved = (dataset.targets + random.integers(1, count, len(dataset))) % count
    targets = np.where(wrong, moved, dataset.targets)
    return Dataset(dataset.inputs, targets, dataset.task, dataset.columns, name=dataset.name), wrong


def measure(dataset: Dataset, share: float, seed: int) -> dict[str, Any]:
    """One training on a set with planted errors."""
    data, wrong = planted(dataset, share, seed)
    begun = time.monotonic()
    recipe = gw.defaults.for_task(data.task) if len(data.shape) > 1 else gw.defaults.for_data(data)
    record = gw.train(recipe, data, key=keys.from_seed(seed))
    assert record.examples is not None
    columns = record.examples.columns
    is_wrong, suspect = wrong[columns["row"]], columns["suspect"]
    found: dict[str, Any] = {
        "suspect": float(suspect.mean()),
        "reported": any(one.code == "GW215" for one in record.findings),
        "test_error": record.metrics["test"]["error_rate"],
        "seconds": time.monotonic() - begun,
    }
    if share == 0:
        return found
    plain = np.zeros(len(suspect), bool)
    plain[np.argsort(-columns["last_loss"], kind="stable")[: suspect.sum()]] = True
    learned = columns["set"] == "training"
    for name, chosen in (("", suspect), ("plain_", plain)):
        found[f"{name}precision"] = float(is_wrong[chosen].mean()) if chosen.any() else None
        found[f"{name}recall"] = float(chosen[is_wrong].mean())
    found["auroc"] = float(roc_auc_score(is_wrong[learned], -columns["confidence"][learned]))
    found["plain_auroc"] = float(roc_auc_score(is_wrong[learned], columns["last_loss"][learned]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=sorted(SETS), default="report")
    parser.add_argument("--sets", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", help="a file in benchmarks/results")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.sets or SETS[chosen.half]:
        dataset = read(name)
        for share in SHARES:
            runs = [measure(dataset, share, seed) for seed in range(chosen.seeds)]
            rows.append({"set": name, "rows": len(dataset), "share": share, "runs": runs})
            means = {
                key: round(float(np.mean([run[key] for run in runs if run[key] is not None] or [np.nan])), 3)
                for key in runs[0]
            }
            print(name, share, means, flush=True)
    if chosen.out:
        result = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
            "date": time.strftime("%Y-%m-%d"),
            "command": f"python benchmarks/label_errors.py --half {chosen.half} --seeds {chosen.seeds}",
            "limits": "chosen on " + ", ".join(SETS["development"]),
            "rows": rows,
        }
        (Path(__file__).parent / "results" / chosen.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
