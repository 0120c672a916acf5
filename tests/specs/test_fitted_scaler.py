"""A fitted scaler, applied in pieces, to sparse rows, and by JAX."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout
from gradwise.specs.fitted_scaler import FittedScaler


class Doubled(FittedScaler):
    """Twice the number, and its sign beside it."""

    def map(self, examples: Any, library: Any) -> Any:
        return library.concatenate([2.0 * examples, library.sign(examples)], axis=-1)

    def describe(self) -> list[str]:
        return []


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


def test_a_scaled_row_holds_numbers_unless_its_scaler_says_otherwise() -> None:
    assert Doubled().layout((6,)) == InputLayout(numbers=6)
    assert Doubled().layout((28, 28)) is None
