"""What the contracts themselves do: calling a network, and applying a fitted scaler in pieces."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser, AbstractStopping, FittedScaler, apply, apply_batch
from gradwise.specs.dataset import InputLayout


class Doubled(FittedScaler):
    """Twice the number, and its sign beside it."""

    def map(self, examples: Any, library: Any) -> Any:
        return library.concatenate([2.0 * examples, library.sign(examples)], axis=-1)

    def describe(self) -> list[str]:
        return []


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


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_a_scaler_applied_in_pieces_equals_one_applied_at_once(count: int) -> None:
    rows = np.random.default_rng(0).normal(size=(count, 40_000))  # 16 rows at a time
    whole = Doubled().map(rows, np).astype(np.float32)
    np.testing.assert_array_equal(Doubled().apply(rows), whole)
    assert Doubled().apply(rows).dtype == np.float32


def test_sparse_rows_and_jax_give_the_same() -> None:
    rows = np.round(np.random.default_rng(0).normal(size=(7, 3)), 1) * (np.random.default_rng(1).random((7, 3)) < 0.5)
    dense = Doubled().apply(rows)
    np.testing.assert_array_equal(Doubled().apply(csr_matrix(rows)), dense)
    np.testing.assert_allclose(jax.vmap(Doubled())(rows), dense, rtol=1e-6)


def test_no_rows_are_still_rows_of_the_right_width() -> None:
    assert Doubled().apply(np.zeros((0, 3))).shape == (0, 6)


def test_numbers_beyond_32_bits_become_infinite_without_a_warning() -> None:
    assert np.isinf(Doubled().apply(np.full((1, 2), 1e300))[0, 0])


def test_inputs_that_would_not_fit_are_refused_before_they_are_made() -> None:
    with pytest.raises(RequestError, match="GiB") as caught:
        FittedScaler._room((10**9, 10**6), np.float32)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [AbstractOptimiser, AbstractStopping])
def test_a_contract_alone_is_no_part(part: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        part()


def test_a_scaled_row_holds_numbers_unless_its_scaler_says_otherwise() -> None:
    assert Doubled().layout((6,)) == InputLayout(numbers=6)
    assert Doubled().layout((28, 28)) is None
