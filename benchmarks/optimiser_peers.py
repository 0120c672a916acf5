"""Our optimisers beside those of other libraries, in one run: who takes less time for the same work?

    python benchmarks/optimiser_peers.py                     all rows on the CPU, about 4 minutes
    python benchmarks/optimiser_peers.py --only lbfgs sag    some of them
    python benchmarks/optimiser_peers.py --only c4           needs no peer: for a machine with an accelerator

| row        | ours                             | peers                                                           |
|------------|----------------------------------|-----------------------------------------------------------------|
| lbfgs      | Lbfgs, memory 10                 | optax.lbfgs, jaxopt.LBFGS: same memory, their own line searches |
| cg         | ConjugateGradient                | jaxopt.NonlinearCG                                              |
| products   | Gauss-Newton and Hessian v, top  | curvlinops (PyTorch), with SciPy's eigsh for the eigenvalue     |
| kronecker  | Kronecker, inverses every 10th   | kfac_jax.Optimizer                                              |
| sag        | Sag, B = 1, L as scikit-learn's  | LogisticRegression(solver="sag")                                |
| c4         | 8 learning rates tried at once   | ours: 8 calls with 1 rate, one after another; and 1 such call   |

Adagrad, RMSprop and Adam are Optax's own transformations: nothing to compare. vSGD, SGD-QN, TONGA, the back-propagated
diagonal and Hessian-free have no peer in these libraries.

All data are made. Everybody starts at the same point and compiles before the clock runs. Sides take turns within a
round and the fastest round of each counts, since the machine is noisy. Batch methods are timed up to a relative gap of
1e-4 to SciPy's optimum, since line searches differ: once the transformation alone, in a scan as a peer's, and once as
`fit` runs it (`training.interval.advance`), where every update also gathers its batch and records each example's loss
and score, which no peer does. A ratio is the peer's time over ours: above 1 we are faster. `difference` compares what
both sides computed, with the tolerance that was asked of it. A peer that is not installed, or does not run here, is
said and left out.
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
from functools import partial
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from gradwise import defaults
from gradwise.criteria.losses import SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.eigenvalues import lanczos
from gradwise.curvature.objective import Examples, gather
from gradwise.curvature.products import gauss_newton_map, hessian_map
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import ZeroWeights
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.reestimated_rate import fixed_subset, try_continuing
from gradwise.optimisers.first_order.sag import Sag
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order.conjugate_gradient import ConjugateGradient
from gradwise.optimisers.second_order.kronecker import Kronecker
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.specs.contracts import Batch
from gradwise.training.interval import advance
from gradwise.training.state import init

GAP, SIZES = 1e-4, (784, 500, 300, 10)
SLICE, LONG = 0.1, 1.0  # seconds
EIGEN_BATCH = 200
MOST = 400  # iterations, where the gap is not reached


class Side(NamedTuple):
    """One competitor: a call that has ended when it returns, how often it does the work in question, what it found."""

    call: Callable[[], Any]
    times: float
    found: Any
    iterations: int = 0  # of a batch method, in one call


# --- measuring


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call, from as many in a row as fill a slice of time. One goes first untimed: the thread pool of
    whoever ran before spins for a while after its work. In a long call that does not count."""
    start = time.perf_counter()
    call()
    if time.perf_counter() - start > LONG:
        return time.perf_counter() - start
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SLICE:
        call()
        count += 1
    return (time.perf_counter() - start) / count


def relative(one: Any, other: Any) -> float:
    """How far two results lie apart, over the length of the second."""
    one, other = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(float) for tree in (one, other))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def made(maker: Callable[[], Side]) -> Side | str:
    """The side, or why there is none: a peer may be missing, or too old for what is installed."""
    try:
        side = maker()
        side.call()
    except ImportError as problem:
        return f"not installed: {problem}"
    except Exception as problem:  # whatever a peer raises is its result here
        lines = [line for line in str(problem).splitlines() if line.strip()] or [""]
        return f"does not run with JAX {jax.__version__}: {type(problem).__name__}: {lines[0]}"
    return side


