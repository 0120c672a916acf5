"""The deep auto-encoder 784-1000-500-250-30 on MNIST, from random weights: Hessian-free beside first-order methods.

    python benchmarks/autoencoder.py --minutes 5                                              Hessian-free
    python benchmarks/autoencoder.py --minutes 5 --optimiser Nesterov --batch 200 --set learning_rate=0.01 momentum=0.99
    python benchmarks/autoencoder.py --examples 2000 --widths 100 50 10 --minutes 0.5         a small check

The network is the user's own Equinox module: sigmoid units, a linear code, sigmoid outputs; it is trained on the
cross-entropy and *reported* by the squared error, summed over the pixels and averaged over the digits, as in the
published numbers (Martens 2010: 1.64 training, 2.78 test). The digits are read from `$GRADWISE_DATA`. Compiling is not
counted. Every line is one interval: one update of the whole set, or an epoch of mini-batches.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

import gradwise.defaults
import gradwise.optimisers
from gradwise.criteria.losses import SigmoidLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.reading import named_sets
from gradwise.models.initial_weights import AbstractInitial, Glorot, SparseWeights
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import replace
from gradwise.testing.contracts import public_specs
from gradwise.training.interval import interval
from gradwise.training.state import Problem, State, init
from gradwise.training.stopping import Off

WIDTHS = (1000, 500, 250, 30)
JUDGED_AT_ONCE = 10_000


class Autoencoder(eqx.Module):
    """Sigmoid layers down to a linear code and up again; the outputs are given before their sigmoid."""

    weights: list[Float[Array, "out in"]]
    biases: list[Float[Array, " out"]]

    def __init__(self, sizes: list[int], initial: AbstractInitial, *, key: Key[Array, ""]):
        layers = list(enumerate(pairwise(sizes)))
        self.weights = [initial.draw(out, into, 4.0, key=jr.fold_in(key, n)) for n, (into, out) in layers]
        self.biases = [jnp.zeros(out) for _, (_, out) in layers]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " in"]:
        last, code = len(self.weights) - 1, len(self.weights) // 2 - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = weight @ x + bias
            if number not in (code, last):
                x = jax.nn.sigmoid(x)
        return x


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test digits as rows of 784 numbers between 0 and 1."""
    loaded = named_sets.load_named("mnist")
    assert loaded.arrays is not None
    assert loaded.test is not None
    assert loaded.test.arrays is not None
    rows = [np.asarray(part["X"], np.float32).reshape(-1, 784) / 255.0 for part in (loaded.arrays, loaded.test.arrays)]
    return rows[0][:count], rows[1][: max(1000, count // 6)]


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def optimiser_of(name: str, settings: list[str]) -> AbstractOptimiser:
    """An optimiser by its name, with these knobs set."""
    kinds = {kind.__name__: kind for kind in public_specs(gradwise.optimisers) if issubclass(kind, AbstractOptimiser)}
    optimiser = kinds[name]()
    for setting in settings:
        path, _, text = setting.partition("=")
        optimiser = replace(optimiser, path, value_of(text))
    return optimiser


@eqx.filter_jit
def squared_error(model: Autoencoder, rows: Float[Array, "n pixels"]) -> Float[Array, ""]:
    return jnp.mean(jnp.sum((jax.nn.sigmoid(jax.vmap(model)(rows)) - rows) ** 2, axis=1))


def judged(problem: Problem, state: State, rows: Array) -> float:
    """The squared error of a digit, on average."""
    model = problem.model(problem.recipe.optimiser.judged(state.parameters, state.optimiser))
    parts = [rows[start : start + JUDGED_AT_ONCE] for start in range(0, len(rows), JUDGED_AT_ONCE)]
    return sum(float(squared_error(model, part)) * len(part) for part in parts) / len(rows)


def line_of(problem: Problem, state: State, row: Any, seconds: float) -> dict[str, float]:
    told = {
        "seconds": seconds,
        "updates": int(row.updates),
        "criterion": float(row.train_loss),  # on the way: before each update
        "train": judged(problem, state, problem.train.inputs),
        "test": judged(problem, state, problem.valid.inputs),
    }
    for name in ("cg_steps", "damping", "ratio", "length"):  # of Hessian-free
        if hasattr(state.optimiser, name):
            told[name] = float(getattr(state.optimiser, name))
    return told


def curve(problem: Problem, state: State, updates: int, minutes: float) -> list[dict[str, float]]:
    """Trains for so many minutes; judging is not counted."""
    copy = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, state)
    jax.block_until_ready(interval(problem, copy, updates))  # compiles
    lines: list[dict[str, float]] = []
    seconds, stalled, told = 0.0, False, 0.0
    while seconds < 60 * minutes and not stalled:
        began = time.perf_counter()
        state, row = interval(problem, state, updates)
        stalled = bool(row.stalled)
        seconds += time.perf_counter() - began
        if seconds >= told or stalled:  # a line for every second, at the most
            lines.append(line_of(problem, state, row, seconds))
            told = seconds + 0.5
            print("  ".join(f"{name} {value:.4g}" for name, value in lines[-1].items()), flush=True)
        if not np.isfinite(row.train_loss):
            break
    if stalled:
        print("stalled: no lower point was found")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimiser", default="HessianFree")
    parser.add_argument("--set", nargs="*", default=[], metavar="KNOB=VALUE")
    parser.add_argument("--examples", type=int, default=60_000)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--batch", type=int, default=0, help="examples in an update; 0 is the whole set")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--initial", choices=("sparse", "glorot"), default="sparse")
    parser.add_argument("--l2", type=float, default=0.0, help="coefficient of the squared weights beside the mean loss")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the curve")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    rows, test = digits(chosen.examples)
    sizes = [784, *chosen.widths, *chosen.widths[-2::-1], 784]
    initial = SparseWeights(15) if chosen.initial == "sparse" else Glorot()
    penalties = (L2(chosen.l2 * len(rows)),) if chosen.l2 else ()
    batch = min(chosen.batch or len(rows), len(rows))
    recipe = gradwise.defaults.multilabel(
        model=Autoencoder(sizes, initial, key=jr.key(chosen.seed)),
        criterion=Supervised(SigmoidLoss(score_by="loss"), penalties=penalties),
        batches=Reshuffled(batch),
        optimiser=optimiser_of(chosen.optimiser, chosen.set),
        stopping=Off(epochs=1e6),
    )
    train, valid = (Examples(jnp.asarray(part), jnp.asarray(part)) for part in (rows, test))
    problem, state = init(recipe, train, valid, outputs=784, key=jr.key(chosen.seed))
    print(f"{chosen.optimiser} {' '.join(chosen.set)}: {'-'.join(map(str, sizes))}, {len(rows)} digits, B = {batch}")
    print(f"at the start: training {judged(problem, state, train.inputs):.2f}, on {jax.devices()[0].device_kind}")
    lines = curve(problem, state, problem.updates_per_epoch, chosen.minutes)
    best = min(lines, key=lambda line: line["train"])
    print(f"lowest: training {best['train']:.3f}, test {best['test']:.3f}, after {best['seconds']:.0f} s")
    if chosen.out:
        about = {name: str(value) for name, value in vars(chosen).items()}
        chosen.out.write_text(json.dumps({**about, "device": jax.devices()[0].device_kind, "curve": lines}) + "\n")


if __name__ == "__main__":
    main()
