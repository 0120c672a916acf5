"""Hessian-free optimisation (rows H7, B6) against dense matrices, NumPy's own conjugate gradients and closed forms."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gradwise.defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed
from gradwise.models.activations import Sigmoid as SigmoidUnit
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import SparseWeights
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.first_order.sgd import Nesterov, Sgd
from gradwise.optimisers.second_order import hessian_free
from gradwise.optimisers.second_order.hessian_free import HessianFree, conjugate_gradients, kept_at
from gradwise.runtime import line_search_state
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import as_criterion
from gradwise.specs.paths import trainable
from gradwise.training import loop
from gradwise.training.interval import interval
from gradwise.training.state import init
from gradwise.training.stopping import Off, Patience
from tests.marks import parametrize_one_quick

# --- conjugate gradients


def a_system(size: int, condition: float):
    """A symmetric positive matrix, a gradient, a start and a preconditioner, in 64 bits.

    Its eigenvalues are dense at both ends: no eigenvector is found early, so rounding does not grow from step to step.
    """
    rng = np.random.default_rng(size)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = 1.0 + (condition - 1.0) * (1.0 - np.cos(np.pi * (np.arange(size) + 0.5) / size)) / 2
    matrix = turn * values @ turn.T
    return matrix, rng.normal(size=size), 0.1 * rng.normal(size=size), 0.5 + rng.random(size)


def steps_by_hand(matrix, gradient, start, scale, steps):
    """The textbook recursion in NumPy with Martens' end: every iterate and phi at each, the start first."""
    points, residual = [start], matrix @ start + gradient
    direction = -residual / scale
    phis = [gradient @ start + start @ matrix @ start / 2]
    for count in range(1, steps + 1):
        image = matrix @ direction
        length = (residual @ (residual / scale)) / (direction @ image)
        points.append(points[-1] + length * direction)
        new = residual + length * image
        share = (new @ (new / scale)) / (residual @ (residual / scale))
        residual, direction = new, -new / scale + share * direction
        phis.append(gradient @ points[-1] + points[-1] @ matrix @ points[-1] / 2)
        gap = max(10, -(-count // 10))
        if count > gap and phis[-1] < 0 and (phis[-1] - phis[-1 - gap]) / phis[-1] < gap * 5e-4:
            break
    return np.asarray(points), np.asarray(phis)


def solve(matrix, gradient, start, scale, steps):
    return jax.jit(lambda *given: conjugate_gradients(lambda v: given[0] @ v, *given[1:], steps))(
        *map(jnp.asarray, (matrix, gradient, start, scale))
    )


def test_the_solution_is_the_dense_one() -> None:
    with jax.enable_x64(True):
        matrix, gradient, start, scale = a_system(10, 30.0)
        solved = solve(matrix, gradient, start, scale, 100)
        np.testing.assert_allclose(
            solved.iterates[solved.last], -np.linalg.solve(matrix, gradient), rtol=1e-8, atol=1e-10
        )


@parametrize_one_quick(("steps", "apart"), [(250, 1e-4), (40, 1e-9), (5, 1e-12), (3, 1e-12)])
def test_every_iterate_kept_is_the_one_by_hand(steps: int, apart: float) -> None:
    """On an ill-conditioned system of 300 unknowns: the same steps, the same end, phi falling all the way.

    Rounding grows with the steps, here to 2e-5 of a point after 122 of them and to 1e-10 after 40.
    """
    with jax.enable_x64(True):
        system = a_system(300, 1e4)
        points, phis = steps_by_hand(*system, steps)
        solved = solve(*system, steps)
    count = int(solved.steps)
    assert count == len(points) - 1
    assert (count < steps) == (steps == 250)  # only the long one ends by itself
    assert np.all(np.diff(phis) < 0)
    marks = [mark for mark in kept_at(steps) if mark < count] + [count]
    assert int(solved.last) == len(marks) - 1
    np.testing.assert_allclose(solved.iterates[: len(marks)], points[marks], rtol=0, atol=apart)
    np.testing.assert_allclose(solved.models[: len(marks)], phis[marks], rtol=max(apart, 1e-11))
    matrix, gradient = system[:2]
    direct = [gradient @ point + point @ matrix @ point / 2 for point in np.asarray(solved.iterates[: len(marks)])]
    np.testing.assert_allclose(solved.models[: len(marks)], direct, rtol=1e-9)


def test_about_sixteen_iterates_are_kept_of_250() -> None:
    assert kept_at(250) == (5, 7, 9, 11, 15, 19, 25, 32, 41, 54, 69, 90, 117, 152, 197, 256)


def test_negative_curvature_ends_the_solve_with_the_last_iterate() -> None:
    matrix, gradient, start, scale = np.diag([1.0, -3.0]), np.asarray([1.0, 0.1]), np.zeros(2), np.ones(2)
    solved = solve(*(given.astype(np.float32) for given in (matrix, gradient, start, scale)), 50)
    first = -gradient * (gradient @ gradient) / (gradient @ matrix @ gradient)  # the second direction curves down
    assert int(solved.steps) == 2
    np.testing.assert_allclose(solved.iterates[solved.last], first, rtol=1e-5)


def test_negative_curvature_at_once_is_one_step_down_the_preconditioned_gradient() -> None:
    matrix, gradient, scale = np.diag([-1.0, -3.0]), np.asarray([1.0, 0.5]), np.asarray([2.0, 4.0])
    solved = solve(*(given.astype(np.float32) for given in (matrix, gradient, np.zeros(2), scale)), 50)
    np.testing.assert_allclose(solved.iterates[solved.last], -gradient / scale, rtol=1e-6)
    assert float(solved.models[solved.last]) < 0


def test_products_that_are_no_numbers_leave_the_start() -> None:
    solved = conjugate_gradients(lambda v: v * jnp.nan, jnp.ones(2), jnp.zeros(2), jnp.ones(2), 5)
    assert np.array_equal(solved.iterates[solved.last], np.zeros(2))


# --- the system of one update


def an_objective(network, loss, inputs, targets, *, update=0, present=None):
    """The criterion on all examples as one batch, and where to start."""
    train = Examples(jnp.asarray(inputs), jnp.asarray(targets))
    count = len(train)
    batch = gather(train, jnp.arange(count), jnp.ones(count) if present is None else jnp.asarray(present))
    parameters, rest = trainable(network)
    return Objective(
        as_criterion(loss), Fixed(count), rest, train, jr.key(0), jnp.asarray(update, jnp.int32), batch
    ), parameters


@eqx.filter_jit
def updated(optimiser, objective, parameters, state):
    value, gradient = objective.value_and_gradient(parameters)
    moves, state = optimiser.build().update(gradient, state, parameters, value=value, objective=objective)
    return optax.apply_updates(parameters, moves), state


def one_update(optimiser, objective, parameters, state=None):
    """The moved parameters and the new state."""
    return updated(optimiser, objective, parameters, optimiser.build().init(parameters) if state is None else state)


@eqx.filter_jit
def dense_pieces(objective, parameters):
    """The batch's gradient, the outputs' Jacobian, the loss's Hessian in each output and the penalty's, written out."""
    point, shaped = ravel_pytree(parameters)
    return (
        jax.grad(lambda flat: objective(shaped(flat)))(point),
        jax.jacobian(lambda flat: objective.outputs(shaped(flat)))(point),
        jax.vmap(jax.hessian(objective.criterion.of_output))(objective.outputs(parameters), objective.batch.targets),
        jax.hessian(lambda flat: objective.penalty(shaped(flat)))(point),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "parts", "used", "rows"),
    [
        (3, 1, 12, range(12)),
        (2, 5, 12, (6, 7, 8)),
        (8, 5, 12, (9, 10, 11)),
        (4, 5, 12, (0, 1, 2)),  # 12 examples in 5 parts of 3: the last part begins again
        (3, 5, 8, (1, 2, 3)),  # only 8 slots are in use: parts go round these
    ],
)
def test_the_solution_of_an_update_is_the_dense_one(update, parts, used, rows) -> None:
    """(G + lambda I) p = -g, G of the part alone, for a net of 10 parameters, softmax outputs and an L2 penalty."""
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        net = Mlp(widths=(2,), activation=Tanh(), dropout=0.0).build((1,), 2, key=jr.key(1))
        net = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), net)
        objective, parameters = an_objective(
            net,
            Supervised(SoftmaxLoss(), penalties=(L2(0.5),)),
            rng.normal(size=(12, 1)),
            rng.integers(0, 2, 12),
            update=update,
            present=(np.arange(12) < used).astype(float),
        )
        gradient, jacobian, inner, penalty = map(np.asarray, dense_pieces(objective, parameters))
        _, state = one_update(HessianFree(damping=0.3, curvature_parts=parts), objective, parameters)
        jacobian, inner = jacobian[list(rows)], inner[list(rows)]
        matrix = used / 12 * np.einsum("bkp,bkl,blq->pq", jacobian, inner, jacobian) / len(rows) + penalty
        expected = -np.linalg.solve(matrix + np.float32(0.3) * np.eye(10), gradient)
        found = ravel_pytree(state.solution)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_the_hessian_of_a_plain_loss_is_the_dense_one() -> None:
    """A loss of the whole batch has no Gauss-Newton matrix; its Hessian, damped until positive, is solved as well."""
    rng = np.random.default_rng(5)
    with jax.enable_x64(True):
        net = Mlp(widths=(2,), activation=Tanh(), dropout=0.0).build((1,), 1, key=jr.key(2))
        net = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), net)

        def loss(model, batch, key):
            return jnp.mean((jax.vmap(model)(batch.inputs)[:, 0] - batch.targets) ** 2)

        objective, parameters = an_objective(net, loss, rng.normal(size=(8, 1)), rng.normal(size=8))
        point, shaped = ravel_pytree(parameters)
        height = eqx.filter_jit(lambda flat: objective(shaped(flat)))
        matrix, gradient = np.asarray(jax.hessian(height)(point)), np.asarray(jax.grad(height)(point))
        assert np.linalg.eigvalsh(matrix)[0] < -0.01
        _, state = one_update(HessianFree(3.0, curvature="hessian", curvature_parts=1), objective, parameters)
        found = ravel_pytree(state.solution)[0]
    np.testing.assert_allclose(found, -np.linalg.solve(matrix + 3.0 * np.eye(7), gradient), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_without_damping_one_update_solves_linear_regression() -> None:
    rng = np.random.default_rng(6)
    inputs = rng.normal(size=(40, 4))
    targets = rng.normal(size=(40, 2))
    with jax.enable_x64(True):
        net = Mlp(widths=(), dropout=0.0).build((4,), 2, key=jr.key(3))
        net = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), net)
        objective, parameters = an_objective(net, Supervised(GaussianLoss(), penalties=()), inputs, targets)
        moved, state = one_update(HessianFree(damping=1e-9, curvature_parts=1), objective, parameters)
        model = objective.model(moved)
        found = np.column_stack([model.output.weight, model.output.bias])
    best = np.linalg.lstsq(np.column_stack([inputs, np.ones(40)]), targets, rcond=None)[0].T
    np.testing.assert_allclose(found, best, atol=1e-7)
    assert float(state.length) == 1.0


