"""Small labelled sets for benchmarks of feature learners, and how well a linear probe reads their codes.

    rows = load("usps", seed=0)                 parted at random by the seed, scaled by the training rows
    record = learned(recipe, rows, seed=0)      on the training rows, whose labels are not looked at
    probe_error(record, rows)                   of a logistic regression on the codes, on the test rows

Sets are scikit-learn's own and those of `$GRADWISE_DATA`.
"""

import dataclasses
import datetime
import gzip
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gradwise
from gradwise.criteria.linear_probe import Logistic, probe_scores
from gradwise.data.scaling import NoScaling
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.specs.recipe import Recipe
from gradwise.training.predictor import outputs_of

MOST_ROWS = 3000  # of one set, drawn by the seed
TEST = 0.3


@dataclasses.dataclass(frozen=True)
class Rows:
    """Training and test rows, scaled, with their classes."""

    train: np.ndarray
    test: np.ndarray
    train_classes: np.ndarray
    test_classes: np.ndarray

    @property
    def classes(self) -> int:
        return int(max(self.train_classes.max(), self.test_classes.max())) + 1


def _folder() -> Path:
    folder = os.environ.get("GRADWISE_DATA")
    if not folder:
        raise SystemExit("GRADWISE_DATA does not name the folder of data sets")
    return Path(folder)


def _whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows and their classes."""
    from sklearn import datasets

    own = {"digits": "load_digits", "wine": "load_wine", "breast_cancer": "load_breast_cancer", "iris": "load_iris"}
    if name in own:
        inputs, classes = getattr(datasets, own[name])(return_X_y=True)
    elif name == "mnist":
        with gzip.open(_folder() / "mnist" / "train-images-idx3-ubyte.gz") as images:
            inputs = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(_folder() / "mnist" / "train-labels-idx1-ubyte.gz") as labels:
            classes = np.frombuffer(labels.read(), np.uint8, offset=8)
    elif name == "usps":
        with np.load(_folder() / "usps" / "usps.npz", allow_pickle=False) as archive:
            inputs, classes = archive["X_train"], archive["y_train"]
    else:
        with np.load(_folder() / "tabular" / f"{name}.npz", allow_pickle=False) as archive:
            inputs, classes = archive["X"], archive["y"]
    classes = np.unique(classes, return_inverse=True)[1]
    return np.asarray(inputs, np.float32).reshape(len(inputs), -1), classes


def load(name: str, seed: int, *, unit: bool) -> Rows:
    """The set parted by the seed; scaled into [0, 1] where `unit`, else to mean 0 and deviation 1."""
    inputs, classes = _whole(name)
    order = np.random.default_rng([seed, len(inputs)]).permutation(len(inputs))[:MOST_ROWS]
    inputs, classes = inputs[order], classes[order]
    count = round(TEST * len(order))
    test, train = inputs[:count], inputs[count:]
    if unit:
        low, spread = train.min(axis=0), np.ptp(train, axis=0)
    else:
        low, spread = train.mean(axis=0), train.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    train, test = ((part - low) / spread for part in (train, test))
    if unit:
        test = test.clip(0.0, 1.0)
    return Rows(train, test, classes[count:], classes[:count])


def learned(recipe: Recipe, rows: Rows, seed: int) -> Any:
    """The record of a learner on the training rows alone."""
    data = Dataset(rows.train, np.zeros((len(rows.train), 0)), Inputs())
    return gradwise.train(dataclasses.replace(recipe, scaler=NoScaling()), data, key=jax.random.key(seed))


def probe_error(record: Any, rows: Rows) -> float:
    """The share of test rows that a logistic regression on the codes of the training rows gets wrong."""
    network = record.predictor.network
    codes = tuple(jnp.asarray(outputs_of(network, part)) for part in (rows.train, rows.test))
    targets = (jnp.asarray(rows.train_classes), jnp.asarray(rows.test_classes))
    wrong, _ = jax.jit(probe_scores, static_argnums=(0, 3))(Logistic(), codes, targets, rows.classes)
    return float(np.mean(wrong))


def source(name: str) -> dict[str, str]:
    """Machine, date and command, for a result."""
    return {
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python", f"benchmarks/{name}.py", *sys.argv[1:]]),
    }
