"""One network, many peers, one run: how fast does gradwise train beside PyTorch and scikit-learn?

    python benchmarks/fit_vs_peers.py                      all cells on the CPU, about 25 minutes
    python benchmarks/fit_vs_peers.py --quick              four cells
    python benchmarks/fit_vs_peers.py --on gpu             H = 500, B = 32, one network against PyTorch, and 256 at once

Every peer gets the same data, the same initial weights, the same number of updates of plain SGD on tanh layers with a
softmax on top; shuffling and one validation an epoch are part of everybody's time. Like `fit`, gradwise makes as many
epochs in one call of its program as fill a fifth of a second. Peers take turns within a round
and the fastest round of each counts, since the machine is noisy. A first epoch in a fixed order checks that gradwise
and PyTorch compute the same thing. The table holds ratios (peer's time / gradwise's time) and the share of the
matrix-product rate that NumPy reaches on 2048 x 2048 float32, measured between rounds.
"""

import argparse
import datetime
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.specs.recipe import Recipe
from gradwise.training.history import Monitor
from gradwise.training.interval import AT_ONCE, intervals
from gradwise.training.loop import CALL_SECONDS
from gradwise.training.population import Population, enter
from gradwise.training.state import init
from gradwise.training.stopping import Off

INPUTS, OUTPUTS, RATE = 784, 10, 0.01
CELLS = [(layers, hidden, batch) for layers in (1, 3) for hidden in (100, 500, 1000) for batch in (1, 32, 256)]
QUICK = [(1, 100, 32), (1, 500, 32), (3, 1000, 1), (3, 1000, 256)]


def sizes_of(layers: int, hidden: int) -> list[int]:
    return [INPUTS, *[hidden] * layers, OUTPUTS]


def flops_per_example(sizes: list[int]) -> float:
    """Forward, and gradients of weights and activations; the input needs no gradient."""
    products = [a * b for a, b in pairwise(sizes)]
    return 6.0 * sum(products) - 2.0 * products[0]


def work_of_epoch(sizes: list[int], count: int, valid: int) -> float:
    """Operations of all products in an epoch: training, and the forward pass of validation."""
    return flops_per_example(sizes) * count + 2.0 * sum(a * b for a, b in pairwise(sizes)) * valid


