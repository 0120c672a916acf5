"""Recursive networks of trees (row G11): `Recursive` is the spec, `RecursiveNetwork` the network it builds.

    Recursive()                                       64 units, long short-term memory
    Recursive(units=32, cell=TreeGru(), width=16)     symbols as vectors of 16 numbers

The network takes one tree (nodes, channels), as `Trees` lays it out, NaN beyond its end; `jax.vmap` makes the batch.
Nodes are visited in their order, children before parents, in one compiled loop: a node takes its children's states off
a stack and puts its own there. So trees of all shapes share one program. The root comes last, and the output layer
reads its state. `Trees` orders the nodes so that log2(n + 1) rows of stack are enough for n nodes; with a row for every
node, the time of a gradient would grow with the square of their number.

What the nodes themselves hold enters by one product for all of them. Nodes beyond the end of every tree of the batch
are skipped at run time, in chunks, as `Recurrent` skips steps; those beyond the end of one tree change nothing.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractModel
from ...specs.dataset import InputLayout
from ...specs.knobs import check_whole, is_off, switch
from ...specs.networks import Network
from ...specs.priors import Choice
from ...specs.schedules import AbstractSchedule, Constant, Noise, dropout_knob
from ...specs.trees.container import LEFT, SYMBOL, VECTOR
from ..activations import Identity
from ..initial_weights import AbstractInitial, Glorot, normal
from ..mlp import Linear, dropped
from ..recurrence.recurrent import longest_in_batch, orthogonal
from .cells import AbstractTreeCell, TreeLstm

CHUNK = 16


class NodeWeights(eqx.Module):
    """W, and U of the left and of the right child, the blocks of all gates one below the other."""

    input: Float[Any, "rows width"]
    left: Float[Any, "rows units"]
    right: Float[Any, "rows units"]


def slots_of(
    children: Int[Array, "nodes 2"], present: Bool[Array, " nodes"]
) -> tuple[Int[Array, " nodes"], Int[Array, "nodes 2"]]:
    """The row of the stack that each node's state goes to, and those of its children; -1 for a node that is not there.

    A node takes its children off the top and puts itself there: the stack grows by one for a leaf, and shrinks by one
    for a node of two.
    """
    there = (children >= 0) & (children < jnp.arange(len(children))[:, None]) & present[:, None]
    slots = jnp.cumsum(1 - jnp.sum(there, axis=1)) - 1
    return jnp.where(present, slots, -1), jnp.where(there, slots[jnp.where(there, children, 0)], -1)


class RecursiveNetwork(Network):
    """One cell at every node, then a linear output at the root. Called without a key it is deterministic."""

    symbols: Float[Any, "symbols width"]  # the last row is that of unknown ones
    weights: NodeWeights
    bias: Float[Any, "gates units"]
    cell: AbstractTreeCell
    output: Linear
    dropout: Noise | None

    def nodes(self, x: Float[Array, "nodes channels"]) -> Float[Array, "nodes gates units"]:
        """W x + b at every node: of its symbol's vector, and of its own numbers if it is a leaf."""
        known = self.symbols.shape[0]
        code = x[:, SYMBOL].astype(jnp.int32)
        own = jnp.where(code[:, None] < 0, 0.0, self.symbols[jnp.clip(code, 0, known - 1)])
        is_leaf = (x[:, LEFT:SYMBOL] < 0).all(axis=1, keepdims=True)
        held = jnp.concatenate([own, jnp.where(is_leaf, x[:, VECTOR:], 0.0)], axis=1)
        return (held @ self.weights.input.T).reshape(-1, *self.bias.shape) + self.bias

    def root(
        self, x: Float[Array, "nodes channels"], present: Bool[Array, " nodes"], longest: Int[Array, ""]
    ) -> Float[Array, " units"]:
        """h of the root, which the last node leaves at the bottom of the stack."""
        count, shape = x.shape[0], self.bias.shape
        slots, children = slots_of(x[:, LEFT:SYMBOL].astype(jnp.int32), present)
        rows = jnp.arange(count.bit_length())  # as many states as can wait at once
        driven, both = self.nodes(x), jnp.stack([self.weights.left, self.weights.right])

        def visit(stack: Array, given: Any) -> tuple[Array, None]:
            own, slot, below = given
            # One-hot products and masks: of so few rows they are faster than to gather and to scatter.
            picked = (below[:, None] == rows).astype(x.dtype)
            states = jnp.tensordot(picked, stack, 1)
            held = jnp.einsum("kru,ku->kr", both, states[:, 0]).reshape(2, *shape)
            state = self.cell.join(own, held, states, jnp.sum(picked))
            return jnp.where((rows == slot)[:, None, None], state, stack), None

        def chunk(stack: Array, given: Any) -> tuple[Array, None]:
            number, nodes = given
            visited = jax.lax.cond(
                number * CHUNK < longest, lambda now: jax.lax.scan(visit, now, nodes)[0], lambda now: now, stack
            )
            return visited, None

        nodes = (driven, slots, children)
        several = jax.tree.map(lambda leaf: leaf.reshape(count // CHUNK, CHUNK, *leaf.shape[1:]), nodes)
        begin = jnp.zeros((len(rows), self.cell.vectors, shape[1]), x.dtype)
        stack, _ = jax.lax.scan(chunk, begin, (jnp.arange(count // CHUNK), several))
        return stack[0, 0]

    def features(
        self, x: Float[Array, "nodes channels"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, " units"]:
        """One vector for the whole tree: h of its root."""
        room = -x.shape[0] % CHUNK
        present = jnp.pad(~jnp.isnan(x[:, LEFT]), (0, room))
        x = jnp.pad(jnp.where(jnp.isnan(x), -1.0, x), ((0, room), (0, 0)), constant_values=-1.0)
        return dropped(self.root(x, present, longest_in_batch(jnp.sum(present))), self.dropout, key)

    def __call__(
        self, x: Float[Array, "nodes channels"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, " outputs"]:
        return self.output(self.features(x, key=key))


class Recursive(AbstractModel):
    """A recursive network of trees of any shape (row G11).

    `width` is the length of a symbol's vector, `symbols` their number, which is read off the data. `dropout` acts on
    the state of the root. The weights of children begin as rotations, shrunk so that two states add up to one of their
    size.
    """

    cell: AbstractTreeCell = TreeLstm()
    units: int = switch(
        64, allowed="[1, inf)", prior=Choice((32, 64, 128)), row="G11", kind="capacity", about="units of each node"
    )
    width: int = switch(
        32, allowed="[1, inf)", prior=Choice((16, 32, 64)), row="G11", kind="capacity", about="numbers for each symbol"
    )
    symbols: int = switch(0, allowed="[0, inf)", row="G11", kind="model", about="symbols; read off the data")
    initial: AbstractInitial = Glorot()
    output_initial: AbstractInitial = Glorot()
    dropout: float = dropout_knob(0.1, "a unit of the root")
    dropout_schedule: AbstractSchedule = Constant()

    def __check_init__(self) -> None:
        check_whole(self, "units", "width", "symbols")

    def for_inputs(self, layout: InputLayout | None) -> "Recursive":
        if layout is None or not layout.categories or self.symbols:
            return self
        return dataclasses.replace(self, symbols=layout.categories[0])

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> RecursiveNetwork:
        if len(inputs) != 2 or inputs[1] < VECTOR:
            raise RequestError(
                f"`Recursive` needs trees; got examples of shape {inputs}. Pass a list of trees in brackets, such as "
                "(+ 3 (* 4 5)), of nested tuples, or `Trees`; or use another model."
            )
        width, gates = self.width + inputs[1] - VECTOR, range(self.cell.gates)
        draws = [keys.named(key, f"gate {gate}") for gate in gates]
        entering = [self.initial.draw(self.units, width, 1.0, key=keys.named(draw, "input")) for draw in draws]
        sides = [
            jnp.concatenate([orthogonal(self.units, keys.named(draw, side)) for draw in draws]) / math.sqrt(2.0)
            for side in ("left", "right")
        ]
        weight = self.output_initial.draw(outputs, self.units, 1.0, key=keys.named(key, "output"))
        noise = None if is_off(self.dropout) else Noise(jnp.asarray(self.dropout), self.dropout_schedule)
        return RecursiveNetwork(
            symbols=normal((self.symbols + 1, self.width), keys.named(key, "symbols")),
            weights=NodeWeights(jnp.concatenate(entering), *sides),
            bias=self.cell.initial_bias(self.units),
            cell=self.cell,
            output=Linear(weight, jnp.zeros(outputs), Identity()),
            dropout=noise,
        )
