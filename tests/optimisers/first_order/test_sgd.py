"""Stochastic gradient descent and its momenta (rows B1, C1, C9) against hand-written loops and known rates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import gradwise.defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.knobs import declarations
from gradwise.specs.priors import LogUniform
from gradwise.training.interval import advance
from gradwise.training.state import init
from tests import oracles

# --- each rule against its recursion, on a noisy quadratic

RNG = np.random.default_rng(0)
CURVATURE = np.diag([3.0, 1.0, 0.2]) + 0.1
CENTRE = np.asarray([1.0, -2.0, 0.5])
NOISE = 0.3 * RNG.normal(size=(20, 3))
START = np.asarray([2.0, 1.0, -1.0])


def gradient(point: np.ndarray, update: int) -> np.ndarray:
    return CURVATURE @ (point - CENTRE) + NOISE[update]


@eqx.filter_jit
def _points(optimiser: AbstractOptimiser):
    def body(carry, noise):
        point, state = carry
        slope = jnp.asarray(CURVATURE, jnp.float32) @ (point - jnp.asarray(CENTRE, jnp.float32)) + noise
        moves, state = optimiser.build().update(slope, state, point, value=jnp.zeros(()))
        point = optax.apply_updates(point, moves)
        return (point, state), (point, optimiser.rate(state), optimiser.judged(point, state))

    start = jnp.asarray(START, jnp.float32)
    return jax.lax.scan(body, (start, optimiser.build().init(start)), jnp.asarray(NOISE, jnp.float32))[1]


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Sgd(0.1), oracles.sgd(gradient, START, 20, rate=0.1)),
        (Sgd(0.1, smoothing=0.2), oracles.smoothed(gradient, START, 20, rate=0.1, beta=0.2)),
        (HeavyBall(0.05, momentum=0.8), oracles.heavy_ball(gradient, START, 20, rate=0.05, momentum=0.8)),
        (Nesterov(0.05, momentum=0.8), oracles.nesterov(gradient, START, 20, rate=0.05, momentum=0.8)),
        (HeavyBall(0.1, momentum=0.0), oracles.sgd(gradient, START, 20, rate=0.1)),
        (Nesterov(0.1, momentum=0.0), oracles.sgd(gradient, START, 20, rate=0.1)),
    ],
    ids=["sgd", "smoothing", "heavy-ball", "nesterov", "heavy-ball-0", "nesterov-0"],
)
def test_twenty_updates_equal_the_recursion(optimiser: AbstractOptimiser, expected: np.ndarray) -> None:
    points, rates, judged = _points(optimiser)
    np.testing.assert_allclose(points, expected[1:], atol=2e-6)
    np.testing.assert_allclose(rates, float(optimiser.learning_rate), rtol=1e-6)
    np.testing.assert_array_equal(judged, points)


def test_smoothing_is_heavy_ball_with_its_rate_divided() -> None:
    """g_bar = beta (g + (1 - beta) g + ...): the chapter's momentum at rate r is the heavy ball at r beta."""
    ours, ball = _points(Sgd(0.5, smoothing=0.1))[0], _points(HeavyBall(0.05, momentum=0.9))[0]
    np.testing.assert_allclose(ours, ball, atol=2e-6)


def test_a_schedule_reaches_the_updates() -> None:
    points, rates, _ = _points(Sgd(0.1, schedule=InverseTime(tau_updates=5.0)))
    expected = 0.1 * 5 / np.maximum(np.arange(20), 5)
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    here = START
    for update in range(20):
        here = here - expected[update] * gradient(here, update)
        np.testing.assert_allclose(points[update], here, atol=2e-6)


@pytest.mark.parametrize("kind", [Sgd, HeavyBall, Nesterov])
def test_the_chapter_sets_the_rate_and_its_prior(kind: type) -> None:
    """Row C1: 0.01 by default, log-uniform from 1e-6 to 1."""
    declared = dict(declarations(kind))["learning_rate"]
    assert declared.default == 0.01
    assert declared.prior == LogUniform(1e-6, 1.0)
    assert declared.row == "C1"


# --- known rates on a convex problem (row C9)

SHARP, FLAT = 1.0, 0.01  # the largest and the least curvature: a condition number of 100
ROOT = np.sqrt(SHARP / FLAT)


