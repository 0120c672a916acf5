"""The gradient against the exact likelihood of machines small enough to list, and training by it."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
from gradwise.criteria.mean_field import MeanFieldDivergence, energy_gap
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.models.deep_boltzmann import DeepBoltzmann, DeepBoltzmannNetwork
from gradwise.models.initial_weights import GaussianWeights
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.training.stopping import Off
from tests.exact_boltzmann import deep_log_likelihood, deep_log_partition

SIZES = (4, 3, 2)


def a_machine(seed, dtype):
    random = np.random.default_rng(seed)
    weights = tuple(jnp.asarray(random.normal(size=(up, down)), dtype) for down, up in itertools.pairwise(SIZES))
    biases = tuple(jnp.asarray(0.5 * random.normal(size=size), dtype) for size in SIZES)
    return DeepBoltzmannNetwork(weights, biases, (1,) * len(SIZES), 10)


def every_state():
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=sum(SIZES))))
    return tuple(np.split(bits, np.cumsum(SIZES)[:-1], axis=1))


@pytest.mark.slow
def test_with_exact_states_the_gradient_is_that_of_the_likelihood():
    """All 512 states by their true shares, in 64 bits. Measured: equal to 7e-16."""
    with jax.enable_x64(True):
        network = a_machine(0, np.float64)
        data = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]])
        states = every_state()
        chance = np.exp(-np.asarray(network.energy(states)))
        posterior = sum(
            np.where((states[0] == v).all(1), chance, 0.0) / chance[(states[0] == v).all(1)].sum() for v in data
        )
        shares = (jnp.asarray(posterior / len(data)), jnp.asarray(chance / chance.sum()))
        found = jax.grad(lambda one: energy_gap(one, states, shares[0], states, shares[1]))(network)
        wanted = jax.grad(lambda one: -jnp.mean(deep_log_likelihood(one, jnp.asarray(data))))(network)
        for ours, exact in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert np.allclose(ours, exact, atol=1e-12)
            assert np.abs(exact).max() > 0.01


def a_batch(inputs, weights, memory):
    present = (np.asarray(weights) > 0).astype(np.float32)
    return Batch(
        jnp.asarray(inputs, jnp.float32),
        jnp.zeros((len(inputs), 0)),
        jnp.asarray(weights, jnp.float32),
        jnp.asarray(present),
        jnp.asarray(100.0),
        memory=memory,
    )


@pytest.mark.slow
def test_its_gradient_is_that_of_the_bound_within_the_chains_noise():
    """20 000 chains of 60 steps: each entry within 5 standard errors (at most 0.5 / sqrt(chains)) of the exact one.

    A slot that is not in use changes nothing: the criterion is then that of the others, by their share.
    """
    network = a_machine(1, np.float32)
    criterion = MeanFieldDivergence(steps=60, chains=20_000, sweeps=30)
    inputs = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]], np.float32)
    memory = criterion.begin(network, jnp.asarray(inputs), key=jr.key(2))
    assert set(np.unique(memory[1])) == {0.0, 1.0}
    grad = eqx.filter_jit(jax.value_and_grad(lambda one, batch: criterion(one, batch, key=jr.key(3)), has_aux=True))
    (_, terms), found = grad(network, a_batch(inputs, np.ones(3), memory))

    def bound(one):
        means = network.mean_field(jnp.asarray(inputs), 30)
        return jnp.mean(one.energy(means)) + deep_log_partition(one)

    wanted = jax.jit(jax.grad(bound))(network)
    for ours, exact in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(ours, exact, atol=5 * 0.5 / 20_000**0.5)
    assert max(np.abs(exact).max() for exact in jax.tree.leaves(wanted)) > 0.2
    assert [leaf.shape for leaf in terms["memory"]] == [leaf.shape for leaf in memory]
    assert terms["loss"].shape == (3,)

    spare = np.concatenate([inputs, 1.0 - inputs[:1]])
    (_, _), fewer = grad(network, a_batch(spare, [1.0, 1.0, 1.0, 0.0], memory))
    for ours, whole in zip(jax.tree.leaves(fewer), jax.tree.leaves(found), strict=True):
        assert np.allclose(ours, 0.75 * whole, atol=1e-4)  # sums over 20 000 chains in 32 bits


def bars(count, seed):
    """Pictures of 2 by 3 in which whole columns are lit, a few pixels flipped: units that must agree."""
    random = np.random.default_rng(seed)
    columns = random.integers(0, 2, (count, 3)).astype(np.float32)
    pixels = np.repeat(columns[:, None], 2, axis=1).reshape(count, 6)
    return np.where(random.random(pixels.shape) < 0.05, 1.0 - pixels, pixels).astype(np.float32)


def a_recipe(**changes):
    parts = {
        "model": DeepBoltzmann((4, 3), initial=GaussianWeights(0.1)),
        "criterion": MeanFieldDivergence(steps=2, chains=50),
        "optimiser": Sgd(learning_rate=0.3),
        "batches": Reshuffled(size=20),
        "scaler": NoScaling(),
        "stopping": Off(epochs=60.0),
    }
    return dataclasses.replace(learner("plain", 3), **{**parts, **changes})


@pytest.mark.slow
def test_training_raises_the_exact_likelihood_and_lowers_the_score_that_chooses():
    """Independent units give -6 log 2 = -4.16 a row at best; the truth itself gives -3.02. Measured: -3.11."""
    data = bars(300, 0)
    record = gradwise.train(a_recipe(), Dataset(data, np.zeros((300, 0)), Inputs()), key=jr.key(0))
    assert record.metric == "pseudo_likelihood"
    network = record.predictor.network
    fresh = jnp.asarray(bars(300, 1))
    spec = DeepBoltzmann((4, 3), initial=GaussianWeights(0.1))
    begun = spec.started(spec.build((6,), 0, key=jr.key(0)), jnp.asarray(data))
    before, reached = (float(jnp.mean(deep_log_likelihood(one, fresh))) for one in (begun, network))
    assert before == pytest.approx(-6 * np.log(2), abs=0.1)
    assert reached > before + 0.7
    measures = eqx.filter_jit(MeanFieldDivergence(asked=6).measures)
    first, last = (float(jnp.mean(measures(one, fresh)["pseudo_likelihood"])) for one in (begun, network))
    assert first == pytest.approx(6 * np.log(2), abs=0.1)
    assert last < 0.65 * first
    assert record.predictor.predict(np.asarray(fresh)).shape == (300, 3)


@pytest.mark.slow
def test_the_pseudo_likelihood_is_exact_for_one_hidden_layer_and_near_for_two():
    """All inputs asked, against enumeration; a probability is taken as a mean of log p at 1 and at 0."""

    def exact(network, v):
        total = 0.0
        for unit in range(v.shape[1]):
            lit, dark = (deep_log_likelihood(network, v.at[:, unit].set(value)) for value in (1.0, 0.0))
            both = jnp.logaddexp(lit, dark)
            total -= v[:, unit] * (lit - both) + (1.0 - v[:, unit]) * (dark - both)
        return total

    v = jnp.asarray([[0.0, 1.0, 1.0, 0.0], [1.0, 0.3, 0.0, 1.0]])
    deep = a_machine(0, np.float32)
    single = DeepBoltzmannNetwork(deep.weights[:1], deep.biases[:2], (1, 1), 10)
    judge = eqx.filter_jit(MeanFieldDivergence(asked=9).pseudo_loss)
    assert np.allclose(judge(single, v), exact(single, v), atol=1e-4)
    gap = np.abs(exact(single, v) - exact(deep, v))  # what the second layer does: 0.03 and 0.08; mean field misses 14 %
    assert np.all(np.abs(judge(deep, v) - exact(deep, v)) < 0.25 * gap)
    # Fewer inputs asked: another estimate of the same mean over many examples (here 4000 equal ones).
    many = jnp.broadcast_to(v[1], (4000, 4))
    some = eqx.filter_jit(MeanFieldDivergence(asked=1).pseudo_loss)(single, many)
    assert float(some.mean()) == pytest.approx(float(exact(single, v)[1]), abs=5 * float(some.std()) / 4000**0.5)


def test_inputs_outside_the_unit_interval_are_refused():
    with pytest.raises(RequestError, match="a deep Boltzmann machine takes inputs in"):
        MeanFieldDivergence().check_inputs(jnp.asarray([[0.2, 1.5]]))
