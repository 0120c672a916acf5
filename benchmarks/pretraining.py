"""The eight data sets of Larochelle et al. 2007, by Algorithm 1.

    python benchmarks/larochelle.py make --out FOLDER
    python benchmarks/pretraining.py --data FOLDER --sets basic rot --learners denoising rbm --out results.json

For each learner Algorithm 1 keeps the K best of each level by a linear probe, then fine-tunes them; what is best on the
validation part is measured once on the 50,000 test images. Results are written after every set; with --into, those of
FILES take the places of the same sets and learners in a result that is already there, of several the one with the least
validation error, so that layers of 1,000 and of 2,000 units may be searched by processes of their own:

    python benchmarks/pretraining.py --merge back-rand.json rectangles.json --into benchmarks/results/larochelle.json
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
import numpy as np

import gradwise
from gradwise import defaults
from gradwise.criteria.contrastive_divergence import PersistentDivergence
from gradwise.criteria.corruption import Masking
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import GivenParts
from gradwise.evaluation.metrics import wilson
from gradwise.models.mlp import Mlp
from gradwise.models.visible_units import BinaryVisible, TruncatedExponentialVisible
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import widths_of
from gradwise.records.evidence.fit_evidence import LayerTraining
from gradwise.runtime import keys
from gradwise.searching.layerwise.algorithm import Configuration, layerwise
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.paths import replace
from gradwise.training.predictor import outputs_of
from gradwise.training.stopping import Patience


def about(command: list[str]) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "machine": f"{platform.machine()}, {device.device_kind}",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python " + " ".join(command),
        "version": gradwise.__version__,
    }


def split_of(dataset: Dataset, valid: int) -> Any:
    """The last rows to choose by, the others to learn from; the test set is official."""
    return GivenParts(train=len(dataset) - valid, valid=valid)


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
    return 40 if rows < 5000 else 100


def level_settings(kind: str, level: int, units: int, examples: float, rows: int) -> list[Any]:
    """The settings of a level: noise, rate and width of denoising layers; rate, chains and width of Boltzmann machines.

    The first layer may be twice as wide. Small sets are learned from as many examples as large ones, in smaller
    batches. A machine's inputs, pixels in [0, 1], may be probabilities or amounts of their own: both kinds are tried.
    """
    stopping = Patience(initial_examples=examples / 4, initial_epochs=1.0, epochs=examples / rows, spacing=10.0)
    found = []
    for width in (units, 2 * units) if level == 1 else (units,):
        if kind == "denoising":
            for noise in (0.1, 0.25, 0.4, 0.55):
                for rate in (0.0003, 0.001):
                    recipe = learner("denoising", width)
                    recipe = replace(recipe, "criterion.corruption", Masking(noise))
                    recipe = replace(recipe, "optimiser", Adam(learning_rate=rate))
                    found.append(dataclasses.replace(recipe, batches=Reshuffled(size=batch_size(rows))))
            continue
        kinds: list[tuple[Any, tuple[float, ...]]] = [(BinaryVisible(), (0.0015, 0.005, 0.02))]
        if level == 1:
            kinds.append((TruncatedExponentialVisible(), (0.001, 0.003, 0.01)))
        for visible, rates in kinds:
            for rate in rates:
                recipe = replace(learner("rbm", width), "model.visible", visible)
                recipe = replace(recipe, "optimiser", HeavyBall(learning_rate=rate, momentum=0.9))
                recipe = dataclasses.replace(recipe, batches=Reshuffled(size=batch_size(rows)))
                found.append(recipe)
                if width == units and isinstance(visible, BinaryVisible):
                    found.append(dataclasses.replace(recipe, criterion=PersistentDivergence()))
    return [dataclasses.replace(recipe, stopping=stopping) for recipe in found]


def fine_settings(split: Any, examples: float, rows: int) -> list[Any]:
    """The settings of the fine-tuning: rate, dropout."""
    found = []
    for rate in (0.0001, 0.0005, 0.002):
        for dropout in (0.0, 0.3, 0.5):
            found.append(
                defaults.classification(
                    split=split,
                    scaler=NoScaling(),
                    model=Mlp(widths=(), dropout=np.float64(dropout) if dropout else 0.0),
                    criterion=Supervised(SoftmaxLoss(), penalties=(L2(),)),
                    batches=Reshuffled(size=batch_size(rows)),
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
        if kind == "denoising":
            what = f"noise {float(criterion.corruption.level):g}"
        else:
            what = f"{type(criterion).__name__}, {type(recipe.model.visible).__name__}"
        words.append(f"{widths_of(recipe)[-1]} units, {what}, rate {rate:g}")
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
    levels = [level_settings(kind, level, chosen.units, chosen.examples, rows) for level in (1, 2, 3)]
    begun = time.monotonic()
    seen: list[LayerTraining] = []

    def watch(training: LayerTraining, total: int) -> None:
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
        "units": chosen.units,
        "settings": settings_text(best, kind),
        "trainings": len(found.trainings),
        "seconds": time.monotonic() - begun,
    }
    told |= {key: text for key, text in about(sys.argv).items() if key != "version"}
    print(
        f"{name} {told['learner']}: test {told['test']:.2f} % [{100 * low:.2f}, {100 * high:.2f}], validation "
        f"{told['valid']:.2f} %, published {published:.2f} ± {half:.2f} ({whose}): "
        f"{'inside or below' if told['reached'] else 'missed'}; {told['settings']}; {told['trainings']} trainings in "
        f"{told['seconds']:.0f} s; probes {[round(p, 2) for p in told['probes']]}",
        flush=True,
    )
    return told


def run_sets(chosen: argparse.Namespace) -> None:
    result: dict[str, Any] = {**about(sys.argv), "sets": []}
    for name in chosen.sets:
        for kind in chosen.learners:
            result["sets"].append(run_set(chosen, name, kind))
            if chosen.out:
                chosen.out.write_text(json.dumps(result) + "\n")


def merge(files: list[Path], into: Path) -> None:
    """Puts newer results of a set and a learner in the places of older ones; the others stay as they were."""
    result = json.loads(into.read_text())
    older = {key: result[key] for key in ("machine", "date", "command")}
    found = {(one["set"], one["learner"]): older | one for one in result["sets"]}
    several = [json.loads(file.read_text()) for file in files]
    result |= {key: several[-1][key] for key in ("machine", "date", "command", "version")}
    newer = [one for each in several for one in each["sets"]]
    found |= {(one["set"], one["learner"]): one for one in sorted(newer, key=lambda one: one["valid"], reverse=True)}
    into.write_text(json.dumps({**result, "sets": list(found.values())}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--merge", type=Path, nargs="+", help="results to put into another")
    parser.add_argument("--into", type=Path, help="the result that --merge writes into")
    parser.add_argument("--data", type=Path, help="the folder that benchmarks/larochelle.py has made")
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--learners", nargs="+", default=["denoising", "rbm"])
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--examples", type=float, default=2_000_000.0, help="that a level sees at the most")
    parser.add_argument("--fine-examples", type=float, default=1_000_000.0, help="that fine-tuning sees at the most")
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    chosen = parser.parse_args()
    if chosen.merge and chosen.into:
        merge(chosen.merge, chosen.into)
    elif chosen.data:
        run_sets(chosen)
    else:
        parser.error("name --data FOLDER, or --merge FILES --into FILE")


if __name__ == "__main__":
    main()
