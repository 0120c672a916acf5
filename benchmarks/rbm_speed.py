"""One epoch of a Boltzmann machine, 784-500 on MNIST with persistent chains: gradwise beside scikit-learn.

    python benchmarks/rbm_speed.py
    python benchmarks/rbm_speed.py --rounds 9 --out benchmarks/results/rbm_speed.json

Both learn 10 000 digits in mini-batches of 100 with 100 chains, one turn of Gibbs sampling at each update, at the same
rate, in 32 bits. gradwise's time is that of one interval of `fit`: an epoch with its training curve, one validation on
1 000 other digits and one decision; scikit-learn's is that of `BernoulliRBM.fit` with one iteration, which does none of
that. Compiling is not counted. The rounds of both are interleaved, since the machine may be busy with other things, and
the ratio is that of the medians. Processor seconds are told too: on a busy machine they are the steadier measure, but
threads of NumPy's products that wait in a loop count there (`OPENBLAS_NUM_THREADS=1` keeps them from it). scikit-learn
is also run in 64 bits, its kind where the data are not converted, and both machines are judged by the pseudo-likelihood
of the other digits, so that speed is not bought with quality.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from gradwise.criteria.contrastive_divergence import PersistentDivergence
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.reading import named_sets
from gradwise.models.restricted_boltzmann import Rbm, RbmNetwork
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.training.interval import interval
from gradwise.training.state import init

ASKED = 2.5
RATE = 0.05


def digits(count: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits to learn and others to judge by, as rows of numbers between 0 and 1."""
    loaded = named_sets.load_named("mnist")
    assert loaded.arrays is not None
    rows = np.asarray(loaded.arrays["X"][: count + other], np.float32).reshape(-1, 784) / 255.0
    return rows[:count], rows[count:]


class Gradwise:
    """`fit`'s interval on a machine that goes on learning."""

    def __init__(self, train: np.ndarray, valid: np.ndarray, units: int, batch: int):
        recipe = dataclasses.replace(
            learner("plain", units),
            model=Rbm(units),
            criterion=PersistentDivergence(chains=batch),
            batches=Reshuffled(batch),
            optimiser=Sgd(RATE),
        )
        parts = (Examples(jnp.asarray(rows), jnp.zeros((len(rows), 0))) for rows in (train, valid))
        self.problem, self.state = init(recipe, *parts, outputs=0, key=jr.key(0))

    def epoch(self) -> None:
        self.state, row = interval(self.problem, self.state, self.problem.updates_per_epoch)
        jax.block_until_ready((self.state, row))


def judged(weight: Any, hidden_bias: Any, visible_bias: Any, rows: np.ndarray) -> float:
    """-log of the pseudo-likelihood, the same for both."""
    weight, hidden_bias, visible_bias = (jnp.asarray(each, jnp.float32) for each in (weight, hidden_bias, visible_bias))
    network = RbmNetwork(weight, hidden_bias, visible_bias, Rbm().visible)
    return float(jnp.mean(network.pseudo_loss(jnp.asarray(rows), units=8)))


class Scikit:
    """A new machine each time, as `fit` makes one."""

    def __init__(self, train: np.ndarray, units: int, batch: int):
        from sklearn.neural_network import BernoulliRBM

        self.train = train
        self.machine = BernoulliRBM(units, learning_rate=RATE, batch_size=batch, n_iter=1, random_state=0)

    def epoch(self) -> None:
        self.machine.fit(self.train)


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each in interleaved rounds, the first not counted; what both machines know after one epoch."""
    train, valid = digits(chosen.examples, 1000)
    ours = Gradwise(train, valid, chosen.units, chosen.batch)
    theirs = Scikit(train, chosen.units, chosen.batch)
    wide = Scikit(train.astype(np.float64), chosen.units, chosen.batch)
    runs = {"gradwise": ours.epoch, "scikit-learn": theirs.epoch, "scikit-learn, 64 bits": wide.epoch}
    for epoch in (ours.epoch, theirs.epoch):
        epoch()  # compiles, and wakes threads
    weight, hidden_bias, visible_bias = jax.tree.leaves(ours.state.parameters)
    told = {"gradwise": judged(weight, hidden_bias, visible_bias, valid)}
    weight, hidden_bias = theirs.machine.components_, theirs.machine.intercept_hidden_
    told["scikit-learn"] = judged(weight, hidden_bias, theirs.machine.intercept_visible_, valid)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(chosen.rounds):
        for name, epoch in runs.items():
            began, used = time.perf_counter(), time.process_time()
            epoch()
            seconds[name].append(time.perf_counter() - began)
            processor[name].append(time.process_time() - used)
    return {"seconds": seconds, "processor_seconds": processor, "pseudo_likelihood": told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--units", type=int, default=500)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    chosen = parser.parse_args()
    found = measured(chosen)
    medians = {name: statistics.median(each) for name, each in found["seconds"].items()}
    ratios = {name: medians[name] / medians["gradwise"] for name in medians if name != "gradwise"}
    print(f"one epoch, {chosen.examples} digits, 784-{chosen.units}, B = {chosen.batch}, {chosen.rounds} rounds")
    print("| what | seconds (median) | fastest | times gradwise's | processor seconds | -log PL after one epoch |")
    print("|---|---|---|---|---|---|")
    for name, value in medians.items():
        told = found["pseudo_likelihood"].get(name)
        known = "" if told is None else f"{told:.1f}"
        used = statistics.median(found["processor_seconds"][name])
        fastest = min(found["seconds"][name])
        print(f"| {name} | {value:.3f} | {fastest:.3f} | {ratios.get(name, 1.0):.2f} | {used:.3f} | {known} |")
    print(f"asked: {ASKED} times as fast; measured: {ratios['scikit-learn']:.2f}")
    if chosen.out:
        result = {
            "data": f"{chosen.examples} MNIST digits",
            "seconds": medians,
            "rounds": found["seconds"],
            "processor_seconds": found["processor_seconds"],
            "pseudo_likelihood": found["pseudo_likelihood"],
            "ratio": ratios["scikit-learn"],
            "ratios": ratios,
            "asked": ASKED,
            "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "command": " ".join(["python", "benchmarks/rbm_speed.py", *sys.argv[1:]]),
        }
        chosen.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