class Number(eqx.Module):
    """A network of one parameter, which is its output."""

    value: jax.Array

    def __call__(self, x):
        return self.value


def on_a_line(loss, start, optimiser, updates=1, target=0.0):
    """Points and states of some updates on a loss of one number."""
    inputs, targets = np.zeros((2, 1), np.float32), np.full(2, target, np.float32)
    objective, parameters = an_objective(Number(jnp.asarray([start])), loss, inputs, targets)
    points, states, state = [], [], None
    for _ in range(updates):
        parameters, state = one_update(optimiser, objective, parameters, state)
        points.append(float(parameters.value[0]))
        states.append(state)
    return points, states


def bent(output, target):
    return jnp.sum(output**2 / 2 + target * (output - 1.0) ** 3)


@pytest.mark.parametrize(
    ("bend", "factor", "reductions"),
    [(0.0, 2 / 3, 0), (-0.2, 1.0, 0), (-0.45, 3 / 2, 0), (-0.6, 3 / 2, 1), (-3.0, 3 / 2, 4)],
    ids=["exact", "fair", "poor", "higher", "much-higher"],
)
def test_the_damping_follows_the_ratio(bend: float, factor: float, reductions: int) -> None:
    """f(1 + p) = (1 + p)^2 / 2 + bend p^3: the model at 1 is p + p^2 / 2, so p = -1 / (1 + lambda) and rho is known."""
    damping = 0.01
    points, (state,) = on_a_line(bent, 1.0, HessianFree(damping=damping), target=bend)
    p = -1 / (1 + damping)
    rho = (p + p**2 / 2 + bend * p**3) / (p + p**2 / 2)
    assert [rho > 0.75, 0.25 <= rho <= 0.75, rho < 0.25][[2 / 3, 1.0, 3 / 2].index(factor)]
    np.testing.assert_allclose(state.ratio, rho, rtol=1e-4)
    np.testing.assert_allclose(state.damping, damping * factor, rtol=1e-6)
    np.testing.assert_allclose(state.length, 0.8**reductions, rtol=1e-5)
    np.testing.assert_allclose(points[0], 1.0 + 0.8**reductions * p, rtol=1e-5)

    def height(length):
        return length * p + (length * p) ** 2 / 2 + bend * (length * p) ** 3

    assert all((height(0.8**n) <= 1e-2 * 0.8**n * p) == (n == reductions) for n in range(reductions + 1))


