"""Every state of small machines is listed in NumPy; distributions of chains are held against that list."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.deep_boltzmann import DeepBoltzmann, DeepBoltzmannNetwork
from gradwise.runtime.errors import RequestError
from tests.exact_boltzmann import deep_log_likelihood, deep_log_partition


def a_machine(sizes, seed, dtype=np.float64, scale=1.0, copies=None):
    random = np.random.default_rng(seed)
    weights = tuple(scale * random.normal(size=(up, down)) for down, up in itertools.pairwise(sizes))
    biases = tuple(0.5 * random.normal(size=size) for size in sizes)
    weights, biases = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (weights, biases))
    return DeepBoltzmannNetwork(weights, biases, copies or (1,) * len(sizes), 10)


def every_state(sizes):
    """All states of all layers, and the index of each layer's columns."""
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=sum(sizes))))
    return tuple(np.split(bits, np.cumsum(sizes)[:-1], axis=1))


def energies(network, states):
    total = -sum(state @ np.asarray(bias) for state, bias in zip(states, network.biases, strict=True))
    for weight, (below, above) in zip(network.weights, itertools.pairwise(states), strict=True):
        total = total - np.einsum("na,ab,nb->n", above, np.asarray(weight), below)
    return total


def log_sum(values):
    return np.log(np.sum(np.exp(values - values.max()))) + values.max()


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(RequestError, match="must have 3 numbers"):
        DeepBoltzmann((4, 3), copies=(2, 1))
    with pytest.raises(RequestError, match=r"DeepBoltzmann.widths"):
        DeepBoltzmann((4, 0))


def test_likelihoods_are_those_of_enumeration():
    # Three hidden layers, so that both halves of the layers have more than one: 2^11 states. Measured: 3e-15.
    sizes = (4, 3, 2, 2)
    with jax.enable_x64(True):
        network = a_machine(sizes, 0)
        states = every_state(sizes)
        minus = -energies(network, states)
        assert np.allclose(-np.asarray(network.energy(states)), minus, atol=1e-12)
        assert float(deep_log_partition(network)) == pytest.approx(log_sum(minus), abs=1e-11)
        inputs = np.unique(states[0], axis=0)
        wanted = [log_sum(minus[(states[0] == v).all(1)]) - log_sum(minus) for v in inputs]
        found = np.asarray(deep_log_likelihood(network, jnp.asarray(inputs)))
        assert np.allclose(found, wanted, atol=1e-11)
        assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-11)


def test_mean_field_climbs_a_bound_that_stays_below_the_likelihood():
    sizes = (4, 3, 3)
    with jax.enable_x64(True):
        network = a_machine(sizes, 1)
        climb = eqx.filter_jit(lambda one, v, sweeps: one.bound(one.mean_field(v, sweeps)))
        inputs = jnp.asarray(np.unique(every_state(sizes)[0], axis=0))
        exact = np.asarray(deep_log_likelihood(network, inputs))
        logz = float(deep_log_partition(network))
        bounds = np.array([climb(network, inputs, sweeps) - logz for sweeps in (0, 1, 2, 5, 100)])
        assert (np.diff(bounds, axis=0) >= -1e-12).all()
        assert (bounds[1] - bounds[0]).max() > 0.01
        assert (bounds <= exact + 1e-12).all()
        assert (exact - bounds[-1]).max() > 0.01  # a bound indeed: these weights couple the hidden units
        means = network.mean_field(inputs, 100)
        for layer in (1, 2):  # where it ends every layer is at its mean given the others
            assert np.allclose(means[layer], jax.nn.sigmoid(network.activation(layer, means)), atol=1e-6)
        # Without weights above the posterior is factorial, and one layer is an ordinary machine: no gap.
        loose = eqx.tree_at(lambda one: one.weights[1], network, jnp.zeros((3, 3)))
        for free in (loose, a_machine((4, 3), 2)):
            assert np.allclose(
                climb(free, inputs, 1) - deep_log_partition(free), deep_log_likelihood(free, inputs), atol=1e-12
            )


@pytest.mark.parametrize("copies", [(1, 1, 1), (2, 1, 2)])
def test_gibbs_chains_come_to_the_machines_distribution(copies):
    """30 000 chains of 40 steps: joint frequencies of all layers against enumeration, replicas written out.

    Chi-square of the measured frequencies lies below the 1 - 1e-4 quantile; wrong conditionals exceed it by far.
    """
    from scipy.stats import chi2

    sizes = (3, 2, 2)
    network = a_machine(sizes, 4, np.float32, copies=copies)
    replicas = every_state([size * count for size, count in zip(sizes, copies, strict=True)])
    states = [
        state.reshape(len(state), count, size).mean(1)
        for state, count, size in zip(replicas, copies, sizes, strict=True)
    ]
    written = DeepBoltzmannNetwork(
        tuple(
            np.tile(np.asarray(weight, np.float64), (copies[n + 1], copies[n]))
            for n, weight in enumerate(network.weights)
        ),
        tuple(np.tile(bias, count) for bias, count in zip(network.biases, copies, strict=True)),
        (1, 1, 1),
        10,
    )
    energy = energies(written, replicas)
    assert np.allclose(network.energy(tuple(jnp.asarray(state, jnp.float32) for state in states)), energy, atol=1e-5)
    wanted = np.exp(-energy)
    kinds, place = np.unique(2 * np.concatenate(states, axis=1), axis=0, return_inverse=True)
    wanted = np.bincount(place.ravel(), wanted / wanted.sum())

    @jax.jit
    def walk(v):
        begin = network.begin(v, key=jr.key(0))
        return jax.lax.fori_loop(0, 40, lambda t, here: network.gibbs(here, key=jr.fold_in(jr.key(1), t)), begin)

    chains = 30_000
    found = 2 * np.concatenate(walk(jnp.zeros((chains, 3))), axis=1)
    code = 3 ** np.arange(found.shape[1])
    counts = np.array([(found @ code == kind @ code).sum() for kind in kinds])
    assert counts.sum() == chains
    rare = chains * wanted < 5  # put together: chi-square needs counts
    counts = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(wanted[~rare], wanted[rare].sum())
    statistic = np.sum((counts - chains * wanted) ** 2 / (chains * wanted))
    assert statistic < chi2.ppf(1 - 1e-4, len(counts) - 1)


def test_features_start_from_the_bottom_up_pass_and_biases_from_the_inputs():
    network = a_machine((5, 4, 3), 5, np.float32)
    x = jnp.asarray([0.0, 1.0, 0.3, 0.9, 1.0])
    first = jax.nn.sigmoid(2.0 * network.weights[0] @ x + network.biases[1])
    top = jax.nn.sigmoid(network.weights[1] @ first + network.biases[2])
    layers = network.hidden_layers
    assert np.allclose(layers[1](layers[0](x, key=None), key=None), top, atol=1e-6)
    assert np.allclose(network.bottom_up(x)[2], top, atol=1e-6)
    still = DeepBoltzmannNetwork(network.weights, network.biases, network.copies, 0)
    assert np.allclose(still(x), top, atol=1e-6)
    assert not np.allclose(network(x), top, atol=1e-3)

    spec = DeepBoltzmann((4, 3))
    inputs = jnp.asarray(np.random.default_rng(2).integers(0, 2, (40, 5)), jnp.float32)
    begun = spec.started(spec.build((5,), 0, key=jr.key(0)), inputs)
    assert np.allclose(jax.nn.sigmoid(begun.biases[0]), inputs.mean(0), atol=1e-5)
