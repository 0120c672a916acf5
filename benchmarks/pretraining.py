"""What pre-training gains: MNIST with few labels, and the eight data sets of Larochelle et al. 2007 by Algorithm 1.

    python benchmarks/pretraining.py labels --seeds 10 --out results.json              (a) few labels, all images
    python benchmarks/pretraining.py larochelle --data FOLDER --sets basic rot --out results.json      (b)
    python benchmarks/pretraining.py labels --quick                                    reduced, minutes on two cores

(a) Every seed draws n labelled digits to train on and 1 000 more to choose by, out of MNIST's 60 000 training digits;
pre-training sees all 60 000 images and no label. Each way of starting is then trained on the same digits, so the
differences are paired. (b) Sets as `benchmarks/larochelle.py make` writes them; for each learner Algorithm 1 keeps the
K best of each level by a linear probe, then fine-tunes them; what is best on the validation part is measured once on
the 50 000 test images. Results are written after every seed and every set.
"""

import argparse
import dataclasses
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

import gradwise
from gradwise import defaults
from gradwise.criteria.contrastive_divergence import ContrastiveDivergence, PersistentDivergence
from gradwise.criteria.corruption import Masking
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.reading import named_sets
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import GivenParts
from gradwise.evaluation.metrics import wilson
from gradwise.models.activations import Rectifier, Sigmoid
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import pretrain, with_output
from gradwise.runtime import keys
from gradwise.searching.layerwise.algorithm import Configuration, Training, layerwise
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.paths import replace
from gradwise.training.predictor import outputs_of
from gradwise.training.stopping import Off, Patience

TASK = Classes(np.arange(10))
VALID = 1000


