"""Patches: what a filter sees at each place of a map. With them a convolution is one product of matrices.

    patches(picture, kernel=3, stride=1, padding="same")     (h, w, 3 * 3 * c): rows, then columns, then channels
    count_places(28, kernel=5, stride=2, padding="valid")    12: the places along one side

A map has its channels last; it may have any number of sides before them. XLA has a convolution of its own, but on a CPU
it is slow within a loop, where training happens: an update of three layers of 3 x 3 filters on 64 digits of MNIST takes
122 ms on two cores with it and 6 ms with patches; of four networks at once, under `vmap`, 860 ms and 54 ms.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SAME, VALID = "same", "valid"


def count_places(size: int, *, kernel: int, stride: int, padding: str) -> int:
    """The number of places of a filter along one side of a map; none or fewer where it does not fit."""
    return -(-size // stride) if padding == SAME else (size - kernel) // stride + 1


def _border(size: int, kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """The zeros before and after one side. Where they cannot be equal, there is one more after it."""
    if padding == VALID:
        return 0, 0
    places = count_places(size, kernel=kernel, stride=stride, padding=padding)
    missing = max(0, (places - 1) * stride + kernel - size)
    return missing // 2, missing - missing // 2


def patches(x: Float[Array, "*sides c"], *, kernel: int, stride: int, padding: str) -> Float[Array, "*places taps"]:
    """What a filter sees at each place: its inputs in the order rows, columns, channels."""
    sides = x.shape[:-1]
    counts = [count_places(side, kernel=kernel, stride=stride, padding=padding) for side in sides]
    borders = [_border(side, kernel, stride, padding) for side in sides]
    if any(any(border) for border in borders):
        x = jnp.pad(x, [*borders, (0, 0)])
    for axis in reversed(range(len(sides))):  # one side after the other: 3 + 3 pieces are joined, not 3 x 3
        reach = (counts[axis] - 1) * stride + 1
        windows = [jax.lax.slice_in_dim(x, offset, offset + reach, stride, axis=axis) for offset in range(kernel)]
        x = jnp.concatenate(windows, axis=-1)
    return x


def apply_filters(
    weight: Float[Array, "*own out taps"], x: Float[Array, "*sides c"], *, kernel: int, stride: int, padding: str
) -> Float[Array, "*places out"]:
    """What each filter gives at each place. Weights of more than two axes are those of each place, not shared."""
    seen = patches(x, kernel=kernel, stride=stride, padding=padding)
    if weight.ndim == 2:
        return seen @ weight.T
    return jnp.einsum("...ot,...t->...o", weight, seen)
