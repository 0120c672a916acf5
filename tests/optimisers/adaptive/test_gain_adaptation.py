"""Rates that adapt (row H2): each rule against its recursion in NumPy, and what it is for, on real numbers."""

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
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.gain_adaptation import (
    GlobalRate,
    HeldRatio,
    LocalRates,
    spread_by_block,
    sum_by_block,
)
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import FunctionCriterion
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.testing.contracts import check_optimiser
from gradwise.training.interval import advance
from gradwise.training.state import init
from tests.marks import parametrize_one_quick

RNG = np.random.default_rng(0)


# --- the global rate


def bowl(curvature: tuple[float, ...]) -> FunctionCriterion:
    """Half the weighted squared distance of a point to the batch's one example."""

    def function(model, batch, key):
        return jnp.sum(jnp.asarray(curvature) * (model - batch.inputs[0]) ** 2) / 2

    return FunctionCriterion(function)


def _global(optimiser, centres, curvature, start, updates):
    """Points and rates: update t sees centre t, and the next one is what `upcoming` knows."""
    train = Examples(jnp.asarray(centres, jnp.float32), jnp.zeros(len(centres)))

    def body(carry, number):
        point, state = carry
        batch = gather(train, number[None], jnp.ones(1))
        objective = Objective(bowl(tuple(curvature)), Fixed(1), None, train, jr.key(0), number, batch)
        value, gradient = objective.value_and_gradient(point)
        moves, state = optimiser.build().update(gradient, state, point, value=value, objective=objective)
        point = optax.apply_updates(point, moves)
        return (point, state), (point, optimiser.rate(state))

    start = jnp.asarray(start, jnp.float32)
    first = (start, optimiser.build().init(start))
    return eqx.filter_jit(lambda: jax.lax.scan(body, first, jnp.arange(updates))[1])()


def test_the_global_rate_is_the_candidate_that_serves_the_next_batch_best() -> None:
    """40 updates by hand in 64 bits: rates to 1e-5, hence each choice the same."""
    centres, curvature = RNG.normal(size=(41, 3)), np.asarray([2.0, 1.0, 0.3])
    points, rates = _global(GlobalRate(0.5, change=0.1, least_rate=0.35), centres, curvature, [3.0, -2.0, 1.0], 40)
    here, rate = np.asarray([3.0, -2.0, 1.0]), 0.5
    seen = []
    for update in range(40):
        g = curvature * (here - centres[update])
        tried = np.clip(rate * np.asarray([1.0, 0.9, 1.1]), 0.35, 10.0)
        values = [np.sum(curvature * (here - r * g - centres[update + 1]) ** 2) for r in tried]
        rate = tried[int(np.argmin(values))]
        here = here - rate * g
        seen.append(rate)
        assert float(rates[update]) == pytest.approx(rate, rel=1e-5)
        np.testing.assert_allclose(points[update], here, atol=1e-4)
    assert min(seen) == pytest.approx(0.35)  # the bound is met
    assert max(seen) > 0.5


def test_the_global_rate_rises_to_the_best_and_stays() -> None:
    """Where nothing moves, the best rate of a round bowl is 1 / curvature: one step reaches the centre."""
    _, rates = _global(GlobalRate(0.05, change=0.05), np.zeros((2, 2)), [2.0, 2.0], [1e8, 1e8], 60)
    assert float(rates[-1]) == pytest.approx(0.5, rel=0.05)
    assert np.all(np.diff(rates[:40]) > 0)


def test_a_global_rate_with_no_finite_candidate_falls() -> None:
    points, rates = _global(GlobalRate(1e-4), np.zeros((2, 2)), [1.0, 1.0], [1e30, 1e30], 1)  # squares leave 32 bits
    assert float(rates[0]) == pytest.approx(0.99e-4)
    assert np.all(np.isfinite(points))


# --- layers, neurons, parameters

TREE = {"a": {"weight": (3, 2), "bias": (3,)}, "b": {"weight": (1, 3), "scale": (4,)}, "c": ()}


def _tree(values) -> dict:
    return jax.tree.map(
        lambda shape: jnp.asarray(values(shape), jnp.float32), TREE, is_leaf=lambda leaf: isinstance(leaf, tuple)
    )


