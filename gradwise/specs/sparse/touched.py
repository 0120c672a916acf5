"""The rows of a table that a mini-batch of sparse rows reads: an update that sees no others (row G2).

    few = TouchedRows.of(batch.inputs.columns, width)        which rows, and where each column is among them
    few.narrow(parameters)                                   the same network with tables of these rows alone
    few.widen(parameters, after)                             the whole tables with these rows as they are after

A table is a parameter with a row for each column of the inputs, as a network's `column_tables` names them. An
optimiser's state holds trees like the parameters, whose tables are narrowed alike.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree


class TouchedRows(eqx.Module):
    """`columns` are those that occur, each once, then `width` where there is room; `place_of` finds one among them."""

    columns: Int[Array, " room"]
    owner: Int[Array, " width"]  # an occurrence of each column that occurs
    rank: Int[Array, " n"]  # the place of each occurrence's column
    width: int = eqx.field(static=True)

    @classmethod
    def of(cls, occurring: Sequence[Int[Array, "..."]], width: int) -> "TouchedRows":
        """Of these columns, any number of times each; `width` stands for none."""
        every = jnp.concatenate([each.reshape(-1) for each in occurring])
        count = every.shape[0]
        owner = jnp.zeros(width, jnp.int32).at[every].max(jnp.arange(count, dtype=jnp.int32), mode="drop")
        first = (owner.at[every].get(mode="fill", fill_value=-1) == jnp.arange(count)) & (every < width)
        rank = jnp.cumsum(first, dtype=jnp.int32) - 1
        columns = jnp.full(room_for(count, width), width, every.dtype)
        columns = columns.at[jnp.where(first, rank, count)].set(every, mode="drop")
        return cls(columns, owner, rank, width)

    def place_of(self, columns: Int[Array, "..."]) -> Int[Array, "..."]:
        """Where these columns, all of which occur, are among those read; that of none is their number."""
        place = self.rank[self.owner.at[columns].get(mode="clip")]
        return jnp.where(columns < self.width, place, self.columns.shape[0])

    def _on_tables(self, change: Callable[..., Array], whole: PyTree, *others: PyTree, kind: type) -> PyTree:
        """The tree with something else in the place of each table, in every network of this kind within it."""

        def is_network(node: Any) -> bool:
            return type(node) is kind

        def replace(node: Any, *rest: Any) -> Any:
            if not is_network(node):
                return rest[0] if rest else node
            tables = [each.column_tables for each in (node, *rest)]
            found = [change(*one) for one in zip(*tables, strict=True)]
            return eqx.tree_at(lambda network: network.column_tables, rest[0] if rest else node, found)

        return jax.tree.map(replace, whole, *others, is_leaf=is_network)

    def narrow(self, tree: PyTree, kind: type) -> PyTree:
        """With these rows of each table alone; the room that is left holds zeros."""
        return self._on_tables(lambda t: t.at[self.columns].get(mode="fill", fill_value=0), tree, kind=kind)

    def widen(self, before: PyTree, after: PyTree, kind: type) -> PyTree:
        """With these rows of each table as they are after, the other rows as they were before."""
        return self._on_tables(lambda t, new: t.at[self.columns].set(new, mode="drop"), before, after, kind=kind)


def room_for(count: int, width: int) -> int:
    """The room for the different ones among so many columns."""
    return min(count, width)