def test_the_next_solve_starts_from_what_is_carried() -> None:
    """With one step a solve: x0 = carry p, then the best point along the preconditioned residual."""

    def loss(output, target):
        return jnp.sum(jnp.asarray([1.0, 10.0]) * output**2) / 2

    objective, parameters = an_objective(
        Number(jnp.asarray([1.0, 1.0])), loss, np.zeros((2, 1), np.float32), np.zeros(2)
    )
    optimiser = HessianFree(damping=1.0, carry=0.5, exponent=0.0, cg_steps=1)
    curves, point, last, damping = np.asarray([1.0, 10.0]), np.ones(2), np.zeros(2), 1.0
    state = None
    for _ in range(3):
        parameters, state = one_update(optimiser, objective, parameters, state)
        start, gradient = 0.5 * last, curves * point
        residual = gradient + (curves + damping) * start
        last = start - residual * (residual @ residual) / (residual @ ((curves + damping) * residual))
        point = point + last
        np.testing.assert_allclose(parameters.value, point, rtol=1e-5, atol=1e-6)
        assert float(state.ratio) > 0.75
        damping *= 2 / 3


@pytest.mark.slow
def test_the_preconditioner_holds_the_squares_of_each_example() -> None:
    """One step from 0 goes down g / (s + lambda)^(3/4), s the mean of squared gradients, not the squared mean."""
    rng = np.random.default_rng(8)
    inputs, targets = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(6, 1)).astype(np.float32)
    net = Mlp(widths=(), dropout=0.0).build((3,), 1, key=jr.key(3))
    objective, parameters = an_objective(net, Supervised(GaussianLoss(), penalties=()), inputs, targets)
    _, state = one_update(HessianFree(damping=0.2, curvature_parts=1, cg_steps=1), objective, parameters)
    errors = np.asarray(jax.vmap(net)(inputs)) - targets
    each = np.column_stack([errors * inputs, errors])  # the bias comes last
    direction = each.mean(0) / ((each**2).mean(0) + 0.2) ** 0.75
    found = np.concatenate([np.ravel(state.solution.output.weight), state.solution.output.bias])
    cosine = -(found @ direction) / np.linalg.norm(found) / np.linalg.norm(direction)
    assert cosine > 1 - 1e-6


