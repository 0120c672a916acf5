"""Which entries of a parameter are looked at, and what is said of the leaf."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.gradient.finite_differences import RIGHT, WRONG, Differences
from gradwise.checking.gradient.parameter_gradients import Leaf, measure_leaves
from gradwise.checking.subject import Subject


def leaf(analytic, numeric, state=None, **more):
    a, n = np.asarray(analytic, float), np.asarray(numeric, float)
    error = np.abs(a - n) / np.maximum(np.abs(a) + np.abs(n), 1e-12)
    state = np.where(error > 1e-3, WRONG, RIGHT) if state is None else np.asarray(state)
    return Leaf("w", len(a), np.arange(len(a)), a, n, error, state, **more)


def test_a_leaf_tells_sign_and_factor():
    assert leaf([1, -2, 3], [-1, 2, -3]).turned
    assert leaf([1, -2, 3], [-1, 2, -3]).ratio == -1
    assert leaf([1, -2, 3], [2, -4, 6]).ratio == pytest.approx(0.5)
    assert not leaf([1, -2, 3], [2, -4, 6]).turned
    assert np.isnan(leaf([1, 2, 3], [2, 1, 7]).ratio)
    assert leaf([0, 0], [1, 2]).ratio == 0
    assert leaf([1, 1], [1, 1]).worst == 0


@pytest.fixture(scope="module")
def leaves():
    """A sparse embedding, a leaf half of whose gradient is cut off, one that is declared frozen."""

    def loss(model, batch):
        read = model["table"][batch]  # rows 3 and 5 of a hundred
        cut = jnp.sum(model["cut"] ** 2) * 0.5 + jax.lax.stop_gradient(jnp.sum(model["cut"] ** 2)) * 0.5
        return jnp.mean(jnp.sin(read) ** 2) + cut + jnp.sum(jax.lax.stop_gradient(model["held"]))

    model = {"cut": jnp.arange(1.0, 6.0), "held": jnp.ones(2), "table": jnp.linspace(0.1, 1, 400).reshape(100, 4)}
    subject = Subject.of(loss, model, np.asarray([3, 5]), frozen="held")
    found = measure_leaves(Differences.of(subject, key=jax.random.key(0)), 12, np.random.default_rng(0))
    return {one.name: one for one in found}


def test_all_of_a_small_leaf_and_the_steepest_of_a_large_one(leaves):
    table = leaves["table"]
    assert len(leaves["cut"].entries) == 5
    assert 8 <= len(table.entries) <= 12
    assert len(({*range(12, 16)} | {*range(20, 24)}) & set(table.entries.tolist())) >= 6
    values = np.linspace(0.1, 1, 400)[table.entries]
    touched = np.isin(table.entries // 4, [3, 5])
    np.testing.assert_allclose(table.numeric, np.where(touched, np.sin(2 * values) / 8, 0), atol=1e-8)
    assert not np.any(table.wrong)


def test_every_entry_of_a_wrong_leaf_is_wrong_by_its_factor(leaves):
    cut = leaves["cut"]
    assert np.all(cut.wrong)
    assert cut.ratio == pytest.approx(0.5, rel=1e-6)
    assert not cut.zero
    np.testing.assert_allclose(cut.numeric, 2 * np.arange(1.0, 6.0), rtol=1e-7)
    assert leaves["held"].zero
    assert leaves["held"].frozen
