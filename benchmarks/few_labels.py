"""What pre-training gains with few labels: MNIST, all of its training images and some of their labels.

    python benchmarks/few_labels.py choose --learner denoising --out denoising.json       Algorithm 1, development draws
    python benchmarks/few_labels.py measure --chosen denoising.json contractive.json --seeds 10 --out labels.json
    python benchmarks/few_labels.py join labels-0.json labels-5.json --out labels.json      processes that share seeds
    python benchmarks/few_labels.py choose --learner denoising --quick --out denoising.json      minutes on two cores

`choose` finds the noise (or the weight of the contraction), the rate and the epochs of every layer by the chapter's
Algorithm 1, on draws of 1,000 labelled digits that are used for nothing else. `measure` then draws, for every seed, n
labelled digits to train on and 1,000 more to choose by; layers are pre-trained on all 60,000 images and no label. Every
way to begin is fine-tuned on the same digits with the same settings (rate, dropout), of which the validation digits
choose one for each, so the differences are paired and no way to begin was tuned more than another. Test errors are
those of MNIST's 10,000 test digits, which choose nothing.
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
import jax.numpy as jnp
import numpy as np

import gradwise as gw
from gradwise.criteria.contraction import Contraction
from gradwise.criteria.corruption import Masking
from gradwise.data.reading import named_sets
from gradwise.pretraining.stack import Stack, with_output
from gradwise.runtime import keys
from gradwise.searching.layerwise.algorithm import layerwise
from gradwise.searching.layerwise.layer_data import split_for_layers
from gradwise.searching.running.device_runner import Varied, off_knobs
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.run_jobs import run_jobs
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.paths import replace
from gradwise.training.predictor import outputs_of

TASK = Classes(np.arange(10))
VALID = 1000
DEVELOPMENT = 1_000_000  # draws for choosing are numbered from here, draws for reporting from 0
DEPTHS = {"denoising": 3, "contractive": 2, "rbm": 3}
NAMES = {"denoising": "DAE-3", "contractive": "CAE-2", "rbm": "DBN-3"}


def about(command: list[str]) -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {jax.devices()[0].device_kind}",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python " + " ".join(command),
        "version": gw.__version__,
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


def drawn(x: np.ndarray, y: np.ndarray, labels: int, draw: int) -> Dataset:
    """So many labelled digits to learn from, then those to choose by; the same for every way to begin."""
    rows = np.random.default_rng([draw, labels]).permutation(len(x))[: labels + VALID]
    return Dataset(x[rows], y[rows], TASK, name=f"mnist-{labels}")


def fine_settings(labels: int) -> list[Any]:
    """How the whole network may be trained on its labels: a rate and a share of dropped units."""
    found = []
    for rate in (0.0005, 0.002):
        for dropout in (0.0, 0.25, 0.5):
            found.append(
                gw.defaults.classification(
                    split=gw.GivenParts(train=labels, valid=VALID),
                    scaler=gw.NoScaling(),
                    model=gw.Mlp(widths=(), dropout=np.float64(dropout) if dropout else 0.0),
                    batches=gw.Reshuffled(size=20 if labels <= 1000 else 100),
                    optimiser=gw.MovingAverage(gw.Adam(learning_rate=rate)),
                    stopping=gw.Patience(
                        initial_examples=50_000.0,
                        initial_epochs=20.0,
                        epochs=float(max(60, min(1000, 200_000 // labels))),
                    ),
                )
            )
    return found


# --- choosing


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is chosen of a layer: the noise or the weight of the contraction, the rate, the epochs."""

    learner: str
    strength: float
    rate: float
    epochs: float

    def recipe(self, units: int) -> Any:
        recipe = gw.learner(self.learner, units)
        if self.learner == "denoising":
            recipe = replace(recipe, "criterion.corruption", Masking(self.strength))
        elif self.learner == "contractive":
            recipe = replace(recipe, "criterion.on_codes", (Contraction(self.strength),))
        if self.learner != "rbm":
            recipe = replace(recipe, "optimiser", gw.Adam(learning_rate=self.rate))
        # 540 updates an epoch and 600 between validations: tens of epochs are whole intervals, and one program.
        stopping = gw.Off(epochs=self.epochs, spacing=10.0)
        return dataclasses.replace(recipe, scaler=gw.NoScaling(), stopping=stopping)


