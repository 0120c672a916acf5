"""The rate re-estimated now and then (row C4): equal to separate runs, the best by closed form, and it recovers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise.defaults
from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.reestimated_rate import (
    Reestimated,
    best_rate,
    fixed_subset,
    is_faster_together,
    try_continuing,
)
from gradwise.optimisers.averaging.parameter_average import PolyakAverage
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import trainable
from gradwise.training.interval import advance
from gradwise.training.state import init

RNG = np.random.default_rng(0)
T, B, S = 60, 8, 20  # the subset's last mini-batch is half empty
PENALTY = 3.0


@pytest.fixture(scope="module")
def net() -> tuple[Objective, object]:
    """A tanh network with dropout and decay, on the batch of update 5."""
    inputs = jnp.asarray(RNG.normal(size=(T, 4)), jnp.float32)
    train = Examples(inputs, jnp.asarray(RNG.integers(0, 3, T)))
    parameters, rest = trainable(Mlp(widths=(5,), activation=Tanh(), dropout=0.2).build((4,), 3, key=jr.key(1)))
    batch = gather(train, jnp.arange(B), jnp.ones(B))
    criterion = Supervised(SoftmaxLoss(), penalties=(L2(PENALTY),))
    objective = Objective(criterion, Reshuffled(B), rest, train, jr.key(2), jnp.asarray(5, jnp.int32), batch)
    return objective, parameters


def one_after_another(objective, parameters, velocity, rates, momentum, rows, present) -> np.ndarray:
    """Each rate for itself, update by update in Python, with the heavy ball written out."""

    @eqx.filter_jit
    def slope(point, batch, update):
        there = eqx.tree_at(lambda o: (o.batch, o.update), objective, (batch, update))
        return jax.value_and_grad(there.__call__)(point)

    losses = []
    for rate in rates:
        point, v = parameters, velocity
        for number in range(len(rows)):
            batch = gather(objective.train, rows[number], present[number])
            _, g = slope(point, batch, objective.update + number)
            v = jax.tree.map(lambda a, b: momentum * a + b, v, g)
            point = jax.tree.map(lambda a, b, r=rate: a - r * b, point, v)
        every = np.concatenate(rows)[np.concatenate(present) == 1]
        whole = gather(objective.train, jnp.asarray(every), jnp.ones(len(every)))
        losses.append(float(slope(point, whole, objective.update)[0]))
    return np.asarray(losses)


def test_one_call_equals_runs_one_after_another(net) -> None:
    """Losses within 1e-6 of their size, in both forms of the call, and so the same choice; from a moving start."""
    objective, parameters = net
    optimiser = Reestimated(HeavyBall(0.05, momentum=0.8), rates=5, subset_examples=S)
    velocity = jax.tree.map(
        lambda leaf: 0.3 * jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), parameters
    )

    @eqx.filter_jit
    def once(optimiser, objective, parameters, velocity):
        state = optimiser.build().init(parameters)
        state = eqx.tree_at(lambda s: s.inner[0].trace, state, velocity)
        subset = fixed_subset(objective, S)
        rates = optimiser.ladder(0.05, True)
        inner = (optimiser.optimiser, state.inner, parameters, objective, rates, subset)
        both = [try_continuing(*inner, together=together) for together in (True, False)]
        value, gradient = objective.value_and_gradient(parameters)
        moves, after = optimiser.build().update(gradient, state, parameters, value=value, objective=objective)
        return rates, subset, both, objective.on(subset.whole.rows)(parameters), after, (moves, gradient)

    rates, subset, both, before, after, (moves, gradient) = once(optimiser, objective, parameters, velocity)
    rows, present = subset.several.rows, subset.several.present
    assert present.sum() == S
    assert len(set(np.asarray(subset.whole.rows).tolist())) == S
    expected = one_after_another(objective, parameters, velocity, np.asarray(rates), 0.8, rows, present)
    assert expected.min() < float(before) < expected.max()  # there is something to choose
    for losses in both:
        np.testing.assert_allclose(losses, expected, rtol=3e-6)
    near = expected <= expected.min() + 0.01 * (float(before) - expected.min())
    chosen = float(np.asarray(rates)[near].min())
    assert float(after.rate) == chosen
    assert float(optimiser.rate(after)) == pytest.approx(chosen)
    assert int(after.estimates) == 1
    assert int(after.changes) == (chosen != np.float32(0.05))
    step = jax.tree.map(lambda v, g: -chosen * (0.8 * v + g), velocity, gradient)  # the update itself, at the new rate
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), moves, step)


def test_the_subset_is_one_all_run_long_and_another_in_another_run(net) -> None:
    objective, _ = net
    later = eqx.tree_at(lambda o: o.update, objective, jnp.asarray(90, jnp.int32))
    other = eqx.tree_at(lambda o: o.key, objective, jr.key(3))
    rows = [np.asarray(fixed_subset(o, S).whole.rows) for o in (objective, later, other)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert set(rows[0]) != set(rows[2])
    assert sorted(np.asarray(fixed_subset(objective, 10_000).whole.rows)) == list(range(T))  # at most all there are


# --- a quadratic, where the best rate is known


def test_on_a_quadratic_the_best_of_the_ladder_is_chosen() -> None:
    """One full-batch step of length r along g changes the criterion by -r g'g + r^2 g'Hg / 2."""
    inputs = RNG.normal(size=(T, 3)) * [3.0, 1.0, 0.3]
    targets = inputs @ [[1.0], [-2.0], [0.5]]
    train = Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.float32))
    parameters, rest = trainable(Mlp(widths=()).build((3,), 1, key=jr.key(4)))
    batch = gather(train, jnp.arange(T), jnp.ones(T))
    criterion = Supervised(GaussianLoss(), penalties=())
    objective = Objective(criterion, Fixed(T), rest, train, jr.key(2), jnp.asarray(0, jnp.int32), batch)
    optimiser = Reestimated(Sgd(0.1), rates=16, factor=1.3, subset_examples=1000)

    @eqx.filter_jit
    def once(optimiser, parameters):
        value, gradient = objective.value_and_gradient(parameters)
        state = optimiser.build().init(parameters)
        _, state = optimiser.build().update(gradient, state, parameters, value=value, objective=objective)
        return state.rate, optimiser.ladder(0.1, True)

    rate, rates = once(optimiser, parameters)
    design = np.hstack([inputs, np.ones((T, 1))])
    here = np.append(np.asarray(parameters.output.weight, float)[0], float(parameters.output.bias[0]))
    hessian = design.T @ design / T
    g = hessian @ here - design.T @ targets[:, 0] / T
    ladder = np.asarray(rates, float)
    change = -ladder * (g @ g) + ladder**2 * (g @ hessian @ g) / 2
    assert 0 < np.argmin(change) < 15
    near = change <= 0.99 * change.min()
    assert float(rate) == pytest.approx(ladder[near].min())
    best = (g @ g) / (g @ hessian @ g)
    assert best / 1.3**3 < float(rate) < best * 1.3**1.5  # the first ladder's steps are 1.3 ** 3


@pytest.mark.parametrize(
    ("losses", "before", "expected"),
    [
        ([0.9, 0.5, 0.7, np.inf], 1.0, 0.2),
        ([0.9, 0.504, 0.5, 0.7], 1.0, 0.2),  # less than a hundredth of the gain: the lower one
        ([0.9, 0.506, 0.5, 0.7], 1.0, 0.4),
        ([1.1, 1.2, 1.3, 1.4], 1.0, 0.1),  # nothing helps
        ([np.inf] * 4, 1.0, 0.1),
        ([np.inf] * 4, np.nan, 0.3),  # nothing to compare with: as it was
    ],
)
def test_the_choice_among_losses(losses, before, expected) -> None:
    rates = jnp.asarray([0.1, 0.2, 0.4, 0.8])
    found = best_rate(rates, jnp.asarray(losses), jnp.asarray(before), jnp.asarray(0.3))
    assert float(found) == pytest.approx(expected)


def test_an_optimiser_without_a_rate_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"PolyakAverage, which has no `learning_rate`.*around Reestimated"):
        Reestimated(PolyakAverage(Sgd()))


# --- real digits, in the compiled training


@pytest.fixture(scope="module")
def digits() -> Examples:
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    return Examples(jnp.asarray(inputs[:1200] / 16 - 0.3, jnp.float32), jnp.asarray(targets[:1200]))


UPDATES = 320


def trained(optimiser: AbstractOptimiser, digits: Examples) -> tuple[float, object, np.ndarray]:
    """The training loss at the end, the optimiser's last state, and the rate after each eighth of the updates."""
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(16,), activation=Tanh(), dropout=0.0),
        criterion=Supervised(SoftmaxLoss(), penalties=()),
        batches=Reshuffled(size=32),
        optimiser=optimiser,
    )
    problem, state = init(recipe, digits, digits, outputs=10, classes=10, key=jr.key(1))
    rates = []
    for _ in range(8):
        state, _ = _eighth(problem, state)
        rates.append(float(problem.recipe.optimiser.rate(state.optimiser)))
    model = problem.model(state.parameters)
    losses = problem.recipe.criterion.examples(model, digits.inputs, digits.targets)[1]
    return float(losses.mean()), state.optimiser, np.asarray(rates)