def about(command: list[str]) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "machine": f"{platform.machine()}, {device.device_kind}",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python " + " ".join(command),
        "version": gradwise.__version__,
    }


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST's training and test digits, pixels in [0, 1]."""
    loaded = named_sets.load_named("mnist")
    assert loaded.arrays is not None
    assert loaded.test is not None
    assert loaded.test.arrays is not None
    parts = []
    for arrays in (loaded.arrays, loaded.test.arrays):
        parts += [np.asarray(arrays["X"], np.float32).reshape(-1, 784) / 255.0, np.asarray(arrays["y"], np.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def split_of(dataset: Dataset, valid: int) -> Any:
    """The last rows to choose by, the others to learn from; the test set is official."""
    return GivenParts(train=len(dataset) - valid, valid=valid)


# --- (a) few labels


def layers_of(kind: str, widths: tuple[int, ...], epochs: float) -> list[Any]:
    """The recipes of a stack's layers. A fixed number of epochs: the seeds differ in nothing but their randomness."""
    found = []
    for units in widths:
        # 540 updates an epoch and 600 between validations: tens of epochs are whole intervals, and one program.
        parts = {"scaler": NoScaling(), "stopping": Off(epochs=epochs, spacing=10.0)}
        found.append(dataclasses.replace(learner(kind, units), **parts))
    return found


STACKS = {"DAE-3": ("denoising", 3), "CAE-2": ("contractive", 2), "DBN-3": ("rbm", 3)}


def fine(labels: int, model: Any, split: Any, **parts: Any) -> Any:
    """How every network of (a) is trained on its labels."""
    return defaults.classification(
        split=split,
        scaler=NoScaling(),
        model=model,
        batches=Reshuffled(size=20 if labels <= 1000 else 100),
        stopping=Patience(
            initial_examples=50_000.0, initial_epochs=20.0, epochs=float(max(60, min(1000, 200_000 // labels)))
        ),
        **parts,
    )


def trained_on(labels: int, seed: int, data: Any, starts: dict[str, Any], scale: float) -> dict[str, float]:
    """Test errors of every start, on one draw of labelled digits."""
    x, y, test_x, test_y = data
    random = np.random.default_rng([seed, labels])
    rows = random.permutation(len(x))[: labels + VALID]
    test = Dataset(test_x, test_y, TASK)
    dataset = Dataset(x[rows], y[rows], TASK, test=test, name=f"mnist-{labels}")
    split = split_of(dataset, VALID)
    rate = Adam(learning_rate=0.0005)
    found = {}
    for name, start in starts.items():
        key = keys.from_seed(seed)
        optimiser = MovingAverage(Adam()) if name == "recommended" else MovingAverage(rate)
        record = gradwise.train(fine(labels, start, split, optimiser=optimiser), dataset, key=key)
        found[name] = record.test
    return found


def starts_of(stacks: dict[str, Any], widths: tuple[int, ...], seed: int) -> dict[str, Any]:
    """The networks that a seed begins from: those of the stacks with an output, and two that were not pre-trained."""
    mlp = Mlp(widths=(), dropout=0.0)
    network = {
        name: with_output(stack.layers, 10, mlp, key=jr.fold_in(keys.from_seed(seed), 7))
        for name, stack in stacks.items()
    }
    return {
        "recommended": Mlp(widths=(widths[0], widths[0]), activation=Rectifier(), dropout=0.3),
        "same layers": Mlp(widths=widths, activation=Sigmoid(), dropout=0.0),
        **network,
    }


def run_labels(chosen: argparse.Namespace) -> None:
    x, y, test_x, test_y = digits()
    images = x[: chosen.images]
    widths = (chosen.units,) * 3
    result: dict[str, Any] = {**about(sys.argv), "errors": {}, "seconds": {}, "settings": vars(chosen) | {"out": None}}
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        begun = time.monotonic()
        everything = Dataset(images, np.zeros((len(images), 0)), gradwise.specs.dataset.Inputs(), name="mnist images")
        stacks = {}
        for name, (kind, depth) in STACKS.items():
            at = time.monotonic()
            stacks[name] = pretrain(
                layers_of(kind, widths[:depth], chosen.epochs), everything, key=keys.from_seed(seed)
            )
            print(f"seed {seed}: {name} learned in {time.monotonic() - at:.1f} s", flush=True)
        for labels in chosen.labels:
            at = time.monotonic()
            errors = trained_on(labels, seed, (x, y, test_x, test_y), starts_of(stacks, widths, seed), 1.0)
            for name, error in errors.items():
                result["errors"].setdefault(str(labels), {}).setdefault(name, []).append(error)
            told = "  ".join(f"{name} {100 * error:.2f}" for name, error in errors.items())
            print(f"seed {seed}, {labels} labels: {told} % ({time.monotonic() - at:.1f} s)", flush=True)
        result["seconds"][str(seed)] = time.monotonic() - begun
        if chosen.out:
            chosen.out.write_text(json.dumps(result) + "\n")
    show_labels(result)


def interval_of(differences: np.ndarray) -> tuple[float, float]:
    """A 95 % interval of a mean, by Student's t."""
    from scipy.stats import t

    count = len(differences)
    if count < 2:
        return (float("nan"), float("nan"))
    half = float(t.ppf(0.975, count - 1) * differences.std(ddof=1) / count**0.5)
    return float(differences.mean()) - half, float(differences.mean()) + half


def show_labels(result: dict[str, Any]) -> None:
    """Mean errors, and the paired difference from the better of the two networks that were not pre-trained."""
    for labels, errors in result["errors"].items():
        plain = min(("recommended", "same layers"), key=lambda name: float(np.mean(errors[name])))
        print(f"{labels} labels (not pre-trained: {plain})")
        for name, values in errors.items():
            gain = 100 * (np.asarray(values) - np.asarray(errors[plain]))
            low, high = interval_of(gain)
            print(
                f"  {name:12} {100 * np.mean(values):6.2f} %   difference {gain.mean():+.2f} [{low:+.2f}, {high:+.2f}]"
            )


# --- (b) the eight sets

PUBLISHED = {  # the best of the published columns, and whose
    "basic": (2.84, "SDAE-3"),
    "rot": (9.53, "SDAE-3"),
    "back-rand": (6.73, "DBN-3"),
    "back-image": (16.31, "DBN-3"),
    "rot-back-image": (43.76, "SDAE-3"),
    "rectangles": (1.99, "SDAE-3"),
    "rectangles-image": (21.59, "SDAE-3"),
    "convex": (18.41, "SAA-3"),
}


def batch_size(rows: int) -> int:
    return 20 if rows < 5000 else 50


def level_settings(kind: str, units: int, examples: float, rows: int) -> list[Any]:
    """The settings of a level: noise and rate for denoising layers, rate and chains for Boltzmann machines.

    Small sets are learned from as many examples as large ones, in smaller batches.
    """
    stopping = Patience(initial_examples=examples / 4, initial_epochs=1.0, epochs=examples / rows, spacing=10.0)
    found = []
    if kind == "denoising":
        for noise in (0.1, 0.25, 0.4):
            for rate in (0.0003, 0.001):
                recipe = learner("denoising", units)
                recipe = replace(recipe, "criterion.corruption", Masking(noise))
                recipe = replace(recipe, "optimiser", Adam(learning_rate=rate))
                found.append(dataclasses.replace(recipe, stopping=stopping, batches=Reshuffled(size=batch_size(rows))))
        return found
    for rate in (0.005, 0.02, 0.08):
        recipe = replace(learner("rbm", units), "optimiser", HeavyBall(learning_rate=rate, momentum=0.9))
        for criterion in (ContrastiveDivergence(), PersistentDivergence()):
            found.append(
                dataclasses.replace(
                    recipe, criterion=criterion, stopping=stopping, batches=Reshuffled(size=batch_size(rows))
                )
            )
    return found


def fine_settings(split: Any, examples: float, rows: int) -> list[Any]:
    """The settings of the fine-tuning: rate, dropout."""
    found = []
    for rate in (0.0001, 0.0005):
        for dropout in (0.0, 0.3, 0.5):
            found.append(
                defaults.classification(
                    split=split,
                    scaler=NoScaling(),
                    model=Mlp(widths=(), dropout=np.float64(dropout) if dropout else 0.0),
                    criterion=Supervised(SoftmaxLoss(), penalties=(L2(),)),
                    batches=Reshuffled(size=2 * batch_size(rows)),
                    optimiser=MovingAverage(Adam(learning_rate=rate)),
                    stopping=Patience(initial_examples=examples / 4, initial_epochs=1.0, epochs=examples / rows),
                )
            )
    return found


def set_of(folder: Path, name: str) -> tuple[Dataset, int]:
    """One of the eight as a data set, training rows first; and how many rows to choose by."""
    stored = np.load(folder / f"{name}.npz")

    def pixels(part: str) -> np.ndarray:
        x = stored[f"{part}_x"]
        return x.reshape(len(x), -1).astype(np.float32) / (255.0 if x.dtype == np.uint8 else 1.0)

    y = {part: stored[f"{part}_y"].astype(np.int64) for part in ("train", "valid", "test")}
    task = Classes(np.arange(int(max(values.max() for values in y.values())) + 1))
    test = Dataset(pixels("test"), y["test"], task)
    inputs = np.concatenate([pixels("train"), pixels("valid")])
    dataset = Dataset(inputs, np.concatenate([y["train"], y["valid"]]), task, test=test, name=name)
    return dataset, len(y["valid"])


def settings_text(one: Configuration, kind: str) -> str:
    """What was chosen, in a line."""
    words = []
    for recipe in one.settings:
        rate = float(recipe.optimiser.learning_rate)
        criterion = recipe.criterion
        what = f"noise {float(criterion.corruption.level):g}" if kind == "denoising" else type(criterion).__name__
        words.append(f"{what}, rate {rate:g}")
    assert one.fine_tuning is not None
    tuning = one.fine_tuning
    words.append(
        f"fine-tuned at {float(tuning.optimiser.optimiser.learning_rate):g}, dropout {float(tuning.model.dropout):g}"
    )
    return "; ".join(words)


def run_set(chosen: argparse.Namespace, name: str, kind: str) -> dict[str, Any]:
    dataset, valid = set_of(chosen.data, name)
    split = split_of(dataset, valid)
    rows = len(dataset) - valid
    levels = [level_settings(kind, chosen.units, chosen.examples, rows) for _ in range(3)]
    begun = time.monotonic()
    seen: list[Training] = []

    def watch(training: Training, total: int) -> None:
        seen.append(training)
        if len(seen) % 10 == 0:
            print(f"  {len(seen)} of {total}, {time.monotonic() - begun:.0f} s", flush=True)

    found = layerwise(
        levels,
        fine_settings(split, chosen.fine_examples, rows),
        dataset,
        keep=chosen.keep,
        key=keys.from_seed(chosen.seed),
        watch=watch,
    )
    best = found.best
    assert dataset.test is not None
    network = jax.tree.map(jax.numpy.asarray, best.network)
    wrong = int((outputs_of(network, dataset.test.inputs).argmax(1) != dataset.test.targets).sum())
    rate = wrong / len(dataset.test)
    published, whose = PUBLISHED[name]
    half = 196 * (published / 100 * (1 - published / 100) / 50_000) ** 0.5
    low, high = wilson(wrong, len(dataset.test))
    told = {
        "set": name,
        "learner": {"denoising": "SDAE-3", "rbm": "DBN-3"}[kind],
        "valid": 100 * best.score,
        "test": 100 * rate,
        "interval": [100 * low, 100 * high],
        "published": published,
        "whose": whose,
        "half": half,
        "reached": bool(100 * rate <= published + half),
        "probes": [100 * score for score in best.probes],
        "settings": settings_text(best, kind),
        "trainings": len(found.trainings),
        "seconds": time.monotonic() - begun,
    }
    print(
        f"{name} {told['learner']}: test {told['test']:.2f} % [{100 * low:.2f}, {100 * high:.2f}], validation "
        f"{told['valid']:.2f} %, published {published:.2f} ± {half:.2f} ({whose}): "
        f"{'inside or below' if told['reached'] else 'missed'}; {told['settings']}; {told['trainings']} trainings in "
        f"{told['seconds']:.0f} s; probes {[round(p, 2) for p in told['probes']]}",
        flush=True,
    )
    return told


def run_larochelle(chosen: argparse.Namespace) -> None:
    result: dict[str, Any] = {**about(sys.argv), "sets": []}
    for name in chosen.sets:
        for kind in chosen.learners:
            result["sets"].append(run_set(chosen, name, kind))
            if chosen.out:
                chosen.out.write_text(json.dumps(result) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    labels = parts.add_parser("labels")
    labels.add_argument("--labels", type=int, nargs="+", default=[100, 1000, 10_000])
    labels.add_argument("--seeds", type=int, default=10)
    labels.add_argument("--first", type=int, default=0, help="the first seed: several processes can share the seeds")
    labels.add_argument("--images", type=int, default=60_000)
    labels.add_argument("--units", type=int, default=1000)
    labels.add_argument("--epochs", type=float, default=30.0)
    labels.add_argument("--quick", action="store_true", help="a reduced run: 10 000 images, 200 units, 3 seeds")
    eight = parts.add_parser("larochelle")
    eight.add_argument("--data", type=Path, required=True)
    eight.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    eight.add_argument("--learners", nargs="+", default=["denoising", "rbm"])
    eight.add_argument("--units", type=int, default=1000)
    eight.add_argument("--examples", type=float, default=1_000_000.0, help="that a level sees at the most")
    eight.add_argument("--fine-examples", type=float, default=1_500_000.0, help="that fine-tuning sees at the most")
    eight.add_argument("--keep", type=int, default=3)
    eight.add_argument("--seed", type=int, default=0)
    for one in (labels, eight):
        one.add_argument("--out", type=Path, help="a JSON file for the result")
    chosen = parser.parse_args()
    if chosen.part == "labels" and chosen.quick:
        chosen.images, chosen.units, chosen.seeds, chosen.epochs = 10_000, 200, min(3, chosen.seeds), 10.0
        chosen.labels = [100, 1000]
    return chosen


def main() -> None:
    chosen = arguments()
    (run_labels if chosen.part == "labels" else run_larochelle)(chosen)


if __name__ == "__main__":
    main()