@pytest.mark.parametrize(
    ("optimiser", "rate"),
    [
        (Sgd(2 / (SHARP + FLAT)), (ROOT**2 - 1) / (ROOT**2 + 1)),
        (
            HeavyBall(4 / (np.sqrt(SHARP) + np.sqrt(FLAT)) ** 2, momentum=((ROOT - 1) / (ROOT + 1)) ** 2),
            (ROOT - 1) / (ROOT + 1),
        ),
        (Nesterov(1 / SHARP, momentum=(ROOT - 1) / (ROOT + 1)), 1 - 1 / ROOT),
    ],
    ids=["gradient-descent", "heavy-ball", "nesterov"],
)
def test_contraction_on_a_quadratic_is_the_known_one(optimiser: AbstractOptimiser, rate: float) -> None:
    """An update shrinks the distance to 0.980 (gradient descent), 0.818 (heavy ball) or 0.9 (Nesterov) of itself."""

    @eqx.filter_jit
    def distances(optimiser: AbstractOptimiser):
        curvature = jnp.asarray(np.geomspace(FLAT, SHARP, 5), jnp.float32)

        def body(carry, _):
            point, state = carry
            moves, state = optimiser.build().update(curvature * point, state, point, value=jnp.zeros(()))
            point = optax.apply_updates(point, moves)
            return (point, state), jnp.max(jnp.abs(point))  # squares would leave 32 bits

        start = jnp.ones(5)
        return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=300)[1]

    logs = np.log(np.asarray(distances(optimiser), np.float64))
    # A double root of the recursion multiplies the power by t, hence the logarithm's correction.
    steepness = (logs[299] - logs[149]) / 150
    correction = 0.0 if isinstance(optimiser, Sgd) else np.log(300 / 150) / 150
    assert np.exp(steepness - correction) == pytest.approx(rate, rel=3e-3)


# --- row B1: one epoch of the compiled training equals a loop written by hand

T = 20
X = RNG.normal(size=(T, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 3, T)


def problem(optimiser: AbstractOptimiser, batches):
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(5,), activation=Tanh(), dropout=0.0),
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        batches=batches,
        optimiser=optimiser,
    )
    examples = Examples(jnp.asarray(X), jnp.asarray(CLASSES))
    return init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(1))


def by_letter(parameters) -> oracles.Parameters:
    layer, output = parameters.layers[0], parameters.output
    named = {"V": layer.weight, "b": layer.bias, "W": output.weight, "c": output.bias}
    return {name: np.asarray(value, np.float64) for name, value in named.items()}


@eqx.filter_jit
def one_epoch(task, state):
    """The state after an epoch, what was seen, and the order of the examples with their presence."""
    numbers = jnp.arange(task.updates_per_epoch)
    rows, present, _ = task.recipe.batches.indices(numbers, T, key=task.key)
    return *advance(task, state, task.updates_per_epoch), rows, present


@pytest.mark.parametrize("size", [1, 7, 20])
def test_one_epoch_equals_a_hand_written_loop(size: int) -> None:
    task, state = problem(Sgd(0.3), Reshuffled(size=size))
    first = by_letter(state.parameters)
    state, seen, rows, present = one_epoch(task, state)
    order = np.asarray(rows)[np.asarray(present) == 1]
    assert sorted(order) == list(range(T))
    expected, losses = oracles.net_epoch(first, X.astype(float), CLASSES, order, size, 0.3)
    for name, value in expected.items():
        np.testing.assert_allclose(by_letter(state.parameters)[name], value, atol=1e-5, err_msg=name)
    assert int(seen["age_examples"]) == T
    assert int(state.update) == -(-T // size)
    lengths = [len(order[start : start + size]) for start in range(0, T, size)]
    assert float(seen["train_loss"]) == pytest.approx(np.dot(losses, lengths) / T, rel=1e-5)


def test_another_rate_compiles_nothing_and_a_population_is_a_stacked_recipe() -> None:
    """Three rates one after another through one program; then as one recipe whose rate has one more axis."""
    rates = np.asarray([0.03, 0.1, 0.3])
    traces = []

    @eqx.filter_jit
    def run(task, state):
        traces.append(1)
        return advance(task, state, 4)[0].parameters

    alone = []
    for rate in rates:
        task, state = problem(HeavyBall(float(rate)), Fixed(size=5))
        alone.append(run(task, state))
    assert len(traces) == 1
    assert not np.allclose(alone[0].output.weight, alone[1].output.weight, atol=1e-4)

    stacked = eqx.tree_at(lambda t: t.recipe.optimiser.learning_rate, task, jnp.asarray(rates, jnp.float32))
    axes = eqx.tree_at(
        lambda t: t.recipe.optimiser.learning_rate,
        jax.tree.map(lambda _: None, stacked),
        0,
        is_leaf=lambda leaf: leaf is None,
    )
    together = eqx.filter_jit(eqx.filter_vmap(lambda t: advance(t, state, 4)[0].parameters, in_axes=(axes,)))(stacked)
    for number, one in enumerate(alone):
        jax.tree.map(
            lambda many, single, n=number: np.testing.assert_allclose(many[n], single, atol=1e-5), together, one
        )
