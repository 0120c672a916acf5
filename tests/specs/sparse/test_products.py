"""Products of sparse rows: the dense product is the oracle, for values and for derivatives of every kind."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.specs.sparse.products import times_table, weighted_sums
from gradwise.specs.sparse.rows import SparseRows

from .test_rows import matrix

ROWS = SparseRows.of(matrix())
DENSE = jnp.asarray(matrix().toarray())
TABLE = 0.1 * jr.normal(jr.key(0), (30, 7))


def forward(table: Any, rows: Any) -> Any:
    return jax.vmap(lambda x: jnp.tanh(times_table(x, table)))(rows)


def value(table: Any, rows: Any) -> Any:
    return jnp.sum(forward(table, rows) ** 2)


def gradient(table: Any, rows: Any) -> Any:
    return jax.grad(value)(table, rows)


def curvature(table: Any, rows: Any) -> Any:
    """A Hessian-vector product, forward over reverse."""
    return jax.jvp(lambda there: gradient(there, rows), (table,), (jnp.cos(table),))[1]


def steepness(table: Any, rows: Any) -> Any:
    """The gradient of the gradient's squared length: reverse over reverse."""
    return jax.grad(lambda there: jnp.sum(gradient(there, rows) ** 2))(table)


@pytest.mark.parametrize("function", [forward, value, gradient, jax.jit(gradient), curvature, steepness])
def test_it_equals_the_dense_product(function: Callable[..., Any]) -> None:
    """Rows that are empty, that are full and that hold one number are among them."""
    expected = function(TABLE, DENSE)
    np.testing.assert_allclose(function(TABLE, ROWS), expected, rtol=1e-5, atol=2e-6 * float(jnp.abs(expected).max()))


@pytest.mark.parametrize("function", [forward, gradient, curvature])
def test_it_equals_the_dense_product_in_a_population(function: Callable[..., Any]) -> None:
    """Tables of their own, rows of their own, and both."""
    tables = jnp.stack([TABLE, 2.0 * TABLE, TABLE + 1.0])
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1], leaf]), ROWS)
    dense = jnp.stack([DENSE, DENSE[::-1], DENSE])
    for axes, table, rows, whole in [
        ((0, None), tables, ROWS, DENSE),
        ((None, 0), TABLE, several, dense),
        ((0, 0), tables, several, dense),
    ]:
        expected = jax.vmap(function, axes)(table, whole)
        found = jax.vmap(function, axes)(table, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * float(jnp.abs(expected).max()))


def test_the_gradient_in_the_values_is_that_of_the_entries() -> None:
    expected = jax.grad(value, argnums=1)(TABLE, DENSE)
    found = jax.grad(lambda values: value(TABLE, SparseRows(ROWS.columns, values, 30)))(jnp.asarray(ROWS.values))
    for row, slot in zip(*np.nonzero(np.asarray(ROWS.columns) < 30), strict=True):
        np.testing.assert_allclose(found[row, slot], expected[row, ROWS.columns[row, slot]], rtol=1e-4, atol=1e-5)


def test_a_batch_is_one_sum_and_its_gradient_one_scatter() -> None:
    """And a population's too: nothing has an axis of examples and one of columns."""
    for program in (
        jax.make_jaxpr(gradient)(TABLE, ROWS),
        jax.make_jaxpr(jax.vmap(gradient, (0, None)))(jnp.stack([TABLE, TABLE]), ROWS),
    ):
        names = [equation.primitive.name for equation in program.eqns]
        assert names.count("sparse_weighted_sums") == 1
        assert names.count("sparse_spread") == 1
        assert all(30 not in v.aval.shape[2:] for e in program.eqns if "spread" in e.primitive.name for v in e.outvars)


def test_a_sum_does_not_depend_on_the_rows_beside_it() -> None:
    """To the last bit: so a prediction does not depend on what else is asked."""
    alone = [weighted_sums(TABLE, ROWS[place : place + 1])[0] for place in range(9)]
    np.testing.assert_array_equal(weighted_sums(TABLE, ROWS), jnp.stack(alone))
    turned = ROWS[np.arange(9)[::-1]]
    np.testing.assert_array_equal(weighted_sums(TABLE, turned)[::-1], jnp.stack(alone))


def test_many_slots_take_several_turns() -> None:
    wide = matrix(1, (40, 300), 0.3)
    rows, table = SparseRows.of(wide, slots=320), jr.normal(jr.key(1), (300, 3))
    assert wide.nnz > 10 * 256
    np.testing.assert_allclose(weighted_sums(table, rows), wide.toarray() @ table, rtol=1e-4, atol=1e-4)
    slopes = jr.normal(jr.key(2), (40, 3))
    found = jax.grad(lambda there: jnp.sum(slopes * weighted_sums(there, rows)))(table)
    np.testing.assert_allclose(found, wide.toarray().T @ slopes, rtol=1e-4, atol=1e-4)


def test_rows_without_an_entry_give_zeros() -> None:
    empty = SparseRows.of(matrix()[[0, 0]])
    assert not weighted_sums(TABLE, empty).any()
    assert not gradient(TABLE, empty).any()
    infinite = TABLE.at[0].set(jnp.inf)
    assert not weighted_sums(infinite, empty).any(), "an empty slot reads nothing"
