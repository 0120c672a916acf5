"""The convolutional network against SciPy, with the batch and beside others."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.signal import correlate

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.convolution.augmentation import Shift
from gradwise.models.convolution.convolutional import Convolutional
from gradwise.models.convolution.network import ConvolutionalNetwork
from gradwise.models.convolution.pooling import MeanPool, NoPool
from gradwise.models.mlp import BatchNorm, LayerNorm, NoNorm
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.runtime import keys
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import trainable
from gradwise.testing.gradients import assert_gradients
from gradwise.training.interval import interval
from gradwise.training.population import Population, enter
from gradwise.training.state import init
from gradwise.training.stopping import Off

RNG = np.random.default_rng(0)
PICTURES = jnp.asarray(RNG.normal(size=(8, 7, 6, 2)), jnp.float32)
TARGETS = jnp.asarray(RNG.integers(0, 3, 8), jnp.int32)


def net(model: Convolutional, example: tuple[int, ...] = (7, 6, 2)) -> ConvolutionalNetwork:
    """The network, every parameter away from its first value."""
    built = eqx.filter_jit(lambda: model.build(example, 3, key=jr.key(0)))()
    parameters, rest = trainable(built)
    leaves, tree = jax.tree.flatten(parameters)
    draw = np.random.default_rng(1)
    leaves = [leaf + jnp.asarray(draw.normal(scale=0.2, size=leaf.shape), jnp.float32) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


def outputs(network: Any, inputs: Any, key: Any = None) -> np.ndarray:
    return np.asarray(eqx.filter_jit(apply_batch)(network, inputs, key))


def maps(layer: Any, h: np.ndarray) -> np.ndarray:
    """A layer of 3 x 3 filters with zeros around its input, by SciPy."""
    filters = np.asarray(layer.weight, np.float64).reshape(len(layer.bias), 3, 3, h.shape[-1])
    found = [sum(correlate(h[..., c], one[..., c], mode="same") for c in range(h.shape[-1])) for one in filters]
    return np.stack(found, axis=-1) + np.asarray(layer.bias)


def test_the_network_equals_scipy() -> None:
    model = Convolutional(channels=(4, 4), repeats=2, residual=True, pooling=MeanPool(), widths=(5,), activation=Tanh())
    network = net(model)
    assert [layer.residual for layer in network.convolutions] == [False, True, True, True]
    wanted = []
    for h in np.asarray(PICTURES, np.float64):
        for number, layer in enumerate(network.convolutions):
            made = np.tanh(maps(layer, h))
            h = h + made if layer.residual else made
            if number % 2:
                h = h[: h.shape[0] // 2 * 2, : h.shape[1] // 2 * 2]
                h = h.reshape(h.shape[0] // 2, 2, h.shape[1] // 2, 2, -1).mean((1, 3))
        (dense,) = network.layers
        units = np.tanh(np.asarray(dense.weight) @ h.ravel() + np.asarray(dense.bias))
        wanted.append(np.asarray(network.output.weight) @ units + np.asarray(network.output.bias))
    np.testing.assert_allclose(outputs(network, PICTURES), wanted, atol=1e-5)


def test_a_channel_may_be_left_out() -> None:
    network = net(Convolutional(channels=(3,), widths=()), (7, 6))
    np.testing.assert_allclose(outputs(network, PICTURES[..., 0]), outputs(network, PICTURES[..., :1]), atol=1e-6)


def test_a_layer_with_batch_normalisation_has_one_mean_and_variance_for_each_filter() -> None:
    network = net(Convolutional(channels=(3,), normalisation=BatchNorm(), pooling=NoPool(), widths=(), dropout=0.0))
    (layer,) = network.convolutions
    a = np.stack([maps(layer, np.asarray(x, np.float64)) for x in PICTURES])
    a = (a - a.mean((0, 1, 2))) / np.sqrt(a.var((0, 1, 2)) + 1e-5)
    h = np.maximum(a * np.asarray(layer.norm.gain) + np.asarray(layer.norm.shift), 0)
    wanted = h.reshape(8, -1) @ np.asarray(network.output.weight).T + np.asarray(network.output.bias)
    np.testing.assert_allclose(outputs(network, PICTURES, jr.key(0)), wanted, atol=1e-4)
    assert network.needs_calibration
    np.testing.assert_allclose(outputs(network.calibrate(PICTURES), PICTURES), wanted, atol=1e-4)


def test_layer_normalisation_is_over_all_places_and_filters() -> None:
    network = net(Convolutional(channels=(3,), normalisation=LayerNorm(), widths=()))
    (layer,) = network.convolutions
    a = maps(layer, np.asarray(PICTURES[0], np.float64))
    wanted = (a - a.mean()) / np.sqrt(a.var() + 1e-5) * np.asarray(layer.norm.gain) + np.asarray(layer.norm.shift)
    np.testing.assert_allclose(layer.norm(layer.linear(PICTURES[0]), training=False), wanted, atol=1e-5)


@pytest.mark.parametrize(("shared", "normalisation"), [(True, BatchNorm()), (False, NoNorm())], ids=["shared", "own"])
def test_gradients_agree_with_finite_differences(shared: bool, normalisation: Any) -> None:
    model = Convolutional(
        channels=(2, 3), shared=shared, normalisation=normalisation, activation=Tanh(), widths=(3,), stride=2
    )

    def loss(network: Any, batch: Any, key: Any) -> Any:
        inputs, targets = batch
        found = jax.nn.log_softmax(apply_batch(network, inputs, key))
        return -jnp.mean(jnp.take_along_axis(found, targets[:, None], axis=1))

    assert_gradients(loss, net(model), (PICTURES, TARGETS))


def test_dropout_is_on_what_the_dense_layers_read() -> None:
    network = net(Convolutional(channels=(3, 4), widths=(5,), dropout=0.4))
    assert [layer.dropout is None for layer in network.convolutions] == [True, False]
    last = eqx.tree_at(lambda layer: layer.bias, network.convolutions[1], jnp.full(4, 50.0))
    read = network.convolutions[0](PICTURES[0], key=None)
    found = np.stack([np.asarray(last(read, key=jr.key(number))).ravel() for number in range(200)])
    kept = np.asarray(last(read, key=None)).ravel() / 0.6
    assert np.all((found == 0) | np.isclose(found, kept))
    assert 0.37 < (found == 0).mean() < 0.43


def test_augmentation_acts_in_training_only() -> None:
    still = Convolutional(channels=(3,), widths=(), dropout=0.0)
    moving = Convolutional(channels=(3,), widths=(), dropout=0.0, augmentation=Shift(1))
    key = jr.key(3)
    assert np.array_equal(outputs(net(still), PICTURES), outputs(net(moving), PICTURES))
    shifted = jax.vmap(lambda x, k: Shift(1)(x, key=keys.named(k, "augmentation")))(PICTURES, jr.split(key, 8))
    wanted = outputs(net(still), shifted)
    np.testing.assert_allclose(outputs(net(moving), PICTURES, key), wanted, atol=1e-5)
    assert not np.allclose(wanted, outputs(net(still), PICTURES), atol=1e-2)
    assert net(still).augmentation is None


@pytest.mark.slow
def test_a_population_trains_as_each_network_would_alone() -> None:
    model = Convolutional(channels=(3, 4), widths=(5,), dropout=0.2, augmentation=Shift(1))
    examples = Examples(PICTURES, TARGETS)

    def recipe(rate: float) -> Any:
        return defaults.classification(
            batches=Fixed(4),
            model=model,
            criterion=Supervised(SoftmaxLoss(), penalties=()),
            optimiser=Adam(rate),
            stopping=Off(epochs=4, spacing=1.0, least_examples=16),
        )

    rates, alone = (0.03, 0.01, 0.003, 0.001), []
    for rate in rates:
        problem, state = init(recipe(rate), examples, examples, outputs=3, key=keys.from_seed(1))
        rows = []
        for _ in range(2):
            state, row = interval(problem, state, 4)
            rows.append(float(row.valid_loss))
        alone.append(rows)
    entries = [enter(recipe(rate), examples, examples, outputs=3, key=keys.from_seed(1)) for rate in rates]
    population = Population(*entries[0], examples, examples, slots=4)
    for slot, entry in enumerate(entries):
        population.fill(slot, *entry)
    together = np.stack([np.asarray(population.interval().valid_loss) for _ in range(2)], axis=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.ptp(together[:, 1]) > 1e-3
