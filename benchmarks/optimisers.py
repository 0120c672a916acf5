"""Every optimiser on three problems: loss against age and against time, as one picture and one table.

    python benchmarks/optimisers.py --problem logistic         L2 logistic regression on three data sets
    python benchmarks/optimisers.py --problem mnist            a 784-500-300-10 network on MNIST
    python benchmarks/optimisers.py --problem autoencoder      the deep auto-encoder 784-1000-500-250-30 on MNIST
    python benchmarks/optimisers.py --picture                  the picture, from the results

The data are read from `$GRADWISE_DATA`. Every optimiser that has a rate or the like gets the same small random search:
`--draws` values drawn from one prior for each kind of knob, each run for half of the time; the best is run again and
told. Those without one (vSGD, SAG, L-BFGS, conjugate gradient) run as they are. Stochastic rules use mini-batches,
batch rules the whole training set. Compiling is not on the clock, nor is judging: the losses in the curves are
those of the whole training set, measured between two stretches.
"""

import argparse
import datetime
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from optimiser_problems import Problem, problems

from gradwise.curvature.objective import gather
from gradwise.specs.paths import replace
from gradwise.training.interval import advance, judged_model
from gradwise.training.state import State, init

HERE = Path(__file__).parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Entry:
    """One optimiser of the table: its spec, whether it takes the whole set at once, and the knob that is tuned."""

    name: str
    spec: Any
    whole: bool = False
    path: str = ""
    low: float = 1e-3
    high: float = 10.0
    problems: tuple[str, ...] = ("logistic", "mnist", "autoencoder")


def entries() -> list[Entry]:
    """The optimisers of the chapter, by family."""
    from gradwise.optimisers.adaptive.adam import Adagrad, Adam, RmsProp
    from gradwise.optimisers.adaptive.eigenvalue_rate import EigenRate
    from gradwise.optimisers.adaptive.gain_adaptation import GlobalRate, HeldRatio, LocalRates
    from gradwise.optimisers.adaptive.reestimated_rate import Reestimated
    from gradwise.optimisers.adaptive.sgd_qn import SgdQn
    from gradwise.optimisers.adaptive.vsgd import Vsgd, VsgdFd
    from gradwise.optimisers.averaging.dual_averaging import DualAveraging
    from gradwise.optimisers.averaging.parameter_average import AveragedSgd, MovingAverage
    from gradwise.optimisers.first_order.sag import Sag
    from gradwise.optimisers.first_order.schedules import InverseTime
    from gradwise.optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
    from gradwise.optimisers.second_order.conjugate_gradient import ConjugateGradient
    from gradwise.optimisers.second_order.diagonal_newton import DiagonalNewton
    from gradwise.optimisers.second_order.hessian_free import HessianFree
    from gradwise.optimisers.second_order.kronecker import Kronecker
    from gradwise.optimisers.second_order.lbfgs import Lbfgs
    from gradwise.optimisers.second_order.natural_gradient import DiagonalNatural, Tonga

    rate = "learning_rate"
    convex = ("logistic",)
    return [
        Entry("SGD", Sgd(0.1), path=rate),
        Entry("SGD, 1/t", Sgd(0.1, schedule=InverseTime(tau_updates=1000.0)), path=rate),
        Entry("averaged SGD", AveragedSgd(), path=rate),
        Entry("heavy ball", HeavyBall(0.1, momentum=0.9), path=rate, high=3.0),
        Entry("Nesterov", Nesterov(0.1, momentum=0.9), path=rate, high=3.0),
        Entry("SAG", Sag(), problems=convex),
        Entry("dual averaging", DualAveraging(), path=rate, problems=convex),
        Entry("re-estimated rate", Reestimated(Sgd(0.1))),
        Entry("global rate", GlobalRate(), path=rate),
        Entry("rates by layer", LocalRates(by="layer"), path=rate),
        Entry("rates by neuron", LocalRates(by="neuron"), path=rate),
        Entry("held ratio", HeldRatio(HeavyBall()), path="ratio", low=1e-4, high=1e-1),
        Entry("eigenvalue's rate", EigenRate(Sgd(0.1)), path="safety", low=0.1, high=2.0),
        Entry("SGD-QN", SgdQn(), path="start_updates", low=10.0, high=1e5, problems=convex),
        Entry("Adagrad", Adagrad(), path=rate, low=1e-4, high=1.0),
        Entry("RMSprop", RmsProp(), path=rate, low=1e-5, high=0.1),
        Entry("Adam", Adam(), path=rate, low=1e-5, high=0.1),
        Entry("Adam, averaged", MovingAverage(Adam(), decay=0.999), path="optimiser.learning_rate", low=1e-5, high=0.1),
        Entry("diagonal Newton", DiagonalNewton(), path=rate, low=1e-4, high=1.0),
        Entry("vSGD-l", Vsgd(by="parameter")),
        Entry("vSGD-b", Vsgd()),
        Entry("vSGD-g", Vsgd(by="all")),
        Entry("vSGD-fd", VsgdFd()),
        Entry("diagonal natural", DiagonalNatural(), path=rate, low=1e-5, high=1.0),
        Entry("TONGA", Tonga(), path=rate, low=1e-4, high=1.0),
        Entry("Kronecker", Kronecker(), path=rate, low=1e-3, high=1.0),
        Entry("conjugate gradient", ConjugateGradient(), whole=True),
        Entry("L-BFGS", Lbfgs(), whole=True),
        Entry("Hessian-free", HessianFree(), whole=True),
    ]


