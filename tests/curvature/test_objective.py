"""What an optimiser may ask: the criterion elsewhere, on other examples, and taken apart."""

import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Reshuffled
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import as_criterion
from gradwise.specs.paths import trainable
from gradwise.training.state import init
from gradwise.training.update import step
from tests.marks import parametrize_one_quick

RNG = np.random.default_rng(0)
T, B = 11, 4
X = jnp.asarray(RNG.normal(size=(T, 5)), jnp.float32)
CLASSES = jnp.asarray(RNG.integers(0, 3, T))
NUMBERS = jnp.asarray(RNG.normal(size=(T, 3)), jnp.float32)
LABELS = jnp.asarray(RNG.integers(0, 2, (T, 3)), jnp.float32)
WEIGHTS = jnp.linspace(0.2, 2.0, T)
KEY = jr.key(4)
PLAIN = Mlp(widths=(6,), dropout=0.4)


def half_fourth(output: Any, target: Any) -> Any:
    """A loss of the user's: convex, its curvature full and different at each output."""
    return jnp.sum((output - target) ** 4) + 0.5 * jnp.sum(output) ** 2


@functools.cache
def built(model: Any) -> Any:
    return eqx.filter_jit(lambda: trainable(model.build((5,), 3, key=KEY)))()


def ask(criterion: Any, targets: Any = CLASSES, model: Any = None, weights: Any = WEIGHTS) -> tuple[Objective, Any]:
    """The last batch of the first epoch: three of four slots in use."""
    parameters, rest = built(PLAIN if model is None else model)
    train = Examples(X, targets, weights)
    batches, update = Reshuffled(B), jnp.asarray(2, jnp.int32)
    rows, present, _ = batches.indices(update[None], T, key=KEY)
    assert np.asarray(present[0]).tolist() == [1, 1, 1, 0]
    batch = gather(train, rows[0], present[0])
    return Objective(as_criterion(criterion), batches, rest, train, KEY, update, batch), parameters


PENALISED = Supervised(SoftmaxLoss(label_smoothing=0.1), penalties=(L2(3.0), L1(0.5)))
CRITERIA = {
    "penalised": (PENALISED, CLASSES),
    "labels": (Supervised(SigmoidLoss(), penalties=()), LABELS),
    "numbers": (Supervised(GaussianLoss(), penalties=(L2(1.0),)), NUMBERS),
    "own": (half_fourth, NUMBERS),
}


# --- the criterion and its parts


