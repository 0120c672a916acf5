"""Sparse rows: SciPy's own dense form is the oracle, and memory is that of the longest row."""

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from gradwise.runtime.errors import RequestError
from gradwise.specs.sparse import rows as sparse_rows
from gradwise.specs.sparse.rows import SparseRows, as_csr, canonical, flat_rows, longest_row


def matrix(seed: int = 0, shape: tuple[int, int] = (9, 30), density: float = 0.2) -> csr_matrix:
    """A matrix whose first row is empty, whose second is full and whose third has one entry."""
    some = random_array(shape, density=density, rng=np.random.default_rng(seed), format="csr").toarray()
    some[0], some[1], some[2] = 0.0, 1.5, 0.0
    some[2, -1] = -2.0
    return csr_matrix(some.astype(np.float32))


def test_rows_are_those_of_the_matrix() -> None:
    whole = matrix()
    rows = SparseRows.of(whole)
    assert rows.shape == whole.shape
    assert (rows.ndim, len(rows), rows.dtype) == (2, 9, np.float32)
    assert rows.columns.shape == (9, 30), "the longest row is full"
    np.testing.assert_array_equal(rows.dense(), whole.toarray())
    np.testing.assert_array_equal(rows[3].dense(), whole.toarray()[3])
    np.testing.assert_array_equal(rows[np.array([4, 4, 0])].dense(), whole.toarray()[[4, 4, 0]])


def test_several_blocks_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "_AT_ONCE", 70)
    np.testing.assert_array_equal(SparseRows.of(matrix()).dense(), matrix().toarray())


def test_duplicates_are_summed_as_scipy_does_and_the_given_matrix_stays() -> None:
    twice = csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([3, 0, 3]), np.array([0, 3, 3])), shape=(2, 5))
    rows = SparseRows.of(twice)
    np.testing.assert_array_equal(rows.dense(), [[2, 0, 0, 5, 0], [0, 0, 0, 0, 0]])
    assert twice.nnz == 3
    assert canonical(twice).nnz == 2


def test_more_slots_can_be_asked_for_and_hold_nothing() -> None:
    rows = SparseRows.of(matrix()[3:], slots=25)
    assert rows.columns.shape == (6, 25)
    empty = np.asarray(rows.columns) == rows.width
    assert empty.any(axis=1).all()
    assert (np.asarray(rows.values)[empty] == 0).all()
    np.testing.assert_array_equal(rows.dense(), matrix()[3:].toarray())


def test_memory_follows_the_longest_row_and_not_the_width() -> None:
    rng = np.random.default_rng(0)
    columns = np.sort(rng.permuted(np.tile(np.arange(0, 1_000_000, 20_000), (200, 1)), axis=1)[:, :20], axis=1)
    wide = csr_matrix((np.ones(4000), columns.ravel(), np.arange(0, 4001, 20)), shape=(200, 1_000_000))
    rows = SparseRows.of(wide)
    assert rows.nbytes == 200 * 20 * 8
    assert rows.shape == (200, 1_000_000)


def test_rows_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwise.runtime.memory.available_bytes", lambda: 1000.0)
    with pytest.raises(RequestError, match="with 30 non-zeros in the longest row"):
        SparseRows.of(matrix())


def test_rows_are_a_pytree_and_on_a_device() -> None:
    rows = jax.device_put(SparseRows.of(matrix()))
    halves = jax.tree.map(lambda leaf: leaf.reshape(3, 3, -1), rows)
    assert halves.shape == (3, 3, 30)
    np.testing.assert_array_equal(halves.dense().reshape(9, 30), matrix().toarray())
    assert flat_rows(rows) is rows
    assert flat_rows(np.zeros((4, 2, 3))).shape == (4, 6)


def test_an_array_becomes_a_csr_matrix() -> None:
    assert (as_csr(matrix().toarray()) != matrix()).nnz == 0
    assert as_csr(matrix().tocsc()).format == "csr"
    assert longest_row(matrix()) == 30
