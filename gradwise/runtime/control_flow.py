"""Costly work now and then, inside a compiled update.

A plain `lax.cond` becomes a `select` where a population is trained at once: both branches run at every update. A loop
of no or one turn keeps its meaning there: it runs while any member asks for it, and changes those members alone.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

Carry = TypeVar("Carry")


def run_when(due: Bool[Array, ""], function: Callable[[Carry], Carry], operand: Carry) -> Carry:
    """`function(operand)` where it is due, else the operand as it is; shapes and types must not change."""

    def once(carry: tuple[Array, Carry]) -> tuple[Array, Carry]:
        return jnp.zeros((), bool), _typed_like(function(carry[1]), carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], once, (jnp.asarray(due), operand))[1]


def either(condition: Bool[Array, ""], new: Callable[[], Carry], old: Carry) -> Carry:
    """What `new` gives, or the old arrays. XLA's CPU compiler would write the whole condition into each choice, and
    compile it as often; on an accelerator a branch has to wait for the host."""
    if jax.default_backend() == "cpu":
        chosen: Carry = jax.lax.cond(condition, new, lambda: old)
        return chosen
    return jax.tree.map(lambda one, other: jnp.where(condition, one, other), new(), old)


def _typed_like(tree: Carry, like: Carry) -> Carry:
    """Weakly typed results would end the loop in another type than it began with."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), tree, like)