@dataclass
class Curve:
    """What one run went through. The loss is the criterion on the whole training set."""

    age: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)

    def add(self, age: int, seconds: float, loss: float, valid: float, test: float) -> None:
        for column, value in zip(vars(self).values(), (age, seconds, loss, valid, test), strict=True):
            column.append(value)

    @property
    def final(self) -> float:
        return min((value for value in self.loss if math.isfinite(value)), default=math.inf)

    def plain(self) -> dict[str, list[float]]:
        return {name: [float(f"{value:.9g}") for value in column] for name, column in vars(self).items()}

    @property
    def told(self) -> float:
        """The test score where the validation score was best: early stopping, after the event."""
        return self.test[int(np.nanargmin(self.valid))]


def _measured(problem: Problem) -> Callable[[Any, State], tuple[Any, Any, Any]]:
    """Criterion on all training examples in pieces, and the problem's validation and test scores."""
    count = len(problem.train)
    piece = math.gcd(count, 10_000) if math.gcd(count, 10_000) > 500 else count

    @eqx.filter_jit
    def measure(task: Any, state: State) -> tuple[Any, Any, Any]:
        model = judged_model(task, state)
        criterion = task.recipe.criterion

        def one(start: Any) -> Any:
            batch = gather(task.train, start + jnp.arange(piece), jnp.ones(piece))
            return criterion.examples(model, batch.inputs, batch.targets)[1].sum()

        losses = jax.lax.map(one, jnp.arange(0, count, piece)).sum() / count
        valid, test = problem.judge(criterion, model)
        return losses + criterion.of_parameters(model) / count, valid, test

    return measure


def run(
    problem: Problem, recipe: Any, budget: float, stretch: int, compiled: dict[Any, Any], stop_at: float = -math.inf
) -> Curve:
    """Trains until the seconds are spent or the loss is reached: updates on the clock, measurements off it."""
    task, state = init(recipe, problem.train, problem.valid, outputs=problem.outputs, classes=0, key=jr.key(0))
    mark = (type(recipe.optimiser).__name__, str(jax.tree.structure(task)), stretch)
    if mark not in compiled:
        forward = eqx.filter_jit(lambda task, state: advance(task, state, stretch)[0])
        compiled[mark] = (forward, _measured(problem))
        jax.block_until_ready(eqx.filter(forward(task, state), eqx.is_array))
    forward, measure = compiled[mark]
    curve = Curve()
    spent, due = 0.0, 0.0
    while True:
        if spent >= due or spent >= budget:  # at times a tenth apart: measuring more would take longer than training
            loss, valid, test = map(float, measure(task, state))
            curve.add(int(state.update) * task.batch_size, spent, loss, valid, test)
            due = 1.1 * spent
            if spent >= budget or not math.isfinite(loss) or loss <= stop_at:
                return curve
        begun = time.perf_counter()
        state = forward(task, state)
        jax.block_until_ready(state.update)
        spent += time.perf_counter() - begun