# --- never up, never not a number


def test_a_criterion_without_values_beyond_a_border_never_gives_a_point_there() -> None:
    """f = x - log x from 3: Newton's step ends at -3, where there is no logarithm; the minimum is 1."""
    points, states = on_a_line(
        lambda output, target: jnp.sum(output - jnp.log(output)), 3.0, HessianFree(damping=1e-3), 12
    )
    assert float(states[0].ratio) == -np.inf
    assert float(states[0].length) < 0.7
    assert np.all(np.asarray(points) > 0)
    np.testing.assert_allclose(points[-1], 1.0, atol=1e-3)


def test_at_the_minimum_the_run_has_stalled_after_two_updates() -> None:
    points, states = on_a_line(lambda output, target: jnp.sum((output - 2.0) ** 2), 2.0, HessianFree(damping=2.0), 2)
    assert points == [2.0, 2.0]
    assert [bool(line_search_state.stalled(state)) for state in states] == [False, True]
    np.testing.assert_allclose([state.damping for state in states], [3.0, 4.5])
    assert [float(state.length) for state in states] == [0.0, 0.0]


def test_a_criterion_that_is_no_number_moves_nothing() -> None:
    points, (state,) = on_a_line(lambda output, target: jnp.sum(jnp.log(output)), -1.0, HessianFree())
    assert points == [-1.0]
    assert np.isfinite(float(state.damping))
    assert np.array_equal(state.solution.value, [0.0])