def _by_hand(gradients, by, *, rate, increase, decrease, memory, bound):
    """Moves in 64 bits: lists of flat places say what is one block."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(gradients[0])]
    flat = [np.concatenate([np.ravel(leaf).astype(float) for leaf in jax.tree.leaves(g)]) for g in gradients]
    # a.bias 0-2, a.weight 3-8, b.scale 9-12, b.weight 13-15, c 16: the order of the tree's leaves
    blocks = {
        "layer": [[*range(9)], [*range(9, 16)], [16]],
        "neuron": [[0, 3, 4], [1, 5, 6], [2, 7, 8], [9], [10], [11], [12], [13, 14, 15], [16]],
        "parameter": [[i] for i in range(17)],
    }[by]
    assert sum(int(np.prod(shape)) for shape in shapes) == 17
    gain, mean, moves, gains = np.ones(17), np.zeros(17), [], []
    for g in flat:
        for block in blocks:
            agreed = g[block] @ mean[block]
            new = gain[block[0]] + increase if agreed > 0 else gain[block[0]] * (1 - decrease if agreed < 0 else 1)
            gain[block] = np.clip(new, 1 / bound, bound)
        mean = memory * mean + (1 - memory) * g
        moves.append(-rate * gain * g)
        gains.append(gain.copy())
    return np.asarray(moves), np.asarray(gains)


@pytest.mark.parametrize("by", ["layer", "neuron", "parameter"])
def test_local_gains_follow_the_rule_block_by_block(by: str) -> None:
    gradients = [_tree(lambda shape: RNG.normal(size=shape) + 0.5) for _ in range(25)]
    optimiser = LocalRates(0.1, by=by, increase=0.3, decrease=0.2, memory=0.6, greatest_gain=2.5)
    rule = optimiser.build()

    @jax.jit
    def moves(stacked):
        state = rule.init(gradients[0])
        state, out = jax.lax.scan(lambda s, g: rule.update(g, s)[::-1], state, stacked)
        return jnp.concatenate([leaf.reshape(25, -1) for leaf in jax.tree.leaves(out)], axis=1)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
    expected, gains = _by_hand(gradients, by, rate=0.1, increase=0.3, decrease=0.2, memory=0.6, bound=2.5)
    np.testing.assert_allclose(moves(stacked), expected, rtol=2e-5)
    assert gains.max() == 2.5  # the bound was reached
    if by != "layer":
        assert gains.min() < 1


def test_blocks_are_summed_and_spread_alike() -> None:
    tree = _tree(lambda shape: RNG.normal(size=shape))
    sums = sum_by_block(tree, "neuron")
    assert {name: value.shape for name, value in sums.items()} == {
        "a[3]": (3,), "b[1]": (1,), "b[4]": (4,), "c[]": ()
    }  # fmt: skip
    np.testing.assert_allclose(sums["a[3]"], tree["a"]["weight"].sum(1) + tree["a"]["bias"], rtol=1e-6)
    back = spread_by_block(sums, tree, "neuron")
    fits = jax.tree.map(lambda one, leaf: np.broadcast_shapes(one.shape, leaf.shape) == leaf.shape, back, tree)
    assert all(jax.tree.leaves(fits))
    np.testing.assert_array_equal(back["a"]["weight"][:, 0], sums["a[3]"])


def test_local_rates_learn_the_scale_of_each_parameter() -> None:
    """Curvatures 1 and 0.02, no noise: the best single rate needs 230 updates, gains of their own 143."""
    curvature = jnp.asarray([1.0, 0.02])

    @eqx.filter_jit
    def updates(optimiser: AbstractOptimiser):
        def body(carry, _):
            point, state = carry
            moves, state = optimiser.build().update(curvature * point, state, point, value=jnp.zeros(()))
            point = optax.apply_updates(point, moves)
            return (point, state), jnp.sum(curvature * point**2)

        start = jnp.ones(2)
        return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=400)[1]

    def needed(optimiser: AbstractOptimiser) -> int:
        return int(np.argmax(np.asarray(updates(optimiser)) < 1e-8))

    single = needed(Sgd(2 / 1.02))
    own = needed(LocalRates(0.3, by="parameter", increase=0.1, decrease=0.1, greatest_gain=100.0))
    assert 0 < own < 0.7 * single


# --- the held ratio


def test_the_first_move_is_the_ratio_exactly_and_the_mean_is_held() -> None:
    """Gradients of a layer shrink 1000-fold and vary: the mean move over the last 500 updates stays within 10 %."""
    parameters = {"a": {"weight": jnp.full((4, 3), 0.5), "bias": jnp.zeros(4)}, "b": {"bias": jnp.zeros(5)}}
    rng = np.random.default_rng(3)
    scales = np.geomspace(1.0, 1e-3, 2000) * np.exp(rng.normal(size=2000))

    def many(leaf):
        return jnp.asarray(scales.reshape(-1, *[1] * leaf.ndim) * rng.normal(size=(2000, *leaf.shape)), jnp.float32)

    gradients = jax.tree.map(many, parameters)
    rule = HeldRatio(Sgd(7.0), ratio=0.002, memory=0.98).build()

    @jax.jit
    def sizes(gradients):
        def body(state, gradient):
            moves, state = rule.update(gradient, state, parameters)  # the parameters stay: only sizes are looked at
            return state, sum_by_block(jax.tree.map(jnp.square, moves), "layer")

        return jax.lax.scan(body, rule.init(parameters), gradients)[1]

    squares = {block: np.asarray(value, float) for block, value in sizes(gradients).items()}
    layer = np.sqrt(squares["a"] / 16)
    target = 0.002 * 0.5 * np.sqrt(12 / 16)
    assert layer[0] == pytest.approx(target, rel=1e-5)
    # The divisor lags behind a falling size by 50 updates, 1000 ** (-50/2000) = 0.84: measured 0.85.
    assert layer[-500:].mean() == pytest.approx(0.84 * target, rel=0.1)
    # Not normalised one by one: a move is as long as its gradient is strong, as in the inner optimiser.
    strong = scales[-500:] / np.geomspace(1.0, 1e-3, 2000)[-500:]
    assert np.corrcoef(np.log(layer[-500:]), np.log(strong))[0, 1] > 0.9
    # A layer that starts at 0 counts as of the floor's size.
    assert np.sqrt(squares["b"][0] / 5) == pytest.approx(0.002 * 0.01, rel=1e-5)


def test_still_and_padded_places_stay_and_do_not_dilute() -> None:
    weight = jnp.zeros((4, 3)).at[:2].set(0.5)
    gradient = jnp.zeros((4, 3)).at[:2].set(2.0)
    rule = HeldRatio(HeavyBall(), ratio=0.001, by="array", floor=0.4).build()
    moves, state = rule.update({"w": gradient}, rule.init({"w": weight}), {"w": weight})
    np.testing.assert_allclose(moves["w"][:2], -0.0005, rtol=1e-5)
    np.testing.assert_array_equal(moves["w"][2:], 0.0)
    nothing, _ = rule.update({"w": 0 * gradient}, rule.init({"w": weight}), {"w": weight})
    np.testing.assert_array_equal(nothing["w"], 0.0)
    assert float(HeldRatio().rate(state)) == pytest.approx(0.001)


def test_an_average_within_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"is MovingAverage, .* Write MovingAverage\(HeldRatio\(...\)\) instead"):
        HeldRatio(MovingAverage(Sgd()))


# --- contracts of the other choices, and real digits


@pytest.mark.parametrize(
    "optimiser",
    [LocalRates(by="layer"), LocalRates(by="parameter", schedule=InverseTime()), HeldRatio(HeavyBall(), by="array")],
    ids=["layer", "parameter", "array"],
)
def test_contracts(optimiser: AbstractOptimiser) -> None:
    check_optimiser(optimiser)


@pytest.fixture(scope="module")
def digits() -> Examples:
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    return Examples(jnp.asarray(inputs[:1200] / 16 - 0.3, jnp.float32), jnp.asarray(targets[:1200]))


@eqx.filter_jit
def _train(problem, state):
    state, seen = advance(problem, state, 400)
    return state, problem.recipe.optimiser.rate(state.optimiser), seen["diverged_examples"]


@parametrize_one_quick(
    ("optimiser", "reached"),
    [  # plain SGD reaches 0.62 at the rate 0.03
        (GlobalRate(0.03), 0.25),
        (LocalRates(0.03, by="neuron"), 0.3),
        (HeldRatio(Sgd(), ratio=0.01), 0.2),
    ],
    ids=["global", "neuron", "held"],
)
def test_on_digits_each_leaves_its_starting_rate_behind(optimiser, reached, digits: Examples) -> None:
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(16,), activation=Tanh(), dropout=0.0),
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        batches=Reshuffled(size=32),
        optimiser=optimiser,
    )
    problem, state = init(recipe, digits, digits, outputs=10, classes=10, key=jr.key(1))
    before = state.parameters.layers[0].weight
    state, rate, diverged = _train(problem, state)
    loss = float(
        problem.recipe.criterion.examples(problem.model(state.parameters), digits.inputs, digits.targets)[1].mean()
    )
    assert loss < reached
    assert int(diverged) == -1
    assert float(rate) > 0
    assert not np.allclose(before, state.parameters.layers[0].weight)
