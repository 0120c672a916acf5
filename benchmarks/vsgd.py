"""vSGD as it comes, which has no learning rate to tune, against plain SGD at the best of five rates (row H3).

    python benchmarks/vsgd.py                                all four sets
    python benchmarks/vsgd.py --sets letter --seeds 3        one of them
    python benchmarks/vsgd.py --most 60000 --epochs 50       more examples, longer: for an accelerator
    python benchmarks/vsgd.py --quick                        a minute; writes nothing

Both train the same network from the same weights on the same mini-batches. A seed draws the training and validation
examples (from those that are not test examples), the weights and the order of the examples. All seeds of vSGD are one
compiled program, and so are all seeds and rates of SGD. SGD's rate is the one of five with the lowest validation error,
mean over seeds; of every training the network of the epoch with the lowest validation error is tested. Test examples
choose nothing. The difference is paired over seeds: the interval covers seeds, not other test examples.

The data are read from `$GRADWISE_DATA` (`fashion_mnist/`, which is Debian's `dataset-fashion-mnist`; `usps/`;
`tabular/`). vSGD's default form, a rate for each layer, was chosen on MNIST, which is not among them.
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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import gradwise as gw
from gradwise.curvature.objective import Examples
from gradwise.data.reading import named_sets
from gradwise.runtime import keys
from gradwise.training.interval import advance, evaluate, judged_model
from gradwise.training.population import Member, enter_together, fold_of, stack_folds
from gradwise.training.state import State

HERE = Path(__file__).parent
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
SETS = ("fashion-mnist", "usps", "letter", "texture")
VALID = 1000
WANTED = 1.1  # how many times SGD's test error vSGD's may be


def read_set(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs and classes to learn from, then those of the official test set; of texture a fifth, drawn once."""
    if name == "fashion-mnist":
        loaded = named_sets.load_named(name)
        assert loaded.arrays is not None
        assert loaded.test is not None
        assert loaded.test.arrays is not None
        parts = [np.asarray(one[key]) for one in (loaded.arrays, loaded.test.arrays) for key in ("X", "y")]
    else:
        folder = Path(os.environ["GRADWISE_DATA"])
        with np.load(folder / ("usps/usps.npz" if name == "usps" else f"tabular/{name}.npz")) as stored:
            arrays = dict(stored)
        if name == "usps":
            parts = [arrays[key] for key in ("X_train", "y_train", "X_test", "y_test")]
        else:
            rows = np.arange(len(arrays["y"]))
            rows = rows if name == "letter" else np.random.default_rng(0).permutation(rows)
            split = 16_000 if name == "letter" else len(rows) * 4 // 5
            parts = [arrays[key][some] for some in (rows[:split], rows[split:]) for key in ("X", "y")]
    x, y, test_x, test_y = parts
    names, classes = np.unique(y, return_inverse=True)
    flat = [one.reshape(len(one), -1).astype(np.float32) for one in (x, test_x)]
    return flat[0], classes, flat[1], np.searchsorted(names, test_y)


def scaled(x: np.ndarray, like: np.ndarray, images: bool) -> np.ndarray:
    """Standardised by the mean and deviation of these examples: of a table by column, of images as a whole."""
    axis = None if images else 0
    return (x - like.mean(axis)) / np.maximum(like.std(axis), 1e-6)


def placed(x: np.ndarray, y: np.ndarray) -> Examples:
    return Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def recipe_of(optimiser: Any, widths: tuple[int, ...], epochs: int) -> Any:
    return gw.defaults.classification(
        scaler=gw.NoScaling(),
        batches=gw.Reshuffled(32),
        model=gw.Mlp(widths=widths, activation=gw.Tanh(), dropout=0.0),
        criterion=gw.Supervised(gw.SoftmaxLoss(), penalties=()),
        optimiser=optimiser,
        stopping=gw.Off(epochs=float(epochs)),
    )


@eqx.filter_jit(donate="all-except-first")
def _epoch(fixed: tuple[Member, Examples, Examples, Examples, int], states: State) -> tuple[State, Array]:
    """An epoch of every member; the validation and test error of each."""
    members, train, valid, test, updates = fixed

    def one(member: Member, state: State) -> tuple[State, Array]:
        problem = member.problem(train, valid)
        state, _ = advance(problem, state, updates)
        model = judged_model(problem, state)
        own_test, _ = fold_of((test, test), member.fold)
        tested = evaluate(dataclasses.replace(problem, valid=own_test), model)
        return state, jnp.stack([jnp.mean(evaluate(problem, model).score), jnp.mean(tested.score)])

    return eqx.filter_vmap(one)(members, states)