@eqx.filter_jit
def _eighth(problem, state):
    return advance(problem, state, UPDATES // 8)


@pytest.mark.slow
def test_it_recovers_from_a_rate_a_hundred_times_too_small_or_too_large(digits: Examples) -> None:
    """Measured: SGD's loss is 0.033 at the rate 1, 1.7 at 0.01, 700 at 100; re-estimated from there 0.067 and 0.049."""
    good, _, _ = trained(Sgd(1.0), digits)
    assert trained(Sgd(0.01), digits)[0] > 10 * good
    assert trained(Sgd(100.0), digits)[0] > 10 * good
    for wrong in (0.01, 100.0):
        loss, state, rates = trained(Reestimated(Sgd(wrong), every_updates=80.0), digits)
        assert loss < 2.5 * good
        assert 0.1 < rates[-1] < 4.0
        assert int(state.estimates) == UPDATES / 80  # at updates 0, 80, 160 and 240
        assert 1 <= int(state.changes) <= 4
        np.testing.assert_array_equal(rates[0::2], rates[1::2])  # in force until the next estimate


def test_the_schedule_multiplies_the_rate_in_force(digits: Examples) -> None:
    schedule = InverseTime(tau_updates=1.0)
    _, state, rates = trained(Reestimated(Sgd(1.0, schedule=schedule), every_updates=1e6), digits)
    last = np.arange(1, 9) * (UPDATES // 8) - 1
    np.testing.assert_allclose(rates, float(state.rate) / last, rtol=1e-5)


# --- which way is taken


def _shape(inputs: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Objective, object]:
    train = Examples(jnp.asarray(RNG.normal(size=(T, *inputs)), jnp.float32), jnp.asarray(RNG.integers(0, 3, T)))
    parameters, rest = trainable(Mlp(widths=widths, activation=Tanh(), dropout=0.0).build(inputs, 3, key=jr.key(1)))
    batch = gather(train, jnp.arange(B), jnp.ones(B))
    criterion = Supervised(SoftmaxLoss(), penalties=())
    return Objective(criterion, Reshuffled(B), rest, train, jr.key(2), jnp.asarray(0, jnp.int32), batch), parameters


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator always vectorises")
@pytest.mark.parametrize(
    ("inputs", "widths", "together"),
    [
        ((200,), (10,), True),
        ((20, 10), (10,), True),
        ((4,), (5,), True),
        ((30,), (40,), False),
        ((30,), (20, 20), False),
    ],
)
def test_on_a_cpu_rates_are_vectorised_where_that_was_measured_faster(inputs, widths, together) -> None:
    """The program says which way it was compiled; both give the same losses within rounding."""
    objective, parameters = _shape(inputs, widths)
    optimiser, rates = Sgd(0.1), jnp.asarray([0.01, 0.1, 1.0])
    subset = fixed_subset(objective, S)
    assert is_faster_together(parameters, subset) is together

    def attempt(rates, way):
        state = optimiser.build().init(parameters)
        return try_continuing(optimiser, state, parameters, objective, rates, subset, way)

    programs = {
        way: str(jax.make_jaxpr(lambda rates, way=way: attempt(rates, way))(rates)) for way in (None, True, False)
    }
    assert programs[None] == programs[together]
    assert programs[None] != programs[not together]
    each, whole = (np.asarray(jax.jit(lambda rates, way=way: attempt(rates, way))(rates)) for way in (False, True))
    np.testing.assert_allclose(each, whole, rtol=3e-6)
