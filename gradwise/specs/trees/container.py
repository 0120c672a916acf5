"""Trees of different shapes and sizes as arrays: `Trees`, sequences whose steps are nodes, children before parents.

    Trees.from_list(["(+ 3 (* 4 5))", "(- 1 2)"])      brackets, or nested tuples (`reading.py`)

A node is a row (left, right, symbol, vector ...): the places of its children within the tree and the number of its
symbol, -1 where there is none, and the numbers of a leaf that is a vector, 0 elsewhere. As sequences are, a set of
trees is one dense array on a device, (trees, nodes of the largest, channels), NaN beyond the end of each tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ..sequences import Sequences
from .reading import nodes_of

LEFT, RIGHT, SYMBOL, VECTOR = 0, 1, 2, 3  # the channels of a node; those from VECTOR on are the vector's
_COUNTED = 50  # symbols that a summary counts, the first of the vocabulary


def _vocabulary(trees: list[list[Any]]) -> tuple[str, ...]:
    """Every symbol, numbers in their order, then the others by their letters."""
    found = {node.symbol for nodes in trees for node in nodes if node.symbol is not None}
    return tuple(sorted(found, key=lambda one: (not one.isdigit(), int(one) if one.isdigit() else 0, one)))


def _vectors(trees: list[list[Any]]) -> int:
    """The length of the leaves that are vectors; 0 without any."""
    sizes = {len(node.vector) for nodes in trees for node in nodes if node.vector is not None}
    if len(sizes) > 1:
        raise RequestError(
            f"the vectors at the leaves of trees must have one length; got {min(sizes)} and {max(sizes)}."
        )
    return sizes.pop() if sizes else 0


@dataclass(frozen=True, eq=False, repr=False)
class Trees(Sequences):
    """Binary trees: tree i is `values[offsets[i]:offsets[i + 1]]`, a row for each node. `symbols` names the symbols."""

    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Sequences.__post_init__(self)
        if self.values.shape[1] < VECTOR:
            raise RequestError("a node of `Trees` has at least three numbers: left child, right child and symbol.")
        wrong = self._out_of_order()
        if wrong.any():
            tree = int(np.searchsorted(self.offsets, np.argmax(wrong), "right")) - 1
            raise RequestError(
                f"tree {tree} is not in order: each node comes after its children, the last just before it, the "
                "one that holds more states first; the root comes last. Use `Trees.from_list`."
            )

    @classmethod
    def from_list(cls, items: Iterable[Any], symbols: tuple[str, ...] | None = None) -> Trees:
        """Trees from brackets or nested tuples. With `symbols` the others are unknown, all with one number."""
        trees: list[list[Any]] = []
        for number, item in enumerate(items):
            try:
                trees.append(nodes_of(item))
            except RequestError as problem:
                raise RequestError(f"tree {number}: {problem}") from None
        if not trees:
            raise RequestError("there are no trees.")
        known = _vocabulary(trees) if symbols is None else symbols
        code: dict[str | None, int] = {symbol: number for number, symbol in enumerate(known)}
        code[None] = -1
        offsets = np.cumsum([0, *map(len, trees)])
        values = np.zeros((offsets[-1], VECTOR + _vectors(trees)), np.float32)
        for row, node in enumerate(node for nodes in trees for node in nodes):
            values[row, :VECTOR] = node.left, node.right, code.get(node.symbol, len(known))
            if node.vector is not None:
                values[row, VECTOR:] = node.vector
        return cls(values, offsets, symbols=known)

    def _out_of_order(self) -> np.ndarray:
        """The nodes whose children would not lie on top of the stack on which a network keeps states (`slots_of`)."""
        start = np.repeat(self.offsets[:-1], self.lengths)
        place, children = np.arange(len(self.values)) - start, self.values[:, :SYMBOL].astype(int)
        several = (children >= 0).sum(axis=1)
        total = np.cumsum(1 - several)
        slots = total - np.repeat(np.concatenate([[0], total[self.offsets[1:-1] - 1]]), self.lengths) - 1
        first, last = np.sort(children, axis=1).T
        wrong = (several > 0) & (last != place - 1)
        pair = np.flatnonzero(several == 2)
        inside = pair[~wrong[pair]]
        wrong[inside] |= (slots[start[inside] + first[inside]] != slots[inside]) | (first[inside] == last[inside])
        wrong |= slots >= np.repeat([int(length).bit_length() for length in self.lengths], self.lengths)
        ends = self.offsets[1:] - 1
        wrong[ends] |= slots[ends] != 0
        parents = np.bincount((children + start[:, None])[children >= 0], minlength=len(wrong))
        return np.asarray(wrong | (parents > 1))

    def like(self, others: Sequences) -> Trees:
        """The same trees in the vocabulary of others."""
        return self.with_symbols(others.symbols) if isinstance(others, Trees) else self

    def with_symbols(self, symbols: tuple[str, ...]) -> Trees:
        """The same trees in another vocabulary; a symbol that it lacks is unknown."""
        if symbols == self.symbols:
            return self
        number = {symbol: place for place, symbol in enumerate(symbols)}
        codes = np.array([*(number.get(symbol, len(symbols)) for symbol in self.symbols), len(symbols), -1])
        values = self.values.copy()
        values[:, SYMBOL] = codes[values[:, SYMBOL].astype(int)]  # the last is that of no symbol, -1
        return Trees(values, self.offsets, self.longest, symbols)

    @property
    def is_leaf(self) -> np.ndarray:
        """Which of all nodes have no children."""
        return np.asarray((self.values[:, :SYMBOL] < 0).all(axis=1))

    def heights(self) -> np.ndarray:
        """The height of each tree's root above the deepest leaf."""
        heights = np.zeros(len(self.values) + 1, int)
        heights[-1] = -1
        start = np.repeat(self.offsets[:-1], self.lengths)
        children = np.where(self.values[:, :SYMBOL] < 0, -1, self.values[:, :SYMBOL] + start[:, None]).astype(int)
        for row in range(len(self.values)):
            heights[row] = 1 + heights[children[row]].max()
        return heights[self.offsets[1:] - 1]

    def summaries(self) -> np.ndarray:
        """One row for each tree: its nodes, its leaves, how often each symbol occurs, and the mean of its vectors.

        The last column differs between any two trees that differ, so that only equal ones have equal rows.
        """

        def total(columns: np.ndarray) -> np.ndarray:
            return np.asarray(np.add.reduceat(np.asarray(columns, np.float64), self.offsets[:-1], axis=0))

        counted = np.arange(min(len(self.symbols), _COUNTED))
        leaves = total(self.is_leaf[:, None])
        mean = total(self.values[:, VECTOR:]) / leaves
        counts = total(self.values[:, SYMBOL, None] == counted)
        return np.hstack([self.lengths[:, None], leaves, counts, mean, self._fingerprints()[:, None]])

    def _fingerprints(self) -> np.ndarray:
        """A number in [0, 1) for each tree, of all its nodes and where they stand."""
        weights = np.random.default_rng(0).random((int(self.lengths.max()), self.values.shape[1]))
        place = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)
        each = (self.values * weights[place]).sum(axis=1, dtype=np.float64)
        return np.asarray(np.add.reduceat(each, self.offsets[:-1]) % 1.0)

    def summary_names(self) -> tuple[str, ...]:
        """What the columns of `summaries` are called."""
        symbols = (f"`{symbol}` in the tree" for symbol in self.symbols[:_COUNTED])
        vectors = (f"mean of vector entry {number}" for number in range(1, self.values.shape[1] - VECTOR + 1))
        return ("nodes", "leaves", *symbols, *vectors, "fingerprint")

    def __repr__(self) -> str:
        least, most = int(self.lengths.min()), int(self.lengths.max())
        return f"Trees({len(self)} of {least} to {most} nodes, {len(self.symbols)} symbols)"


def is_list_of_trees(data: Any) -> bool:
    """Whether a list holds trees whose leaves are symbols: text in brackets, or nested tuples of text."""
    if not isinstance(data, list | tuple) or len(data) < 2:
        return False
    if all(isinstance(one, str) for one in data):
        return any("(" in one for one in data)
    if not all(isinstance(one, str | tuple) for one in data):
        return False
    return any(isinstance(one, tuple) and _has_text(one) for one in data)


def _has_text(item: Any) -> bool:
    """Whether the first leaf of nested tuples is text."""
    while isinstance(item, tuple | list) and len(item) in (2, 3):
        item = item[1]
    return isinstance(item, str)
