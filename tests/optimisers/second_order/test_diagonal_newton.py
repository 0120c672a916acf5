"""Diagonal Newton steps: exact where the Hessian is diagonal, the formula elsewhere, and a real network learns."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.diagonals import back_propagated_diagonal, gauss_newton_diagonal
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order.diagonal_newton import DiagonalNewton
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part
from gradwise.training.interval import interval
from gradwise.training.state import init
from gradwise.training.stopping import Off


def _objective(widths: tuple[int, ...], inputs: np.ndarray, targets: np.ndarray) -> tuple[Objective, object]:
    train = Examples(jnp.asarray(inputs), jnp.asarray(targets))
    network = Mlp(widths=widths, activation=Tanh(), dropout=0.0).build(
        (inputs.shape[1],), targets.shape[1], key=jr.key(1)
    )
    parameters, rest = trainable(network)
    batch = gather(train, jnp.arange(len(inputs)), jnp.ones(len(inputs)))
    fixed = Fixed(len(inputs))
    return Objective(Supervised(GaussianLoss()), fixed, rest, train, jr.key(0), jnp.asarray(0), batch), parameters


@pytest.mark.parametrize("exact", [False, True])
def test_one_step_lands_at_the_optimum_where_the_hessian_is_diagonal(exact: bool) -> None:
    """Linear regression on orthogonal inputs of very different scales: H is diagonal, the ratio of its ends 10 000."""
    with jax.enable_x64(True):
        scales = np.array([0.1, 1.0, 10.0])
        inputs = np.vstack([np.diag(scales), -np.diag(scales)])  # their means are 0: the bias is orthogonal too
        targets = np.random.default_rng(0).normal(size=(6, 2))
        objective, parameters = _objective((), inputs, targets)
        rule = DiagonalNewton(learning_rate=1.0, damping=0.0, exact=exact).build()
        gradient = jax.grad(objective)(parameters)
        moves, _ = rule.update(gradient, rule.init(parameters), parameters, objective=objective)
        after = jax.grad(objective)(optax.apply_updates(parameters, moves))
        assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(after)) < 1e-6  # rates are kept in 32 bits


@pytest.mark.slow
def test_estimates_are_averaged_and_taken_now_and_then() -> None:
    random = np.random.default_rng(2)
    objective, parameters = _objective((4,), random.normal(size=(12, 3)), random.normal(size=(12, 2)))
    rule = DiagonalNewton(learning_rate=0.1, damping=0.05, every_updates=3.0, memory=0.25).build()
    state = rule.init(parameters)
    mean = None
    for number in range(7):
        gradient = jax.grad(objective)(parameters)
        if number % 3 == 0:
            now = back_propagated_diagonal(objective, parameters, "test", penalty=True)
            mean = now if mean is None else jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, mean, now)
        expected = jax.tree.map(lambda g, h: -0.1 * g / (h + 0.05), gradient, mean)
        moves, state = rule.update(gradient, state, parameters, objective=objective)
        for ours, theirs in zip(jax.tree.leaves(moves), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)
        parameters = optax.apply_updates(parameters, moves)


@pytest.mark.slow
def test_exact_is_the_gauss_newton_diagonal() -> None:
    random = np.random.default_rng(3)
    objective, parameters = _objective((4, 3), random.normal(size=(12, 3)), random.normal(size=(12, 2)))
    rule = DiagonalNewton(learning_rate=1.0, damping=0.1, exact=True).build()
    gradient = jax.grad(objective)(parameters)
    moves, _ = rule.update(gradient, rule.init(parameters), parameters, objective=objective)
    diagonal = gauss_newton_diagonal(objective, parameters, "test", penalty=True)
    for ours, g, h in zip(*(jax.tree.leaves(tree) for tree in (moves, gradient, diagonal)), strict=True):
        np.testing.assert_allclose(ours, -g / (h + 0.1), rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_the_contract() -> None:
    check_part(DiagonalNewton(curvature_examples=8, exact=True))


def test_batch_normalisation_is_refused_by_the_exact_one() -> None:
    examples = Examples(jnp.zeros((10, 4)), jnp.zeros(10, jnp.int32))
    recipe = defaults.classification(
        model=Mlp(widths=(4,), normalisation=BatchNorm()), optimiser=DiagonalNewton(exact=True)
    )
    with pytest.raises(RequestError, match="batch normalisation"):
        init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(0))


@pytest.mark.slow
def test_badly_scaled_inputs_cost_it_less_than_plain_descent() -> None:
    """Digits with columns multiplied by 0.1 to 10; both rules at their best rate of a ladder, ten epochs."""
    inputs, targets = load_digits(return_X_y=True)
    scaled = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-3) * np.geomspace(0.1, 10.0, 64)
    both = (slice(1200), slice(1200, 1797))
    parts = [Examples(jnp.asarray(scaled[rows], jnp.float32), jnp.asarray(targets[rows])) for rows in both]

    def least(*rules: AbstractOptimiser) -> float:
        losses = []
        for rule in rules:
            recipe = defaults.classification(
                model=Mlp(widths=(), dropout=0.0), optimiser=rule, batches=Reshuffled(32), stopping=Off(epochs=20)
            )
            problem, state = init(recipe, *parts, outputs=10, classes=10, key=jr.key(0))
            for _ in range(10):
                state, row = interval(problem, state, problem.updates_per_epoch)
            losses.append(float(row.train_loss))
        return float(np.nanmin(losses))

    newton = least(*(DiagonalNewton(rate, damping=0.01) for rate in (0.003, 0.01, 0.03, 0.1)))
    plain = least(*(Sgd(rate) for rate in (0.001, 0.003, 0.01, 0.03, 0.1)))
    assert newton < 0.8 * plain
