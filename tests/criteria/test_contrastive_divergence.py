"""Divergences against exact expectations: every state of a small machine is gone through, in 64 bits."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
from gradwise.criteria.boltzmann_gradient import (
    Parameters,
    Phases,
    boltzmann_parameters,
    enhanced_gradient,
    phase_gradient,
    with_parameters,
)
from gradwise.criteria.contrastive_divergence import (
    ContrastiveDivergence,
    FastPersistentDivergence,
    JointDivergence,
    PersistentDivergence,
)
from gradwise.criteria.penalties import L2
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import HoldOut
from gradwise.evaluation.generative.likelihood import log_likelihood, log_partition, pseudo_likelihood
from gradwise.models.restricted_boltzmann import LabelRbm, LabelRbmNetwork, Rbm, RbmNetwork
from gradwise.models.visible_units import BinaryVisible, LabelledVisible
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Dataset, Inputs, Numbers
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

ALL = (ContrastiveDivergence(), PersistentDivergence(), FastPersistentDivergence())


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def machine(visible=BinaryVisible(), hidden=3, size=5, scale=1.0, seed=0):
    random = np.random.default_rng(seed)
    shapes = ((hidden, size), hidden, size)
    weight, hidden_bias, bias = (jnp.asarray(scale * random.normal(size=shape)) for shape in shapes)
    return RbmNetwork(weight, hidden_bias, bias, visible)


def states(count):
    return np.array(list(itertools.product((0.0, 1.0), repeat=count)))


def batch_of(inputs, memory=None, weights=None, targets=None):
    count = len(inputs)
    weights = jnp.ones(count) if weights is None else jnp.asarray(weights, inputs.dtype)
    targets = jnp.zeros((count, 0)) if targets is None else targets
    return Batch(inputs, targets, weights, (weights > 0).astype(inputs.dtype), jnp.asarray(100.0), memory=memory)


@eqx.filter_jit
def gradient_of(criterion, network, batch, key):
    parameters, rest = trainable(network)

    def total(parameters):
        return criterion(eqx.combine(parameters, rest), batch, key=key)

    (value, terms), gradient = jax.value_and_grad(total, has_aux=True)(parameters)
    return value, terms, gradient


@eqx.filter_jit
def begun(criterion, network, inputs):
    return criterion.begin(network, inputs, key=jr.key(1))


@eqx.filter_jit
def phases_of(criterion, network, batch, key):
    return criterion.estimate(network, batch.inputs, batch, key=key)[1]


@eqx.filter_jit
def exact_phases(network, v, own):
    """The machine's own states are all there are, each with its probability."""
    logs = log_likelihood(network, own, log_partition(network))
    return Phases(network.hidden_activation(v), own, network.hidden_activation(own), jnp.exp(logs))


def assert_close(found, expected, **tolerance):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


@parametrize_one_quick("visible", [BinaryVisible(), LabelledVisible(BinaryVisible(), 2)], ids=["binary", "labels"])
def test_exact_statistics_give_the_gradient_of_the_likelihood(wide, visible):
    network = machine(visible)
    own = jax.vmap(lambda number: visible.state(number, 5))(jnp.arange(visible.states(5)))
    v, weights = own[jnp.asarray([1, 4, 6])], jnp.asarray([0.5, 0.3, 0.2])

    @jax.jit
    @jax.grad
    def slope(parameters):
        one = with_parameters(network, parameters)
        return -weights @ log_likelihood(one, v, log_partition(one))

    assert_close(
        phase_gradient(v, weights, exact_phases(network, v, own)), slope(boltzmann_parameters(network)), atol=1e-14
    )


def kernel(network):
    """T[v, v']: the chance to go from one visible state to another by one turn of Gibbs sampling."""
    v, h = states(5), states(3)
    up = np.asarray(network.hidden_mean(jnp.asarray(v)))[:, None]
    down = np.asarray(network.visible_mean(jnp.asarray(h)))[:, None]
    of_h = np.prod(np.where(h[None] == 1, up, 1 - up), axis=2)
    of_v = np.prod(np.where(v[None] == 1, down, 1 - down), axis=2)
    return of_h @ of_v


