"""Decay over the effective number of updates (row D3), against a loop by hand on sparse inputs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
import gradwise.defaults
from gradwise.criteria.losses import GaussianLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.models.padded_mlp import pad
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.effective_decay import EffectiveDecay
from gradwise.optimisers.wrappers.proximal import Proximal
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractCriterion, AbstractOptimiser
from gradwise.testing.contracts import check_part
from gradwise.training.interval import advance
from gradwise.training.state import init
from gradwise.training.stopping import Off
from gradwise.training.update import gather_batch
from tests.marks import parametrize_one_quick

# Inputs that are there in all, in 4, in 1 and in none of 12 examples.
T = 12
RNG = np.random.default_rng(2)
THERE = np.zeros((T, 4))
THERE[:, 0] = 1
THERE[[1, 4, 5, 10], 1] = 1
THERE[7, 2] = 1
X = np.where(THERE == 1, RNG.normal(size=(T, 4)) + 0.5, 0.0)
Y = X @ np.asarray([1.0, -2.0, 3.0, 0.0]) + 0.2 * RNG.normal(size=T)
NO_PENALTY = Supervised(GaussianLoss(), penalties=())


def begin(optimiser: AbstractOptimiser, batches: Any, criterion: AbstractCriterion = NO_PENALTY, **parts: Any):
    recipe = gradwise.defaults.regression(
        **{"model": Mlp(widths=()), "criterion": criterion, "batches": batches, "optimiser": optimiser, **parts}
    )
    examples = Examples(jnp.asarray(X, jnp.float32), jnp.asarray(Y[:, None], jnp.float32))
    return init(recipe, examples, examples, outputs=1, key=jr.key(0))


@eqx.filter_jit
def run(problem, state, updates: int):
    """The parameters after some updates, and the order of the examples with their presence."""
    rows, present, _ = problem.recipe.batches.indices(jnp.arange(updates), T, key=problem.key)
    return advance(problem, state, updates)[0].parameters, rows, present


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["active", "every"])
def test_contract(reading: str) -> None:
    check_part(EffectiveDecay(Sgd(0.1), reading=reading))


def by_hand(weights, bias, rows, present, *, rate, coefficient, reading, negligible):
    """Squared error on one linear output, and the decay as the two readings have it, update by update."""
    size = rows.shape[1]
    waiting, active_updates = np.zeros(4), np.zeros(4)
    for number in range(len(rows)):
        taken = rows[number][present[number] == 1]
        wrong = X[taken] @ weights + bias - Y[taken]
        slope = wrong @ X[taken] / size
        share = len(taken) / (size * T)
        active = np.abs(slope) > negligible
        waiting, active_updates = waiting + share, active_updates + active
        if reading == "active":
            weight = np.where(active, waiting, 0.0)
            waiting = np.where(active, 0.0, waiting)
        else:
            fraction = np.maximum(active_updates, 1) / (number + 1)
            weight = share / np.maximum(fraction, size / T)
        decay = np.minimum(2 * coefficient * weight, 1 / rate)
        weights = weights - rate * (slope + decay * weights)
        bias = bias - rate * wrong.sum() / size
    return weights, bias


@parametrize_one_quick(
    ("reading", "size", "negligible"), [("active", 1, 0.0), ("active", 5, 0.3), ("every", 1, 0.3), ("every", 5, 0.0)]
)
def test_three_epochs_equal_a_loop_by_hand(reading: str, size: int, negligible: float) -> None:
    """Batches of one, and of 5, 5 and 2. Measured: within 1e-7; the decay itself moves the weights by 0.02 to 1."""
    knobs = {"coefficient": 0.8, "reading": reading, "negligible": negligible}
    problem, state = begin(EffectiveDecay(Sgd(0.1), **knobs), Reshuffled(size))
    first = state.parameters.output
    found, rows, present = run(problem, state, 3 * -(-T // size))
    weights, bias = np.asarray(first.weight, float)[0], float(first.bias[0])
    weights, bias = by_hand(weights, bias, np.asarray(rows), np.asarray(present), rate=0.1, **knobs)
    np.testing.assert_allclose(found.output.weight[0], weights, atol=1e-6)
    assert float(found.output.bias[0]) == pytest.approx(bias, abs=1e-6)


def amounts(reading: str, size: int, epochs: int) -> np.ndarray:
    """lambda's part in the gradient at fixed parameters of 1, one row an update: added gradient / (2 lambda)."""
    optimiser = EffectiveDecay(Sgd(1.0), coefficient=1e-3, where="*.weight", reading=reading)
    problem, state = begin(optimiser, Fixed(size))

    @jax.jit
    def body(here, kept, number):
        rows, present, _ = problem.recipe.batches.indices(number[None], T, key=problem.key)
        criterion = problem.objective(gather_batch(problem, rows[0], present[0]), number)
        gradient = jax.grad(criterion)(here)
        moves, kept = optimiser.build().update(gradient, kept, here, value=jnp.zeros(()), objective=criterion)
        return kept, -moves.output.weight - gradient.output.weight

    rows = []
    with jax.enable_x64(True):  # in 32 bits the decay would be lost in the rounding of the gradient
        here = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, jnp.float64), state.parameters)
        kept = optimiser.build().init(here)
        for number in range(epochs * -(-T // size)):
            kept, added = body(here, kept, jnp.asarray(number))
            rows.append(np.asarray(added)[0] / (2 * 1e-3))
    return np.asarray(rows)


def test_over_an_epoch_each_parameter_gets_the_whole_prior_in_the_active_reading() -> None:
    """Examples one by one in a fixed order: 12 active updates an epoch, or 4, or 1 - from one to the same one in the
    next epoch the shares sum up to 1 (times 1/B, as in the criterion). The one that is never active gets nothing."""
    each = amounts("active", size=1, epochs=3)
    for column, last in ((0, 11), (1, 10), (2, 7)):
        between = slice(last + 1, last + 1 + T)  # the epoch that ends with its last activity
        assert each[between, column].sum() == pytest.approx(1.0, rel=1e-5)
        assert np.array_equal(each[:, column] != 0, np.tile(THERE[:, column] == 1, 3))
    assert np.array_equal(each[:, 3], np.zeros(3 * T))


def test_in_the_every_reading_a_rare_parameter_gets_as_much_more() -> None:
    """In the last of many epochs: 12/12, 12/4 and 12/1 times the prior; what is never active counts as once."""
    each = amounts("every", size=1, epochs=3)[-1]
    np.testing.assert_allclose(each * T, [1.0, 3.0, 12.0, 12.0], rtol=1e-5)


@pytest.mark.parametrize("reading", ["active", "every"])
def test_with_dense_inputs_both_are_the_l2_penalty(reading: str) -> None:
    parts = {"model": Mlp(widths=(3,), activation=Tanh(), dropout=0.0)}
    inner = HeavyBall(0.05)
    ours = run(*begin(EffectiveDecay(inner, 0.8, "output.weight", reading), Fixed(5), **parts), 30)[0]
    penalty = Supervised(GaussianLoss(), penalties=(L2(0.8, where="output.weight"),))
    theirs = run(*begin(inner, Fixed(5), criterion=penalty, **parts), 30)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), ours, theirs)


