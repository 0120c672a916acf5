"""Convolutions against SciPy, XLA and loops, in one and two dimensions."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from gradwise.models.convolution.patches import apply_filters, count_places, patches

DRAW = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return jnp.asarray(DRAW.normal(size=shape), jnp.float32)


def correlated(x: Any, filters: Any, mode: str) -> np.ndarray:
    """SciPy's correlation of maps with their channels last: (filters, *kernel, channels) with (*sides, channels)."""
    x, filters = np.asarray(x, np.float64), np.asarray(filters, np.float64)
    found = [
        sum(scipy.signal.correlate(x[..., c], one[..., c], mode=mode) for c in range(x.shape[-1])) for one in filters
    ]
    return np.stack(found, axis=-1)


@pytest.mark.parametrize("sides", [(11,), (9, 7)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_convolution_is_that_of_scipy(sides: tuple[int, ...], stride: int, padding: str) -> None:
    x, filters = numbers(*sides, 2), numbers(4, *[3] * len(sides), 2)
    found = apply_filters(filters.reshape(4, -1), x, kernel=3, stride=stride, padding=padding)
    whole = correlated(x, filters, padding)
    if padding == "same":  # the first place is where the zeros are spread evenly
        starts = [(max(0, (-(-n // stride) - 1) * stride + 3 - n) // 2) for n in sides]
        whole = whole[tuple(slice(1 - start, None) for start in starts)]
    wanted = whole[tuple(slice(None, None, stride) for _ in sides)]
    np.testing.assert_allclose(found, wanted[tuple(slice(n) for n in found.shape[:-1])], atol=1e-5)
    assert found.shape[:-1] == tuple(count_places(n, kernel=3, stride=stride, padding=padding) for n in sides)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [*itertools.product((1, 2, 5), (1, 2), ("same", "valid"))])
def test_even_and_large_filters_are_those_of_xla(kernel: int, stride: int, padding: str) -> None:
    x, filters = numbers(8, 6, 3), numbers(4, kernel, kernel, 3)
    wanted = jax.lax.conv_general_dilated(
        x[None], filters, (stride, stride), padding.upper(), dimension_numbers=("NHWC", "OHWI", "NHWC")
    )[0]
    found = apply_filters(filters.reshape(4, -1), x, kernel=kernel, stride=stride, padding=padding)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_without_sharing_each_place_has_its_own_filters() -> None:
    x, weight = numbers(5, 4, 2), numbers(3, 2, 6, 18)
    found = apply_filters(weight, x, kernel=3, stride=1, padding="valid")
    for row, column in np.ndindex(3, 2):
        seen = np.asarray(x)[row : row + 3, column : column + 3].ravel()
        np.testing.assert_allclose(found[row, column], np.asarray(weight)[row, column] @ seen, atol=1e-5)
    shared = jnp.broadcast_to(weight[0, 0], weight.shape)
    one = apply_filters(weight[0, 0], x, kernel=3, stride=1, padding="valid")
    np.testing.assert_allclose(apply_filters(shared, x, kernel=3, stride=1, padding="valid"), one, atol=1e-5)


def test_a_picture_that_moves_moves_what_filters_find() -> None:
    weight, x = numbers(4, 9), jnp.zeros((12, 12, 1)).at[3:7, 3:7].set(numbers(4, 4, 1))
    options = {"kernel": 3, "stride": 1, "padding": "same"}
    moved = apply_filters(weight, jnp.roll(x, (2, 3), (0, 1)), **options)
    np.testing.assert_allclose(moved, jnp.roll(apply_filters(weight, x, **options), (2, 3), (0, 1)), atol=1e-6)


def test_patches_are_in_the_order_rows_columns_channels() -> None:
    x = jnp.arange(4 * 5 * 2.0).reshape(4, 5, 2)
    found = patches(x, kernel=2, stride=2, padding="valid")
    assert found.shape == (2, 2, 8)
    assert np.array_equal(found[1, 1], x[2:4, 2:4].ravel())