@pytest.mark.slow
def test_contrastive_divergence_is_right_on_average_and_its_bias_shrinks_with_steps(wide):
    network, own = machine(scale=1.5), jnp.asarray(states(5))
    v = own[jnp.asarray([3, 12, 21])]
    exact = phase_gradient(v, jnp.full(3, 1 / 3), exact_phases(network, v, own))
    turn = kernel(network)
    started = np.isin(np.arange(32), [3, 12, 21]) / 3
    biases = []
    for steps in (1, 3, 10):
        reached = jnp.asarray(started @ np.linalg.matrix_power(turn, steps))
        phases = Phases(network.hidden_activation(v), own, network.hidden_activation(own), reached)
        expected = phase_gradient(v, jnp.full(3, 1 / 3), phases)
        many = batch_of(jnp.tile(v, (10_000, 1)))
        _, _, found = gradient_of(ContrastiveDivergence(steps=steps), network, many, jr.key(0))
        # The deviation of one chain's statistic is at most 1/2: 5 deviations of the mean of 30 000.
        assert_close(boltzmann_parameters(found), expected, atol=5 * 0.5 / np.sqrt(30_000))
        biases.append(float(jnp.linalg.norm(expected.weight - exact.weight)))
    assert biases[0] > 2 * biases[1] > 4 * biases[2] > 0


@parametrize_one_quick("criterion", ALL, ids=lambda one: type(one).__name__)
def test_gradient_is_that_of_the_difference_of_free_energies(wide, criterion):
    """The same states, differentiated by JAX, with weights, an unused slot and a penalty."""
    network = machine()
    v = jnp.asarray(states(5)[[3, 12, 21, 7]])
    criterion = dataclasses.replace(criterion, penalties=(L2(2.0, where="*weight"),))
    memory = begun(criterion, network, v)
    batch = batch_of(v, memory, [1.0, 0.5, 2.0, 0.0])
    value, terms, found = gradient_of(criterion, network, batch, jr.key(2))
    phases = phases_of(criterion, network, batch, jr.key(2))

    @jax.jit
    @jax.value_and_grad
    def total(network):
        energy = jax.vmap(network.free_energy)
        penalty = 2.0 * 3.0 / (4.0 * 100.0) * jnp.sum(network.weight**2)
        return jnp.asarray([1.0, 0.5, 2.0, 0.0]) @ energy(v) / 4 - phases.weights @ energy(phases.own) + penalty

    expected, slope = total(network)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    if not isinstance(criterion, FastPersistentDivergence):  # there the fast weights are part of the statistics
        assert_close(found, slope, atol=1e-12)
    np.testing.assert_allclose(phases.weights.sum(), 3.5 / 4, rtol=1e-12)
    np.testing.assert_array_equal(np.unique(phases.own), [0.0, 1.0])
    assert terms["loss"].shape == (4,)


def test_fast_weights_follow_their_recursion(wide):
    network = machine()
    v = jnp.asarray(states(5)[[3, 12, 21, 7]])
    criterion = FastPersistentDivergence(chains=6, fast_rate=0.3, decay=0.9, penalties=())
    memory = begun(criterion, network, v)
    assert_close(memory[1], jax.tree.map(jnp.zeros_like, boltzmann_parameters(network)))
    fast = jax.tree.map(np.zeros_like, memory[1])
    for number in range(3):
        _, terms, gradient = gradient_of(criterion, network, batch_of(v, memory), jr.key(number))
        memory = terms["memory"]
        fast = jax.tree.map(
            lambda old, slope: 0.9 * old - 0.3 * np.asarray(slope), fast, boltzmann_parameters(gradient)
        )
        assert_close(memory[1], fast, atol=1e-14)
        assert memory[0].shape == (6, 3)
    # Chains are driven by the sum: huge fast biases decide them.
    huge = Parameters(fast.weight, fast.hidden_bias, fast.visible_bias + np.array([50.0, -50.0, 50.0, -50.0, 50.0]))
    phases = phases_of(criterion, network, batch_of(v, (memory[0], huge)), jr.key(9))
    np.testing.assert_array_equal(phases.own, np.tile([1.0, 0.0, 1.0, 0.0, 1.0], (6, 1)))


def flipped(parameters, flips):
    """The same machine where flipped visible units call 0 what was 1."""
    sign = 1.0 - 2.0 * flips
    hidden_bias = parameters.hidden_bias + parameters.weight @ flips
    return Parameters(parameters.weight * sign, hidden_bias, parameters.visible_bias * sign)


