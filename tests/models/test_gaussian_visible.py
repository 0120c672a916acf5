"""Gaussian visible units of learned precisions, against sums over hidden states and integrals worked out by hand."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp

from gradwise.criteria.contrastive_divergence import ContrastiveDivergence
from gradwise.criteria.penalties import L2
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import HoldOut
from gradwise.evaluation.generative.likelihood import annealed_log_partition, log_partition
from gradwise.models.gaussian_visible import GaussianVisible, PreciseUnits
from gradwise.models.restricted_boltzmann import LabelRbm, Rbm, RbmNetwork
from gradwise.optimisers.first_order.frozen import Frozen
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime import keys
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.training.model_files import load_predictor, save_predictor
from gradwise.training.prepare import split_labelled
from gradwise.training.stopping import Off
from gradwise.training.train import train
from tests.criteria.test_contrastive_divergence import batch_of, gradient_of

LEARNED = GaussianVisible(precisions="learned")


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def machine(size=2, hidden=3, seed=0):
    draw = np.random.default_rng(seed)
    arrays = (draw.normal(size=shape) for shape in ((hidden, size), hidden, size))
    kind = PreciseUnits(jnp.asarray(draw.uniform(-0.7, 1.2, size)))
    return RbmNetwork(*(jnp.asarray(each) for each in arrays), kind)


def by_hand(network):
    """Weights, biases and precisions, and every hidden state."""
    arrays = network.weight, network.hidden_bias, network.visible_bias, jnp.exp(network.visible.log_precision)
    states = np.array(list(itertools.product((0.0, 1.0), repeat=network.weight.shape[0])))
    return (*(np.asarray(each) for each in arrays), states)


def line(count=241, reach=12.0):
    """Points over two visible units, and the area around each: a sum over them is as good as an integral."""
    ends = np.linspace(-reach, reach, count)
    return np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2), (ends[1] - ends[0]) ** 2


def test_the_free_energy_is_the_sum_over_hidden_states_and_z_the_integral(wide):
    network = machine()
    weight, above, below, precision, states = by_hand(network)
    points, area = line()
    quadratic = 0.5 * ((points - below) ** 2 * precision).sum(1)
    minus_energy = -quadratic[:, None] + states @ above + (points * np.sqrt(precision)) @ weight.T @ states.T
    expected = -logsumexp(minus_energy, axis=1)
    np.testing.assert_allclose(jax.vmap(network.free_energy)(jnp.asarray(points)), expected, rtol=1e-10)
    # Analytically: the integral over v of each hidden state's Gaussian.
    u = states @ weight / np.sqrt(precision)
    gauss = 0.5 * (precision * ((below + u) ** 2 - below**2)).sum(1) + 0.5 * np.log(2 * np.pi / precision).sum()
    np.testing.assert_allclose(log_partition(network), logsumexp(states @ above + gauss), rtol=1e-12)
    np.testing.assert_allclose(np.exp(-expected - float(log_partition(network))).sum() * area, 1.0, rtol=1e-9)
    estimate = annealed_log_partition(network, temperatures=300, runs=200, key=jax.random.key(0))
    assert estimate.low <= float(log_partition(network)) <= estimate.high


def test_draws_have_the_mean_and_the_variance_of_their_unit():
    network = machine(3)
    drawn = np.asarray(network.draw_visible(jnp.tile(jnp.asarray([1.0, 0.0, 1.0]), (20_000, 1)), key=jax.random.key(0)))
    weight, _, below, precision, _ = by_hand(network)
    np.testing.assert_allclose(drawn.mean(0), below + (weight[0] + weight[2]) / np.sqrt(precision), atol=0.05)
    np.testing.assert_allclose(drawn.var(0), 1.0 / precision, rtol=0.04)


def test_the_score_is_that_of_score_matching(wide):
    """Half the square of the slope of log p, plus its divergence, both by differentiating the free energy twice."""
    network = machine(4)
    v = jnp.asarray(np.random.default_rng(2).normal(size=(5, 4)))

    def by_definition(one):
        slope = jax.grad(network.free_energy)(one)
        return 0.5 * slope @ slope - jnp.trace(jax.hessian(network.free_energy)(one))

    np.testing.assert_allclose(network.pseudo_loss(v), jax.vmap(by_definition)(v), rtol=1e-9)
    assert ContrastiveDivergence().measured(network)[0] == "score_matching"
    assert ContrastiveDivergence().measured(Rbm(visible=LEARNED))[0] == "score_matching"
    assert ContrastiveDivergence().measured(Rbm())[0] == "pseudo_likelihood"


def test_units_begin_at_the_inverse_variances_and_are_the_first_layer_of_a_perceptron():
    rows = jnp.asarray(np.random.default_rng(3).normal(size=(500, 3)) * [0.5, 1.0, 4.0] + [0.0, 7.0, 1.0])
    model = Rbm(units=4, visible=LEARNED)
    network = model.started(model.build((3,), 0, key=jax.random.key(0)), rows)
    np.testing.assert_allclose(network.visible.precision, 1.0 / np.asarray(rows).var(0), rtol=1e-4)
    (layer,) = network.hidden_layers
    np.testing.assert_allclose(layer(rows[0], key=None), network(rows[0]), rtol=1e-5)
    constant = model.started(network, jnp.ones((5, 3)))
    np.testing.assert_array_equal(constant.visible.precision, 1.0)
    fine = model.started(network, 0.01 * rows)
    np.testing.assert_allclose(fine.visible.precision, 100.0, rtol=1e-5)  # and no further
    joint = LabelRbm(units=4, visible=LEARNED)
    network = joint.started(joint.build((3,), 2, key=jax.random.key(0)), rows)
    np.testing.assert_allclose(network.kind.inputs.precision, 1.0 / np.asarray(rows).var(0), rtol=1e-4)
    joined = network.joined(rows, jnp.asarray([0, 1] * 250))
    scores = jax.vmap(network)(rows)
    energies = jax.vmap(network.joint.free_energy)(joined)
    np.testing.assert_allclose(scores[jnp.arange(500), jnp.asarray([0, 1] * 250)], -energies, rtol=2e-4, atol=1e-3)


def planted(count=4000):
    """Rows of a machine with known variances. Its two hidden units move different inputs, so they are independent, and
    with the biases that make each state equally likely a row is drawn as a fair coin for each unit, then a Gaussian.
    """
    deviations = np.array([0.3, 0.5, 0.8, 1.2, 2.0, 0.4])
    draw = np.random.default_rng(5)
    weight = np.array([[1.0, -1.5, 2.4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, -5.0, 1.2]])
    hidden = draw.integers(0, 2, (count, 2)).astype(float)
    return hidden @ weight + deviations * draw.normal(size=(count, 6)), deviations


RECIPE = dataclasses.replace(
    learner("rbm", 4),
    scaler=NoScaling(),
    split=HoldOut(valid=0.1, test=0.0),
    model=Rbm(units=4, visible=LEARNED),
    criterion=ContrastiveDivergence(penalties=()),
    batches=Reshuffled(size=100),
    optimiser=HeavyBall(learning_rate=0.01, momentum=0.9),
    stopping=Off(epochs=150.0, keep="last"),
)


def test_known_variances_are_recovered():
    """Within a tenth of each deviation, though they differ sevenfold and hidden units move the means by more."""
    rows, deviations = planted()
    assert (rows.std(0) > 1.5 * deviations).all()  # what the inputs vary by is not the answer
    record = train(RECIPE, Dataset(rows, np.zeros((len(rows), 0)), Inputs()), key=jax.random.key(0))
    found = 1.0 / np.sqrt(np.asarray(record.predictor.network.visible.precision))
    np.testing.assert_allclose(found, deviations, rtol=0.1)
    assert record.metric == "score_matching"


def test_the_score_is_reported_with_the_standard_error_of_its_mean_over_examples():
    """Named for what it is, and its interval is 1.96 standard errors of what single test examples score."""
    rows, _ = planted(300)
    data = Dataset(rows, np.zeros((300, 0)), Inputs())
    recipe = dataclasses.replace(RECIPE, split=HoldOut(valid=0.1, test=0.5), stopping=Off(epochs=2.0, keep="last"))
    record = train(recipe, data, key=jax.random.key(0))
    assert set(record.metrics["test"]) == {"score_matching", "reconstruction_error"}
    _, _, test = split_labelled(recipe.split, recipe.criterion, data, key=keys.named(jax.random.key(0), "split"))
    scores = np.asarray(record.predictor.network.pseudo_loss(jnp.asarray(test.inputs, jnp.float32)), float)
    half = 1.959964 * scores.std(ddof=1) / np.sqrt(150)
    assert record.test == pytest.approx(scores.mean(), rel=1e-5)
    assert record.test_interval == pytest.approx((scores.mean() - half, scores.mean() + half), rel=1e-4)


def test_precisions_are_a_group_that_a_pattern_names(tmp_path):
    """With a group of their own they stay as drawn, or move at their own rate; everything else moves as before."""
    rows, _ = planted(300)
    data = Dataset(rows, np.zeros((300, 0)), Inputs())

    def precisions(*groups):
        optimiser = Grouped(Sgd(learning_rate=0.01), groups=groups)
        recipe = dataclasses.replace(RECIPE, optimiser=optimiser, stopping=Off(epochs=2.0, keep="last"))
        return train(recipe, data, key=jax.random.key(0))

    held = precisions(ParameterGroup("*log_precision", Frozen()))
    slow, free = precisions(ParameterGroup("*log_precision", Sgd(learning_rate=0.001))), precisions()
    at = [np.asarray(one.predictor.network.visible.log_precision) for one in (held, slow, free)]
    assert 0 < np.abs(at[1] - at[0]).max() < np.abs(at[2] - at[0]).max()
    save_predictor(free.predictor, tmp_path / "model.safetensors", about={})
    kept = load_predictor(tmp_path / "model.safetensors")[0]
    np.testing.assert_array_equal(kept.network.visible.log_precision, at[2])
    np.testing.assert_array_equal(kept.predict(rows[:5]), free.predictor.predict(rows[:5]))


def test_a_penalty_reaches_the_precisions_by_their_name():
    network, v = machine(3), jnp.zeros((2, 3))
    penalty = L2(4.0, where="*log_precision")
    bare, held = (ContrastiveDivergence(penalties=each) for each in ((), (penalty,)))
    without, with_it = (gradient_of(each, network, batch_of(v), jax.random.key(0))[2] for each in (bare, held))
    moved = np.asarray(with_it.visible.log_precision - without.visible.log_precision)
    assert np.all(np.sign(moved) == np.sign(np.asarray(network.visible.log_precision)))
    np.testing.assert_array_equal(with_it.weight, without.weight)


def test_the_hidden_mean_sees_inputs_by_their_precision():
    network = machine(3)
    weight, above, _, precision, _ = by_hand(network)
    v = np.array([0.2, -1.0, 3.0])
    np.testing.assert_allclose(network(jnp.asarray(v)), expit(weight @ (np.sqrt(precision) * v) + above), rtol=1e-5)