def test_a_huge_coefficient_brings_to_zero_and_not_beyond() -> None:
    found = np.asarray(run(*begin(EffectiveDecay(Sgd(0.1), 1e6, reading="every"), Fixed(1)), 24)[0].output.weight)[0]
    assert found[3] == pytest.approx(0.0, abs=1e-7)
    assert np.all(np.abs(found) < 1.0)


def test_off_is_the_inner_rule_and_averages_stand_inside() -> None:
    inner = MovingAverage(Sgd(0.1))
    plain, off = run(*begin(inner, Fixed(5)), 9)[0], run(*begin(EffectiveDecay(inner, 0.0), Fixed(5)), 9)[0]
    assert eqx.tree_equal(plain, off)
    optimiser = EffectiveDecay(inner, 1.0)
    state = optimiser.build().init(plain)
    assert eqx.tree_equal(optimiser.judged(off, state), state.inner.average)


@pytest.mark.parametrize("penalty", [L2(0.1), L1(0.1, where="output.*")], ids=["l2", "l1"])
def test_a_penalty_on_the_same_parameters_is_refused_before_training(penalty: Any) -> None:
    with pytest.raises(RequestError, match="`EffectiveDecay` tells active parameters by their gradients"):
        begin(EffectiveDecay(Sgd(), 1.0), Fixed(5), criterion=Supervised(GaussianLoss(), penalties=(penalty,)))


