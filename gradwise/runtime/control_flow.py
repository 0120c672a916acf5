"""Control inside a compiled update: costly work now and then, and a line search that can end the run.

A plain `lax.cond` becomes a `select` where a population is trained at once: both branches run at every update. A loop
of no or one turn keeps its meaning there: it runs while any member asks for it, and changes those members alone.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

Carry = TypeVar("Carry")
_GIVEN_UP = 2  # the first failure forgets what was known of the curvature; the second is along the gradient itself


def when(due: Bool[Array, ""], function: Callable[[Carry], Carry], operand: Carry) -> Carry:
    """`function(operand)` where it is due, else the operand as it is; shapes and types must not change."""

    def once(carry: tuple[Array, Carry]) -> tuple[Array, Carry]:
        return jnp.zeros((), bool), _typed_like(function(carry[1]), carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], once, (jnp.asarray(due), operand))[1]


def _typed_like(tree: Carry, like: Carry) -> Carry:
    """Weakly typed results would end the loop in another type than it began with."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), tree, like)


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
