"""Cells of a recursive network: what a node's state h becomes from what it holds and from its children's states.

With a = W x + b of the node and c_k = U_k h_k of each child (0 where there is none):

| cell             | state of the node                                                                          |
|------------------|--------------------------------------------------------------------------------------------|
| `SimpleTreeCell` | h = tanh(a + c_l + c_r)                                                                    |
| `TreeGru`        | r_k = s(a_r + c_r,k), z = s(a_z + sum c_z), n = tanh(a_n + sum r_k c_n,k),                  |
|                  | h = (1 - z) n + z (mean of the children's h)                                               |
| `TreeLstm`       | i, f_l, f_r, o = s(a + sum c), g = tanh(a_g + sum c_g), m = i g + sum f_k m_k, h = o tanh m |

s is the logistic function. The last one is the N-ary cell of Tai, Socher and Manning (2015). A chain of nodes with one
child each is what `Recurrent` does with `SimpleCell`, `Gru` and `Lstm`.
"""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...specs.knobs import Spec

Held = Float[Array, "2 gates units"]
Pair = Float[Array, "2 units"]


class AbstractTreeCell(Spec):
    """The state of one node: a block of `vectors` rows, of which the first, h, is what its parent's products read."""

    gates: ClassVar[int]  # blocks of `units` rows in W, U and b
    vectors: ClassVar[int] = 1

    @abc.abstractmethod
    def join(
        self,
        driven: Float[Array, "gates units"],
        held: Held,
        children: Float[Array, "2 vectors units"],
        count: Float[Array, ""],
    ) -> Float[Array, "vectors units"]:
        """The state, from W x + b, from U h of the left and the right child, and their states; `count` are there."""

    def initial_bias(self, units: int) -> Float[Array, "gates units"]:
        """The biases before training."""
        return jnp.zeros((self.gates, units))


class SimpleTreeCell(AbstractTreeCell):
    """Hyperbolic tangent units without gates (Socher, Lin, Ng and Manning 2011)."""

    gates: ClassVar[int] = 1

    def join(
        self,
        driven: Float[Array, "1 units"],
        held: Held,
        children: Float[Array, "2 vectors units"],
        count: Float[Array, ""],
    ) -> Float[Array, "1 units"]:
        return jnp.tanh(driven + held.sum(axis=0))


class TreeGru(AbstractTreeCell):
    """Gated units: a reset gate for each child, and one gate that keeps the mean of the children's states."""

    gates: ClassVar[int] = 3

    def join(
        self,
        driven: Float[Array, "3 units"],
        held: Held,
        children: Float[Array, "2 vectors units"],
        count: Float[Array, ""],
    ) -> Float[Array, "1 units"]:
        reset = jax.nn.sigmoid(driven[0] + held[:, 0])
        keep = jax.nn.sigmoid(driven[1] + held[:, 1].sum(axis=0))
        new = jnp.tanh(driven[2] + (reset * held[:, 2]).sum(axis=0))
        mean = children[:, 0].sum(axis=0) / jnp.maximum(count, 1.0)
        return (new + keep * (mean - new))[None]


class TreeLstm(AbstractTreeCell):
    """Long short-term memory with a forget gate for each child, whose biases begin at 1 (Tai, Socher, Manning 2015)."""

    gates: ClassVar[int] = 5
    vectors: ClassVar[int] = 2

    def join(
        self,
        driven: Float[Array, "5 units"],
        held: Held,
        children: Float[Array, "2 vectors units"],
        count: Float[Array, ""],
    ) -> Float[Array, "2 units"]:
        total = driven + held.sum(axis=0)
        enter, left, right, leave = jax.nn.sigmoid(total[:4])
        memory = left * children[0, 1] + right * children[1, 1] + enter * jnp.tanh(total[4])
        return jnp.stack([leave * jnp.tanh(memory), memory])

    def initial_bias(self, units: int) -> Float[Array, "5 units"]:
        return jnp.zeros((5, units)).at[1:3].set(1.0)