UNTUNED = Setting("rbm", 0.0, 0.0, 30.0)  # the Boltzmann machines stay as their recipe has them


def candidates(learner: str, epochs: list[float]) -> list[Setting]:
    strengths = {"denoising": (0.25, 0.4, 0.55), "contractive": (0.03, 0.1, 0.3)}[learner]
    rates = (0.0003, 0.001)
    return [Setting(learner, strength, rate, length) for strength in strengths for rate in rates for length in epochs]


def run_choose(chosen: argparse.Namespace) -> None:
    """Algorithm 1 on the development draws: the settings whose layers, fine-tuned, have the least validation error."""
    x, y, _, _ = digits()
    x, y = x[: chosen.images], y[: chosen.images]
    settings = candidates(chosen.learner, chosen.epochs)
    levels = [[one.recipe(chosen.units) for one in settings]] * DEPTHS[chosen.learner]
    rows = np.random.default_rng([DEVELOPMENT, chosen.labels]).permutation(len(x))
    targets = np.where(np.arange(len(x)) < chosen.labels + VALID, y[rows], -1)  # the others are images without a label
    dataset = Dataset(x[rows], targets, TASK, name="development")
    begun = time.monotonic()
    found = layerwise(
        levels,
        fine_settings(chosen.labels),
        dataset,
        keep=chosen.keep,
        key=keys.from_seed(DEVELOPMENT),
        on="here",
        watch=lambda training, total: print(training.number + 1, total, f"{training.score:.4f}", flush=True),
    )
    best = [settings[number] for number in found.best.numbers[:-1]]
    result = {
        **about(sys.argv),
        "learner": chosen.learner,
        "layers": [dataclasses.asdict(one) for one in best],
        "probes": found.best.probes,
        "validation": found.best.score,
        "trainings": len(found.trainings),
        "seconds": time.monotonic() - begun,
        "others": [[one.score, list(one.numbers)] for one in found.kept],
    }
    print(json.dumps(result), flush=True)
    chosen.out.write_text(json.dumps(result) + "\n")


# --- measuring


def pretrained(x: np.ndarray, layers: list[Setting], units: int, seed: int) -> Stack:
    everything = Dataset(x, np.zeros((len(x), 0)), gw.Inputs(), name="mnist images")
    return gw.pretrain([one.recipe(units) for one in layers], everything, key=keys.from_seed(seed))


def start(name: str, stacks: dict[str, Stack], recipe: Any, units: int, seed: int) -> Any:
    """The network that a way to begin leads to, with the dropout of a setting."""
    key = jax.random.fold_in(keys.from_seed(seed), 7)
    if name in stacks:
        return with_output(stacks[name].layers, 10, recipe.model, key=key)
    rectified = name == "recommended"
    mlp = dataclasses.replace(
        recipe.model,
        widths=(units,) * (2 if rectified else 3),
        activation=gw.Rectifier() if rectified else gw.Sigmoid(),
    )
    return mlp.build((784,), 10, key=key)