def compare(
    what: str, ours: Side, makers: dict[str, Callable[[], Side]], tolerance: float, rounds: int, note: str = ""
) -> list[dict[str, Any]]:
    """A line for each peer: seconds of the same work on both sides, and their ratio."""
    ours.call()
    sides = {name: made(maker) for name, maker in makers.items()}
    there = {name: side for name, side in sides.items() if isinstance(side, Side)}
    best = dict.fromkeys(["gradwise", *there], math.inf)
    for _ in range(rounds):
        for name, side in {"gradwise": ours, **there}.items():
            best[name] = min(best[name], timed(side.call) / side.times)
    lines: list[dict[str, Any]] = []
    for name, side in sides.items():
        line: dict[str, Any] = {"what": what, "peer": name, "ours_seconds": best["gradwise"]}
        if isinstance(side, Side):
            apart = relative(ours.found, side.found)
            line |= {"peer_seconds": best[name], "ratio": best[name] / best["gradwise"]}
            if side.iterations:
                line |= {"ours_iterations": ours.iterations, "peer_iterations": side.iterations}
                line |= {"ratio_by_iteration": line["ratio"] * ours.iterations / side.iterations}
            line |= {"difference": apart, "tolerance": tolerance, "same": apart <= tolerance}
        line |= {"note": side if isinstance(side, str) else note}
        lines.append(line)
        print(json.dumps(line), flush=True)
    return lines


# --- logistic regression


class Logistic(NamedTuple):
    """Made data, the criterion in 64 bits and its optimum by SciPy; the bias is not penalised."""

    inputs: np.ndarray
    targets: np.ndarray
    optimum: float

    def value(self, weight: Any, bias: Any) -> float:
        w = np.asarray(weight, float).ravel()
        margin = (2.0 * self.targets - 1.0) * (self.inputs.astype(float) @ w + float(np.ravel(bias)[0]))
        return float(np.logaddexp(0.0, -margin).mean() + 0.5 * w @ w / len(margin))

    def gap(self, weight: Any, bias: Any) -> float:
        return self.value(weight, bias) / self.optimum - 1.0


def logistic(count: int, width: int, condition: float) -> Logistic:
    """Inputs whose variances fall by `condition` from the first to the last: so the methods have something to do."""
    from scipy.optimize import minimize

    draw = np.random.default_rng(0)
    scales = np.logspace(0.0, -0.5 * math.log10(condition), width)
    inputs = (draw.standard_normal((count, width)) * scales).astype(np.float32)
    drift = inputs @ (draw.standard_normal(width) / scales * 2.0 / math.sqrt(width))
    targets = (draw.random(count) < 1.0 / (1.0 + np.exp(-drift))).astype(np.int32)
    x, signs = inputs.astype(float), 2.0 * targets - 1.0

    def both(point: np.ndarray) -> tuple[float, np.ndarray]:
        w, margin = point[:-1], signs * (x @ point[:-1] + point[-1])
        slope = -signs / (1.0 + np.exp(margin)) / count
        value = np.logaddexp(0.0, -margin).mean() + 0.5 * w @ w / count
        return value, np.append(x.T @ slope + w / count, slope.sum())

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(both, np.zeros(width + 1), jac=True, method="L-BFGS-B", options=options)
    return Logistic(inputs, targets, float(found.fun))


def linear_problem(task: Logistic, optimiser: Any, batch: int) -> Any:
    recipe = defaults.multilabel(
        batches=Fixed(batch),
        model=Mlp(widths=(), output_initial=ZeroWeights(), dropout=0.0),
        criterion=Supervised(SigmoidLoss(), penalties=(L2(0.5),)),
        optimiser=optimiser,
    )
    train = Examples(jnp.asarray(task.inputs), jnp.asarray(task.targets[:, None], jnp.float32))
    return init(recipe, train, train, outputs=1, key=jr.key(0))


@eqx.filter_jit
def run(problem: Any, state: Any, updates: int) -> Any:
    return advance(problem, state, updates)


def iterations_to(gap: Callable[[Any], float], turn: Callable[[Any], Any], carry: Any) -> int:
    """How many turns it takes to the gap."""
    for number in range(1, MOST + 1):
        carry = turn(carry)
        if gap(carry) <= GAP:
            return number
    return MOST


class Moving(NamedTuple):
    """What the transformation alone changes."""

    parameters: Any
    optimiser: Any


