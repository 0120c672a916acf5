"""Calling networks, on one example and on many, and what they offer beyond their outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.runtime.errors import RequestError
from gradwise.specs.networks import Network, apply, apply_batch, as_network, require_methods, score_in_chunks


class Noisy(eqx.Module):
    """A network with randomness of its own."""

    def __call__(self, x: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        return x if key is None else x + jax.random.normal(key, x.shape)


def test_a_network_gets_a_key_only_if_it_takes_one() -> None:
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(apply(lambda x: 2 * x, x, jax.random.key(0)), 2 * x)
    np.testing.assert_array_equal(apply(Noisy(), x, None), x)
    assert not np.array_equal(apply(Noisy(), x, jax.random.key(0)), x)


def test_every_example_of_a_batch_has_randomness_of_its_own() -> None:
    batch = jnp.zeros((5, 2))
    out = np.asarray(apply_batch(Noisy(), batch, jax.random.key(0)))
    assert len(np.unique(out)) == 10
    np.testing.assert_array_equal(apply_batch(Noisy(), batch, None), batch)


def test_a_network_may_see_its_batch() -> None:
    def centred(x: jax.Array) -> jax.Array:
        return x - jax.lax.pmean(x, "batch")

    out = apply_batch(centred, jnp.array([[1.0], [2.0], [6.0]]), None)
    np.testing.assert_allclose(out, [[-2.0], [-1.0], [3.0]])


def test_an_equinox_network_with_dropout_is_deterministic_without_a_key() -> None:
    network = eqx.nn.Sequential([eqx.nn.Lambda(jnp.tanh), eqx.nn.Dropout(0.5)])
    x = jnp.linspace(-1.0, 1.0, 8)
    np.testing.assert_allclose(apply(network, x, None), jnp.tanh(x))
    np.testing.assert_allclose(apply_batch(network, x[None], None)[0], jnp.tanh(x))
    assert (np.asarray(apply(network, x, jax.random.key(0))) == 0).any()


class Halving(Network):
    """A network with a way back."""

    offers = ("decode",)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x / 2.0

    def decode(self, code: jax.Array) -> jax.Array:
        return 2.0 * code


def test_a_network_says_what_it_offers_and_a_plain_module_offers_nothing() -> None:
    network = Halving()
    assert as_network(network) is network
    require_methods("Reconstruction", network, ("decode",), "AutoEncoder")
    plain = as_network(eqx.nn.Identity())
    assert (plain.offers, plain.hidden_layers, plain.filters, plain.needs_calibration) == ((), (), None, False)
    assert network.calibrate(jnp.zeros((2, 3))) is network
    for module, name in ((eqx.nn.Identity(), "decode"), (network, "free_energy")):
        with pytest.raises(RequestError, match=f"Rbm needs a network with `{name}`.*Use the model Right") as caught:
            require_methods("Rbm", module, ("decode", "free_energy"), "Right")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 9000])
def test_scores_in_chunks_are_those_of_all_rows_at_once(count: int) -> None:
    rows, targets = jnp.arange(3.0 * count).reshape(count, 3), jnp.arange(count)

    def scores(rows: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        return rows.sum(axis=1), rows[:, 0] - targets

    found = score_in_chunks(scores, rows, targets)
    for mine, expected in zip(found, scores(rows, targets), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_pictures_are_scored_few_at_a_time() -> None:
    """What a layer of filters reads is many times as large as they are."""
    pictures, targets = jnp.arange(1500.0 * 28 * 28).reshape(1500, 28, 28) / 1e6, jnp.arange(1500.0)
    sizes = []

    def scores(rows: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        sizes.append(rows.shape[0])
        return rows.sum((1, 2)), rows[:, 0, 0] + targets

    found = score_in_chunks(scores, pictures, targets)
    assert max(sizes) * 28 * 28 <= 2**19
    for mine, expected in zip(found, scores(pictures, targets), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5)