class Plane(eqx.Module):
    """Two parameters and nothing else."""

    place: jax.Array

    def __call__(self, x):
        return self.place


def test_rosenbrock_by_its_hessian_from_where_it_curves_down() -> None:
    """At (0, 1) the Hessian's first entry is -398. Gradient descent at its best rate is nowhere near after as many."""

    def loss(model, batch, key):
        x, y = model.place
        return (1.0 - x) ** 2 + 100.0 * (y - x**2) ** 2

    optimiser = HessianFree(damping=1.0, curvature="hessian", curvature_parts=1)
    objective, parameters = an_objective(Plane(jnp.asarray([0.0, 1.0])), loss, np.zeros((2, 1)), np.zeros(2))
    state, heights = None, []
    for _ in range(40):
        parameters, state = one_update(optimiser, objective, parameters, state)
        heights.append(float(objective(parameters)))
    assert np.all(np.diff(heights) <= 0)
    np.testing.assert_allclose(parameters.place, [1.0, 1.0], atol=2e-3)


# --- what it takes and what it refuses


def recipe_for(optimiser, **parts):
    return gradwise.defaults.regression(
        optimiser=optimiser, batches=Fixed(1000), stopping=Off(epochs=100.0, least_examples=1), **parts
    )


def numbers(count=20):
    rng = np.random.default_rng(9)
    inputs = jnp.asarray(rng.normal(size=(count, 2)), jnp.float32)
    return Examples(inputs, jnp.sin(inputs[:, :1]))


def of_a_batch(model, batch, key):
    return jnp.mean((jax.vmap(model)(batch.inputs) - batch.targets) ** 2)


def test_a_plain_loss_is_refused_by_name_with_its_remedies() -> None:
    recipe = recipe_for(HessianFree(), model=Mlp(widths=(3,), dropout=0.0), criterion=of_a_batch)
    with pytest.raises(RequestError) as refusal:
        init(recipe, numbers(), numbers(), outputs=1, key=jr.key(0))
    told = str(refusal.value)
    assert "\n" not in told
    for word in ("HessianFree", "FunctionCriterion", "`loss(output, target)`", '`curvature` to "hessian"'):
        assert word in told


def test_blended_examples_are_refused_by_name() -> None:
    criterion = Supervised(GaussianLoss(), mixup=0.2)
    recipe = recipe_for(HessianFree(), model=Mlp(widths=(3,), dropout=0.0), criterion=criterion)
    with pytest.raises(RequestError, match=r"HessianFree.*mixup.*Set `criterion\.mixup` to 0"):
        init(recipe, numbers(), numbers(), outputs=1, key=jr.key(0))