def whole_batch(problem: Any) -> Batch:
    """The training set as it lies."""
    count = len(problem.train)
    ones = jnp.ones(count)
    return Batch(problem.train.inputs, problem.train.targets, ones, ones, jnp.asarray(float(count)), jnp.arange(count))


def whole_objective(problem: Any) -> Any:
    """The criterion on the training set as it lies."""
    return problem.objective(whole_batch(problem), jnp.zeros((), jnp.int32))


def as_in_fit(problem: Any) -> Callable[[Any, int], Any]:
    return lambda state, updates: run(problem, state, updates)[0]


def alone(problem: Any) -> Callable[[Any, int], Any]:
    """The transformation alone on the whole training set; all arrays are given to the compiled program, as a peer's."""
    arrays, rest = eqx.partition((problem, whole_batch(problem)), eqx.is_array)

    @partial(jax.jit, static_argnums=2)
    def compiled(arrays: Any, state: Any, updates: int) -> Any:
        problem, batch = eqx.combine(arrays, rest)
        rule, objective = problem.recipe.optimiser.build(), problem.objective(batch, jnp.zeros((), jnp.int32))

        def body(carry: Any, _: Any) -> Any:
            parameters, inner = carry
            value, gradient = objective.value_and_gradient(parameters)
            moves, inner = rule.update(gradient, inner, parameters, value=value, objective=objective)
            return (optax.apply_updates(parameters, moves), inner), None

        return Moving(*jax.lax.scan(body, tuple(state), None, updates)[0])

    return lambda state, updates: compiled(arrays, Moving(state.parameters, state.optimiser), updates)


def our_descent(task: Logistic, optimiser: Any, way: Callable[..., Any]) -> Side:
    problem, start = linear_problem(task, optimiser, len(task.inputs))
    turn = way(problem)

    def gap(state: Any) -> float:
        return task.gap(state.parameters.output.weight, state.parameters.output.bias)

    needed = iterations_to(gap, lambda state: turn(state, 1), start)

    def call() -> Any:
        return jax.block_until_ready(turn(start, needed))

    return Side(call, 1, 1.0 + gap(call()), needed)


def criterion(point: Any, inputs: Any, signs: Any) -> Any:
    """The same criterion as peers of JAX get it."""
    margin = signs * (inputs @ point["weight"] + point["bias"])
    return jnp.mean(jax.nn.softplus(-margin)) + 0.5 * jnp.sum(point["weight"] ** 2) / signs.shape[0]


def arguments_of(task: Logistic) -> tuple[Any, Any, Any]:
    point = {"weight": jnp.zeros(task.inputs.shape[1]), "bias": jnp.zeros(())}
    return point, jnp.asarray(task.inputs), jnp.asarray(2.0 * task.targets - 1.0, jnp.float32)


def optax_descent(task: Logistic) -> Side:
    rule = optax.lbfgs(memory_size=10)
    start, inputs, signs = arguments_of(task)

    def descend(point: Any, state: Any, inputs: Any, signs: Any, updates: int) -> Any:
        def height(where: Any) -> Any:
            return criterion(where, inputs, signs)

        def body(carry: Any, _: Any) -> Any:
            point, state = carry
            value, gradient = optax.value_and_grad_from_state(height)(point, state=state)
            moves, state = rule.update(gradient, state, point, value=value, grad=gradient, value_fn=height)
            return (optax.apply_updates(point, moves), state), value

        return jax.lax.scan(body, (point, state), None, updates)

    compiled = jax.jit(descend, static_argnums=4)
    needed = iterations_to(
        lambda carry: task.gap(**carry[0]),
        lambda carry: compiled(*carry, inputs, signs, 1)[0],
        (start, rule.init(start)),
    )
    state = rule.init(start)

    def call() -> Any:
        return jax.block_until_ready(compiled(start, state, inputs, signs, needed))

    return Side(call, 1, 1.0 + task.gap(**call()[0][0]), needed)