def _recipe(problem: Problem, entry: Entry, value: float | None) -> Any:
    spec = entry.spec if value is None else replace(entry.spec, entry.path, value)
    return problem.recipe(spec, len(problem.train) if entry.whole else problem.batch)


def tuned(problem: Problem, entry: Entry, options: argparse.Namespace, random: np.random.Generator) -> dict[str, Any]:
    """The random search over the entry's knob, then the best value once more for the whole time."""
    compiled: dict[Any, Any] = {}
    stretch = 1 if entry.whole else max(1, len(problem.train) // problem.batch // 4)
    values: list[float | None] = [None]
    if entry.path:
        spots = (random.permutation(options.draws) + random.random(options.draws)) / options.draws  # one a stratum
        values = [float(entry.low * (entry.high / entry.low) ** spot) for spot in spots]
    tried = []
    if len(values) > 1:
        for value in values:
            curve = run(problem, _recipe(problem, entry, value), options.seconds / 2, stretch, compiled)
            tried.append((problem.choice(curve), value))
            print(f"    {entry.path} = {value:.3g}: {tried[-1][0]:.4g}", flush=True)
    best = min(tried)[1] if tried else None
    curve = run(problem, _recipe(problem, entry, best), options.seconds, stretch, compiled)
    print(f"  {problem.name}: {entry.name} {best or ''}: loss {curve.final:.6g}, test {curve.told:.4g}, "
          f"{curve.age[-1] / len(problem.train):.1f} passes in {curve.seconds[-1]:.1f} s", flush=True)  # fmt: skip
    return {
        "optimiser": entry.name,
        "tuned": entry.path,
        "value": best,
        "tried": tried,
        "final": curve.final,
        "told": curve.told,
        "curve": curve.plain(),
    }


def measure_all(options: argparse.Namespace) -> None:
    for problem in problems(options.problem, options):
        found = []
        random = np.random.default_rng(0)
        for entry in entries():
            if options.problem.partition("_")[0] not in entry.problems or (
                options.only and entry.name not in options.only.split(",")
            ):
                continue
            try:
                found.append(tuned(problem, entry, options, random))
            except Exception as trouble:  # told in the table: one optimiser's failure hides no other's result
                print(f"  {problem.name}: {entry.name} failed: {str(trouble).splitlines()[0]}", flush=True)
                found.append({"optimiser": entry.name, "failed": str(trouble).splitlines()[0]})
            _write(problem, found, options)


def _write(problem: Problem, found: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """After each optimiser, so that nothing measured is lost."""
    device = jax.devices()[0]
    result = {
        "problem": problem.name,
        "about": problem.about,
        "examples": len(problem.train),
        "optimum": problem.optimum,
        "reference": problem.reference,
        "seconds": options.seconds,
        "draws": options.draws,
        "runs": found,
        "machine": f"{device.device_kind}, {platform.machine()}, JAX {jax.__version__}",
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/optimisers.py " + " ".join(sys.argv[1:]),
    }
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"optimisers_{problem.name}.json").write_text(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", help="logistic (or logistic_adult, _web, _spam), mnist or autoencoder")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of the told run; a draw gets half of it")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--examples", type=int, default=0, help="training examples; 0 is all of them")
    parser.add_argument("--only", default="", help="names of optimisers, separated by commas")
    parser.add_argument("--out", default=str(RESULTS))
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    if options.problem:
        measure_all(options)
    if options.picture:
        from optimiser_picture import draw

        draw(Path(options.out))


if __name__ == "__main__":
    main()
