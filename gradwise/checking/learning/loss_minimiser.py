"""Minimises a loss as far as possible: L-BFGS over one vector, and Adam if that fails.

    end, loss, steepness, curve = descend(value, start, mask, updates=200, memory=10)      within a compiled program
    second_try(value, starts, mask, updates=400)                                          the best loss of all tries

Entries whose `mask` is 0 stay where they are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ...runtime.compilation import compile_quickly

ADAM_RATES = (1e-3, 1e-2, 1e-1)


def descend(value: Callable[[Array], Array], start: Array, mask: Array, updates: int, memory: int) -> Any:
    """L-BFGS with a line search until the gradient is 0 or the updates are used up.

    The end, its loss, |gradient| |point| / |loss| at the start, and all losses: NaN for updates not needed.
    """
    # One vector, and a search by halving: compiled in half the time that a tree and the strong Wolfe conditions take.
    search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=25, store_grad=False)
    method = optax.lbfgs(memory_size=memory, linesearch=search)

    def unfinished(carry: Any) -> Array:
        _, _, loss, steep, number, curve, _ = carry
        goes = (jnp.isfinite(loss) | (number == 0)) & (steep > 1e-9) & (loss != 0)
        return (number < updates) & goes & ~((curve[0] > 0) & (loss > 0) & (loss < 1e-5 * curve[0]))

    def turn(carry: Any) -> Any:
        # The gradient is taken in one place only: most of the time of this check goes into compiling it.
        point, state, _, _, number, curve, first = carry
        loss, slope = jax.value_and_grad(value)(point)
        slope = slope * mask
        move, state = method.update(slope, state, point, value=loss, grad=slope, value_fn=value)
        # Negative curvature may point it up its own gradient, and so down the loss of a gradient with the wrong sign.
        down = move @ slope < 0
        move = jnp.where(down, move, 0.0)
        state = optax.tree.where(down, state, method.init(start))
        steep = jnp.linalg.norm(slope)
        own = steep * jnp.linalg.norm(point) / jnp.maximum(jnp.abs(loss), 1e-30)
        first = jnp.where(number == 0, own, first)
        return point + move * mask, state, loss, steep, number + 1, curve.at[number].set(loss), first

    far = jnp.asarray(jnp.inf, start.dtype)
    curve = jnp.full(updates + 1, jnp.nan, start.dtype)
    end = jax.lax.while_loop(unfinished, turn, (start, method.init(start), far, far, 0, curve, far))
    loss = value(end[0]).astype(start.dtype)
    return end[0], loss, end[6], end[5].at[end[4]].set(loss)


def second_try(value: Callable[[Array], Array], starts: Array, mask: Array, updates: int) -> float:
    """The best loss of Adam at several rates, which can follow a surrogate gradient (straight through)."""

    def one(start: Array, rate: Array) -> Array:
        method = optax.scale_by_adam()

        def turn(carry: Any, _: None) -> Any:
            point, state, best = carry
            loss, slope = jax.value_and_grad(value)(point)
            move, state = method.update(slope * mask, state)
            return (point - rate * move * mask, state, jnp.fmin(best, loss)), None

        (_, _, best), _ = jax.lax.scan(turn, (start, method.init(start), value(start)), None, length=updates)
        return best

    rates = jnp.asarray(ADAM_RATES)
    several = compile_quickly(lambda points: jax.lax.map(lambda given: one(*given), points), starts.size)
    pairs = (jnp.repeat(starts, len(rates), axis=0), jnp.tile(rates, starts.shape[0]))
    return float(np.nanmin(np.asarray(several(pairs), np.float64)))
