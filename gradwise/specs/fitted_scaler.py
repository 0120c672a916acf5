"""A fitted scaler: one map from raw examples to inputs, which NumPy and JAX both run."""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..runtime.errors import RequestError
from ..runtime.memory import make_aligned, require_memory, row_blocks
from .dataset import InputLayout
from .sparse.rows import canonical


class FittedScaler(eqx.Module):
    """A scaler fitted on the training set; it is saved with the network, so that predictions take raw rows.

    `map` is written once, for NumPy and for JAX: `apply` runs it in NumPy, in 64 bits and without compiling; calling
    the module on one example runs it in JAX, differentiable, in the precision that JAX has at the time.
    """

    # True: its examples are sequences (steps, channels), NaN beyond the end, and so are the scaled ones.
    over_steps: ClassVar[bool] = False

    @abc.abstractmethod
    def map(self, examples: Any, library: Any) -> Any:
        """Raw examples (..., *shape), missing values NaN, to inputs without NaN; `library` is numpy or jax.numpy."""

    @abc.abstractmethod
    def describe(self) -> list[str]:
        """Notes for the report, a sentence each: imputed, constant or unused columns."""

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        """What the inputs of a scaled example of this shape are: numbers if it is one row; None if it is an image."""
        return InputLayout(numbers=shape[0]) if len(shape) == 1 else None

    def accept(self, inputs: Any) -> Any:
        """Raw examples in the terms of the training set: trees get the numbers that its symbols have."""
        return inputs

    def reads_trees(self) -> bool:
        """Whether its examples are trees."""
        return False

    def keeps_zeros(self) -> bool:
        """Whether every 0 stays 0 and nothing moves to another column, so that `map_entries` does the same."""
        return False

    def map_entries(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """What `map` makes of the entries of sparse rows; those of row i begin at `starts[i]`, the last is the end."""
        raise RequestError(f"{type(self).__name__} does not keep zeros. Use `MaxAbs` or `TfIdf` for sparse inputs.")

    def __call__(self, example: Array) -> Float[Array, "..."]:
        return self.map(jnp.asarray(example, float), jnp).astype(jnp.float32)

    def apply(self, inputs: Any, dtype: Any = np.float32) -> np.ndarray:
        """All rows of an array, a SciPy sparse matrix or `Sequences`; each result depends on its own row alone."""
        done: np.ndarray | None = None
        inputs = self.accept(inputs)
        # A few megabytes at a time stay in cache.
        for start, block in row_blocks(inputs, 2**19) if inputs.shape[0] else [(0, inputs)]:
            part = self.map(np.asarray(block.toarray() if hasattr(block, "toarray") else block, np.float64), np)
            if done is None:
                done = self._room((inputs.shape[0], *part.shape[1:]), dtype)
            with np.errstate(over="ignore"):  # beyond 32 bits is infinity: the network's business, not a warning
                done[start : start + len(part)] = part
        assert done is not None
        return done

    def apply_sparse(self, inputs: Any) -> Any:
        """All rows of a CSR matrix as a CSR matrix, by a scaler that keeps zeros."""
        inputs = canonical(inputs)
        values = self.map_entries(np.asarray(inputs.data, np.float64), inputs.indices, inputs.indptr)
        return type(inputs)((values, inputs.indices, inputs.indptr), shape=inputs.shape)

    @staticmethod
    def _room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Raises if the dense inputs would not fit into memory."""
        needed = math.prod(shape) * np.dtype(dtype).itemsize
        what = f"{shape[0]} rows of {math.prod(shape[1:])} network inputs need"
        require_memory(needed, what, "Use fewer rows or columns, or `Pca`.", share=0.8)
        return make_aligned(shape, dtype)
