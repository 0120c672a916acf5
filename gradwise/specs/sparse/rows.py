"""Sparse rows on the device (row G2): each row holds its non-zeros in slots, as many as the longest row needs.

    rows = SparseRows.of(matrix)                a SciPy CSR matrix (n, width); leaves of NumPy
    rows.shape, rows[places], len(rows)         like an array of n rows
    jax.vmap(network)(rows)                     one example is a `SparseRows` with leaves (slots,)

It is a pytree, so it is gathered, stacked, mapped and put on a device like any batch of arrays. A row's slots come in
the order of its columns; the empty ones are at the end, with the value 0 and the column `width`, which is none.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...runtime.memory import make_aligned, require_memory

_AT_ONCE = 2**20  # non-zeros that are laid out together


class SparseRows(eqx.Module):
    """Rows by their non-zeros: `columns[i, s]` and `values[i, s]` for each slot s; `width` is the number of columns."""

    columns: Int[Any, "*n slots"]
    values: Float[Any, "*n slots"]
    width: int = eqx.field(static=True)

    @classmethod
    def of(cls, matrix: Any, slots: int = 0) -> "SparseRows":
        """The rows of a CSR matrix, duplicates summed, with at least so many slots each."""
        matrix = canonical(matrix)
        count, width = matrix.shape
        slots = max(1, slots, longest_row(matrix))
        needed = 8 * count * slots
        what = f"the sparse inputs {(count, width)}, with {slots} non-zeros in the longest row, need"
        require_memory(needed, what, "Use fewer rows, or leave out the longest.", share=0.8)
        columns, values = make_aligned((count, slots), np.int32), make_aligned((count, slots), np.float32)
        columns.fill(width)
        values.fill(0.0)
        step = max(1, _AT_ONCE // slots)
        for start in range(0, count, step):
            ends = matrix.indptr[start : start + step + 1]
            filled = np.arange(slots) < np.diff(ends)[:, None]
            columns[start : start + step][filled] = matrix.indices[ends[0] : ends[-1]]
            with np.errstate(over="ignore"):  # beyond 32 bits is infinity: the network's business, not a warning
                values[start : start + step][filled] = matrix.data[ends[0] : ends[-1]]
        return cls(columns, values, int(width))

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the dense rows."""
        return (*self.columns.shape[:-1], self.width)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """What both arrays take."""
        return int(self.columns.nbytes + self.values.nbytes)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, places: Any) -> "SparseRows":
        """Some of the rows, or one of them."""
        found: SparseRows = jax.tree.map(lambda leaf: leaf[places], self)
        return found

    def dense(self) -> Float[Array, "..."]:
        """The rows as an array."""
        zeros = jnp.zeros((*self.shape[:-1], self.width), self.values.dtype)
        lead = np.ix_(*(np.arange(size) for size in self.shape[:-1]), np.zeros(1, int))[:-1]
        return zeros.at[(*lead, self.columns)].add(self.values, mode="drop")


# Examples on the device, one or many. To a type checker they are anything, since most parts read dense ones alone.
if TYPE_CHECKING:
    Rows = Any
else:
    Rows = Float[Array, "..."] | SparseRows


def canonical(matrix: Any) -> Any:
    """The CSR matrix with one entry for each place, in the order of columns; the given one stays as it is."""
    matrix = matrix.tocsr()
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return matrix


def longest_row(matrix: Any) -> int:
    """The most entries that a row of a CSR matrix holds."""
    return int(np.diff(matrix.indptr).max(initial=0))


def as_csr(inputs: Any) -> Any:
    """Rows as a CSR matrix."""
    from scipy.sparse import csr_matrix

    return inputs.tocsr() if is_csr(inputs) else csr_matrix(inputs)


def is_csr(inputs: Any) -> bool:
    """Whether these inputs are a sparse matrix of SciPy."""
    return hasattr(inputs, "tocsr")


def flat_rows(inputs: Any) -> Any:
    """Many examples, each as one row."""
    return inputs if isinstance(inputs, SparseRows) else inputs.reshape(inputs.shape[0], -1)


def on_host(inputs: Any) -> Any:
    """Examples as NumPy holds them."""
    return jax.tree.map(np.asarray, inputs)