def jaxopt_descent(task: Logistic, kind: str, **options: Any) -> Side:
    import jaxopt

    start, inputs, signs = arguments_of(task)
    method = getattr(jaxopt, kind)
    solver = method(criterion, tol=0.0, implicit_diff=False, **options)
    turn = jax.jit(solver.update)
    needed = iterations_to(
        lambda carry: task.gap(**carry[0]),
        lambda carry: tuple(turn(*carry, inputs, signs)),
        (start, solver.init_state(start, inputs, signs)),
    )
    # To the same number of iterations in one compiled loop.
    whole = jax.jit(method(criterion, tol=0.0, implicit_diff=False, maxiter=needed, **options).run)

    def call() -> Any:
        return jax.block_until_ready(whole(start, inputs, signs).params)

    return Side(call, 1, 1.0 + task.gap(**call()), needed)


def both_ways(
    name: str, task: Logistic, optimiser: Any, peers: dict[str, Callable[[], Side]], rounds: int
) -> list[dict[str, Any]]:
    lines = []
    for words, way in (("alone", alone), ("as in fit", as_in_fit)):
        what = f"{name}, {words}: to a gap of 1e-4, logistic {task.inputs.shape[0]} x {task.inputs.shape[1]}"
        lines += compare(what, our_descent(task, optimiser, way), peers, GAP, rounds)
    return lines


def row_lbfgs(rounds: int) -> list[dict[str, Any]]:
    task = logistic(10_000, 100, 300.0)
    peers = {
        "optax.lbfgs": lambda: optax_descent(task),
        "jaxopt.LBFGS": lambda: jaxopt_descent(task, "LBFGS", history_size=10),
    }
    return both_ways("L-BFGS", task, Lbfgs(memory=10), peers, rounds)


def row_cg(rounds: int) -> list[dict[str, Any]]:
    task = logistic(10_000, 100, 300.0)
    # Its longest step is 1 by itself, too short for a mean of losses: it does not reach the gap. 300 is the best for it
    # of 1, 10, 100, 300 and 1000 on these data, while ours is as it comes.
    peers = {
        "jaxopt.NonlinearCG, max_stepsize 300": lambda: jaxopt_descent(task, "NonlinearCG", max_stepsize=300.0),
        f"jaxopt.NonlinearCG as it comes, {MOST} iterations": lambda: jaxopt_descent(task, "NonlinearCG"),
    }
    return both_ways("conjugate gradient", task, ConjugateGradient(), peers, rounds)


# --- a network


def network_problem(optimiser: Any, count: int, batch: int) -> Any:
    recipe = defaults.classification(
        batches=Fixed(batch),
        model=Mlp(widths=SIZES[1:-1], activation=Tanh(), dropout=0.0),
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        optimiser=optimiser,
    )
    draw = np.random.default_rng(1)
    inputs = draw.random((count, SIZES[0]), dtype=np.float32)
    targets = (inputs @ draw.standard_normal((SIZES[0], SIZES[-1]))).argmax(1).astype(np.int32)
    train = Examples(jnp.asarray(inputs), jnp.asarray(targets))
    return init(recipe, train, train, outputs=SIZES[-1], key=jr.key(0))