@pytest.mark.parametrize("enhanced", [False, True])
def test_enhanced_gradient_does_not_mind_flipped_bits(wide, enhanced):
    """One step on the data, and one on flipped data from the flipped machine, lead to the same machine, or do not."""
    network, own = machine(scale=0.5), jnp.asarray(states(5))
    rows, flips = jnp.asarray([3, 12, 21]), jnp.asarray([1.0, 0.0, 1.0, 1.0, 0.0])
    weights = jnp.full(3, 1 / 3)

    def stepped(network, v):
        phases = exact_phases(network, v, own)
        gradient = phase_gradient(v, weights, phases)
        if enhanced:
            visible = 0.5 * (weights @ v + phases.weights @ own)
            hidden = 0.5 * (weights @ network.hidden_mean(v) + phases.weights @ network.hidden_mean(own))
            gradient = enhanced_gradient(gradient, visible, hidden)
        return jax.tree.map(lambda value, slope: value - 0.5 * slope, boltzmann_parameters(network), gradient)

    here = stepped(network, own[rows])
    other = with_parameters(network, flipped(boltzmann_parameters(network), flips))
    there = stepped(other, jnp.abs(own[rows] - flips))
    apart = max(
        float(jnp.max(jnp.abs(a - b)))
        for a, b in zip(*map(jax.tree.leaves, (flipped(here, flips), there)), strict=True)
    )
    assert apart < 1e-14 if enhanced else apart > 0.01


def test_enhanced_switch_uses_the_means_of_both_phases(wide):
    network = machine()
    v = jnp.asarray(states(5)[[3, 12, 21, 7]])
    plain, better = (PersistentDivergence(chains=8, enhanced=which) for which in (False, True))
    memory = begun(plain, network, v)
    batch = batch_of(v, memory, [1.0, 0.5, 2.0, 0.0])
    phases = phases_of(plain, network, batch, jr.key(2))
    w = np.array([1.0, 0.5, 2.0, 0.0]) / 3.5
    data, own = np.asarray(network.hidden_mean(v)), np.asarray(network.hidden_mean(phases.own))

    def covariance(weights, hidden, visible):
        return (hidden * weights[:, None]).T @ visible - np.outer(weights @ hidden, weights @ visible)

    _, _, found = gradient_of(better, network, batch, jr.key(2))
    expected = covariance(np.full(8, 1 / 8), own, np.asarray(phases.own)) - covariance(w, data, np.asarray(v))
    np.testing.assert_allclose(found.weight, 3.5 / 4 * expected, atol=1e-14)


def bars_and_stripes(repeats):
    """3 x 3 pictures whose rows, or whose columns, are all lit or all dark: 14 of 512."""
    patterns = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    rows = np.repeat(patterns[:, :, None], 3, axis=2).reshape(8, 9)
    columns = np.repeat(patterns[:, None, :], 3, axis=1).reshape(8, 9)
    pictures = np.unique(np.concatenate([rows, columns]), axis=0)
    return np.tile(pictures, (repeats, 1)).astype(np.float32), pictures.astype(np.float32)


def trained(criterion, network, v, updates):
    """Plain gradient descent on all pictures at once."""
    memory = criterion.begin(network, v, key=jr.key(1))

    def update(carry, key):
        network, memory = carry
        _, terms, slope = gradient_of(criterion, network, batch_of(v, memory), key)
        moved = jax.tree.map(lambda value, move: value - 0.1 * move, network, slope)
        return (moved, terms["memory"]), None

    return jax.lax.scan(update, (network, memory), jr.split(jr.key(2), updates))[0][0]


@pytest.mark.parametrize("criterion", ALL, ids=lambda one: type(one).__name__)
def test_training_raises_the_exact_likelihood(criterion):
    """Independent units reach -9 log 2 = -6.24 nats a picture, the best possible is -log 14 = -2.64."""
    _, pictures = bars_and_stripes(1)
    network = Rbm(units=8).build((9,), 0, key=jr.key(0))
    before = log_likelihood(network, jnp.asarray(pictures), log_partition(network)).mean()
    network = eqx.filter_jit(trained)(criterion, network, jnp.asarray(pictures), 3000)
    after = log_likelihood(network, jnp.asarray(pictures), log_partition(network)).mean()
    assert before == pytest.approx(-9 * np.log(2), abs=0.02)
    assert after > -4.0  # measured -3.5 by CD, -3.2 by PCD and FPCD


@pytest.mark.slow
def test_fit_learns_a_machine_and_tells_its_pseudo_likelihood():
    rows, pictures = bars_and_stripes(20)
    recipe = dataclasses.replace(
        learner("rbm", 8),
        split=HoldOut(valid=0.1, test=0.1),
        scaler=NoScaling(),
        criterion=PersistentDivergence(),
        batches=Reshuffled(28),
        optimiser=HeavyBall(learning_rate=0.1, momentum=0.5),
        stopping=Off(epochs=150),
    )
    record = gradwise.train(recipe, Dataset(rows, np.zeros((len(rows), 0)), Inputs()), key=jr.key(0))
    network = record.predictor.network
    assert log_likelihood(network, jnp.asarray(pictures), log_partition(network)).mean() > -4.2
    assert (record.task, record.metric) == ("inputs", "pseudo_likelihood")
    exact = -float(pseudo_likelihood(network, jnp.asarray(rows)).mean())
    assert record.metrics["train"]["pseudo_likelihood"] == pytest.approx(exact, rel=0.05)
    assert record.history["valid_score"][-1] < record.history["valid_score"][0]
    features = record.predictor.predict(rows[:5])
    np.testing.assert_allclose(features, network.hidden_mean(jnp.asarray(rows[:5])), rtol=1e-5)


