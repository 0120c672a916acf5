"""Convolutional auto-encoders (row A12): the decoder is the transposed encoder, and planted filters are found."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise as gw
from gradwise.models.convolution.auto_encoder import ConvolutionalAutoEncoder
from gradwise.models.convolution.convolutional import Convolutional
from gradwise.reporting.captioned_figures.feature_figures import filter_figures, unpacked
from gradwise.runtime.errors import RequestError

KEY = jr.key(0)


def dense_matrix(linear: Any, size: int) -> np.ndarray:
    """The matrix of a linear map, from what it makes of each unit vector."""
    return np.asarray(jax.jit(jax.vmap(linear))(jnp.eye(size))).T


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((5, 6), {"kernel": 3}),
        ((5, 6, 2), {"kernel": 2, "padding": "valid"}),
        ((6, 5), {"kernel": 3, "stride": 2}),
        ((7,), {"kernel": 3, "stride": 2, "padding": "valid", "dimensions": 1}),
    ],
)
def test_the_decoder_is_the_transpose_of_the_encoder(shape: tuple[int, ...], given: dict[str, Any]) -> None:
    spec = ConvolutionalAutoEncoder(units=3, activation=gw.Identity(), **given)
    network = spec.build(shape, 0, key=KEY)
    size = int(np.prod(shape))
    encoder = dense_matrix(lambda x: network(x.reshape(shape)), size)
    decoder = dense_matrix(network.decode, encoder.shape[0])
    assert encoder.shape[0] == 3 * np.prod(network.places)
    np.testing.assert_allclose(decoder, encoder.T, atol=1e-6)
    biased = eqx.tree_at(lambda one: one.bias, network, jnp.arange(1.0, 1.0 + len(network.bias)))
    channels = shape[-1] if len(shape) > spec.dimensions else 1
    np.testing.assert_allclose(biased.decode(jnp.zeros(encoder.shape[0])).reshape(-1, channels)[0], biased.bias)


def test_filters_of_its_own_decode_as_their_transpose() -> None:
    spec = ConvolutionalAutoEncoder(units=2, kernel=3, tied=False, activation=gw.Identity())
    network = spec.build((4, 4), 0, key=KEY)
    other = eqx.tree_at(lambda one: one.layer.weight, network, network.decoder)
    np.testing.assert_allclose(
        dense_matrix(network.decode, 32), dense_matrix(lambda x: other(x.reshape(4, 4)), 16).T, atol=1e-6
    )


def test_its_layer_is_that_of_a_convolutional_network() -> None:
    """The same filters in a `Convolutional` give the same map, and the pooled shape is that of its pooling."""
    spec = ConvolutionalAutoEncoder(units=3, kernel=3)
    network = spec.build((6, 5), 0, key=KEY)
    whole = Convolutional(channels=(3,), kernel=3, widths=(), dropout=0.0).build((6, 5), 2, key=KEY)
    whole = eqx.tree_at(lambda one: one.convolutions, whole, (network.layer,))
    x = jr.normal(KEY, (6, 5))
    code = np.asarray(network(x)).reshape(6, 5, 3)
    pooled = code[:6, :4].reshape(3, 2, 2, 2, 3).max(axis=(1, 3))
    np.testing.assert_array_equal(whole.features(x), pooled.ravel())
    assert spec.pooled_shape((6, 5)) == pooled.shape
    assert (network.filter_shape, whole.filter_shape) == ((3, 3, 1), (3, 3, 1))


def test_winners_alone_are_kept() -> None:
    network = ConvolutionalAutoEncoder(units=2, kernel=3, winners=2).build((5, 4), 0, key=KEY)
    every = dataclasses.replace(network, winners=1)
    x = jr.normal(KEY, (5, 4))
    found, whole = (np.asarray(one(x)).reshape(5, 4, 2) for one in (network, every))
    for row in range(0, 5, 2):
        for column in range(0, 4, 2):
            place = slice(row, row + 2), slice(column, column + 2)
            largest = whole[place].max(axis=(0, 1))
            np.testing.assert_array_equal(found[place], np.where(whole[place] == largest, whole[place], 0.0))


def planted(count: int, seed: int) -> np.ndarray:
    """Pictures of one stroke each, three pixels across or down, anywhere."""
    draw, pictures = np.random.default_rng(seed), np.zeros((count, 8, 8), np.float32)
    for picture, row, column, across in zip(
        pictures, *draw.integers(0, 6, (2, count)), np.arange(count) % 2, strict=True
    ):
        picture[(row, slice(column, column + 3)) if across else (slice(row, row + 3), column)] = draw.uniform(0.5, 1.0)
    return pictures


@pytest.fixture(scope="module")
def learned() -> Any:
    """Two filters with one answer each for a picture."""
    model = ConvolutionalAutoEncoder(units=2, kernel=3, winners=8)
    criterion = gw.Reconstruction(gw.SquaredError(), judged_by=gw.Clean())
    parts: dict[str, Any] = {"model": model, "criterion": criterion, "optimiser": gw.Adam(0.02)}
    recipe = gw.defaults.features(**parts, scaler=gw.NoScaling(), stopping=gw.Off(epochs=25.0))
    return gw.fit(planted(500, 0), recipe=recipe)


def test_planted_filters_are_found(learned: Any) -> None:
    """Wherever they lie within a filter: one across, the other down."""
    filters = np.asarray(learned.predictor.network.filters).reshape(2, 3, 3)
    unit = filters / np.linalg.norm(filters, axis=(1, 2), keepdims=True)
    across, down = unit.sum(axis=2).max(axis=1) / 3**0.5, unit.sum(axis=1).max(axis=1) / 3**0.5
    assert sorted((across > 0.95).tolist()) == [False, True], (across, down)
    assert ((across > 0.95) ^ (down > 0.95)).all(), (across, down)


def test_its_filters_are_shown_as_pictures(learned: Any) -> None:
    features = learned.record.evidence.features
    assert (features.filters.image, features.image, features.width) == ((3, 3), (8, 8), 64)
    (figure,) = filter_figures(features)
    assert "All 2" in figure.description
    shown = unpacked(features.filters.bytes, 9, -1.0, 1.0)
    filters = np.asarray(learned.predictor.network.filters)[list(features.filters.units)]
    np.testing.assert_allclose(shown, filters / np.abs(filters).max(axis=1, keepdims=True), atol=0.01)
    assert learned.predict(planted(3, 1)).shape == (3, 128)


def test_other_shapes_are_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match=r"`ConvolutionalAutoEncoder` needs pictures .* \(n, 8, 8\).*MlpAutoEncoder"):
        ConvolutionalAutoEncoder().build((64,), 0, key=KEY)
    with pytest.raises(RequestError, match=r"kernel` 5 does not fit"):
        ConvolutionalAutoEncoder(padding="valid").build((4, 9), 0, key=KEY)


def test_gradients_are_those_of_differences() -> None:
    """In 64 bits; the filters are both ways, so both parts of the gradient are there."""
    with jax.enable_x64(True):
        spec = ConvolutionalAutoEncoder(units=2, kernel=2, activation=gw.Sigmoid())
        network = spec.build((3, 3), 0, key=KEY)
        x = jnp.linspace(0.0, 1.0, 9)

        def loss(weight: Any) -> Any:
            one = eqx.tree_at(lambda net: net.layer.weight, network, weight)
            return jnp.sum((one.decode(one(x.reshape(3, 3))) - x) ** 2)

        weight = jnp.asarray(network.layer.weight, jnp.float64)
        slope = np.asarray(jax.grad(loss)(weight)).ravel()
        value = jax.jit(loss)
        steps = 1e-6 * np.eye(weight.size).reshape(weight.size, *weight.shape)
        rises = [float(value(weight + step) - value(weight - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(slope, rises, rtol=1e-5, atol=1e-7)
