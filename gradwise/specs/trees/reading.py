"""Trees as people write them, read into one list of nodes.

    "(+ 3 (* 4 5))"              brackets: a symbol, then one or two children
    "((_ the cat) sat)"          no symbol: `_` instead, or the first child in brackets
    ("+", "3", ("*", "4", "5"))  a tuple of three: a symbol and two children; the second is None for a single one
    (("the", "cat"), "sat")      a tuple of two: a pair without a symbol
    (array, array)               leaves may be vectors, all of one length

Nothing recurses, so a tree may be as deep as memory allows.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import RequestError

_TOKENS = re.compile(r"[()]|[^()\s]+")
_SHOWN = 60
_LARGEST = 100_000  # nodes of one tree


@dataclass(frozen=True)
class TreeNode:
    """A node with the places of its children among the nodes, -1 where there is none, and its height above a leaf."""

    symbol: str | None
    vector: np.ndarray | None
    left: int
    right: int
    height: int


def _short(item: Any) -> str:
    text = str(item)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def nested_from_text(text: str) -> Any:
    """Nested tuples (symbol, left, right) of a tree in brackets; the symbol or the right child may be None."""
    open_brackets: list[list[Any]] = [[]]
    for token in _TOKENS.findall(text):
        if token == "(":
            open_brackets.append([])
        elif token != ")":
            open_brackets[-1].append(token)
        elif len(open_brackets) == 1:
            raise RequestError(f"the tree {_short(text)!r} closes a bracket that it has not opened.")
        else:
            open_brackets[-2].append(_node_of(open_brackets.pop(), text))
    if len(open_brackets) > 1:
        raise RequestError(f"the tree {_short(text)!r} has {len(open_brackets) - 1} brackets that are not closed.")
    if len(open_brackets[0]) != 1:
        raise RequestError(f"{_short(text)!r} is no tree: write one symbol or one bracket, such as (+ 3 (* 4 5)).")
    return open_brackets[0][0]


def _node_of(items: list[Any], text: str) -> Any:
    """What a bracket holds, as a tuple of three."""
    symbol = None if items and isinstance(items[0], tuple) else items[0] if items else None
    children = items if symbol is None else items[1:]
    if len(items) == 1:
        return items[0]  # a leaf, or a bracket, in brackets of its own
    if not 1 <= len(children) <= 2:
        raise RequestError(
            f"a bracket of the tree {_short(text)!r} has {len(children)} children: write one or two, and nest more of "
            "them, as in (+ 1 (+ 2 3))."
        )
    return None if symbol == "_" else symbol, children[0], children[1] if len(children) == 2 else None


def _parts(item: Any) -> tuple[Any, tuple[Any, ...]]:
    """The symbol or vector of an item, and its children."""
    if not isinstance(item, tuple | list):
        return item, ()
    if len(item) == 2:
        return None, tuple(item)
    if len(item) == 3:
        return item[0], tuple(child for child in item[1:] if child is not None)
    raise RequestError(
        f"a node of a tree is (left, right) or (symbol, left, right); got {len(item)} items: {_short(item)}."
    )


def nodes_of(item: Any) -> list[TreeNode]:
    """The nodes of one tree, each after its children, of which the last one comes just before; the root comes last."""
    waiting: list[tuple[Any, bool]] = [(nested_from_text(item) if isinstance(item, str) else item, False)]
    done: list[TreeNode] = []
    results: list[int] = []
    while waiting:
        now, are_read = waiting.pop()
        own, children = _parts(now)
        if children and not are_read:
            waiting.append((now, True))
            waiting += [(child, False) for child in reversed(children)]
            continue
        places = [results.pop() for _ in children][::-1]
        is_vector = isinstance(own, np.ndarray) and own.ndim == 1
        if own is not None and not is_vector and not isinstance(own, str | int | np.integer):
            raise RequestError(
                f"a leaf or the symbol of a tree must be text, a whole number or a vector; got {_short(own)!r}."
            )
        if children and is_vector:
            raise RequestError("leaves of a tree may be vectors, but inner nodes may not: give them a symbol, or None.")
        if not children and own is None:
            raise RequestError("a leaf of a tree is None: give it a symbol or a vector.")
        height = 1 + max((done[place].height for place in places), default=-1)
        left, right = (*places, -1, -1)[:2]
        done.append(
            TreeNode(None if own is None or is_vector else str(own), own if is_vector else None, left, right, height)
        )
        results.append(len(done) - 1)
        if len(done) > _LARGEST:
            raise RequestError(f"a tree has more than {_LARGEST:,} nodes.")
    return _by_need(done)


def _by_need(nodes: list[TreeNode]) -> list[TreeNode]:
    """The same nodes in an order in which few states wait at once: of two children the one that needs more comes first.

    Then a stack of log2(n + 1) states is enough for a tree of n nodes (Ershov 1958).
    """
    needs: list[int] = []
    for node in nodes:
        below = sorted((needs[child] for child in (node.left, node.right) if child >= 0), reverse=True)
        needs.append(below[0] + (len(below) == 2 and below[0] == below[1]) if below else 1)
    order, waiting = [], [len(nodes) - 1]
    while waiting:  # from the root down, what comes last first
        order.append(waiting.pop())
        node = nodes[order[-1]]
        children = [child for child in (node.left, node.right) if child >= 0]
        waiting += sorted(children, key=lambda child: -needs[child])
    order.reverse()
    place = {-1: -1, **{number: new for new, number in enumerate(order)}}
    found = (nodes[number] for number in order)
    return [TreeNode(one.symbol, one.vector, place[one.left], place[one.right], one.height) for one in found]