def trained(recipe, updates, examples=None):
    """The criterion before each update of one run."""
    examples = numbers() if examples is None else examples
    problem, state = init(recipe, examples, examples, outputs=examples.targets.shape[1], key=jr.key(0))
    losses = []
    for _ in range(updates):
        state, row = interval(problem, state, 1)
        losses.append(float(row.train_loss))
        if bool(row.stalled):
            break
    return np.asarray(losses)


class Own(eqx.Module):
    """A network of the user's own, its weights the other way round and one of them used twice."""

    first: jax.Array
    gate: jax.Array

    def __call__(self, x):
        return jnp.tanh(jnp.tanh(x @ self.first) * self.gate) @ self.gate[:, None]


OWN = Own(jnp.asarray(np.random.default_rng(1).normal(size=(2, 6)), jnp.float32), jnp.linspace(-1.0, 1.0, 6))


@parametrize_one_quick(
    ("optimiser", "parts"),
    [
        (HessianFree(curvature_parts=1), {"model": OWN, "criterion": lambda o, t: jnp.sum((o - t) ** 2)}),
        (HessianFree(curvature_parts=1, curvature="hessian"), {"model": OWN, "criterion": of_a_batch}),
        (HessianFree(curvature_parts=1, exponent=0.0), {"model": OWN, "criterion": Supervised(GaussianLoss())}),
        (HessianFree(curvature_parts=1), {"model": Mlp(widths=(6,), dropout=0.0, normalisation=BatchNorm())}),
    ],
    ids=["own-model-and-loss", "own-loss-of-a-batch", "no-preconditioner", "batch-normalisation"],
)
def test_a_users_own_pieces_are_learned(optimiser, parts) -> None:
    """sin of the first input, 20 examples: each of them never goes up and ends below a fiftieth of where it began."""
    losses = trained(recipe_for(optimiser, **parts), 25)
    assert np.all(np.diff(losses) <= 0)
    assert losses[-1] < losses[0] / 50, losses


@pytest.mark.slow
def test_an_autoencoder_of_digits_is_learned_where_gradient_descent_is_not() -> None:
    """64-24-8-24-64, sigmoid units, 300 digits, 25 updates: the best of six first-order runs stays far above."""
    from sklearn.datasets import load_digits

    rows = jnp.asarray(load_digits().data[:300] / 16.0, jnp.float32)
    examples = Examples(rows, rows)

    def learned(optimiser) -> np.ndarray:
        recipe = gradwise.defaults.multilabel(
            model=Mlp(
                widths=(24, 8, 24),
                activation=SigmoidUnit(),
                initial=SparseWeights(15),
                output_initial=SparseWeights(15),
                dropout=0.0,
            ),
            criterion=Supervised(SigmoidLoss(score_by="loss"), penalties=()),
            optimiser=optimiser,
            batches=Fixed(300),
            stopping=Off(epochs=100.0, least_examples=1),
        )
        return trained(recipe, 25, examples)

    ours = learned(HessianFree(curvature_parts=2))
    rates = 10.0 ** np.arange(-3.0, 0.0)
    others = [learned(kind(rate)).min() for kind in (Sgd, Nesterov) for rate in rates]
    assert np.all(np.diff(ours) <= 1e-4)
    assert ours[-1] < min(others) - 3.0, (ours[-1], others)


# --- the program itself


