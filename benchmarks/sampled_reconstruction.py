"""Denoising auto-encoders of sparse rows: sampled reconstruction beside dense ones, gradwise's and PyTorch's.

    python benchmarks/sampled_reconstruction.py [--columns 50000] [--units 256] [--batch 10] [--zeros 512]

Rows of ones at random columns; tied weights, sigmoid units, cross-entropy, a quarter of the inputs masked, SGD. All
methods take turns within a round, and the median round counts; what is timed is updates alone, compiled before. The
sampled one reads the non-zeros of a mini-batch and the zeros of the columns drawn, and updates their rows alone.
Without PyTorch gradwise's are timed alone.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_matrix

from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.sparse.sampled_zeros import SampledZeros
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.specs.dataset import InputLayout
from gradwise.specs.sparse.rows import SparseRows
from gradwise.training.interval import advance
from gradwise.training.state import init
from gradwise.training.stopping import Off

DENSITIES = (0.05, 0.02, 0.01, 0.005)
ROWS, RATE, LEVEL = 400, 0.01, 0.25


def rows_of(density: float, columns: int) -> csr_matrix:
    draw = np.random.default_rng(0)
    each = round(density * columns)
    places = np.concatenate([np.sort(draw.choice(columns, each, replace=False)) for _ in range(ROWS)])
    return csr_matrix((np.ones(len(places)), (np.repeat(np.arange(ROWS), each), places)), (ROWS, columns))


def gradwise_updates(inputs: Any, options: argparse.Namespace) -> Callable[[int], float]:
    """Runs so many updates; the seconds that one took."""
    layout = InputLayout(options.columns, sparse=isinstance(inputs, SparseRows))
    recipe = defaults.multilabel(
        model=MlpAutoEncoder(widths=(options.units,)),
        criterion=Reconstruction(corruption=Masking(LEVEL), zeros=SampledZeros(options.zeros)),
        batches=Reshuffled(options.batch),
        optimiser=Sgd(RATE),
        stopping=Off(epochs=1e6),
    )
    train, valid = (
        Examples(jax.tree.map(lambda leaf, n=count: leaf[:n], inputs), jnp.zeros((count, 0)), None, layout)
        for count in (ROWS, options.batch)
    )
    problem, state = init(recipe, train, valid, outputs=0, key=jax.random.key(0))
    run: Any = eqx.filter_jit(advance)

    def updates(count: int) -> float:
        nonlocal state
        begun = time.perf_counter()
        state, _ = run(problem, state, count)
        jax.block_until_ready(jax.tree.leaves(state.parameters))
        return (time.perf_counter() - begun) / count

    return updates


def torch_updates(dense: np.ndarray, options: argparse.Namespace) -> Callable[[int], float]:
    """The usual loop: index a shuffled batch, mask it, forward, backward, step."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = torch.tensor(dense)
    bound = (6.0 / (options.units + options.columns)) ** 0.5
    weight = torch.empty(options.units, options.columns).uniform_(-bound, bound).requires_grad_()
    hidden, visible = (torch.zeros(size, requires_grad=True) for size in (options.units, options.columns))
    optimiser = torch.optim.SGD([weight, hidden, visible], lr=RATE)

    def updates(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            x = rows[torch.randint(len(rows), (options.batch,))]
            code = torch.sigmoid(torch.nn.functional.linear(x * (torch.rand_like(x) >= LEVEL), weight, hidden))
            outputs = torch.nn.functional.linear(code, weight.t(), visible)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, x, reduction="sum") / len(x)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return (time.perf_counter() - begun) / count

    return updates


def compare(density: float, options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of an update by each method."""
    matrix = rows_of(density, options.columns)
    dense = matrix.toarray().astype(np.float32)
    methods = {
        "sampled": (gradwise_updates(jax.device_put(SparseRows.of(matrix)), options), 100),
        "dense": (gradwise_updates(jnp.asarray(dense), options), 5),
    }
    if importlib.util.find_spec("torch"):
        methods["torch"] = (torch_updates(dense, options), 5)
    times: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(options.rounds + 1):
        for name, (updates, count) in methods.items():
            seconds = updates(count)
            if number:  # the first one compiles
                times[name].append(seconds)
    return {"density": density, **{name: statistics.median(found) for name, found in times.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=50_000)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--zeros", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sampled_reconstruction.json")
    options = parser.parse_args()
    runs = []
    for density in DENSITIES:
        runs.append(compare(density, options))
        print(runs[-1], flush=True)
    result = {
        "runs": runs,
        **{name: getattr(options, name) for name in ("columns", "units", "batch", "zeros")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, mean load {os.getloadavg()[2]:.1f}",
        "date": str(datetime.date.today()),
        "command": "python benchmarks/sampled_reconstruction.py",
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
