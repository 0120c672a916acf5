"""What a line search leaves in an optimiser's state: how often it failed, and whether the run has stalled."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

_GIVEN_UP = 2  # the first failure forgets what was known of the curvature; the second is along the gradient itself


class LineSearch(NamedTuple):
    """Kept in the state of an optimiser that moves only to lower points: updates in a row that found none."""

    failures: Int[Array, ""]

    def after(self, found: Bool[Array, ""]) -> "LineSearch":
        """The record after one more search."""
        return LineSearch(jnp.where(found, 0, self.failures + 1).astype(jnp.int32))


def line_search() -> LineSearch:
    """Before the first search."""
    return LineSearch(jnp.zeros((), jnp.int32))


def stalled(state: PyTree) -> Bool[Array, ""]:
    """Whether a line search anywhere in an optimiser's state has given up: the run ends, the best point is kept."""
    found = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, LineSearch))
    searches = [node.failures for node in found if isinstance(node, LineSearch)]
    return jnp.any(jnp.stack(searches) >= _GIVEN_UP) if searches else jnp.zeros((), bool)
