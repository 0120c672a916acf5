"""Centring changes no function, and does what it says: mean output 0, mean slope 0, unit spread."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from gradwise.models.activations import AbstractActivation, Rectifier, Sigmoid, Tanh
from gradwise.models.centred_mlp import CentredMlp, CentredNetwork
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import trainable
from tests.marks import parametrize_one_quick

EXAMPLES = np.random.default_rng(0).normal(size=(60, 3)) + 0.5


def _shaken(activation: AbstractActivation) -> CentredNetwork:
    """A network all of whose numbers, slopes, shifts and scales too, are somewhere."""
    network = CentredMlp(widths=(6, 5, 4), activation=activation).build((3,), 2, key=jr.key(0))
    parameters, rest = trainable(network)
    flat, back = ravel_pytree(parameters)
    return eqx.combine(back(flat + 0.3 * jr.normal(jr.key(1), flat.shape)), rest)


@parametrize_one_quick("activation", [Tanh(), Sigmoid(), Rectifier()], ids=lambda one: type(one).__name__)
def test_centring_changes_no_output_anywhere_and_centres_every_unit(activation: AbstractActivation) -> None:
    with jax.enable_x64(True):
        network = _shaken(activation)
        examples = jnp.asarray(EXAMPLES)
        weights = jnp.arange(60.0) % 3
        centred = network.recentred(examples, weights)
        for points in (examples, 10.0 * examples):  # the same function, not only on those examples
            before, after = jax.vmap(network)(points), jax.vmap(centred)(points)
            assert float(jnp.max(jnp.abs(after - before))) < 1e-12 * float(jnp.max(jnp.abs(before)))
        share = weights / weights.sum()
        earlier = [examples]
        for layer in centred.layers:
            a = jax.vmap(layer.activate)(earlier)
            response = jax.vmap(layer.respond)(a)
            slopes = jax.vmap(jax.vmap(jax.grad(lambda one, f=activation: f(one))))(a) + layer.slope
            assert float(jnp.max(jnp.abs(share @ response))) < 1e-12
            assert float(jnp.max(jnp.abs(share @ slopes))) < 1e-12
            spread = share @ (response / layer.scale) ** 2
            np.testing.assert_allclose(share @ response**2, spread / (spread + 1e-3), rtol=1e-9)
            earlier.append(response)


@pytest.mark.slow
def test_it_starts_as_an_ordinary_network_and_no_gradient_moves_the_centre() -> None:
    network = CentredMlp(widths=(6, 5), activation=Tanh()).build((3,), 2, key=jr.key(0))
    x = jnp.asarray(EXAMPLES[0], jnp.float32)
    h = x
    for layer in network.layers:
        h = jnp.tanh(layer.weights[-1] @ h)
    np.testing.assert_allclose(network(x), network.output.weights[-1] @ h, rtol=1e-6)
    slope = eqx.filter_grad(lambda one: jnp.sum(one(x) ** 2))(_shaken(Tanh()))
    for layer in slope.layers:
        assert not any(part.any() for part in (layer.slope, layer.shift, layer.scale))
        assert all(weight.any() for weight in layer.weights)


def test_widths_are_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"`CentredMlp.widths` must be whole numbers .* Example: \(256, 256\)"):
        CentredMlp(widths=(3, 0))
