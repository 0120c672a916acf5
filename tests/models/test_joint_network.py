"""Features and outputs in one network."""

import jax
import jax.numpy as jnp
import numpy as np

from gradwise.models.activations import Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.joint_network import Joint
from gradwise.models.restricted_boltzmann import Rbm
from gradwise.runtime import keys
from gradwise.testing.contracts import check_part

INPUTS = np.random.default_rng(0).uniform(size=(5, 2, 3)).astype(np.float32)


def test_outputs_are_linear_in_the_code_of_the_features() -> None:
    network = Joint(MlpAutoEncoder(widths=(7, 4), activation=Tanh())).build((2, 3), 3, key=keys.from_seed(0))
    h = INPUTS.reshape(5, -1)
    for layer in network.features.encoder:
        h = np.tanh(h @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    np.testing.assert_allclose(jax.vmap(network.code)(INPUTS), h, atol=1e-6)
    expected = h @ np.asarray(network.output.weight).T + np.asarray(network.output.bias)
    np.testing.assert_allclose(jax.vmap(network)(INPUTS), expected, atol=1e-6)
    np.testing.assert_array_equal(network.decode(jnp.asarray(h[0])), network.features.decode(jnp.asarray(h[0])))
    assert network.decode(jnp.asarray(h[0])).shape == (6,)
    assert network.hidden_layers is network.features.encoder


def test_the_features_start_as_they_would_alone() -> None:
    """Visible biases of a Boltzmann machine at the log-odds of the inputs; an auto-encoder as it was drawn."""
    joint, key = Joint(Rbm(units=4)), keys.from_seed(1)
    network = joint.started(joint.build((2, 3), 3, key=key), jnp.asarray(INPUTS))
    mean = INPUTS.reshape(5, -1).mean(0)
    np.testing.assert_allclose(network.features.visible_bias, np.log(mean / (1 - mean)), rtol=1e-5)
    plain = Joint(MlpAutoEncoder(widths=(4,)))
    built = plain.build((2, 3), 3, key=key)
    started = plain.started(built, jnp.asarray(INPUTS))
    assert started.features is built.features
    assert started.output is built.output


def test_it_keeps_the_contract_of_a_model() -> None:
    check_part(Joint(MlpAutoEncoder(widths=(4,))))
