"""Centring as training goes on: the moves are the inner rule's and a centring; a deep net learns in fewer updates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Rectifier, Sigmoid
from gradwise.models.centred_mlp import CentredMlp
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.recentred import Recentred
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractModel, AbstractOptimiser
from gradwise.specs.paths import trainable
from gradwise.testing.spec_contracts import check_spec
from gradwise.training.interval import interval
from gradwise.training.state import init
from gradwise.training.stopping import Off

COMPILED_WELL = True  # see tests/conftest.py


@pytest.mark.slow
def test_the_spec() -> None:
    check_spec(Recentred(Sgd(0.1)))


@pytest.mark.slow
def test_a_move_is_the_inner_rules_then_a_centring_every_so_many_updates() -> None:
    random = np.random.default_rng(1)
    train = Examples(jnp.asarray(random.normal(size=(20, 3)), jnp.float32), jnp.asarray(random.normal(size=(20, 2))))
    parameters, rest = trainable(CentredMlp(widths=(5, 4)).build((3,), 2, key=jr.key(0)))
    batch = gather(train, jnp.arange(20), jnp.ones(20))
    objective = Objective(Supervised(GaussianLoss()), Fixed(20), rest, train, jr.key(0), jnp.asarray(0), batch)
    rule, plain = Recentred(HeavyBall(0.05), every_updates=3.0).build(), HeavyBall(0.05).build()
    state, inner = rule.init(parameters), plain.init(parameters)
    centrings = 0
    for number in range(7):
        value, gradient = objective.value_and_gradient(parameters)
        moves, state = rule.update(gradient, state, parameters, value=value, objective=objective)
        expected, inner = plain.update(gradient, inner, parameters, value=value)
        moved = optax.apply_updates(parameters, expected)
        if number % 3 == 0:
            centrings += 1
            moved, _ = trainable(eqx.combine(moved, rest).recentred(train.inputs, jnp.ones(20)))
        parameters = optax.apply_updates(parameters, moves)
        for ours, theirs in zip(jax.tree.leaves(parameters), jax.tree.leaves(moved), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert centrings == 3


def test_a_network_that_cannot_be_centred_is_refused_before_training() -> None:
    digits = Examples(jnp.zeros((10, 4)), jnp.zeros(10, jnp.int32))
    recipe = defaults.classification(model=Mlp(widths=(4,)), optimiser=Recentred(Sgd(0.1)))
    with pytest.raises(RequestError, match=r"MlpNetwork lacks\. Use the model CentredMlp"):
        init(recipe, digits, digits, outputs=3, classes=3, key=jr.key(0))


def test_by_default_centring_helps_and_a_penalty_shrinks_the_weights() -> None:
    """Three layers of 30 units on digits, 90 updates, each at its best rate."""
    inputs, targets = load_digits(return_X_y=True)
    train = Examples(jnp.asarray(inputs[:640] / 16, jnp.float32), jnp.asarray(targets[:640]))

    def trained(optimiser: AbstractOptimiser, coefficient: float = 0.0) -> tuple[float, float]:
        recipe = defaults.classification(
            model=CentredMlp(widths=(30,) * 3),
            criterion=Supervised(SoftmaxLoss(), penalties=(L2(coefficient),)),
            optimiser=optimiser,
            batches=Reshuffled(size=64),
            stopping=Off(epochs=20),
        )
        problem, state = init(recipe, train, train, outputs=10, classes=10, key=jr.key(0))
        for _ in range(3):
            state, row = interval(problem, state, 30)
        return float(row.train_loss), float(L2()(problem.model(state.parameters)))

    rates = (0.1, 0.3, 1.0, 3.0)
    centred = [trained(Recentred(Sgd(rate))) for rate in rates]
    plain = [trained(Sgd(rate)) for rate in rates]
    assert np.nanmin([loss for loss, _ in centred]) < 0.6 * np.nanmin([loss for loss, _ in plain])
    assert trained(Recentred(Sgd(0.3)), coefficient=5.0)[1] < 0.6 * centred[1][1]


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "rates"), [(Sigmoid(), (0.3, 1.0, 3.0)), (Rectifier(), (0.1, 0.3))])
def test_a_deep_net_converges_in_fewer_updates_at_each_ones_best_rate(activation, rates) -> None:  # type: ignore[no-untyped-def]
    inputs, targets = load_digits(return_X_y=True)
    train = Examples(jnp.asarray(inputs[:1200] / 16, jnp.float32), jnp.asarray(targets[:1200]))
    valid = Examples(jnp.asarray(inputs[1200:] / 16, jnp.float32), jnp.asarray(targets[1200:]))

    def best_loss(model: AbstractModel, optimiser: type | None) -> float:
        losses = []
        for rate in rates:
            rule: AbstractOptimiser = Sgd(rate) if optimiser is None else Recentred(Sgd(rate), every_updates=20.0)
            recipe = defaults.classification(
                model=model, optimiser=rule, batches=Reshuffled(size=64), stopping=Off(epochs=20)
            )
            problem, state = init(recipe, train, valid, outputs=10, classes=10, key=jr.key(0))
            for _ in range(6):
                state, row = interval(problem, state, 40)
            losses.append(float(row.train_loss))
        return float(np.nanmin(losses))

    deep = (50,) * 4
    plain = best_loss(Mlp(widths=deep, activation=activation, dropout=0.0), None)
    shortcuts = best_loss(CentredMlp(widths=deep, activation=activation), None)
    centred = best_loss(CentredMlp(widths=deep, activation=activation), Recentred)
    assert centred < 0.5 * shortcuts < plain