def walk(jaxpr):
    """Every equation of a program, those in calls and loops included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                program = getattr(inner, "jaxpr", inner)
                if hasattr(program, "eqns"):
                    yield from walk(program)


def equations(jaxpr) -> Counter:
    return Counter(equation.primitive.name for equation in walk(jaxpr))


def precisions(jaxpr) -> Counter:
    return Counter(equation.params["precision"] for equation in walk(jaxpr) if equation.primitive.name == "dot_general")


def the_program(precision="highest"):
    """One update on a net of three layers, as it is traced."""
    net = Mlp(widths=(4, 4), activation=Tanh(), dropout=0.0).build((3,), 2, key=jr.key(0))
    rng = np.random.default_rng(2)
    criterion = Supervised(SoftmaxLoss(), penalties=())
    objective, parameters = an_objective(net, criterion, rng.normal(size=(16, 3)), rng.integers(0, 2, 16))
    rule = HessianFree(precision=precision).build()

    def update(parameters, state):
        value, gradient = objective.value_and_gradient(parameters)
        return rule.update(gradient, state, parameters, value=value, objective=objective)

    return jax.make_jaxpr(update)(parameters, rule.init(parameters))


def test_the_network_is_not_run_while_the_system_is_solved() -> None:
    """Each layer: two products forward and two back, less the input's two; three inner products of long vectors."""
    loops = [equation for equation in the_program().jaxpr.eqns if equation.primitive.name == "while"]
    solving = equations(loops[0].params["body_jaxpr"].jaxpr)
    assert solving["dot_general"] == 2 * (2 * 3 - 1) + 3
    assert not {"tanh", "exp", "log", "logistic", "reduce_max"} & set(solving)
    assert equations(loops[1].params["body_jaxpr"].jaxpr)["tanh"] == 2  # while a candidate is judged it is


def test_on_an_accelerator_all_products_keep_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precisions(the_program("highest").jaxpr).keys() == {None}  # a CPU needs no telling
    monkeypatch.setattr(hessian_free.jax, "default_backend", lambda: "gpu")
    assert precisions(the_program("default").jaxpr).keys() == {None}
    found = precisions(the_program("highest").jaxpr)
    assert found.pop(None) == 3 + 5  # those of the gradient that is handed in, forward and back; nobody reads them
    assert found.keys() == {(jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)}


class ShortProducts(eqx.Module):
    """A perceptron whose products, their derivatives included, have factors of 8 bits, as on an accelerator."""

    weights: tuple[jax.Array, ...]

    def __call__(self, x):
        h = x
        for number, weight in enumerate(self.weights):
            h = (weight.astype(jnp.bfloat16) @ h.astype(jnp.bfloat16)).astype(jnp.float32)
            h = jnp.tanh(h) if number + 1 < len(self.weights) else h
        return h


def test_with_short_products_every_interval_is_told_and_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences drown in rounding, but solves stop at `cg_steps`, and patience or the line search end the run."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(200, 8)), jnp.float32)
    targets = jnp.asarray(inputs[:, 0] * inputs[:, 1] > 0, jnp.int32)
    sizes = ((16, 8), (16, 16), (2, 16))
    net = ShortProducts(tuple(jnp.asarray(rng.normal(size=size) / size[1] ** 0.5, jnp.float32) for size in sizes))
    recipe = gradwise.defaults.classification(
        model=net,
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        optimiser=HessianFree(curvature_parts=2, cg_steps=30, precision="default"),
        batches=Fixed(150),
        stopping=Patience(initial_examples=6000, initial_epochs=0),
    )
    halves = [Examples(inputs[rows], targets[rows]) for rows in (slice(150), slice(150, 200))]
    problem, state = init(recipe, *halves, outputs=2, classes=2, key=jr.key(0))
    asked: list[int] = []
    told: list[dict] = []
    call = loop.intervals
    monkeypatch.setattr(loop, "intervals", lambda *given: (asked.append(given[-1]), call(*given))[1])
    state, history, outcome, _ = loop.run_intervals(problem, state, loop.RunOptions(watch=told.append), "")
    assert set(asked) == {1}
    assert len(told) == len(asked) == len(history["updates"]) > 5
    assert outcome.name in ("patience", "stalled")
    assert state.optimiser.cg_steps <= 30
    assert np.isfinite(history["train_loss"]).all()
    assert history["train_loss"][-1] < 0.5 * history["train_loss"][0]