def test_joint_machine_learns_classes_and_its_hybrid_adds_the_conditional(wide):
    kind = LabelledVisible(BinaryVisible(), 2)
    network = LabelRbmNetwork(machine(kind))
    x, y = jnp.asarray(states(3)[[1, 4, 6, 7]]), jnp.asarray([0, 1, 1, 0])
    batch = batch_of(x, weights=[1.0, 0.5, 2.0, 0.0], targets=y)
    value, terms, plain = gradient_of(JointDivergence(), network, batch, jr.key(0))
    hybrid_value, _, hybrid = gradient_of(JointDivergence(discriminative=3.0), network, batch, jr.key(0))

    @jax.jit
    @jax.value_and_grad
    def conditional(network):
        logs = jax.vmap(lambda one, label: jax.nn.log_softmax(network(one))[label])(x, y)
        return -3.0 * jnp.asarray([1.0, 0.5, 2.0, 0.0]) @ logs / 4

    added, slope = conditional(network)
    np.testing.assert_allclose(hybrid_value - value, added, rtol=1e-10)
    assert_close(jax.tree.map(jnp.subtract, hybrid, plain), trainable(slope)[0], atol=1e-12)
    np.testing.assert_array_equal(
        terms["score"], [float(jnp.argmax(network(a)) != b) for a, b in zip(x, y, strict=True)]
    )


@pytest.mark.slow
def test_joint_machine_classifies_digits():
    """Through `fit`; a linear classifier is wrong on about 5 % of these digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    dataset = Dataset(digits.data / 16.0, digits.target, Classes(np.arange(10)))
    recipe = dataclasses.replace(
        learner("rbm", 100),
        split=HoldOut(valid=0.2, test=0.2),
        scaler=NoScaling(),
        model=LabelRbm(units=100),
        criterion=JointDivergence(discriminative=1.0),
        batches=Reshuffled(50),
        optimiser=HeavyBall(learning_rate=0.05, momentum=0.9),
        stopping=Off(epochs=30),
    )
    record = gradwise.train(recipe, dataset, key=jr.key(0))
    assert record.metrics["test"]["error_rate"] < 0.12  # 7 % measured
    # A class can be dreamt: hidden and visible states in turn, the class held, look like that class.
    network = record.predictor.network
    y = jnp.repeat(jnp.arange(10), 20)

    def dream(v, key):
        up, down = jr.split(key)
        h = network.draw_hidden(v, y, key=up)
        return network.draw_visible(h, key=down), network.visible_mean(h)

    start = jnp.full((200, 64), 0.5)
    _, means = jax.jit(lambda keys: jax.lax.scan(dream, start, keys))(jr.split(jr.key(1), 100))
    read = record.predictor.predict(np.asarray(means[-1]))
    assert np.mean(np.argmax(read, axis=1) == y) > 0.7  # 90 % measured


@pytest.mark.parametrize(
    "part",
    [*ALL, PersistentDivergence(chains=20, enhanced=True), JointDivergence(), JointDivergence(ALL[2], 0.5)],
    ids=lambda part: type(part).__name__,
)
def test_contracts(part):
    check_part(part)


def test_refusals():
    with pytest.raises(RequestError, match="inputs and classes together, but the target holds numbers"):
        JointDivergence().check_task(Numbers())
    rows = np.random.default_rng(0).normal(size=(60, 4))
    recipe = dataclasses.replace(learner("rbm", 3), scaler=NoScaling(), model=Rbm(3))
    with pytest.raises(RequestError, match=r"binary visible units take inputs in \[0, 1\].*UnitRange"):
        gradwise.train(recipe, Dataset(rows, np.zeros((60, 0)), Inputs()), key=jr.key(0))
    labelled = Dataset(rows, np.arange(60) % 2, Classes(np.arange(2)))
    recipe = dataclasses.replace(recipe, model=LabelRbm(3), criterion=JointDivergence())
    with pytest.raises(RequestError, match=r"binary visible units take inputs in \[0, 1\]"):
        gradwise.train(recipe, labelled, key=jr.key(0))