@dataclasses.dataclass(frozen=True)
class Data:
    """The examples of every seed, stacked; the tests are scaled as the training examples of their seed."""

    train: Examples
    valid: Examples
    test: Examples
    outputs: int
    seeds: int


def draw(name: str, seeds: int, most: int) -> Data:
    x, y, test_x, test_y = read_set(name)
    images = name in ("fashion-mnist", "usps")
    count = min(most, len(x) - VALID)
    folds, tests = [], []
    for seed in range(seeds):
        rows = np.random.default_rng([seed, len(x)]).permutation(len(x))
        train, valid = rows[:count], rows[count : count + VALID]
        like = x[train]
        folds.append(tuple(placed(scaled(x[some], like, images), y[some]) for some in (train, valid)))
        tests.append((placed(scaled(test_x, like, images), test_y),) * 2)
    stacked, tested = stack_folds(folds), stack_folds(tests)
    assert stacked is not None
    assert tested is not None
    return Data(*stacked, tested[0], int(y.max()) + 1, seeds)


def errors_of(data: Data, optimisers: list[Any], widths: tuple[int, ...], epochs: int) -> np.ndarray:
    """The test and validation error of each optimiser (rows) with each seed, at the best validation error."""
    recipes = [recipe_of(one, widths, epochs) for one in optimisers]
    several = [recipe for recipe in recipes for _ in range(data.seeds)]
    folds = list(range(data.seeds)) * len(recipes)
    every: list[int | None] = [None] * len(several)
    places: dict[str, Any] = {"outputs": data.outputs, "examples": every, "folds": folds}
    key = keys.of_trials(keys.from_seed(0), folds)  # a seed has the same weights and order, whatever the optimiser
    members, states = enter_together(several, data.train, data.valid, key=key, **places)
    updates = -(-data.train.inputs.shape[1] // 32)
    curves = []
    for _ in range(epochs):
        states, errors = _epoch((members, data.train, data.valid, data.test, updates), states)
        curves.append(np.asarray(errors))
    history = np.stack(curves)  # epoch, member, validation or test
    best = np.where(np.isfinite(history[:, :, 0]), history[:, :, 0], np.inf).argmin(0)
    chosen = history[best, np.arange(len(several))]
    return chosen.reshape(len(optimisers), data.seeds, 2)


def measure(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    data = draw(name, chosen.seeds, chosen.most)
    own = errors_of(data, [gw.Vsgd()], chosen.widths, chosen.epochs)[0]
    tried = errors_of(data, [gw.Sgd(np.float64(rate)) for rate in RATES], chosen.widths, chosen.epochs)
    by_rate = np.where(np.isfinite(tried[:, :, 0]), tried[:, :, 0], 1.0).mean(1)
    place = int(by_rate.argmin())
    result = {
        "examples": int(data.train.inputs.shape[1]),
        "inputs": int(data.train.inputs.shape[2]),
        "classes": data.outputs,
        "tests": int(data.test.inputs.shape[1]),
        "vsgd": own[:, 1].tolist(),
        "sgd": tried[place, :, 1].tolist(),
        "rate": RATES[place],
        "valid_by_rate": dict(zip(map(str, RATES), by_rate.tolist(), strict=True)),
        "seconds": time.monotonic() - begun,
    }
    means = {method: statistics.mean(result[method]) for method in ("vsgd", "sgd")}
    print(f"{name}: vSGD {means['vsgd']:.2%}, SGD {means['sgd']:.2%} at {RATES[place]:g}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=10_000, help="training examples at the most")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--widths", type=int, nargs="+", default=(64,))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "vsgd.json")
    chosen = parser.parse_args()
    chosen.widths = tuple(chosen.widths)
    if chosen.quick:
        chosen.seeds, chosen.most, chosen.epochs, chosen.widths = 2, 500, 2, (8,)
    device = jax.devices()[0]
    where = f"{os.cpu_count()} cores, {platform.machine()}" if device.platform == "cpu" else device.device_kind
    result = {
        "wanted": WANTED,
        "seeds": chosen.seeds,
        "epochs": chosen.epochs,
        "widths": list(chosen.widths),
        "rates": list(RATES),
        "valid": VALID,
        "machine": f"{where}, JAX {jax.__version__}",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python benchmarks/vsgd.py", *sys.argv[1:]]),
        "sets": {},
    }
    for name in chosen.sets:
        result["sets"][name] = measure(name, chosen)
        if not chosen.quick:
            chosen.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
