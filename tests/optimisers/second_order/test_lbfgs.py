"""L-BFGS (rows C11, H7) against the dense formula, Optax and SciPy; what happens where no lower point exists."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gradwise
import gradwise.defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.second_order.conjugate_gradient import ConjugateGradient
from gradwise.optimisers.second_order.lbfgs import Lbfgs, _aim, _empty, _learn
from gradwise.optimisers.second_order.line_search import Move
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.dataset import Classes, Dataset, Numbers
from gradwise.specs.knobs import declarations
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_optimiser
from gradwise.testing.spec_contracts import check_spec
from gradwise.training.state import init
from gradwise.training.stopping import Off, Patience

RNG = np.random.default_rng(0)


@pytest.mark.slow
def test_the_contracts() -> None:
    """A population equals each alone for as long as rounding is small: on the check's network two compilations differ
    by 1e-6 after 10 updates and by 1e-3 after 30 (in 64 bits by 1e-15 and 4e-13)."""
    check_spec(Lbfgs())
    check_optimiser(Lbfgs(), updates=10)


def test_the_chapter_s_hyper_parameters_are_searchable() -> None:
    """Row C11: the memory of L-BFGS, the steps and the tolerance of each line search."""
    for kind, names in (
        (Lbfgs, ("memory", "line_steps", "tolerance")),
        (ConjugateGradient, ("line_steps", "tolerance")),
    ):
        declared = dict(declarations(kind))
        for name in names:
            assert declared[name].row == "C11"
            assert declared[name].prior is not None


# --- the direction


def _pairs(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    root = RNG.normal(size=(size, size))
    curvature = root @ root.T + 0.1 * np.eye(size)
    steps = RNG.normal(size=(count, size))
    return steps, steps @ curvature


def _told(memory: int, steps: np.ndarray, changes: np.ndarray):
    learn = jax.jit(_learn)
    pairs = _empty(memory)(jnp.zeros(steps.shape[1]))
    for step, change in zip(steps, changes, strict=True):
        move = Move(jnp.ones(()), jnp.asarray(step), -jnp.ones(()), jnp.zeros(len(step)), jnp.asarray(change))
        pairs = learn(pairs, move)
    return pairs


def _dense(steps: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """BFGS's own recursion, H <- (I - rho s y')H(I - rho y s') + rho s s', from gamma I."""
    size = steps.shape[1]
    inverse = np.eye(size) * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for s, y in zip(steps, changes, strict=True):
        side = np.eye(size) - np.outer(s, y) / (s @ y)
        inverse = side @ inverse @ side.T + np.outer(s, s) / (s @ y)
    return inverse


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_the_direction_is_that_of_the_dense_formula(count: int) -> None:
    """Before the ring is full, when it just is, and after it went round twice; in 64 bits to 1e-10."""
    with jax.enable_x64(True):
        steps, changes = _pairs(count, 7)
        gradient = RNG.normal(size=7)
        direction, first = jax.jit(_aim)(_told(4, steps, changes), jnp.asarray(gradient))
        expected = -_dense(steps[-4:], changes[-4:]) @ gradient
        np.testing.assert_allclose(direction, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())
        assert float(first) == 1.0


@pytest.mark.slow
def test_without_pairs_it_is_the_gradient_and_no_longer_than_1() -> None:
    gradient = jnp.asarray([30.0, 40.0])
    direction, first = _aim(_empty(3)(jnp.zeros(2)), gradient)
    np.testing.assert_array_equal(direction, -gradient)
    assert float(first) == pytest.approx(1 / 50)


@pytest.mark.slow
def test_pairs_without_positive_curvature_are_skipped() -> None:
    with jax.enable_x64(True):
        steps, changes = _pairs(5, 6)
        bent = changes.copy()
        bent[2] = -changes[2]
        bent[4] = changes[4] - steps[4] * (changes[4] @ steps[4]) / (steps[4] @ steps[4])  # orthogonal to the step
        gradient = jnp.asarray(RNG.normal(size=6))
        kept = [0, 1, 3]
        skipped = _aim(_told(4, steps, bent), gradient)[0]
        without = _aim(_told(4, steps[kept], changes[kept]), gradient)[0]
        np.testing.assert_allclose(skipped, without, rtol=1e-12)


# --- L2 logistic regression (also for conjugate gradient: the same criterion, the same optimum)


class Regression:
    """The criterion as gradwise has it, and as NumPy has it in 64 bits."""

    def __init__(self, name: str, kind: type) -> None:
        from sklearn import datasets

        raw, self.targets = getattr(datasets, f"load_{name}")(return_X_y=True)
        spread = raw.std(0)
        self.inputs = (raw - raw.mean(0)) / np.where(spread > 0, spread, 1.0)
        count, classes = len(raw), int(self.targets.max()) + 1
        self.onehot = np.eye(classes)[self.targets]
        parameters, rest = trainable(Mlp(widths=(), dropout=0.0).build(raw.shape[1:], classes, key=jr.key(0)))
        self.start = jax.tree.map(lambda leaf: leaf.astype(kind), parameters)
        train = Examples(jnp.asarray(self.inputs, kind), jnp.asarray(self.targets))
        batch = gather(train, jnp.arange(count), jnp.ones(count, kind))
        criterion = Supervised(SoftmaxLoss(), penalties=(L2(1.0),))
        self.objective = Objective(criterion, Fixed(count), rest, train, jr.key(1), jnp.zeros((), jnp.int32), batch)

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        classes = self.onehot.shape[1]
        return vector[:-classes].reshape(classes, -1), vector[-classes:]

    def numpy(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = self.split(vector)
        count = len(self.inputs)
        outputs = self.inputs @ weight.T + bias
        outputs = outputs - outputs.max(1, keepdims=True)
        logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
        value = (-(logs * self.onehot).sum() + (weight**2).sum()) / count
        delta = (np.exp(logs) - self.onehot) / count
        return value, np.concatenate([(delta.T @ self.inputs + 2.0 * weight / count).ravel(), delta.sum(0)])

    def vector(self, parameters) -> np.ndarray:
        """Weights, then biases, these without their common shift, which the criterion does not see."""
        weight, bias = (np.asarray(leaf, np.float64) for leaf in (parameters.output.weight, parameters.output.bias))
        return np.concatenate([weight.ravel(), bias - bias.mean()])

    def optimum(self) -> tuple[float, np.ndarray]:
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-11}
        with threadpool_limits(1):  # products this small are slower on several threads
            result = minimize(self.numpy, self.vector(self.start), jac=True, method="L-BFGS-B", options=options)
        bias = self.split(result.x)[1]
        return float(result.fun), np.concatenate([self.split(result.x)[0].ravel(), bias - bias.mean()])


@eqx.filter_jit
def _descend(optimiser: AbstractOptimiser, start, objective: Objective, updates: int):
    def body(carry, _):
        here, state = carry
        value, gradient = objective.value_and_gradient(here)
        moves, state = optimiser.build().update(gradient, state, here, value=value, objective=objective)
        return (optax.apply_updates(here, moves), state), ravel_pytree(here)[0]

    return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=updates)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=["32 bits", "64 bits"])
def test_scipy_s_optimum_of_logistic_regression_is_reached(name: str, kind: type) -> None:
    """Measured: the criterion within 1e-12 of itself, the parameters within 2e-5 (32 bits) and 7e-6 (64)."""
    with jax.enable_x64(kind is np.float64):
        task = Regression(name, kind)
        value, point = task.optimum()
        optimisers = [Lbfgs(), ConjugateGradient()]
        if (name, kind) == ("breast_cancer", np.float32):
            optimisers += [ConjugateGradient("fletcher-reeves"), ConjugateGradient("hager-zhang")]
        for optimiser in optimisers:
            (reached, _), _ = _descend(optimiser, task.start, task.objective, 150)
            ours = task.vector(reached)
            assert task.numpy(ours)[0] == pytest.approx(value, rel=1e-6 if kind is np.float32 else 1e-10), optimiser
            np.testing.assert_allclose(ours, point, atol=2e-4 if kind is np.float32 else 3e-5, err_msg=str(optimiser))


def test_the_first_updates_are_optax_s_where_both_take_whole_steps() -> None:
    """Optax's directions with the steps that our search took: the points agree in 64 bits to 1e-9."""
    with jax.enable_x64(True):
        task = Regression("breast_cancer", np.float64)
        (_, _), ours = _descend(Lbfgs(memory=5), task.start, task.objective, 12)
        rule = optax.scale_by_lbfgs(memory_size=5)
        here, restored = ravel_pytree(task.start)
        state = rule.init(here)
        gradient = jax.jit(jax.grad(lambda vector: task.objective(restored(vector))))
        update = jax.jit(rule.update)
        for number in range(11):
            np.testing.assert_allclose(here, ours[number], atol=1e-9)
            direction, state = update(gradient(here), state, here)
            following = ours[number + 1] - ours[number]
            step = -(following @ direction) / (direction @ direction)
            here = here - step * direction


# --- mini-batches


def _digits_problem(optimiser: AbstractOptimiser, size: int):
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    examples = Examples(jnp.asarray(inputs[:300] / 16.0, jnp.float32), jnp.asarray(targets[:300]))
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(20,), activation=Tanh(), dropout=0.0), batches=Fixed(size), optimiser=optimiser
    )
    return init(recipe, examples, examples, outputs=10, classes=10, key=jr.key(0))


