"""One epoch of a denoising auto-encoder on MNIST digits: gradwise's compiled interval beside PyTorch eager.

    python benchmarks/dae_speed.py                             10 000 digits, on whatever JAX finds
    python benchmarks/dae_speed.py --rounds 11 --out benchmarks/results/dae_speed_cpu.json
    python benchmarks/dae_speed.py --rounds 9 --examples 60000 --out benchmarks/results/dae_speed_gpu.json

784-500, tied weights, sigmoid units, cross-entropy, a quarter of the inputs masked, SGD, B = 100: 100 updates an epoch,
in a new order each epoch. Both start from the same weights. They take turns within a round and the median of the rounds
counts, since machines are noisy; compiling and the first epoch are not counted. Afterwards both must have learned
alike: their reconstruction errors of clean digits are printed. Without PyTorch, or on a GPU that PyTorch does not see,
gradwise is timed alone. The digits are read from `$GRADWISE_DATA`; without it, noise of the same shape is used.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.reading import named_sets
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.training.interval import interval
from gradwise.training.state import init
from gradwise.training.stopping import Off

ASKED = {"cpu": 1.5, "gpu": 20.0}
VALID = 100  # what gradwise's interval validates on: an epoch of PyTorch's has no validation at all


def digits(count: int) -> tuple[np.ndarray, str]:
    """Rows of 784 numbers between 0 and 1, and what they are."""
    if os.environ.get("GRADWISE_DATA"):
        loaded = named_sets.load_named("mnist")
        assert loaded.arrays is not None
        return np.asarray(loaded.arrays["X"][:count], np.float32).reshape(-1, 784) / 255.0, "MNIST digits"
    return np.random.default_rng(0).random((count, 784), np.float32) ** 4, "rows of noise"


class Gradwise:
    """Compiled intervals of one epoch."""

    def __init__(self, rows: np.ndarray, units: int, batch: int, level: float, rate: float):
        recipe = defaults.multilabel(
            model=MlpAutoEncoder(widths=(units,)),
            criterion=Reconstruction(corruption=Masking(level)),
            batches=Reshuffled(batch),
            optimiser=Sgd(rate),
            stopping=Off(epochs=1e6),
        )
        train, valid = (
            Examples(jnp.asarray(part), jnp.zeros((len(part), 0), jnp.float32)) for part in (rows, rows[:VALID])
        )
        self.problem, self.state = init(recipe, train, valid, outputs=0, key=jax.random.key(0))

    def weight(self) -> np.ndarray:
        return np.array(self.state.parameters.encoder[0].weight)

    def epoch(self) -> None:
        self.state, row = interval(self.problem, self.state, self.problem.updates_per_epoch)
        jax.block_until_ready(row.train_loss)

    def error(self, rows: np.ndarray) -> float:
        network = self.problem.model(self.state.parameters)
        found = eqx.filter_jit(self.problem.recipe.criterion.measures)(network, jnp.asarray(rows))
        return float(jnp.mean(found["reconstruction_error"]))


class Torch:
    """The usual loop: index a shuffled batch, mask it, forward, backward, step."""

    def __init__(self, rows: np.ndarray, weight: np.ndarray, batch: int, level: float, rate: float, device: str):
        import torch

        self.torch, self.batch, self.level = torch, batch, level
        torch.manual_seed(0)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.rows = torch.tensor(rows, device=device)
        self.weight = torch.tensor(weight, device=device, requires_grad=True)
        self.hidden = torch.zeros(weight.shape[0], device=device, requires_grad=True)
        self.visible = torch.zeros(weight.shape[1], device=device, requires_grad=True)
        self.optimiser = torch.optim.SGD([self.weight, self.hidden, self.visible], lr=rate)

    def outputs(self, x: Any) -> Any:
        functional = self.torch.nn.functional
        code = self.torch.sigmoid(functional.linear(x, self.weight, self.hidden))
        return functional.linear(code, self.weight.t(), self.visible)

    def epoch(self) -> None:
        torch = self.torch
        order = torch.randperm(len(self.rows), device=self.rows.device)
        total = torch.zeros((), device=self.rows.device)
        for chosen in order.split(self.batch):
            x = self.rows[chosen]
            spoilt = x * (torch.rand_like(x) >= self.level)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.outputs(spoilt), x, reduction="sum")
            loss = loss / len(x)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            total += loss.detach()
        total.item()

    def error(self, rows: np.ndarray) -> float:
        torch = self.torch
        x = torch.tensor(rows, device=self.rows.device)
        with torch.no_grad():
            found = torch.nn.functional.binary_cross_entropy_with_logits(self.outputs(x), x, reduction="sum")
        return float(found) / len(rows)


def seconds(epoch: Any) -> float:
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def peer_device() -> str | None:
    """Where PyTorch can stand beside gradwise, if it can."""
    if importlib.util.find_spec("torch") is None:
        return None
    if jax.default_backend() == "cpu":
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else None


def machine() -> str:
    if jax.default_backend() != "cpu":
        return jax.devices()[0].device_kind
    return f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--units", type=int, default=500)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--level", type=float, default=0.25)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    chosen = parser.parse_args()
    rows, what = digits(chosen.examples)
    ours = Gradwise(rows, chosen.units, chosen.batch, chosen.level, chosen.rate)
    peers: dict[str, Any] = {"gradwise": ours}
    device = peer_device()
    if device:
        peers["PyTorch eager"] = Torch(rows, ours.weight(), chosen.batch, chosen.level, chosen.rate, device)
    times: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(chosen.rounds + 1):
        for name, peer in peers.items():
            took = seconds(peer.epoch)
            if number:  # the first epoch compiles
                times[name].append(took)
    medians = {name: statistics.median(took) for name, took in times.items()}
    errors = {name: peer.error(rows[:1000]) for name, peer in peers.items()}
    print(f"{len(rows)} {what}, 784-{chosen.units}, B = {chosen.batch}, {chosen.rounds} rounds on {machine()}")
    print("| who | seconds an epoch (median) | fastest | reconstruction error |\n|---|---|---|---|")
    for name, took in medians.items():
        print(f"| {name} | {took:.4f} | {min(times[name]):.4f} | {errors[name]:.2f} |")
    ratio = medians["PyTorch eager"] / medians["gradwise"] if device else None
    asked = ASKED["cpu" if jax.default_backend() == "cpu" else "gpu"]
    print(f"{ratio:.2f} times as fast (asked: {asked})" if ratio else "PyTorch is not here: gradwise alone.")
    if chosen.out:
        result = {
            "seconds": medians,
            "rounds": times,
            "ratio": ratio,
            "asked": asked,
            "reconstruction_error": errors,
            "data": f"{len(rows)} {what}",
            "machine": machine(),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "command": f"python benchmarks/dae_speed.py --examples {chosen.examples} --units {chosen.units} "
            f"--batch {chosen.batch} --level {chosen.level} --rate {chosen.rate} --rounds {chosen.rounds}",
        }
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