def layers_of(parameters: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    layers = [*parameters.layers, parameters.output]
    return [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in layers]


def torch_operator(kind: str, problem: Any, parameters: Any) -> Any:
    """The same network in PyTorch, with curvlinops' linear operator of its curvature."""
    import curvlinops
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    parts: list[Any] = []
    for (a, b), (weight, bias) in zip(pairwise(SIZES), layers_of(parameters), strict=True):
        layer = torch.nn.Linear(a, b)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        parts += [layer, torch.nn.Tanh()]
    model = torch.nn.Sequential(*parts[:-1])
    inputs, targets = (torch.tensor(np.asarray(x)) for x in (problem.train.inputs, problem.train.targets))
    return getattr(curvlinops, kind)(
        model,
        torch.nn.CrossEntropyLoss(),
        list(model.parameters()),
        [(inputs, targets.long())],
        check_deterministic=False,
    )


def flat(parameters: Any) -> np.ndarray:
    return np.concatenate([leaf.ravel() for pair in layers_of(parameters) for leaf in pair])


def torch_products(kind: str, problem: Any, parameters: Any, vectors: Any) -> Side:
    import torch

    operator = torch_operator(kind, problem, parameters)
    count = jax.tree.leaves(vectors)[0].shape[0]
    rows = [torch.tensor(flat(jax.tree.map(lambda leaf: leaf[n], vectors))) for n in range(count)]  # noqa: B023

    def call() -> Any:
        return [operator @ row for row in rows]

    return Side(call, count, np.stack([np.asarray(one) for one in call()]))


def torch_eigenvalue(problem: Any, parameters: Any) -> Side:
    from scipy.sparse.linalg import eigsh

    operator = torch_operator("HessianLinearOperator", problem, parameters).to_scipy()
    start = np.random.default_rng(2).standard_normal(operator.shape[0]).astype(np.float32)

    def call() -> Any:
        return eigsh(operator, k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)

    return Side(call, 1, call())


def row_products(rounds: int) -> list[dict[str, Any]]:
    count, batch = 3, 1000
    problem, state = network_problem(Sgd(0.1), batch, batch)
    parameters = state.parameters
    few, _ = network_problem(Sgd(0.1), EIGEN_BATCH, EIGEN_BATCH)
    draw = np.random.default_rng(3)
    vectors = jax.tree.map(lambda p: jnp.asarray(draw.standard_normal((count, *p.shape)), p.dtype), parameters)

    def map_of(kind: str, problem: Any, parameters: Any) -> Any:
        objective = whole_objective(problem)
        if kind == "GGNLinearOperator":
            return gauss_newton_map(objective.outputs, objective.loss_of, parameters)
        return hessian_map(objective, parameters)

    @eqx.filter_jit
    def products(kind: str, problem: Any, parameters: Any, vectors: Any) -> Any:
        return jax.lax.map(map_of(kind, problem, parameters), vectors)

    @eqx.filter_jit
    def highest(problem: Any, parameters: Any) -> Any:
        product = map_of("HessianLinearOperator", problem, parameters)
        return lanczos(product, parameters, key=jr.key(4), steps=20).values[-1:]

    lines = []
    for kind, name in (("GGNLinearOperator", "Gauss-Newton"), ("HessianLinearOperator", "Hessian")):

        def call(kind: str = kind) -> Any:
            return jax.block_until_ready(products(kind, problem, parameters, vectors))

        found = call()
        rows = np.stack([flat(jax.tree.map(lambda leaf: leaf[n], found)) for n in range(count)])  # noqa: B023
        peers = {f"curvlinops.{kind}": lambda kind=kind: torch_products(kind, problem, parameters, vectors)}
        what = f"{name} products, {'-'.join(map(str, SIZES))}, batch {batch}"
        lines += compare(what, Side(call, count, rows), peers, 1e-4, rounds)

    def top() -> Any:
        return jax.block_until_ready(highest(few, parameters))

    peers = {"curvlinops, scipy eigsh": lambda: torch_eigenvalue(few, parameters)}
    what = f"highest eigenvalue of the Hessian by Lanczos, batch {EIGEN_BATCH}"
    note = "20 products; eigsh at its tolerance of 1e-3"
    return lines + compare(what, Side(top, 1, top()), peers, 1e-3, rounds, note)


# --- Kronecker factors

KRONECKER: dict[str, float] = {"learning_rate": 1e-3, "momentum": 0.9, "damping": 0.1}


def kfac_optimiser(mode: str, period: int) -> Any:
    """kfac_jax's optimiser of the same network and criterion."""
    import kfac_jax
    from kfac_jax._src import tag_graph_matcher

    if isinstance(jax.lax.neg_p.get_bind_params({}), dict):
        # Newer JAX gives the parameters of a primitive as one dictionary, where kfac_jax 0.0.8 expects a pair.
        def evaluated(equation: Any, values: Any) -> Any:
            parameters = equation.primitive.get_bind_params(equation.params)
            results = equation.primitive.bind(*values, **parameters)
            return results if isinstance(results, list) else [results]

        tag_graph_matcher.eval_jaxpr_eqn = evaluated

    def loss(parameters: Any, batch: Any) -> Any:
        h, targets = batch
        for number, (weight, bias) in enumerate(parameters):
            h = h @ weight + bias
            h = jnp.tanh(h) if number < len(parameters) - 1 else h
        kfac_jax.register_softmax_cross_entropy_loss(h, targets=targets)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h), targets[:, None], axis=1))

    return kfac_jax.Optimizer(
        jax.value_and_grad(loss),
        l2_reg=0.0,
        initial_damping=KRONECKER["damping"],
        num_burnin_steps=0,
        estimation_mode=mode,
        curvature_ema=0.95,
        inverse_update_period=period,
    )


