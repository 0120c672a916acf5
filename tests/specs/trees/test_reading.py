"""Trees as text and as nested tuples: both ways of writing give the same nodes, and what is wrong is said."""

from typing import Any

import numpy as np
import pytest

from gradwise.runtime.errors import RequestError
from gradwise.specs.trees.reading import TreeNode, nodes_of


def written(nodes: list[TreeNode], place: int = -1) -> str:
    """A tree in brackets again, `_` where a node has no symbol."""
    node = nodes[place]
    if node.left < 0:
        return str(node.symbol)
    children = [written(nodes, child) for child in (node.left, node.right) if child >= 0]
    return f"({node.symbol or '_'} {' '.join(children)})"


@pytest.mark.parametrize(
    ("text", "nested", "again"),
    [
        ("a", "a", "a"),
        ("(+ 3 (* 4 5))", ("+", 3, ["*", "4", "5"]), "(+ 3 (* 4 5))"),
        ("((_ the cat) sat)", (("the", "cat"), "sat"), "(_ (_ the cat) sat)"),
        ("(not x)", ("not", "x", None), "(not x)"),
        (" ( and (not (x)) (or y z) ) ", ("and", ("not", "x", None), ("or", "y", "z")), "(and (not x) (or y z))"),
    ],
)
def test_both_ways_of_writing_give_one_tree(text: str, nested: Any, again: str) -> None:
    assert written(nodes_of(text)) == written(nodes_of(nested)) == again


def test_children_come_first_and_the_root_last() -> None:
    nodes = nodes_of("(+ (neg 4) (- 1 (* 2 3)))")
    assert [node.symbol for node in nodes] == ["2", "3", "*", "1", "-", "4", "neg", "+"]
    assert [node.height for node in nodes] == [0, 0, 1, 0, 2, 0, 1, 3]
    for node in nodes:
        children = [nodes[child].height for child in (node.left, node.right) if child >= 0]
        assert node.height == 1 + max(children, default=-1)


@pytest.mark.parametrize("leaning", [False, True])
def test_few_states_wait_at_once(leaning: bool) -> None:
    """A stack run by hand: children are on its top, and it never holds more than log2(n + 1)."""
    tree: Any = "a"
    for _ in range(200 if leaning else 7):
        tree = ("b", tree) if leaning else (tree, tree)
    nodes, stack, most = nodes_of(tree), [], 0
    for place, node in enumerate(nodes):
        children = {child for child in (node.left, node.right) if child >= 0}
        assert {stack.pop() for _ in children} == children
        stack.append(place)
        most = max(most, len(stack))
    assert stack == [len(nodes) - 1]
    assert most == (2 if leaning else 8)
    assert most <= np.log2(len(nodes) + 1)


def test_a_tree_of_a_thousand_levels_is_read() -> None:
    deep = "(+ 1 " * 3000 + "2" + ")" * 3000
    nodes = nodes_of(deep)
    assert (len(nodes), nodes[-1].height) == (6001, 3000)


def test_leaves_may_be_vectors() -> None:
    one, two = np.arange(2.0), np.ones(2)
    nodes = nodes_of(("s", one, two))
    assert [node.symbol for node in nodes] == [None, None, "s"]
    assert nodes[0].vector is one


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("(+ 1 2", "1 brackets that are not closed"),
        ("(+ 1 2))", "closes a bracket that it has not opened"),
        ("(+ 1 2 3)", "has 3 children: write one or two"),
        ("()", "has 0 children"),
        ("a b", "is no tree"),
        ("", "is no tree"),
        (("a", "b", "c", "d"), "got 4 items"),
        (("a", None), "a leaf of a tree is None"),
        (("a", 1.5), "must be text, a whole number or a vector; got '1.5'"),
        ((np.ones(2), "a", "b"), "inner nodes may not"),
    ],
)
def test_what_is_no_tree_is_refused(item: Any, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        nodes_of(item)
