"""The nearest neighbours of every example, and the losses of pairs (Hadsell, Chopra and LeCun 2006).

nearest_neighbours(inputs, 10)          (n, 10), the rows of the nearest ones, the nearest first
squared_distances(a, b)                 |a - b|^2, which pulls neighbours together
hinge_losses(a, b, margin=1.0)          max(0, margin - |a - b|)^2, which pushes others apart
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

_AT_ONCE = 2**24  # distances that are compared together


def nearest_neighbours(inputs: Float[Array, "n ..."], count: int) -> Int[Array, "n count"]:
    """The rows of the `count` nearest other examples of each, by Euclidean distance, the nearest first.

    In blocks of rows, so that the memory is that of some distances at a time.
    """
    flat = inputs.reshape(inputs.shape[0], -1).astype(jnp.float32)
    flat = flat - flat.mean(axis=0)  # far from the origin, differences of squares would lose their digits
    rows = flat.shape[0]
    count = min(count, rows - 1)
    squares = jnp.sum(flat**2, axis=1)
    block = max(1, min(rows, _AT_ONCE // rows))

    def of_block(number: Array) -> Int[Array, "block count"]:
        start = jnp.minimum(number * block, rows - block)
        own = jax.lax.dynamic_slice_in_dim(flat, start, block)
        distances = squares[None, :] - 2.0 * jnp.matmul(own, flat.T, precision=jax.lax.Precision.HIGHEST)
        places = start + jnp.arange(block)
        distances = distances.at[jnp.arange(block), places].set(jnp.inf)  # nobody is a neighbour of itself
        return jax.lax.top_k(-distances, count)[1].astype(jnp.int32)

    def write(number: Array, found: Int[Array, "n count"]) -> Int[Array, "n count"]:
        start = jnp.minimum(number * block, rows - block)
        return jax.lax.dynamic_update_slice_in_dim(found, of_block(number), start, 0)

    return jax.lax.fori_loop(0, -(-rows // block), write, jnp.zeros((rows, count), jnp.int32))


def squared_distances(a: Float[Array, "n k"], b: Float[Array, "n k"]) -> Float[Array, " n"]:
    """|a - b|^2 of each pair."""
    return jnp.sum((a - b) ** 2, axis=1)


def hinge_losses(a: Float[Array, "n k"], b: Float[Array, "n k"], margin: float | Scalar) -> Float[Array, " n"]:
    """max(0, margin - |a - b|)^2, without a gradient where a = b, since none of all directions leads away."""
    squares = squared_distances(a, b)
    apart = squares > 0.0
    distances = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1.0)), 0.0)
    return jnp.maximum(0.0, margin - distances) ** 2
