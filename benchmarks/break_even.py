"""Where stochastic and batch methods break even (row H9): time to a given loss against the number of examples.

    python benchmarks/break_even.py

A one-layer network on digits of MNIST; for each number of examples plain SGD (the best of a ladder of rates) and L-BFGS
train until their loss on the whole training set is below the target. Compiling and judging are not on the clock. The
data are read from `$GRADWISE_DATA`; the picture goes into `docs/pictures`, the numbers into `benchmarks/results`.
"""

import argparse
import datetime
import json
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from optimiser_problems import Problem, digits
from optimisers import run

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.evaluation.break_even import BreakEvenSize, break_even_size, time_to
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.training.stopping import Off

HERE = Path(__file__).parent
SIZES = (250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000)
RATES = (0.03, 0.1, 0.3)
BATCH = 32


def problem_of(count: int) -> Problem:
    inputs, targets, *_ = digits()
    train = Examples(jnp.asarray(inputs[:count]), jnp.asarray(targets[:count]))

    def recipe(spec: Any, batch: int) -> Any:
        return defaults.classification(
            scaler=NoScaling(),
            batches=Reshuffled(batch),
            model=Mlp(widths=(100,), activation=Tanh(), dropout=0.0),
            criterion=Supervised(SoftmaxLoss(), penalties=()),
            optimiser=spec,
            stopping=Off(epochs=100_000),
        )

    def judge(criterion: Any, model: Any) -> Any:
        return jnp.zeros(()), jnp.zeros(())

    return Problem(f"{count}", "", train, train, 10, BATCH, recipe, judge, lambda curve: curve.final)


def seconds_of(problem: Problem, spec: Any, batch: int, target: float, limit: float) -> float:
    count = len(problem.train)
    stretch = 1 if batch >= count else max(1, min(count // batch, 100) // 4)
    curve = run(problem, problem.recipe(spec, batch), limit, stretch, {}, stop_at=target)
    return time_to(curve.seconds, curve.loss, target)


def measure(target: float, limit: float) -> dict[str, Any]:
    rows = []
    for count in SIZES:
        problem = problem_of(count)
        stochastic = min(seconds_of(problem, Sgd(rate), BATCH, target, limit) for rate in RATES)
        batch = seconds_of(problem, Lbfgs(), count, target, limit)
        rows.append({"examples": count, "stochastic": stochastic, "batch": batch})
        print(f"{count:6d} examples: SGD {stochastic:.3f} s, L-BFGS {batch:.3f} s", flush=True)
    found = _crossing(rows)
    print(found)
    told = [{name: value if math.isfinite(value) else None for name, value in row.items()} for row in rows]
    return {
        "target": target,
        "limit": limit,
        "rows": told,
        "break_even": found.examples if math.isfinite(found.examples) else None,
        "sentence": str(found),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, JAX {jax.__version__}",
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/break_even.py " + " ".join(sys.argv[1:]),
    }


def _crossing(rows: list[dict[str, Any]]) -> BreakEvenSize:
    columns = [[row[name] for row in rows] for name in ("examples", "stochastic", "batch")]
    return break_even_size(*columns, names=("SGD", "L-BFGS"))


def draw(result: dict[str, Any], place: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 3.8))
    sizes = [row["examples"] for row in result["rows"]]
    for name, label, colour in (("stochastic", "SGD, B = 32", "#4269d0"), ("batch", "L-BFGS", "#ff725c")):
        known = [(size, row[name]) for size, row in zip(sizes, result["rows"], strict=True) if row[name] is not None]
        ax.plot(*zip(*known, strict=True), "o-", color=colour, ms=4)
        ax.annotate(f" {label}", known[-1], color=colour, va="center", fontsize=9)
    if result["break_even"] is not None:
        ax.axvline(result["break_even"], color="grey", ls=":", lw=1)
        ax.annotate(f" {result['break_even']:,.0f}", (result["break_even"], ax.get_ylim()[0]), fontsize=8, color="grey")
    ax.set(xscale="log", yscale="log", xlabel="training examples", ylabel=f"seconds to a loss of {result['target']:g}")
    ax.set_title(result["sentence"], fontsize=9, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlim(right=sizes[-1] * 2.2)
    figure.tight_layout()
    figure.savefig(place, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.05)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds at the most for one run")
    options = parser.parse_args()
    result = measure(options.target, options.limit)
    (HERE / "results" / "break_even.json").write_text(json.dumps(result, indent=1))
    draw(result, HERE.parent / "docs" / "pictures" / "break-even.png")


if __name__ == "__main__":
    main()
