"""Chains against enumerated distributions, known stationary variances, and covariances derived by hand."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.corruption import GaussianNoise
from gradwise.evaluation.generative.sampling import (
    DrawGaussian,
    deep_gibbs,
    draw_binary,
    gibbs,
    gibbs_of_class,
    rates_fpcd,
    rates_of,
    tangent_step,
    tangent_walk,
    walk_back,
)
from gradwise.models.deep_boltzmann import DeepBoltzmannNetwork
from gradwise.models.initial_weights import GaussianWeights as Normal
from gradwise.models.restricted_boltzmann import LabelRbm, RbmNetwork
from gradwise.models.visible_units import BinaryVisible
from gradwise.runtime.errors import RequestError
from tests.exact_boltzmann import deep_log_likelihood

CHAINS = 20_000
EVERY = np.array(list(itertools.product((0.0, 1.0), repeat=4)), np.float32)


def an_rbm(seed, visible=4, hidden=3, scale=1.0):
    random = np.random.default_rng(seed)
    weight = scale * random.normal(size=(hidden, visible))
    biases = 0.5 * random.normal(size=hidden), 0.5 * random.normal(size=visible)
    return RbmNetwork(*(jnp.asarray(leaf, jnp.float32) for leaf in (weight, *biases)), BinaryVisible())


def free_energies(rbm, inputs):
    return np.array([float(rbm.free_energy(jnp.asarray(v))) for v in inputs])


def refuse_other_distribution(drawn, wanted):
    """Chi-square over the 16 states of 4 units below its 1 - 1e-4 quantile, and the total variation as small."""
    from scipy.stats import chi2

    drawn = np.asarray(drawn)
    assert set(np.unique(drawn)) <= {0.0, 1.0}
    counts = np.bincount((drawn @ (8, 4, 2, 1)).astype(int), minlength=16)
    wanted = np.asarray(wanted, np.float64) / np.sum(wanted)
    statistic = np.sum((counts - len(drawn) * wanted) ** 2 / (len(drawn) * wanted))
    assert statistic < chi2.ppf(1 - 1e-4, 15)
    assert 0.5 * np.abs(counts / len(drawn) - wanted).sum() < 2 * np.sqrt(16 / len(drawn))


def test_gibbs_gives_the_machines_distribution():
    rbm = an_rbm(0)
    found = gibbs(rbm, np.zeros((CHAINS, 4)), 30, key=jr.key(0), kept=2)
    assert found.samples.shape == found.means.shape == (2, CHAINS, 4)
    wanted = np.exp(-free_energies(rbm, EVERY))
    for kept in found.samples:
        refuse_other_distribution(kept, wanted)
    # The means are those the samples were drawn from: both average to the model's.
    exact = wanted @ EVERY / wanted.sum()
    assert np.allclose(found.means[-1].mean(0), exact, atol=5 * 0.5 / CHAINS**0.5)
    assert not np.array_equal(found.samples[0], found.samples[1])
    with pytest.raises(RequestError, match="at least 1"):
        gibbs(rbm, np.zeros((1, 4)), 0, key=jr.key(0))


def test_with_its_label_held_a_joint_model_gives_one_class():
    """Drawing h from inputs and class, and only the inputs from h, samples p(v | y), here for each of two classes."""
    joint = LabelRbm(units=3, initial=Normal(1.5)).build((4,), 2, key=jr.key(0))
    labels = np.repeat([0, 1], CHAINS)
    found = gibbs_of_class(joint, labels, np.zeros((2 * CHAINS, 4)), 40, key=jr.key(1))
    chances = np.exp([np.asarray(joint(jnp.asarray(v))) for v in EVERY])  # of each input with each class
    for label in (0, 1):
        refuse_other_distribution(found.samples[0][labels == label], chances[:, label])
    gap = np.abs(chances[:, 0] / chances[:, 0].sum() - chances[:, 1] / chances[:, 1].sum()).sum()
    assert gap > 0.2  # the classes differ by far more than the chains may


def test_a_deep_boltzmann_machine_gives_its_marginal():
    random = np.random.default_rng(2)
    weights = tuple(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((3, 4), (2, 3)))
    biases = tuple(jnp.asarray(0.5 * random.normal(size=size), jnp.float32) for size in (4, 3, 2))
    machine = DeepBoltzmannNetwork(weights, biases, (1, 1, 1), 10)
    found = deep_gibbs(machine, np.ones((CHAINS, 4)), 40, key=jr.key(2))
    wanted = np.exp(np.asarray(deep_log_likelihood(machine, jnp.asarray(EVERY))))
    refuse_other_distribution(found.samples[0], wanted)
    assert np.allclose(found.means[0].mean(0), wanted @ EVERY, atol=5 * 0.5 / CHAINS**0.5)


def test_rates_fpcd_moves_only_fast_weights_and_by_the_rule():
    rbm = an_rbm(3)
    data = (np.random.default_rng(4).random((5000, 4)) < [0.8, 0.5, 0.3, 0.9]).astype(np.float32)
    rates = rates_of(rbm, data)
    hidden = 1 / (1 + np.exp(-(data @ np.asarray(rbm.weight).T + np.asarray(rbm.hidden_bias))))
    for ours, direct in zip(rates, (data.mean(0), hidden.mean(0), hidden.T @ data / len(data)), strict=True):
        assert np.allclose(ours, direct, atol=1e-5)

    start = np.zeros((20, 4))
    plain = gibbs(rbm, start, 5, key=jr.key(5), kept=3)
    still, fast = rates_fpcd(rbm, rates, start, 5, key=jr.key(5), kept=3, fast_rate=0.0)
    assert np.array_equal(plain.samples, still.samples)  # without fast weights it is Gibbs sampling, draw by draw
    assert not any(np.any(leaf) for leaf in fast)

    # Without decay the fast biases are the summed differences, so the chains' long average must come to the rates,
    # although the machine's own average is far from them.
    steps, rate = 3000, 0.02
    found, fast = rates_fpcd(rbm, rates, start, 1, key=jr.key(6), kept=steps, fast_rate=rate, decay=1.0)
    shown = np.asarray(found.samples, np.float64).mean(1)
    assert np.allclose(fast.visible, rate * (np.asarray(rates.visible) - shown).sum(0), atol=1e-3)
    assert np.allclose(shown[steps // 3 :].mean(0), rates.visible, atol=0.02)  # once the fast biases have settled
    wanted = np.exp(-free_energies(rbm, EVERY))
    assert np.abs(wanted @ EVERY / wanted.sum() - np.asarray(rates.visible)).max() > 0.2
    # With decay, two steps by hand: W_fast <- decay W_fast + fast_rate (rates - shown).
    two, fast = rates_fpcd(rbm, rates, start, 1, key=jr.key(7), kept=2, fast_rate=0.1, decay=0.9)
    gaps = np.asarray(rates.visible) - np.asarray(two.samples).mean(1)
    assert np.allclose(fast.visible, 0.1 * (0.9 * gaps[0] + gaps[1]), atol=1e-6)


class Linear(eqx.Module):
    """x -> encode x, and back: a linear auto-encoder."""

    encode: jax.Array
    back: jax.Array

    def __call__(self, x, *, key=None):
        return self.encode @ x

    def decode(self, code):
        return self.back @ code


def test_walk_back_with_the_best_reconstruction_keeps_the_datas_covariance():
    """Data N(0, S), noise N(0, s^2 I): the best reconstruction is A x~ with A = S (S + s^2 I)^-1, and the clean input
    is spread around it with P = S - A S. The chain x' = A (x + s e) + P^(1/2) e' has the stationary covariance V with
    V = A (V + s^2 I) A' + P, which V = S solves: A (S + s^2 I) A' + P = S A' + S - A S = S. Without the draw it is
    less. Sampling error of a variance: sqrt(2 / chains) of it."""
    covariance = np.array([[2.0, 0.8], [0.8, 0.5]])
    noise = 0.7
    best = covariance @ np.linalg.inv(covariance + noise**2 * np.eye(2))
    root = jnp.asarray(np.linalg.cholesky(covariance - best @ covariance), jnp.float32)
    network = Linear(jnp.eye(2), jnp.asarray(best, jnp.float32))

    def spread(mean, *, key):
        return mean + jr.normal(key, mean.shape) @ root.T

    def chain(draw):
        found = walk_back(
            network, GaussianNoise(noise), lambda output: output, np.zeros((CHAINS, 2)), 60, key=jr.key(8), draw=draw
        )
        return np.cov(np.asarray(found.samples[0]).T)

    assert np.allclose(chain(spread), covariance, atol=5 * 2.0 * np.sqrt(2 / CHAINS))
    less = chain(DrawGaussian(0.0))
    wanted = np.zeros((2, 2))
    for _ in range(200):
        wanted = best @ (wanted + noise**2 * np.eye(2)) @ best.T
    assert np.allclose(less, wanted, atol=5 * wanted.max() * np.sqrt(2 / CHAINS))
    assert wanted[0, 0] < 0.9 * covariance[0, 0]
    # The other draws: a deviation as given, and coins by the reconstruction.
    spread_by = DrawGaussian(0.5)(jnp.full((CHAINS,), 3.0), key=jr.key(9))
    assert np.std(spread_by) == pytest.approx(0.5, rel=0.03)
    assert np.mean(draw_binary(jnp.full((CHAINS,), 0.3), key=jr.key(9))) == pytest.approx(0.3, abs=0.02)


def test_a_tangent_step_has_the_derived_covariance():
    """h + J J'e with e ~ N(0, s^2 I) has mean h and covariance s^2 (J J')(J J')'; J here is that of tanh units."""
    random = np.random.default_rng(10)
    weight = jnp.asarray(random.normal(size=(3, 4)), jnp.float32)

    def encode(x):
        return jnp.tanh(weight @ x)

    x = jnp.asarray([0.3, -0.2, 0.1, 0.4])
    codes = jax.vmap(lambda key: tangent_step(encode, x, 0.2, key=key))(jr.split(jr.key(11), CHAINS))
    jacobian = np.asarray(jax.jacobian(encode)(x), np.float64)
    wanted = 0.2**2 * np.linalg.matrix_power(jacobian @ jacobian.T, 2)
    scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.all(np.abs(np.cov(np.asarray(codes).T) - wanted) < 5 * np.sqrt(2 / CHAINS) * scale)
    assert np.all(np.abs(codes.mean(0) - encode(x)) < 5 * np.sqrt(np.diag(wanted) / CHAINS))

    # A linear chain: x' = B (A x + A A'e), so V = BA V (BA)' + s^2 B (AA')^2 B', summed up here step by step.
    network = Linear(0.4 * weight, 0.3 * weight.T)
    up, back = np.asarray(network.encode, np.float64), np.asarray(network.back, np.float64)
    found = tangent_walk(network, lambda output: output, np.zeros((CHAINS, 4)), 8, 0.5, key=jr.key(12))
    spread = np.zeros((4, 4))
    for _ in range(8):
        spread = back @ (up @ spread @ up.T + 0.25 * np.linalg.matrix_power(up @ up.T, 2)) @ back.T
    assert np.allclose(np.cov(np.asarray(found.samples[0]).T), spread, atol=5 * np.sqrt(2 / CHAINS) * spread.max())
    assert np.array_equal(found.means, found.samples)
