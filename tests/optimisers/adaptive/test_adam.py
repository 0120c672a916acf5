"""Adagrad (row H3), RMSprop, Adam and AdamW (row J1) against the published recursions, and what decay means."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.evaluation.run_findings import find_in_run
from gradwise.models.centred_mlp import CentredMlp
from gradwise.models.deep_boltzmann import DeepBoltzmann
from gradwise.models.mlp import Mlp
from gradwise.models.restricted_boltzmann import LabelRbm, Rbm
from gradwise.optimisers.adaptive.adam import Adagrad, Adam, AdamW, RmsProp
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.schedules import FlatCosine, RepeatedCosine
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.finding import Finding
from gradwise.records.outcome import Outcome
from gradwise.specs.contracts import AbstractModel, AbstractOptimiser
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.paths import named_leaves, trainable
from gradwise.specs.recipe import Recipe
from gradwise.specs.schedules import Constant
from gradwise.testing.contracts import check_part
from gradwise.training.interval import interval
from gradwise.training.state import init
from tests import oracles

RNG = np.random.default_rng(0)
SCALES = np.asarray([1e-3, 1.0, 1e3, 10.0, 0.1])
START = np.asarray([2.0, 1.0, -1.0, 0.5, -3.0])
NOISE = 0.2 * RNG.normal(size=(20, 5))


def gradient(point: np.ndarray, update: int) -> np.ndarray:
    return SCALES * (point + NOISE[update])


def as_tree(values) -> dict:
    values = jnp.asarray(values, jnp.float32)
    return {"layers": ({"weight": values[:2], "bias": values[2:3]},), "output": {"weight": values[3:]}}


def flat(tree: dict):
    return jnp.concatenate([tree["layers"][0]["weight"], tree["layers"][0]["bias"], tree["output"]["weight"]])


@eqx.filter_jit
def points(optimiser: AbstractOptimiser):
    def body(carry, noise):
        here, state = carry
        slope = as_tree(jnp.asarray(SCALES, jnp.float32) * (flat(here) + noise))
        moves, state = optimiser.build().update(slope, state, here, value=jnp.zeros(()))
        here = optax.apply_updates(here, moves)
        return (here, state), (flat(here), optimiser.rate(state))

    start = as_tree(START)
    return jax.lax.scan(body, (start, optimiser.build().init(start)), jnp.asarray(NOISE, jnp.float32))[1]


# The compiled moments are 32-bit numbers, and 1 - 0.999 feels it: the oracle takes the rounded ones.
ROUNDED = {"first": float(np.float32(0.9)), "second": float(np.float32(0.999))}
WEIGHTS = np.asarray([1.0, 1.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Adam(0.05), oracles.adam(gradient, START, 20, rate=0.05, **ROUNDED)),
        (
            Adam(0.05, first_moment=0.5, second_moment=0.75, epsilon=0.1),
            oracles.adam(gradient, START, 20, rate=0.05, first=0.5, second=0.75, epsilon=0.1),
        ),
        (AdamW(0.05, decay=0.5), oracles.adam(gradient, START, 20, rate=0.05, decay=0.5 * WEIGHTS, **ROUNDED)),
        (
            AdamW(0.05, decay=0.5, where="*.bias"),
            oracles.adam(gradient, START, 20, rate=0.05, decay=0.5 * (1 - WEIGHTS), **ROUNDED),
        ),
        (AdamW(0.05, decay=0.0), oracles.adam(gradient, START, 20, rate=0.05, **ROUNDED)),
    ],
    ids=["adam", "adam-other-moments", "adamw", "adamw-biases", "adamw-off"],
)
def test_twenty_updates_equal_the_recursion(optimiser: AbstractOptimiser, expected: np.ndarray) -> None:
    found, rates = points(optimiser)
    np.testing.assert_allclose(found, expected[1:], atol=1e-5)
    np.testing.assert_allclose(rates, 0.05, rtol=1e-6)


@pytest.mark.parametrize("flat", [0.0, 0.5])
def test_decay_on_a_schedule_equals_the_recursion(flat: float) -> None:
    """Rate and decay each have a curve of their own: waves for the one, half a cosine for the other."""
    first, second = float(np.float32(0.9)), 0.75
    here, mean, squares, expected = START, np.zeros(5), np.zeros(5), []
    for t in range(20):
        slope = gradient(here, t)
        mean = first * mean + (1 - first) * slope
        squares = second * squares + (1 - second) * slope**2
        move = mean / (1 - first ** (t + 1)) / (np.sqrt(squares / (1 - second ** (t + 1))) + 1e-8)
        rate = 0.05 * (0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + 3 * t / 20)))
        decay = 0.5 * (0.5 + 0.5 * np.cos(np.pi * max(0.0, (t / 20 - flat) / (1 - flat))))
        here = here - rate * (move + decay * WEIGHTS * here)
        expected.append(here)
    optimiser = AdamW(
        0.05,
        decay=0.5,
        second_moment=second,
        schedule=RepeatedCosine(20.0, cycles=2),
        decay_schedule=FlatCosine(20.0, flat=flat),
    )
    np.testing.assert_allclose(points(optimiser)[0], expected, atol=2e-5)
    constant = points(dataclasses.replace(optimiser, decay_schedule=Constant()))[0]
    assert np.abs(np.asarray(constant) - expected).max() > 1e-3


def test_a_decay_that_is_off_asks_for_no_schedule() -> None:
    state = AdamW(decay=0.0, decay_schedule=FlatCosine(20.0)).build().init(as_tree(START))
    assert jax.tree.structure(state) == jax.tree.structure(AdamW(decay=0.0).build().init(as_tree(START)))


def by_sizes(rate: float, epsilon: float, square: float, keep: float, add: float) -> np.ndarray:
    """theta <- theta - rate g / sqrt(s + epsilon), s <- keep s + add g^2."""
    here, squares, found = START, np.full(5, square), []
    for update in range(20):
        slope = gradient(here, update)
        squares = keep * squares + add * slope**2
        here = here - rate * slope / np.sqrt(squares + epsilon)
        found.append(here)
    return np.asarray(found)


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Adagrad(0.05), by_sizes(0.05, 1e-7, 0.1, 1.0, 1.0)),
        (Adagrad(0.5, initial_square=2.0, epsilon=0.1), by_sizes(0.5, 0.1, 2.0, 1.0, 1.0)),
        (RmsProp(0.05), by_sizes(0.05, 1e-8, 0.0, float(np.float32(0.9)), 1 - float(np.float32(0.9)))),
        (RmsProp(0.05, second_moment=0.5, epsilon=0.01), by_sizes(0.05, 0.01, 0.0, 0.5, 0.5)),
    ],
    ids=["adagrad", "adagrad-other-knobs", "rmsprop", "rmsprop-other-knobs"],
)
def test_rules_without_a_mean_equal_their_formula(optimiser: AbstractOptimiser, expected: np.ndarray) -> None:
    found, rates = points(optimiser)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(rates, float(optimiser.learning_rate), rtol=1e-6)


@pytest.mark.parametrize("optimiser", [Adagrad(0.1, initial_square=0.0), RmsProp()], ids=["adagrad", "rmsprop"])
def test_contract_and_a_parameter_without_gradient_stays(optimiser: AbstractOptimiser) -> None:
    check_part(optimiser)
    rule = optimiser.build()
    start = jnp.asarray([0.0, 3.0])
    moves, _ = rule.update(jnp.zeros(2), rule.init(start), start, value=jnp.zeros(()))
    assert np.array_equal(moves, [0.0, 0.0])


def test_adagrad_moves_a_rare_parameter_as_far_as_a_frequent_one() -> None:
    """Steps of a gradient of 1 sum up to the rate times 1 + 1/sqrt(2) + ... + 1/sqrt(n): n counts its own updates."""
    optimiser = Adagrad(0.1, initial_square=0.0, epsilon=1e-12)
    often = jnp.asarray([[1.0, update % 10 == 0] for update in range(40)], jnp.float32)

    def body(carry, slope):
        here, state = carry
        moves, state = optimiser.build().update(slope, state, here, value=jnp.zeros(()))
        return (here + moves, state), None

    start = jnp.zeros(2)
    here = jax.lax.scan(body, (start, optimiser.build().init(start)), often)[0][0]
    expected = [-0.1 * np.sum(np.arange(1, n + 1) ** -0.5) for n in (40, 4)]
    np.testing.assert_allclose(here, expected, rtol=1e-5)


@pytest.mark.parametrize("optimiser", [Adagrad(0.1), RmsProp(0.01)], ids=["adagrad", "rmsprop"])
def test_they_learn_iris(optimiser: AbstractOptimiser) -> None:
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    examples = Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.int32))
    recipe = defaults.classification(optimiser=optimiser, model=Mlp(widths=(8,), dropout=0.0))
    problem, state = init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(0))
    _, row = interval(problem, state, 300)
    assert float(row.valid_score) < 0.1
    assert float(row.valid_loss) < 0.25


def test_the_first_step_is_the_rate_whatever_the_scale() -> None:
    first = np.asarray(points(Adam(0.05))[0])[0] - START
    np.testing.assert_allclose(np.abs(first), 0.05, rtol=1e-3)


def test_adamw_says_which_meaning_its_decay_has() -> None:
    (note,) = AdamW(decay=0.02).findings()
    assert (note.level, note.row) == ("note", "J1")
    assert "decay=0.02" in note.what
    assert "lambda" in note.what
    assert AdamW(decay=0.0).findings() == ()


@pytest.mark.parametrize("optimiser", [Adam(), AdamW(), RmsProp(), Adagrad(), MovingAverage(Adam())])
def test_a_penalty_under_adam_says_which_meaning_its_decay_has(optimiser: AbstractOptimiser) -> None:
    criterion = Supervised(SoftmaxLoss(), penalties=(L2(0.5), L1()))
    inner = getattr(optimiser, "optimiser", optimiser)
    train = Dataset(np.zeros((4, 2)), np.arange(4) % 2, Classes(np.arange(2)))

    def findings_of(recipe: Recipe) -> tuple[Finding, ...]:
        return find_in_run(recipe, {"valid_score": [], "best": []}, Outcome("finished", 4), train)

    found = findings_of(defaults.classification(optimiser=optimiser, criterion=criterion))
    (note,) = [one for one in found if "criterion.penalties.0.coefficient" in one.what]
    assert (note.level, note.row) == ("note", "J1")
    assert "`criterion.penalties.0.coefficient=0.5`" in note.what
    assert type(inner).__name__ in note.what
    for other in (
        defaults.classification(optimiser=optimiser),
        defaults.classification(optimiser=Sgd(), criterion=criterion),
    ):
        assert not any("criterion.penalties" in one.what for one in findings_of(other))


@pytest.mark.parametrize("model", [Rbm(units=3), LabelRbm(units=3), CentredMlp(widths=(4, 3)), DeepBoltzmann((4, 3))])
def test_adamw_decays_the_weights_of_machines_and_centred_networks_and_nothing_else(model: AbstractModel) -> None:
    parameters, _ = trainable(model.build((5,), 2, key=jr.key(0)))
    parameters = jax.tree.map(jnp.ones_like, parameters)
    rule = AdamW(learning_rate=0.1, decay=0.5).build()
    moves, _ = rule.update(jax.tree.map(jnp.zeros_like, parameters), rule.init(parameters), parameters)
    for name, moved in named_leaves(moves):
        np.testing.assert_allclose(moved, -0.05 if ".weight" in f".{name}" else 0.0, rtol=1e-6, err_msg=name)