def tuned(dataset: Dataset, names: list[str], stacks: dict[str, Stack], units: int, labels: int, seed: int) -> Any:
    """For every way to begin, its fine-tunings with each setting: (validation score, validation loss, network)."""
    settings = fine_settings(labels)
    jobs = []
    for name in names:
        for recipe in settings:
            model = start(name, stacks, recipe, units, seed)
            jobs.append(Job(len(jobs), dataclasses.replace(recipe, model=model), randomness=len(jobs)))
    data, _, _ = split_for_layers(settings[0], dataset, keys.from_seed(seed))
    # The dropout of a network that is built is part of it: each kind of network has its own program.
    with LocalExecutor(data, varying=Varied(tuple(off_knobs(job.recipe for job in jobs)))) as executor:
        done = run_jobs(executor, jobs)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for job in jobs:
        one = done[job.number]
        if one.network is None:
            raise SystemExit(f"{names[job.number // len(settings)]}: {one.outcome} {one.reason}")
        found[names[job.number // len(settings)]].append((one.score, one.loss, one.network))
    return found


def run_measure(chosen: argparse.Namespace) -> None:
    x, y, test_x, test_y = digits()
    images = x[: chosen.images]
    plans = {"DBN-3": [UNTUNED] * DEPTHS["rbm"]} if chosen.rbm else {}
    for path in chosen.chosen:
        plan = json.loads(path.read_text())
        plans[NAMES[plan["learner"]]] = [Setting(**one) for one in plan["layers"]]
    names = ["recommended", "same layers", *plans]
    layers = {name: [dataclasses.asdict(one) for one in plan] for name, plan in plans.items()}
    result: dict[str, Any] = {**about(sys.argv), "layers": layers, "errors": {}, "fine": {}, "seconds": {}}
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        begun = time.monotonic()
        stacks = {name: pretrained(images, plan, chosen.units, seed) for name, plan in plans.items()}
        print(f"seed {seed}: layers learned in {time.monotonic() - begun:.1f} s", flush=True)
        for labels in chosen.labels:
            found = tuned(drawn(x, y, labels, seed), names, stacks, chosen.units, labels, seed)
            told = []
            for name in names:
                which = min(range(len(found[name])), key=lambda number: found[name][number][:2])
                network = jax.tree.map(jnp.asarray, found[name][which][2])
                error = float((outputs_of(network, test_x).argmax(1) != test_y).mean())
                result["errors"].setdefault(str(labels), {}).setdefault(name, []).append(error)
                result["fine"].setdefault(str(labels), {}).setdefault(name, []).append(which)
                told.append(f"{name} {100 * error:.2f} (setting {which})")
            print(f"seed {seed}, {labels} labels: {'  '.join(told)} {time.monotonic() - begun:.1f} s", flush=True)
        result["seconds"][str(seed)] = time.monotonic() - begun
        chosen.out.write_text(json.dumps(result) + "\n")


def run_join(chosen: argparse.Namespace) -> None:
    """The seeds of several processes, one after another."""
    results = [json.loads(path.read_text()) for path in chosen.files]
    joined = results[0]
    for other in results[1:]:
        if other["layers"] != joined["layers"]:
            raise SystemExit("these results come from different layers")
        for part in ("errors", "fine"):
            for labels, by_start in other[part].items():
                for name, values in by_start.items():
                    joined[part][labels][name] += values
        joined["seconds"] |= other["seconds"]
    joined["command"] += f", and {len(results) - 1} more for the other seeds"
    chosen.out.write_text(json.dumps(joined) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    choose = steps.add_parser("choose")
    choose.add_argument("--learner", choices=["denoising", "contractive"], required=True)
    choose.add_argument("--labels", type=int, default=1000)
    choose.add_argument("--epochs", type=float, nargs="+", default=[20.0, 60.0])
    choose.add_argument("--keep", type=int, default=2)
    measure = steps.add_parser("measure")
    measure.add_argument("--chosen", type=Path, nargs="*", default=[])
    measure.add_argument("--labels", type=int, nargs="+", default=[100, 1000, 10_000])
    measure.add_argument("--seeds", type=int, default=10)
    measure.add_argument("--first", type=int, default=0, help="the first seed: several processes can share the seeds")
    measure.add_argument("--no-rbm", dest="rbm", action="store_false")
    join = steps.add_parser("join")
    join.add_argument("files", type=Path, nargs="+")
    join.add_argument("--out", type=Path, required=True)
    for one in (choose, measure):
        one.add_argument("--images", type=int, default=60_000)
        one.add_argument("--units", type=int, default=1000)
        one.add_argument("--quick", action="store_true", help="a reduced run: 3,000 images, 64 units")
        one.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.step == "join":
        run_join(chosen)
        return
    if chosen.quick:
        chosen.images, chosen.units = 3_000, 64
        if chosen.step == "choose":
            chosen.epochs = [3.0]
        else:
            chosen.seeds, chosen.labels = 2, [100]
    (run_choose if chosen.step == "choose" else run_measure)(chosen)


if __name__ == "__main__":
    main()
