"""Partition functions: exact ones against all pairs of states, estimated ones against exact ones."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import logsumexp

from gradwise.evaluation.generative.likelihood import (
    annealed_log_partition,
    log_likelihood,
    log_partition,
    pseudo_likelihood,
)
from gradwise.models.gaussian_visible import GaussianVisible
from gradwise.models.restricted_boltzmann import Rbm, RbmNetwork
from gradwise.models.visible_units import BinaryVisible, LabelledVisible, TruncatedExponentialVisible
from gradwise.runtime.errors import RequestError


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def machine(visible, hidden, size, scale=1.0, seed=0):
    random = np.random.default_rng(seed)
    weight, hidden_bias, bias = (
        jnp.asarray(scale * random.normal(size=shape)) for shape in ((hidden, size), hidden, size)
    )
    return RbmNetwork(weight, hidden_bias, bias, visible)


def states(count):
    return np.array(list(itertools.product((0.0, 1.0), repeat=count)))


@pytest.mark.parametrize(("hidden", "size"), [(3, 7), (7, 3)])
def test_log_partition_is_the_sum_over_all_states(hidden, size):
    network = machine(BinaryVisible(), hidden, size)
    v, h = states(size), states(hidden)
    terms = (v @ network.visible_bias)[None] + (h @ network.hidden_bias)[:, None] + h @ network.weight @ v.T
    exact = logsumexp(np.asarray(terms))
    np.testing.assert_allclose(log_partition(network), exact, rtol=1e-12)
    logs = log_likelihood(network, jnp.asarray(v), exact)
    np.testing.assert_allclose(logsumexp(np.asarray(logs)), 0.0, atol=1e-12)


def test_log_partition_of_labels_is_the_same_from_either_side():
    kind = LabelledVisible(BinaryVisible(), 3)
    network = machine(kind, 11, 7)  # 48 visible states, 2048 hidden ones
    inside = jax.vmap(lambda h: kind.log_normaliser(network.visible_activation(h), network.visible_bias))
    h = jnp.asarray(states(11))
    np.testing.assert_allclose(log_partition(network), logsumexp(h @ network.hidden_bias + inside(h)), rtol=1e-12)


def test_log_partition_of_gaussian_units_is_the_integral():
    network = machine(GaussianVisible(), 3, 2)
    line = np.linspace(-14.0, 14.0, 281)
    grid = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))
    logs = log_likelihood(network, grid, log_partition(network))
    np.testing.assert_allclose(np.exp(logs).sum() * (line[1] - line[0]) ** 2, 1.0, rtol=1e-9)


def test_log_partition_of_units_in_an_interval_is_the_integral():
    network = machine(TruncatedExponentialVisible(), 3, 2)
    points, weights = np.polynomial.legendre.leggauss(40)
    line = (points + 1.0) / 2.0
    grid = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))
    logs = log_likelihood(network, grid, log_partition(network))
    np.testing.assert_allclose(np.exp(logs) @ np.outer(weights, weights).ravel() / 4.0, 1.0, rtol=1e-9)


@pytest.mark.parametrize("visible", [BinaryVisible(), GaussianVisible()], ids=["binary", "gaussian"])
def test_annealing_finds_log_z_within_its_error_bar(visible):
    network = machine(visible, 8, 12, scale=0.7 if isinstance(visible, BinaryVisible) else 0.4)
    exact = float(log_partition(network))
    found = annealed_log_partition(network, jnp.zeros(12), temperatures=200, runs=200, key=jr.key(0))
    assert found.low < exact < found.high
    assert found.high - found.low < 0.5  # an interval that says something; 0.09 and 0.18 measured
    np.testing.assert_allclose(found.log_z, logsumexp(found.log_weights) - np.log(200), rtol=1e-12)


def test_annealing_errs_low_on_average_and_its_mean_weight_does_not():
    """1000 estimates of 4 runs over 20 temperatures: too few by design, so that the error shows."""
    network = machine(BinaryVisible(), 8, 12, scale=0.9)
    exact = float(log_partition(network))
    weights = annealed_log_partition(network, jnp.zeros(12), temperatures=20, runs=4000, key=jr.key(1)).log_weights
    estimates = logsumexp(weights.reshape(1000, 4), axis=1) - np.log(4)
    error = estimates.std() / np.sqrt(len(estimates))
    assert estimates.mean() + 5 * error < exact
    ratios = np.exp(weights - exact)  # right on average
    assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / np.sqrt(len(ratios))


def test_without_weights_annealing_is_exact_at_once():
    network = machine(BinaryVisible(), 3, 5)
    network = RbmNetwork(0.0 * network.weight, network.hidden_bias, network.visible_bias, network.visible)
    found = annealed_log_partition(network, temperatures=2, runs=3, key=jr.key(0))
    np.testing.assert_allclose(found.log_z, log_partition(network), rtol=1e-12)


def test_pseudo_likelihood_of_independent_units_is_the_likelihood():
    network = machine(BinaryVisible(), 3, 5)
    network = RbmNetwork(0.0 * network.weight, network.hidden_bias, network.visible_bias, network.visible)
    v = jnp.asarray(states(5))
    exact = log_likelihood(network, v, log_partition(network))
    np.testing.assert_allclose(pseudo_likelihood(network, v), exact, rtol=1e-12)


def test_pseudo_likelihood_is_the_sum_of_conditionals():
    network = machine(BinaryVisible(), 4, 5)
    v = states(5)
    joint = np.asarray(log_likelihood(network, jnp.asarray(v), 0.0)).reshape([2] * 5)
    exact = sum(joint - logsumexp(joint, axis=axis, keepdims=True) for axis in range(5))
    np.testing.assert_allclose(pseudo_likelihood(network, jnp.asarray(v)), exact.ravel(), rtol=1e-12)


def test_refusals():
    large = Rbm(units=30).build((40,), 0, key=jr.key(0))
    with pytest.raises(RequestError, match=r"hidden units, the smaller side, have 2\*\*30.*annealed_log_partition"):
        log_partition(large)
    with pytest.raises(RequestError, match="at least 2"):
        annealed_log_partition(large, runs=1, key=jr.key(0))
    with pytest.raises(RequestError, match="rise from 0 to 1"):
        annealed_log_partition(large, temperatures=(0.0, 0.5), key=jr.key(0))
