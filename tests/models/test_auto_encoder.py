"""Auto-encoders (row A3): shapes, tied weights, and principal components as the yardstick."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from gradwise import train
from gradwise.criteria.reconstruction import CrossEntropy, Reconstruction, SquaredError, SquaredSigmoid
from gradwise.data.reading import named_sets
from gradwise.data.scaling import NoScaling as Unscaled
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Identity, Rectifier, Sigmoid, Tanh
from gradwise.models.auto_encoder import AutoEncoderNetwork, MlpAutoEncoder
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.specs.paths import named_leaves
from gradwise.testing.spec_contracts import check_spec
from gradwise.training.stopping import Off

CODE = 8


def reconstruct(network: AutoEncoderNetwork, inputs: Any) -> Any:
    return jax.vmap(lambda x: network.decode(network(x)))(inputs)


def squared_error(recipe: Any, rows: np.ndarray, epochs: int) -> float:
    """The squared error of a trained auto-encoder's reconstructions, summed over an example, over all rows."""
    recipe = replace(
        recipe,
        scaler=Unscaled(),
        split=HoldOut(valid=0.02, test=0.0),
        stopping=Off(epochs=float(epochs), least_examples=len(rows) * epochs),
    )
    record = train(recipe, Dataset(rows, np.zeros((len(rows), 0)), Inputs()), key=jr.key(0))
    network, decode = record.predictor.network, recipe.criterion.decode
    again = eqx.filter_jit(jax.vmap(lambda x: decode(network, network(x))))(jnp.asarray(rows, jnp.float32))
    return float(np.mean(np.sum((np.asarray(again) - rows) ** 2, axis=1)))


def principal(rows: np.ndarray, count: int) -> float:
    """The same of the best affine map through so many numbers: no linear auto-encoder can be below it."""
    found = PCA(count).fit(rows)
    return float(np.mean(np.sum((found.inverse_transform(found.transform(rows)) - rows) ** 2, axis=1)))


def recipe_of(loss: Any, rate: float, widths: tuple[int, ...] = (CODE,), **more: Any) -> Any:
    model = MlpAutoEncoder(widths=widths, **{"activation": Identity(), **more})
    return replace(
        learner("plain", CODE), model=model, criterion=Reconstruction(loss), optimiser=Adam(learning_rate=rate)
    )


@pytest.mark.slow
def test_against_principal_components_on_digits() -> None:
    """Code of 8. Measured: components 1.530, linear 1.566 tied and 1.561 not, sigmoid outputs 1.32, deeper 0.74."""
    rows = load_digits().data / 16.0
    least = principal(rows, CODE)
    for tied in (True, False):
        linear = squared_error(recipe_of(SquaredError(), 0.005, tied=tied), rows, 100)
        assert least * 0.9999 <= linear < 1.04 * least
    assert squared_error(recipe_of(SquaredSigmoid(), 0.01, tied=False), rows, 60) < 0.9 * least
    deep = recipe_of(SquaredSigmoid(), 0.005, (64, CODE), activation=Tanh(), code_activation=Identity(), tied=False)
    assert squared_error(deep, rows, 60) < 0.6 * least


@pytest.mark.slow
def test_against_principal_components_on_mnist(data_folder: Path) -> None:
    loaded = named_sets.load_named("mnist")
    assert loaded.arrays is not None
    rows = np.asarray(loaded.arrays["X"][:2000], np.float32).reshape(-1, 784) / 255.0
    least = principal(rows, CODE)
    linear = squared_error(recipe_of(SquaredError(), 0.002), rows, 40)
    assert least * 0.9999 <= linear < 1.05 * least
    deep = recipe_of(CrossEntropy(), 0.003, (128, CODE), activation=Rectifier(), code_activation=Identity(), tied=False)
    assert squared_error(deep, rows, 20) < 0.95 * least


@pytest.mark.parametrize("widths", [(5,), (6, 4, 2)])
@pytest.mark.parametrize("tied", [True, False])
def test_there_and_back_by_hand(widths: tuple[int, ...], tied: bool) -> None:
    """In NumPy: f on the way up, a code activation of its own, f on the way back, a linear output."""
    model = MlpAutoEncoder(widths=widths, activation=Tanh(), code_activation=Sigmoid(), tied=tied)
    network = model.build((2, 4), 0, key=jr.key(0))
    network = jax.tree.map(lambda leaf: leaf + 0.1 if isinstance(leaf, jax.Array) else leaf, network)
    x = np.random.default_rng(0).uniform(size=(3, 2, 4)).astype(np.float32)
    h = x.reshape(3, 8)
    for number, layer in enumerate(network.encoder):
        a = h @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        h = 1 / (1 + np.exp(-a)) if number == len(widths) - 1 else np.tanh(a)
    np.testing.assert_allclose(jax.vmap(lambda one: network(one))(jnp.asarray(x)), h, rtol=1e-5, atol=1e-6)
    for number, layer in enumerate(network.decoder):
        weight = network.encoder[-1 - number].weight.T if tied else layer.weight
        a = h @ np.asarray(weight).T + np.asarray(layer.bias)
        h = a if number == len(widths) - 1 else np.tanh(a)
    np.testing.assert_allclose(reconstruct(network, jnp.asarray(x)), h, rtol=1e-4, atol=1e-5)
    assert network.hidden_layers is network.encoder
    own = {name for name, _ in named_leaves(network) if name.startswith("decoder") and name.endswith("weight")}
    assert len(own) == (0 if tied else len(widths))


def test_tied_weights_get_the_gradient_of_both_uses() -> None:
    """The gradient of a tied net is that of its untied twin, the decoder's part transposed and added."""
    tied = MlpAutoEncoder(widths=(3,)).build((4,), 0, key=jr.key(0))
    twin = MlpAutoEncoder(widths=(3,), tied=False).build((4,), 0, key=jr.key(0))
    twin = replace(twin, encoder=tied.encoder, decoder=(replace(twin.decoder[0], weight=tied.encoder[0].weight.T),))
    x = jnp.asarray(np.random.default_rng(0).uniform(size=(5, 4)), jnp.float32)
    one, two = (
        jax.grad(lambda net: jnp.mean((reconstruct(net, x) - x) ** 2), allow_int=True)(net) for net in (tied, twin)
    )
    np.testing.assert_allclose(
        one.encoder[0].weight, two.encoder[0].weight + two.decoder[0].weight.T, rtol=1e-5, atol=1e-7
    )


def test_contracts_and_refusals() -> None:
    check_spec(MlpAutoEncoder(widths=(7, 3), tied=False))
    assert MlpAutoEncoder(widths=5).widths == (5,)
    for bad in ((), (0,), (3.5,), "500"):
        with pytest.raises(RequestError, match=r"`MlpAutoEncoder.widths` must be whole numbers of at least 1"):
            MlpAutoEncoder(widths=bad)
