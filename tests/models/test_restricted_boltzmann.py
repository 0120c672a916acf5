"""Boltzmann machines against enumeration of all their states, in 64 bits."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import logsumexp

from gradwise.models.gaussian_visible import GaussianVisible
from gradwise.models.restricted_boltzmann import LabelRbm, LabelRbmNetwork, Rbm, RbmNetwork
from gradwise.models.visible_units import BinaryVisible, LabelledVisible, TruncatedExponentialVisible
from gradwise.runtime.errors import RequestError
from gradwise.testing.contracts import check_part
from tests.marks import parametrize_one_quick

KINDS = (BinaryVisible(), GaussianVisible(), TruncatedExponentialVisible(), LabelledVisible(BinaryVisible(), 3))


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def machine(visible, hidden=4, size=6, seed=0):
    random = np.random.default_rng(seed)
    arrays = (random.normal(size=shape) for shape in ((hidden, size), hidden, size))
    return RbmNetwork(*(jnp.asarray(each) for each in arrays), visible)


def some_states(network, count=5):
    draw = jax.vmap(lambda key: network.visible.draw(jnp.zeros_like(network.visible_bias), key=key))
    return draw(jr.split(jr.key(1), count))


def hidden_states(count):
    return np.array(list(itertools.product((0.0, 1.0), repeat=count)))


@parametrize_one_quick("visible", KINDS, ids=lambda kind: type(kind).__name__)
def test_free_energy_sums_over_hidden_states(wide, visible):
    network = machine(visible)
    for v in some_states(network):
        h = hidden_states(4)
        energies = float(visible.energy(v, network.visible_bias)) - h @ network.hidden_bias - h @ network.weight @ v
        np.testing.assert_allclose(network.free_energy(v), -logsumexp(-np.asarray(energies)), rtol=1e-12)


def conditional_losses(network, v):
    """-log p(v_i | rest) of binary units, from free energies alone, in NumPy."""
    weight, hidden_bias, bias = (np.asarray(each) for each in jax.tree.leaves(network))
    losses = []
    for place in range(v.shape[0]):
        states = np.stack([v, v])
        states[:, place] = (0.0, 1.0)
        logs = states @ bias + np.logaddexp(0.0, states @ weight.T + hidden_bias).sum(1)
        logs -= logsumexp(logs)
        losses.append(-(v[place] * logs[1] + (1.0 - v[place]) * logs[0]))
    return np.array(losses)


@eqx.filter_jit
def pseudo_loss(network, v, units=None, turn=0):
    return network.pseudo_loss(v, units=units, turn=turn)


def test_pseudo_likelihood_of_binary_units(wide):
    network = machine(BinaryVisible(), size=8)
    v = np.random.default_rng(2).uniform(size=(6, 8))
    v[:4] = v[:4] < 0.5  # states, and probabilities
    exact = np.stack([conditional_losses(network, one) for one in v])
    np.testing.assert_allclose(pseudo_loss(network, jnp.asarray(v)), exact.sum(1), rtol=1e-12)
    turns = jnp.arange(8, dtype=jnp.uint32) << 29  # each shifts the unit that is looked at by one
    told = jnp.stack([pseudo_loss(network, jnp.asarray(v), 1, turn) for turn in turns])
    np.testing.assert_allclose(np.sort(told, axis=0), np.sort(8.0 * exact.T, axis=0), rtol=1e-10)
    pairs = jnp.stack([pseudo_loss(network, jnp.asarray(v), 2, turn) for turn in turns])
    np.testing.assert_allclose(np.mean(pairs, axis=0), exact.sum(1), rtol=1e-10)


def test_pseudo_likelihood_of_labels(wide):
    network = machine(LabelledVisible(BinaryVisible(), 3))
    v = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    weight, hidden_bias, bias = (np.asarray(each) for each in jax.tree.leaves(network))
    states = np.concatenate([np.tile(v[:3], (3, 1)), np.eye(3)], axis=1)
    scores = states @ bias + np.logaddexp(0.0, states @ weight.T + hidden_bias).sum(1)
    exact = logsumexp(scores) - scores[1] + conditional_losses(network, v)[:3].sum()
    np.testing.assert_allclose(pseudo_loss(network, jnp.asarray(v[None])), [exact], rtol=1e-12)


def test_score_of_gaussian_units_is_score_matching(wide):
    network = machine(GaussianVisible())
    v = some_states(network)

    def matching(one):
        slope = jax.grad(lambda at: -network.free_energy(at))
        return 0.5 * jnp.sum(slope(one) ** 2) + jnp.trace(jax.jacfwd(slope)(one))

    np.testing.assert_allclose(pseudo_loss(network, v), jax.jit(jax.vmap(matching))(v), rtol=1e-12)


def test_score_of_units_in_an_interval_is_score_matching_without_terms_at_its_borders(wide):
    network = machine(TruncatedExponentialVisible())
    v = some_states(network)
    slope = slope_of(network)

    def matching(one):
        inside = one * (1.0 - one)
        field = lambda at: at * (1.0 - at) * slope(at)  # noqa: E731
        return jnp.trace(jax.jacfwd(field)(one)) + 0.5 * inside @ slope(one) ** 2

    np.testing.assert_allclose(pseudo_loss(network, v), jax.jit(jax.vmap(matching))(v), rtol=1e-12)
    # Under the machine's own density its mean is minus half the weighed square: no machine can have less there.
    network = machine(TruncatedExponentialVisible(), size=2)
    points, weights = np.polynomial.legendre.leggauss(40)
    line, weights = (points + 1.0) / 2.0, weights / 2.0
    grid = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))
    mass = np.exp(-jax.vmap(network.free_energy)(grid)) * np.outer(weights, weights).ravel()
    mass /= mass.sum()
    square = jnp.sum(grid * (1.0 - grid) * jax.vmap(slope_of(network))(grid) ** 2, axis=1)
    np.testing.assert_allclose(mass @ pseudo_loss(network, grid), -0.5 * mass @ np.asarray(square), rtol=1e-10)


def slope_of(network):
    return jax.grad(lambda at: -network.free_energy(at))


def test_label_machine_scores_classes(wide):
    network = LabelRbmNetwork(machine(LabelledVisible(BinaryVisible(), 3)))
    x = jnp.asarray([1.0, 0.0, 1.0])
    joined = network.joined(jnp.tile(x, (3, 1)), jnp.arange(3))
    np.testing.assert_allclose(network(x), -jax.vmap(network.joint.free_energy)(joined), rtol=1e-12)
    # p(y | x) by going through all hidden states of the joint machine
    h, joint = hidden_states(4), network.joint
    powers = [
        logsumexp(np.asarray(joint.visible_bias @ v + h @ joint.hidden_bias + h @ joint.weight @ v)) for v in joined
    ]
    np.testing.assert_allclose(jax.nn.log_softmax(network(x)), powers - logsumexp(powers), rtol=1e-10)


@pytest.mark.slow
def test_label_machine_draws_from_its_conditionals():
    network = LabelRbmNetwork(machine(LabelledVisible(BinaryVisible(), 3)))
    h = jnp.tile(jnp.asarray([1.0, 0.0, 1.0, 1.0], jnp.float32), (20_000, 1))
    means = network.joint.visible_mean(h[0])
    near = 4 * 0.5 / np.sqrt(20_000)
    np.testing.assert_allclose(network.draw_visible(h, key=jr.key(0)).mean(0), means[:3], atol=near)
    drawn = network.draw_label(h, key=jr.key(1))
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, means[3:], atol=near)
    states = network.joint.draw_visible(h, key=jr.key(2))
    np.testing.assert_allclose(states.mean(0), means, atol=near)
    np.testing.assert_array_equal(states[:, 3:].sum(1), 1.0)
    x, y = jnp.ones((20_000, 3)), jnp.full(20_000, 2)
    expected = jax.nn.sigmoid(network.joint.hidden_activation(jnp.asarray([1.0, 1.0, 1.0, 0.0, 0.0, 1.0])))
    np.testing.assert_allclose(network.draw_hidden(x, y, key=jr.key(3)).mean(0), expected, atol=near)


def test_visible_biases_begin_at_the_log_odds():
    inputs = jnp.asarray([[1.0, 0.0, 0.25], [1.0, 0.0, 0.75], [0.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
    expected = [np.log(3.0), np.log(0.01 / 0.99), 0.0]  # a unit that is never 1 is held at 1 in 100
    network = Rbm(units=2).build((3,), 0, key=jr.key(0))
    np.testing.assert_allclose(Rbm(units=2).started(network, inputs).visible_bias, expected, rtol=1e-5, atol=1e-6)
    kind = Rbm(units=2, visible=GaussianVisible())
    network = kind.build((3,), 0, key=jr.key(0))
    np.testing.assert_allclose(kind.started(network, inputs).visible_bias, [0.75, 0.0, 0.5], rtol=1e-6)
    both = LabelRbm(units=2).started(LabelRbm(units=2).build((3,), 2, key=jr.key(0)), inputs)
    np.testing.assert_allclose(both.joint.visible_bias, [*expected, 0.0, 0.0], rtol=1e-5, atol=1e-6)


def test_hidden_layer_gives_the_hidden_means():
    network = Rbm(units=5).build((2, 3), 0, key=jr.key(0))
    network = eqx.tree_at(lambda one: one.weight, network, 100.0 * network.weight)
    x = jr.uniform(jr.key(1), (2, 3))
    (layer,) = network.hidden_layers
    np.testing.assert_allclose(layer(x.ravel(), key=None), network(x), rtol=1e-6)
    np.testing.assert_allclose(network(x), 1 / (1 + np.exp(-(network.weight @ x.ravel()))), rtol=1e-5)


@pytest.mark.parametrize("part", [Rbm(units=3), LabelRbm(units=4)], ids=lambda part: type(part).__name__)
def test_contracts(part):
    check_part(part)


def test_inputs_that_binary_units_cannot_mean_are_refused():
    for model in (Rbm(), LabelRbm()):
        model.check_inputs(jnp.asarray([[0.0, 1.0]]))
        with pytest.raises(RequestError, match=r"inputs in \[0, 1\].*\[-1, 2\].*UnitRange"):
            model.check_inputs(jnp.asarray([[-1.0, 2.0]]))
    Rbm(visible=GaussianVisible()).check_inputs(jnp.asarray([[-1.0, 2.0]]))