def make_data(count: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    valid = max(256, count // 5)
    x = draw.random((count + valid, INPUTS), dtype=np.float32) - 0.5
    y = (x @ draw.standard_normal((INPUTS, OUTPUTS)).astype(np.float32)).argmax(1)
    return {"x": x[:count], "y": y[:count], "xv": x[count:], "yv": y[count:]}


def make_weights(sizes: list[int]) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [(draw.uniform(-1, 1, (b, a)) * math.sqrt(6 / (a + b))).astype(np.float32) for a, b in pairwise(sizes)]


def journey(sizes: list[int], batch: int, data: dict[str, np.ndarray], order: Any) -> tuple[Recipe, Examples, Examples]:
    """The recipe that all peers follow, and its examples on the device."""
    count = len(data["x"])
    recipe: Recipe = defaults.classification(
        model=Mlp(widths=tuple(sizes[1:-1]), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(RATE),
        batches=order(batch),
        stopping=Off(epochs=1000.0, spacing=max(1.0, count / len(data["xv"])), least_examples=count),
    )
    train = Examples(jnp.asarray(data["x"]), jnp.asarray(data["y"].astype(np.int32)))
    valid = Examples(jnp.asarray(data["xv"]), jnp.asarray(data["yv"].astype(np.int32)))
    return recipe, train, valid


class Gradwise:
    """The journey itself: compiled intervals of one epoch with validation and history between them."""

    def __init__(
        self, sizes: list[int], batch: int, data: dict[str, np.ndarray], weights: list[np.ndarray], order: Any
    ):
        recipe, train, valid = journey(sizes, batch, data, order)
        self.problem, state = init(recipe, train, valid, outputs=OUTPUTS, classes=OUTPUTS, key=jax.random.key(0))
        import equinox as eqx

        self.state = eqx.tree_at(
            lambda s: [layer.weight for layer in s.parameters.layers] + [s.parameters.output.weight],
            state,
            [jnp.asarray(w) for w in weights],
        )
        self.updates, self.epochs = self.problem.updates_per_epoch, 1
        self.monitor = Monitor(len(data["x"]), OUTPUTS)

    def epoch(self) -> float:
        """As many epochs as `epochs` says, in one call of the compiled program."""
        self.state, rows = intervals(self.problem, self.state, self.updates, self.epochs)
        return self.monitor.add(rows, 0.0, 0.0)[-1]["valid_loss"]

    def as_fit_does(self) -> None:
        """Makes a call as long as `fit` makes it: a fifth of a second."""
        self.epochs = max(1, min(AT_ONCE, int(CALL_SECONDS / timed(self))))

    def weights(self) -> list[np.ndarray]:
        parameters = self.state.parameters
        return [np.asarray(w) for w in [*(layer.weight for layer in parameters.layers), parameters.output.weight]]


class Torch:
    """The usual loop: index a shuffled batch, forward, backward, step; `compiled` compiles the loss and the step."""

    epochs = 1

    def __init__(
        self,
        sizes: list[int],
        batch: int,
        data: dict[str, np.ndarray],
        weights: list[np.ndarray],
        *,
        compiled: bool = False,
        device: str = "cpu",
        shuffle: bool = True,
    ):
        import torch

        self.torch, self.batch, self.shuffle, self.device = torch, batch, shuffle, device
        layers: list[Any] = []
        for a, b in pairwise(sizes):
            layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
        self.model = torch.nn.Sequential(*layers[:-1])
        with torch.no_grad():
            for layer, weight in zip(self.model[::2], weights, strict=True):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.zero_()
        self.model.to(device)
        self.x, self.y, self.xv, self.yv = (
            torch.from_numpy(np.ascontiguousarray(data[name])).to(device) for name in ("x", "y", "xv", "yv")
        )
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.loss: Callable[..., Any] = lambda x, y: torch.nn.functional.cross_entropy(self.model(x), y)
        self.update: Callable[..., Any] = self.optimiser.step
        if compiled:
            self.loss = torch.compile(self.loss, dynamic=False)
            self.update = torch.compile(self.optimiser.step, dynamic=False)

    def epoch(self) -> float:
        torch, count = self.torch, len(self.x)
        order = torch.randperm(count, device=self.device) if self.shuffle else torch.arange(count, device=self.device)
        for start in range(0, count, self.batch):
            rows = order[start : start + self.batch]
            self.optimiser.zero_grad(set_to_none=True)
            self.loss(self.x[rows], self.y[rows]).backward()
            self.update()
        with torch.no_grad():
            outputs = self.model(self.xv)
            (outputs.argmax(1) != self.yv).float().mean().item()
            return float(torch.nn.functional.cross_entropy(outputs, self.yv).item())

    def weights(self) -> list[np.ndarray]:
        return [layer.weight.detach().cpu().numpy() for layer in self.model[::2]]


class ScikitLearn:
    """`MLPClassifier.partial_fit`, one pass a call, then its loss on the validation set."""

    epochs = 1

    def __init__(self, sizes: list[int], batch: int, data: dict[str, np.ndarray], weights: list[np.ndarray]):
        from sklearn.neural_network import MLPClassifier

        self.data = data
        self.net = MLPClassifier(
            tuple(sizes[1:-1]),
            activation="tanh",
            solver="sgd",
            batch_size=batch,
            learning_rate_init=RATE,
            momentum=0.0,
            nesterovs_momentum=False,
            alpha=0.0,
            random_state=0,
        )
        few = slice(0, max(batch, OUTPUTS))
        self.net.partial_fit(data["x"][few], data["y"][few], classes=np.arange(OUTPUTS))
        self.net.coefs_ = [w.T.copy() for w in weights]
        self.net.intercepts_ = [np.zeros(len(w), np.float32) for w in weights]
        self.net._optimizer.params = self.net.coefs_ + self.net.intercepts_

    def epoch(self) -> float:
        self.net.partial_fit(self.data["x"], self.data["y"])
        probabilities = self.net.predict_proba(self.data["xv"])
        chosen = probabilities[np.arange(len(self.data["yv"])), self.data["yv"]]
        return float(-np.log(np.maximum(chosen, 1e-30)).mean())


def numpy_rate() -> float:
    """Floating-point operations a second of NumPy's matrix product, 2048 x 2048 float32."""
    a = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
    a @ a
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    return 3 * 2 * 2048**3 / (time.perf_counter() - start)


def timed(runner: Any) -> float:
    """Seconds of one epoch, from as many in a row as fill a few tenths of a second.

    One epoch goes first untimed: the thread pool of whoever ran before spins for a while after its work, and a
    processor that was idle takes a while to come back to speed.
    """
    runner.epoch()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.3:
        runner.epoch()
        count += runner.epochs
    return (time.perf_counter() - start) / count


def same_computation(sizes: list[int], batch: int, data: dict[str, np.ndarray], weights: list[np.ndarray]) -> float:
    """The largest difference between gradwise's and PyTorch's weights after one epoch in the file's order."""
    few = {name: array[: 8 * batch] for name, array in data.items()}
    ours = Gradwise(sizes, batch, few, weights, Fixed)
    theirs = Torch(sizes, batch, few, weights, shuffle=False)
    ours.epoch(), theirs.epoch()
    return max(float(np.abs(a - b).max()) for a, b in zip(ours.weights(), theirs.weights(), strict=True))


def run_cell(layers: int, hidden: int, batch: int, rounds: int, peers: list[str], device: str, rate: float) -> dict:
    sizes = sizes_of(layers, hidden)
    # A few tenths of a second an epoch, within sensible ends.
    count = int(
        min(
            2_000 if batch == 1 else 10_000,
            max(20 * batch, 0.3 * rate * (0.06 if batch == 1 else 0.6) / flops_per_example(sizes)),
        )
    )
    count = 10_000 if device == "gpu" else max(batch, count // batch * batch)
    data, weights = make_data(count), make_weights(sizes)
    difference = same_computation(sizes, batch, data, weights)
    torch_device = "cuda" if device == "gpu" else "cpu"
    makers = {
        "gradwise": lambda: Gradwise(sizes, batch, data, weights, Reshuffled),
        "torch eager": lambda: Torch(sizes, batch, data, weights, device=torch_device),
        "torch.compile": lambda: Torch(sizes, batch, data, weights, compiled=True, device=torch_device),
        "scikit-learn": lambda: ScikitLearn(sizes, batch, data, weights),
    }
    runners = {name: makers[name]() for name in ["gradwise", *peers]}
    for runner in runners.values():
        runner.epoch()  # compile, allocate, warm up
    runners["gradwise"].as_fit_does()
    best = dict.fromkeys(runners, math.inf)
    rates = []
    for _ in range(rounds):
        for name, runner in runners.items():
            best[name] = min(best[name], timed(runner))
        if device == "cpu":
            rates.append(numpy_rate())
    work = work_of_epoch(sizes, count, len(data["xv"]))
    return {
        "layers": layers,
        "hidden": hidden,
        "batch": batch,
        "examples": count,
        "seconds": best,
        "ratios": {name: best[name] / best["gradwise"] for name in peers},
        "share_of_numpy": work / best["gradwise"] / max(rates) if rates else None,
        "difference": difference,
    }


def overhead(rounds: int) -> dict[str, float]:
    """What validation, history and checkpoints cost beside the bare scan of as many updates, at the default spacing."""
    import tempfile

    import equinox as eqx

    from gradwise.training import checkpoint
    from gradwise.training.interval import advance
    from gradwise.training.stopping import Patience

    data, weights = make_data(12_000), make_weights(sizes_of(1, 500))
    whole = Gradwise(sizes_of(1, 500), 32, data, weights, Reshuffled)
    whole.updates = -(-Patience().interval_examples(len(data["x"]), len(data["xv"])) // 32)
    scan = eqx.filter_jit(advance, donate="none")

    def bare() -> float:
        _, told = scan(whole.problem, whole.state, whole.updates)
        return float(told["train_loss"])

    with tempfile.TemporaryDirectory() as folder:

        def write() -> float:
            checkpoint.save_checkpoint(
                Path(folder), checkpoint.Saved(whole.state, whole.monitor.columns, 0.0), "benchmark"
            )
            return 0.0

        best = dict.fromkeys(("bare", "journey", "checkpoint"), math.inf)
        for _ in range(rounds):
            for name, work in (("bare", bare), ("journey", whole.epoch), ("checkpoint", write)):
                best[name] = min(best[name], timed(SimpleNamespace(epoch=work, epochs=1)))
    share = best["journey"] / best["bare"] - 1 + best["checkpoint"] / 10.0  # one checkpoint every ten seconds
    return {**best, "overhead": share}


def population(slots: int = 256) -> dict[str, float]:
    """Milliseconds of an epoch for each network of a population, validation and history in them."""
    recipe, train, valid = journey(sizes_of(1, 500), 32, make_data(10_000), Reshuffled)
    several = None
    for slot in range(slots):
        member, state = enter(recipe, train, valid, outputs=OUTPUTS, key=jax.random.key(slot))
        several = several or Population(member, state, train, valid, slots=slots)
        several.fill(slot, member, state)
    assert several is not None
    begun = time.perf_counter()
    several.compiled = several.compile()
    compiled = time.perf_counter() - begun
    work = SimpleNamespace(epoch=lambda: jax.block_until_ready(several.interval().valid_loss), epochs=1)
    return {"slots": slots, "milliseconds": 1e3 * min(timed(work) for _ in range(3)) / slots, "compiling": compiled}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def show(cells: list[dict], peers: list[str]) -> None:
    print(
        "| layers | H | B | µs/update | share of NumPy |",
        " | ".join(f"{p} ÷ gradwise" for p in peers),
        "| difference |",
    )
    print("|" + "---|" * (6 + len(peers)))
    for cell in cells:
        updates = cell["examples"] / cell["batch"]
        share = "" if cell["share_of_numpy"] is None else f"{cell['share_of_numpy']:.0%}"
        ratios = " | ".join(f"{cell['ratios'][p]:.2f}" for p in peers)
        micro = cell["seconds"]["gradwise"] / updates * 1e6
        head = f"| {cell['layers']} | {cell['hidden']} | {cell['batch']} | {micro:,.0f} | {share} |"
        print(head, ratios, f"| {cell['difference']:.1e} |")
    for peer in peers:
        ratios = [cell["ratios"][peer] for cell in cells]
        print(f"{peer}: geometric mean {geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four cells only")
    parser.add_argument("--on", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", action="append", default=[], help="leave a peer out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    peers = ["torch eager", "torch.compile"] + (["scikit-learn"] if chosen.on == "cpu" else [])
    peers = [peer for peer in peers if peer not in chosen.without]
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch._dynamo.config.cache_size_limit = 256
    grid = [(1, 500, 32), (3, 500, 32)] if chosen.on == "gpu" else QUICK if chosen.quick else CELLS
    rate = max(numpy_rate() for _ in range(3))
    cells = []
    for cell in grid:
        cells.append(run_cell(*cell, chosen.rounds, peers, chosen.on, rate))
        torch._dynamo.reset()
        print(json.dumps(cells[-1]), flush=True)
    result: dict[str, Any] = {
        "cells": cells,
        "overhead": overhead(chosen.rounds) if chosen.on == "cpu" else None,
        "population": population() if chosen.on == "gpu" else None,
        "numpy_gflops": rate / 1e9,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores"
        + (f", {jax.devices()[0].device_kind}" if chosen.on == "gpu" else ""),
        "versions": {"jax": jax.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python benchmarks/fit_vs_peers.py", *sys.argv[1:]]),
    }
    show(cells, peers)
    if result["overhead"]:
        print(f"validation, history and checkpoints: {result['overhead']['overhead']:.1%} of the bare scan")
    if result["population"]:
        print("population:", json.dumps(result["population"]), "wanted: 0.7 ms; crossing memory alone: 0.35")
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.quick:
        (chosen.out / f"fit_vs_peers_{chosen.on}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
