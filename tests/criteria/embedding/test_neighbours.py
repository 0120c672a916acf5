"""Neighbours are scikit-learn's, and the losses of pairs those of the paper (row G4)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from gradwise.criteria.embedding import neighbours
from gradwise.criteria.embedding.neighbours import hinge_losses, nearest_neighbours, squared_distances

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("block", [2**24, 150])
def test_neighbours_are_the_nearest_others(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Also far from the origin, of examples of two dimensions, and in blocks that do not divide the rows."""
    monkeypatch.setattr(neighbours, "_AT_ONCE", block)
    inputs = (RNG.normal(size=(47, 2, 3)) + 100.0).astype(np.float32)
    flat = inputs.reshape(47, -1).astype(np.float64)
    found = np.asarray(nearest_neighbours(jnp.asarray(inputs), 5))
    expected = NearestNeighbors(n_neighbors=6).fit(flat).kneighbors(flat, return_distance=False)[:, 1:]
    np.testing.assert_array_equal(found, expected)
    assert nearest_neighbours(jnp.asarray(inputs[:3]), 5).shape == (3, 2)  # of three there are two others


def test_losses_of_pairs_are_those_of_a_loop() -> None:
    a, b = (jnp.asarray(RNG.normal(size=(30, 4)), jnp.float32) for _ in range(2))
    for margin in (0.5, 2.5):
        distances = [np.sqrt(sum((p - q) ** 2 for p, q in zip(x, y, strict=True))) for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(squared_distances(a, b), np.square(distances), rtol=1e-5)
        expected = [max(0.0, margin - one) ** 2 for one in distances]
        np.testing.assert_allclose(hinge_losses(a, b, margin), expected, atol=1e-5)


def test_the_gradient_of_a_pair_has_a_closed_form() -> None:
    """2 (a - b) for neighbours; -2 (margin - d) (a - b) / d for others within the margin; none where a = b."""
    a, b, margin = jnp.array([[0.3, -0.4]]), jnp.array([[0.0, 0.0]]), 2.0
    pull = jax.grad(lambda x: squared_distances(x, b)[0])(a)
    push = jax.grad(lambda x: hinge_losses(x, b, margin)[0])(a)
    np.testing.assert_allclose(pull, 2 * a, rtol=1e-6)
    np.testing.assert_allclose(push, -2 * (margin - 0.5) * a / 0.5, rtol=1e-5)
    np.testing.assert_array_equal(jax.grad(lambda x: hinge_losses(x, b, 0.4)[0])(a), 0.0)
    np.testing.assert_array_equal(jax.grad(lambda x: hinge_losses(x, b, margin)[0])(b), 0.0)