@pytest.mark.slow
@pytest.mark.parametrize("name", CRITERIA)
def test_the_criterion_is_the_loss_of_its_outputs_and_the_penalty(name: str) -> None:
    asked, parameters = ask(*CRITERIA[name])

    @jax.jit
    def parts(p: Any) -> Any:
        outputs = asked.outputs(p)
        apart = lambda q: asked.loss_of(asked.outputs(q)) + asked.penalty(q)  # noqa: E731
        both = (asked(p), apart(p)), (jax.grad(asked)(p), jax.grad(apart)(p))
        return *both, asked.example_losses(outputs), asked.penalty(p), asked.value_and_gradient(p)

    (value, apart), gradients, losses, penalty, again = parts(parameters)
    np.testing.assert_allclose(value, apart, rtol=1e-6)
    for mine, theirs in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    for mine, theirs in zip(jax.tree.leaves(again), jax.tree.leaves((value, gradients[0])), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
    # By hand: the weights of three examples, the fourth slot counts only in the division.
    weights = np.asarray(WEIGHTS)[np.asarray(asked.rows)] * [1, 1, 1, 0]
    np.testing.assert_allclose(value - penalty, np.sum(weights * np.asarray(losses)) / B, rtol=1e-5)


@pytest.mark.slow
def test_the_penalty_counts_in_full_over_an_epoch() -> None:
    """T examples in batches of B: the shares B'/(B T) of all batches add up to 1/B."""
    asked, parameters = ask(PENALISED)
    whole = asked.criterion.of_parameters(asked.model(parameters))
    np.testing.assert_allclose(asked.penalty(parameters), 3 / (B * T) * whole, rtol=1e-6)


@pytest.mark.slow
def test_outputs_are_those_of_each_example_with_its_own_noise() -> None:
    asked, parameters = ask(PENALISED)
    together = jax.jit(lambda p: asked.outputs(p))(parameters)
    one = jax.jit(lambda p, x, k: asked.output(p, x, k))
    for number, key in enumerate(asked.example_keys()):
        np.testing.assert_allclose(one(parameters, asked.batch.inputs[number], key), together[number], atol=1e-6)


# --- other examples


@parametrize_one_quick("batches", [Reshuffled(4), Reshuffled(11)])
def test_the_upcoming_batch_is_the_one_training_uses_next(batches: Any) -> None:
    """What update t asks of `upcoming` is what update t + 1 sees: examples, presence, dropout; over an epoch's end."""
    recipe = defaults.classification(model=PLAIN, criterion=PENALISED, batches=batches, optimiser=defaults.Adam())
    train = Examples(X, CLASSES, WEIGHTS)
    problem, state = init(recipe, train, train, outputs=3, classes=3, key=KEY)

    @eqx.filter_jit
    def one(state: Any) -> Any:
        rows, present, _ = batches.indices(state.update[None], T, key=problem.key)
        batch = gather(train, rows[0], present[0])
        later, terms = step(problem, state, batch)
        asked = problem.objective(batch, state.update)
        ahead = asked.upcoming()
        return later, terms, ahead(later.parameters), ahead.rows, ahead.batch.present, asked.upcoming(2).rows, rows[0]

    seen = []
    for _ in range(5):
        state, terms, value, rows, present, further, own = one(state)
        seen.append((terms, value, rows, present, further, own))
    for now, then in itertools.pairwise(seen):
        np.testing.assert_allclose(now[1], then[0]["total"], rtol=1e-6)
        np.testing.assert_array_equal(now[2], then[5])
    for now, then in zip(seen[:-2], seen[2:], strict=True):
        np.testing.assert_array_equal(now[4], then[5])


@pytest.mark.slow
def test_on_and_slots_are_other_examples_with_the_same_noise() -> None:
    asked, parameters = ask(Supervised(SoftmaxLoss(), penalties=(L2(3.0),)))
    elsewhere = asked.on(jnp.asarray([7, 2, 9]))
    np.testing.assert_array_equal(elsewhere.batch.inputs, X[jnp.asarray([7, 2, 9])])
    np.testing.assert_array_equal(elsewhere.batch.weights, WEIGHTS[jnp.asarray([7, 2, 9])])
    np.testing.assert_array_equal(jr.key_data(elsewhere.noise), jr.key_data(asked.noise))
    np.testing.assert_allclose(asked.on(asked.rows, asked.batch.present)(parameters), asked(parameters), rtol=1e-6)
    some = asked.slots(jnp.asarray([3, 1]))
    np.testing.assert_array_equal(some.rows, np.asarray(asked.rows)[[3, 1]])
    np.testing.assert_array_equal(some.batch.present, [0.0, 1.0])
    assert float(some.batch.weights[0]) == 0.0
    assert float(some.batch.total) == T


def test_the_noise_is_the_updates_own() -> None:
    asked, parameters = ask(PENALISED)
    other = eqx.tree_at(lambda o: o.update, asked, jnp.asarray(3, jnp.int32))
    assert float(asked(parameters)) == float(asked(parameters))
    assert abs(float(asked(parameters)) - float(other(parameters))) > 1e-4


# --- refusals


def whole_batch(model: Any, batch: Any, key: Any) -> Any:
    return jnp.mean(jax.vmap(lambda x: model(x, key=key))(batch.inputs) ** 2)


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        (whole_batch, r"Vsgd needs a loss of each example's own output.*FunctionCriterion.*`loss\(output, target\)`"),
        (
            Supervised(SoftmaxLoss(), mixup=0.3),
            r"Vsgd needs a loss of each example's own output: mixup.*`criterion.mixup` to 0",
        ),
    ],
    ids=["plain function", "mixup"],
)
def test_a_criterion_that_is_no_sum_is_refused_in_the_askers_name(criterion: Any, words: str) -> None:
    asked, parameters = ask(criterion)
    outputs = jnp.zeros((B, 3))
    for question in (
        lambda: asked.summed("Vsgd"),
        lambda: asked.check_alone(parameters, "Vsgd"),
        lambda: asked.loss_of(outputs, "Vsgd"),
        lambda: asked.example_losses(outputs, "Vsgd"),
        lambda: asked.penalty(parameters, "Vsgd"),
        lambda: asked.root("Vsgd"),
    ):
        with pytest.raises(RequestError, match=words) as refusal:
            question()
        assert "\n" not in str(refusal.value)
    assert np.isfinite(float(asked(parameters)))  # the criterion itself may still be asked