@eqx.filter_jit
def _on(problem, state, number):
    """One update on the batch of this number, and the batch's own gradients before and after it."""
    rows, present, _ = problem.recipe.batches.indices(number[None], len(problem.train), key=problem.key)
    objective = problem.objective(gather(problem.train, rows[0], present[0]), number)
    value, before = objective.value_and_gradient(state.parameters)
    moves, optimiser = problem.recipe.optimiser.build().update(
        before, state.optimiser, state.parameters, value=value, objective=objective
    )
    parameters = optax.apply_updates(state.parameters, moves)
    lower, after = objective.value_and_gradient(parameters)
    changed = ravel_pytree(after)[0] - ravel_pytree(before)[0]
    new = eqx.tree_at(lambda s: (s.parameters, s.optimiser), state, (parameters, optimiser))
    return new, changed, value, lower


def test_a_pair_belongs_to_one_batch() -> None:
    problem, state = _digits_problem(Lbfgs(), 100)
    for number in range(3):
        state, changed, value, lower = _on(problem, state, jnp.asarray(number))
        assert float(lower) < float(value)
        np.testing.assert_allclose(state.optimiser.memory.rows[1, number], changed, atol=1e-6)
    assert int(state.optimiser.memory.held) == 3


def test_iterations_on_one_batch_are_updates_on_it() -> None:
    problem, state = _digits_problem(Lbfgs(iterations=4), 100)
    together, _, value, lower = _on(problem, state, jnp.asarray(0))
    assert float(lower) < 0.8 * float(value)
    problem, state = _digits_problem(Lbfgs(), 100)
    for _ in range(4):
        state, *_ = _on(problem, state, jnp.asarray(0))
    for one, other in zip(jax.tree.leaves(together.parameters), jax.tree.leaves(state.parameters), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert int(together.optimiser.memory.held) == 4


# --- the user's own criterion


class Point(eqx.Module):
    """A network that is nothing but a point."""

    place: jax.Array

    def __call__(self, example):
        return self.place[:1] + 0.0 * example[:1]


def rosenbrock(model, batch, key):
    x = model.place
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@jax.custom_jvp
def _backwards(x):
    return jnp.sum(x**2)


@_backwards.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return _backwards(x), -2.0 * jnp.sum(x * t)


def wrong(model, batch, key):
    """A criterion whose derivative has the wrong sign."""
    return _backwards(model.place)


def walled(model, batch, key):
    """The least point, 0.9 in each place, stands beside a wall beyond which nothing is a number."""
    x = model.place
    return jnp.where(jnp.max(x) < 1.0, jnp.sum((x - 0.9) ** 2) + jnp.sum(x**4), jnp.nan)


def _point_problem(optimiser: AbstractOptimiser, loss, start):
    recipe = gradwise.defaults.regression(
        model=Point(jnp.asarray(start, jnp.float32)), criterion=loss, batches=Fixed(8), optimiser=optimiser
    )
    examples = Examples(jnp.zeros((8, 1)), jnp.zeros((8, 1)))
    return init(recipe, examples, examples, outputs=1, key=jr.key(0))


@eqx.filter_jit
def _places(problem, state, updates: int):
    from gradwise.training.update import step

    def body(state, _):
        batch = gather(problem.train, jnp.arange(8), jnp.ones(8))
        state, _ = step(problem, state, batch)
        return state, state.parameters.place

    return jax.lax.scan(body, state, None, length=updates)


@pytest.mark.parametrize(("optimiser", "updates"), [(Lbfgs(), 60), (ConjugateGradient(), 120)], ids=["lbfgs", "cg"])
def test_rosenbrock_s_valley_is_followed_to_its_end(optimiser: AbstractOptimiser, updates: int) -> None:
    """The classical start (-1.2, 1) in four dimensions; in 32 bits the minimum is reached to 1e-3."""
    problem, state = _point_problem(optimiser, rosenbrock, [-1.2, 1.0, -1.2, 1.0])
    state, places = _places(problem, state, updates)
    np.testing.assert_allclose(state.parameters.place, 1.0, atol=1e-3)
    heights = np.asarray(jax.vmap(lambda x: rosenbrock(Point(x), None, None))(places))
    assert np.all(np.diff(heights) <= 1e-5 * heights[:-1] + 1e-9)


@pytest.mark.parametrize("optimiser", [Lbfgs(), ConjugateGradient()], ids=["lbfgs", "cg"])
def test_beyond_a_wall_of_nan_nothing_is_touched(optimiser: AbstractOptimiser) -> None:
    problem, state = _point_problem(optimiser, walled, [-30.0, -20.0, 0.5])
    state, places = _places(problem, state, 40)
    assert np.all(np.isfinite(places))
    assert np.max(places) < 1.0
    # the root of 2 (x - 0.9) + 4 x^3
    root = np.roots([4.0, 0.0, 2.0, -1.8])
    np.testing.assert_allclose(state.parameters.place, float(root[np.isreal(root)].real[0]), atol=1e-3)


@pytest.mark.parametrize("optimiser", [Lbfgs(), ConjugateGradient()], ids=["lbfgs", "cg"])
def test_a_line_search_that_must_fail_ends_the_run_stalled(optimiser: AbstractOptimiser) -> None:
    recipe = gradwise.defaults.regression(
        model=Point(jnp.asarray([1.0, 2.0])),
        criterion=wrong,
        batches=Fixed(64),
        optimiser=optimiser,
        stopping=Off(epochs=50),
    )
    dataset = Dataset(RNG.normal(size=(60, 1)), RNG.normal(size=(60, 1)), Numbers())
    result = gradwise.train(recipe, dataset, key=jr.key(0))
    assert result.outcome.name == "stalled"
    np.testing.assert_array_equal(result.predictor.network.place, [1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [Lbfgs(), ConjugateGradient()], ids=["lbfgs", "cg"])
def test_early_stopping_ends_a_batch_method_at_a_sound_error(optimiser: AbstractOptimiser) -> None:
    """Row C11: on digits patience ends the run, and the test error is that of a good linear-to-tanh net."""
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(32,), activation=Tanh(), dropout=0.0),
        batches=Reshuffled(10_000),
        optimiser=optimiser,
        stopping=Patience(initial_examples=20_000, initial_epochs=0, epochs=400),
    )
    from sklearn.datasets import load_digits

    dataset = Dataset(*load_digits(return_X_y=True), Classes(np.arange(10)))
    result = gradwise.train(recipe, dataset, key=jr.key(0))
    assert result.outcome.name == "patience"
    assert result.test < 0.07