class Kfac:
    """kfac_jax at its own pace: one compiled call an update, as its users make them."""

    def __init__(self, mode: str, problem: Any, parameters: Any):
        self.optimiser, self.key, self.number = kfac_optimiser(mode, 10), jr.PRNGKey(0), 0
        self.parameters = [(jnp.array(weight.T), jnp.array(bias)) for weight, bias in layers_of(parameters)]
        self.batch = (problem.train.inputs, problem.train.targets)
        self.state = self.optimiser.init(self.parameters, self.key, self.batch)
        self.settings = {name: jnp.asarray(value) for name, value in KRONECKER.items()}

    def step(self, updates: int) -> Any:
        for _ in range(updates):
            self.parameters, self.state, _ = self.optimiser.step(
                self.parameters,
                self.state,
                self.key,
                batch=self.batch,
                global_step_int=self.number,
                **self.settings,
            )
            self.number += 1
        return jax.block_until_ready(self.parameters)


def kfac_side(problem: Any, parameters: Any, updates: int) -> Side:
    before = layers_of(parameters)
    exact = Kfac("fisher_exact", problem, parameters).step(1)
    move = [(weight.T - w, bias - b) for (weight, bias), (w, b) in zip(exact, before, strict=True)]
    sampled = Kfac("fisher_gradients", problem, parameters)
    sampled.step(10)
    return Side(lambda: sampled.step(updates), updates, move)


def row_kronecker(rounds: int) -> list[dict[str, Any]]:
    batch, updates = 1000, 10
    spec = Kronecker(**KRONECKER, clip=0.0, every_updates=10.0)
    problem, state = network_problem(spec, batch, batch)
    exact, start = network_problem(Kronecker(**KRONECKER, clip=0.0, curvature="exact"), batch, batch)
    reached = run(exact, start, 1)[0].parameters
    pairs = zip(layers_of(reached), layers_of(start.parameters), strict=True)
    move = [(weight - w, bias - b) for (weight, bias), (w, b) in pairs]
    later = run(problem, state, 10)[0]  # at first every update inverts

    def call() -> Any:
        return jax.block_until_ready(run(problem, later, updates))

    peers = {"kfac_jax.Optimizer": lambda: kfac_side(problem, state.parameters, updates)}
    what = f"Kronecker-factored updates, {'-'.join(map(str, SIZES))}, batch {batch}, an inversion in 10"
    note = (
        "difference: of the first move, with exact curvature on both sides; where JAX is too new for kfac_jax 0.0.8, "
        "the one function of it that breaks is replaced"
    )
    return compare(what, Side(call, updates, move), peers, 1e-2, rounds, note)


# --- SAG