def test_batch_normalisation_has_outputs_but_no_example_alone() -> None:
    asked, parameters = ask(Supervised(SoftmaxLoss()), model=Mlp(widths=(6,), normalisation=BatchNorm(), dropout=0.0))
    value, apart = asked(parameters), asked.loss_of(asked.outputs(parameters)) + asked.penalty(parameters)
    np.testing.assert_allclose(value, apart, rtol=1e-6)
    with pytest.raises(RequestError, match=r"Tonga needs each example's own gradient.*batch normalisation") as refusal:
        asked.check_alone(parameters, "Tonga")
    assert "\n" not in str(refusal.value)
    asked, parameters = ask(Supervised(SoftmaxLoss()))
    asked.check_alone(parameters, "Tonga")  # an ordinary network is let through


# --- the root of the curvature


@pytest.mark.slow
@pytest.mark.parametrize("name", CRITERIA)
def test_the_roots_square_is_the_losss_hessian(name: str) -> None:
    """Known for the losses of gradwise; from the eigenvectors for the user's own."""
    with jax.enable_x64(True):
        asked, _ = ask(*CRITERIA[name])
        root = asked.root("Test")
        for output, target in zip(RNG.normal(size=(3, 3)), CRITERIA[name][1][:3], strict=True):
            target = target if name == "penalised" else target.astype(float)
            columns = jax.vmap(lambda unit, o=output, t=target: root(jnp.asarray(o), t, unit))(jnp.eye(3))
            hessian = jax.hessian(asked.criterion.of_output)(jnp.asarray(output), target)
            np.testing.assert_allclose(columns.T @ columns, hessian, rtol=1e-9, atol=1e-9)


def test_negative_curvature_of_an_own_loss_counts_as_0() -> None:
    asked, _ = ask(lambda output, target: output[0] ** 2 - 3.0 * output[1] ** 2 + 0.0 * output[2], NUMBERS)
    columns = jax.vmap(lambda unit: asked.root("Test")(jnp.ones(3), jnp.zeros(3), unit))(jnp.eye(3))
    np.testing.assert_allclose(columns.T @ columns, np.diag([2.0, 0.0, 0.0]), atol=1e-6)


@pytest.mark.slow
def test_an_own_loss_of_too_many_outputs_is_refused() -> None:
    asked, _ = ask(half_fourth, NUMBERS)
    root = asked.root("Newton")
    assert root(jnp.ones(64), jnp.zeros(64), jnp.ones(64)).shape == (64,)
    with pytest.raises(RequestError, match=r"Newton needs the curvature of the loss in 65 outputs.*64") as refusal:
        jax.eval_shape(root, jnp.ones(65), jnp.zeros(65), jnp.ones(65))
    assert "\n" not in str(refusal.value)
    known, _ = ask(Supervised(SoftmaxLoss()))
    assert known.root("Newton")(jnp.ones(65), jnp.asarray(0), jnp.ones(65)).shape == (65,)  # no matrix, no limit
