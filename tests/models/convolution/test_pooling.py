"""Pooling against loops over windows."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.models.convolution.pooling import AbstractPooling, MaxPool, MeanPool, NoPool
from gradwise.runtime.errors import RequestError


@pytest.mark.parametrize(("pooling", "combine"), [(MaxPool, np.max), (MeanPool, np.mean)])
@pytest.mark.parametrize(("sides", "size"), [((6, 4), 2), ((7, 5), 2), ((7, 9), 3), ((9,), 2), ((1, 5), 2)])
def test_each_window_becomes_one_place(
    pooling: Callable[..., AbstractPooling], combine: Callable[..., float], sides: tuple[int, ...], size: int
) -> None:
    h = np.random.default_rng(0).normal(size=(*sides, 3)).astype(np.float32)
    found = np.asarray(pooling(size)(jnp.asarray(h)))
    edges = [min(size, side) for side in sides]
    assert found.shape == (*(side // edge for side, edge in zip(sides, edges, strict=True)), 3)
    assert found.shape[:-1] == tuple(pooling(size).count(side) for side in sides)
    for place in np.ndindex(found.shape[:-1]):
        window = h[tuple(slice(at * edge, (at + 1) * edge) for at, edge in zip(place, edges, strict=True))]
        wanted = combine(window, axis=tuple(range(len(sides))))
        np.testing.assert_allclose(found[place], wanted, atol=1e-6)


def test_no_pooling_leaves_a_map_as_it_is() -> None:
    h = jnp.ones((5, 4, 2))
    assert NoPool()(h) is h
    assert NoPool().count(5) == 5


def test_a_window_is_a_whole_number_of_places() -> None:
    for pooling in (MaxPool, MeanPool):
        with pytest.raises(RequestError, match="size` must be a whole number"):
            pooling(2.5)  # type: ignore[call-arg]