def test_penalties_elsewhere_proximal_steps_and_other_layers_are_not_refused() -> None:
    elsewhere = Supervised(GaussianLoss(), penalties=(L2(0.1, where="*.bias"), L1(0.0)))
    begin(EffectiveDecay(Proximal(Sgd(), 1.0), 1.0), Fixed(5), criterion=elsewhere)
    with pytest.raises(RequestError, match=r"which EffectiveDecay\(where='output.weight'\) makes other than 0"):
        begin(EffectiveDecay(EffectiveDecay(Sgd(), 1.0, "output.weight"), 1.0), Fixed(5))
    with pytest.raises(RequestError, match=r"no parameter matches `EffectiveDecay\.where='layers"):
        begin(EffectiveDecay(Sgd(), 1.0, "layers.9.weight"), Fixed(5))


class _OwnGradient(AbstractOptimiser):
    """Stands for an optimiser that takes its gradients from the objective."""

    needs_objective = True

    def build(self):
        return Sgd().build()

    def rate(self, state):
        return Sgd().rate(state)


def test_an_optimiser_that_would_pass_it_over_is_refused() -> None:
    with pytest.raises(RequestError, match=r"`EffectiveDecay` around `_OwnGradient`, .* would be passed over"):
        EffectiveDecay(_OwnGradient())
    with pytest.raises(RequestError, match="around `_OwnGradient`"):
        EffectiveDecay(Proximal(_OwnGradient()))


def test_padded_weights_stay_exactly_zero() -> None:
    padded = pad(Mlp(widths=(3,), activation=Tanh(), dropout=0.0), (4,), lambda width: 8)
    problem, state = begin(EffectiveDecay(Sgd(0.1), 1.0, reading="every"), Fixed(5), model=padded)
    after = np.asarray(run(problem, state, 9)[0].layers[0].weight)
    assert np.array_equal(after[3:], np.zeros_like(after[3:]))
    assert np.all(after[:3] != 0)


@pytest.mark.slow
def test_it_learns_iris() -> None:
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    learner = gradwise.Classifier(
        random_state=0,
        optimiser=EffectiveDecay(Sgd(0.3), 0.05),
        model=Mlp(widths=(8,), dropout=0.0),
        stopping=Off(epochs=60),
    )
    assert learner.fit(inputs, targets).score(inputs, targets) > 0.9


FREQUENT = np.asarray([6, 3, 1])  # examples that hold each input, of 12, evenly spaced; two hold none
TARGETS = np.asarray([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    ("reading", "rate", "wanted"),
    [
        ("active", 0.2, FREQUENT * TARGETS / (FREQUENT + 2 * 0.5)),
        ("every", 0.01, FREQUENT * TARGETS / (FREQUENT + 2 * 0.5 * T / FREQUENT)),
    ],
)
def test_the_stationary_weights_of_inputs_of_known_frequency(reading: str, rate: float, wanted: np.ndarray) -> None:
    """In the prior's reading those of the maximum a posteriori: sum over examples of (w - t)^2 / 2, plus lambda w^2.

    On every update lambda T / n takes the place of lambda, since lambda / n is then applied T times in an epoch.
    """
    held = [0, 1, 0, 2, 0, 1, 0, -1, 0, 1, 0, -1]
    inputs = np.asarray([[float(one == column) for column in range(3)] for one in held])
    data = Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(inputs @ TARGETS[:, None], jnp.float32))
    recipe = gradwise.defaults.regression(
        model=gradwise.BuiltModel(eqx.nn.Linear(3, 1, use_bias=False, key=jr.key(0))),
        criterion=NO_PENALTY,
        batches=Fixed(1),
        optimiser=EffectiveDecay(Sgd(rate), coefficient=0.5, where="weight", reading=reading),
    )
    problem, state = init(recipe, data, data, outputs=1, key=jr.key(0))
    parameters, _, _ = run(problem, state, 300 * T)
    np.testing.assert_allclose(parameters.weight[0], wanted, rtol=1e-3 if reading == "active" else 3e-2)