def sklearn_side(task: Logistic, passes: int, judged: int) -> Side:
    from sklearn.linear_model import LogisticRegression

    def fitted(passes: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            model = LogisticRegression(solver="sag", max_iter=passes, tol=0.0, random_state=0)
            return model.fit(task.inputs, task.targets)

    model = fitted(judged)
    return Side(lambda: fitted(passes), passes, task.value(model.coef_, model.intercept_))


def row_sag(rounds: int) -> list[dict[str, Any]]:
    lines = []
    judged = 20
    for count, width in ((5000, 50), (5000, 784)):
        task = logistic(count, width, 10.0)
        # The largest curvature of one example's loss, and of the penalty: scikit-learn's step is 1 / this.
        smoothness = 0.25 * (float((task.inputs**2).sum(1).max()) + 1.0) + 1.0 / count
        problem, start = linear_problem(task, Sag(smoothness=smoothness), 1)

        def call(problem: Any = problem, start: Any = start, count: int = count) -> Any:
            return jax.block_until_ready(run(problem, start, count))[0]

        state = start
        for _ in range(judged):
            state = run(problem, state, count)[0]
        value = task.value(state.parameters.output.weight, state.parameters.output.bias)
        # Many passes in a call of scikit-learn's, so that its preparations do not count.
        peers = {'LogisticRegression("sag")': lambda task=task: sklearn_side(task, 30, judged)}
        what = f"SAG, B = 1, logistic {count} x {width}"
        note = f"difference: of the criterion after {judged} passes"
        lines += compare(what, Side(call, 1, value), peers, 1e-3, rounds, note)
    return lines


# --- C4


def row_c4(rounds: int) -> list[dict[str, Any]]:
    problem, state = network_problem(Sgd(0.1), 2048, 64)
    rates = jnp.asarray(0.1 * 2.0 ** (np.arange(8) - 4.0), jnp.float32)

    def objective_of(problem: Any) -> Any:
        return problem.objective(gather(problem.train, jnp.arange(64), jnp.ones(64)), jnp.zeros((), jnp.int32))

    subset = eqx.filter_jit(lambda problem: fixed_subset(objective_of(problem), 512))(problem)

    @eqx.filter_jit
    def attempt(problem: Any, state: Any, rates: Any, subset: Any) -> Any:
        spec = problem.recipe.optimiser
        return try_continuing(spec, state.optimiser, state.parameters, objective_of(problem), rates, subset)

    def together() -> Any:
        return jax.block_until_ready(attempt(problem, state, rates, subset))

    def in_turn() -> Any:
        return [attempt(problem, state, rates[n : n + 1], subset).block_until_ready() for n in range(8)]

    single = rates[4:5]

    def alone() -> Any:
        return jax.block_until_ready(attempt(problem, state, single, subset))

    found = together()
    peers = {
        "8 calls, a rate each": lambda: Side(in_turn, 1, in_turn()),
        "1 call, 1 rate": lambda: Side(alone, 1, [found[:4], alone(), found[5:]]),
    }
    what = f"C4: 8 rates at once, {'-'.join(map(str, SIZES))}, 512 examples, B = 64"
    # The two differ by little on a CPU: more rounds, to tell them apart on a noisy machine.
    lines = compare(what, Side(together, 1, found), peers, 1e-3, 3 * rounds)
    lines[1]["times_one_rate"] = 1.0 / lines[1]["ratio"]
    return lines


ROWS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "lbfgs": row_lbfgs,
    "cg": row_cg,
    "products": row_products,
    "kronecker": row_kronecker,
    "sag": row_sag,
    "c4": row_c4,
}


def milliseconds(line: dict[str, Any], name: str) -> str:
    return f"{1000.0 * line[name]:.4g}" if name in line else ""


def show(lines: list[dict[str, Any]]) -> None:
    print("| what | peer | ours, ms | peer, ms | peer / ours | iterations | per iteration | difference |")
    print("|" + "---|" * 8)
    for line in lines:
        times = f"{milliseconds(line, 'ours_seconds')} | {milliseconds(line, 'peer_seconds')}"
        if "ratio" not in line:
            print(f"| {line['what']} | {line['peer']} | {times} | {line['note']} | | | |")
            continue
        counted = " | "
        if "ratio_by_iteration" in line:
            counted = f"{line['ours_iterations']} / {line['peer_iterations']} | {line['ratio_by_iteration']:.2f}"
        same = f"{line['difference']:.1e}{'' if line['same'] else ' (too large)'}"
        print(f"| {line['what']} | {line['peer']} | {times} | {line['ratio']:.2f} | {counted} | {same} |")
    for line in lines:
        if "times_one_rate" in line:
            print(f"8 rates take {line['times_one_rate']:.2f} times as long as one.")


def versions() -> dict[str, str]:
    names = ("jax", "optax", "jaxopt", "kfac-jax", "curvlinops-for-pytorch", "torch", "scikit-learn", "scipy")
    return {found.name.lower(): found.version for found in metadata.distributions() if found.name.lower() in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(ROWS), default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    lines = [line for name in chosen.only or ROWS for line in ROWS[name](chosen.rounds)]
    show(lines)
    device = jax.devices()[0]
    record = {
        "lines": lines,
        "rounds": chosen.rounds,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores"
        + ("" if device.platform == "cpu" else f", {device.device_kind}"),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python benchmarks/optimiser_peers.py", *sys.argv[1:]]),
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    ending = "".join(f"_{name}" for name in chosen.only) + ("" if device.platform == "cpu" else "_gpu")
    (chosen.out / f"optimiser_peers{ending}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
