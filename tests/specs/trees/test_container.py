"""`Trees`: rows of nodes, taken and joined as sequences are, and what simple models see of them."""

from typing import Any

import numpy as np
import pytest

from gradwise.data.splits import stack_rows
from gradwise.runtime.errors import RequestError
from gradwise.specs.sequences import Sequences
from gradwise.specs.trees.container import Trees, is_list_of_trees

TEXTS = ["(+ 3 (* 4 5))", "7", "(- 4 10)", "(neg 3)"]


def test_nodes_are_rows_of_children_and_symbols() -> None:
    trees = Trees.from_list(TEXTS)
    assert trees.symbols == ("3", "4", "5", "7", "10", "*", "+", "-", "neg")
    assert trees.shape == (4, 5, 3)
    np.testing.assert_array_equal(trees[0], [[-1, -1, 1], [-1, -1, 2], [0, 1, 5], [-1, -1, 0], [3, 2, 6]])
    np.testing.assert_array_equal(trees[3], [[-1, -1, 0], [0, -1, 8]])
    assert trees.heights().tolist() == [2, 0, 1, 1]
    dense = np.asarray(trees)
    assert np.isnan(dense[1, 1:]).all()
    np.testing.assert_array_equal(dense[0], trees[0])
    assert repr(trees) == "Trees(4 of 1 to 5 nodes, 9 symbols)"


def test_rows_that_are_taken_stay_trees() -> None:
    trees = Trees.from_list(TEXTS)
    for rows in (slice(1, 3), np.array([3, 0]), np.array([True, False, False, True])):
        some = trees[rows]
        assert (type(some), some.symbols, some.longest) == (Trees, trees.symbols, 5)
        for number, place in enumerate(np.arange(4)[rows]):
            np.testing.assert_array_equal(some[number], trees[int(place)])
    assert trees.with_longest(9).shape == (4, 9, 3)


def test_other_vocabularies_are_translated() -> None:
    trees, others = Trees.from_list(TEXTS), Trees.from_list(["(* 3 x)", "(_ 7 4)"])
    told = others.with_symbols(trees.symbols)
    np.testing.assert_array_equal(told[0][:, 2], [0, 9, 5])  # x is unknown
    np.testing.assert_array_equal(told[1][:, 2], [3, 1, -1])
    both = stack_rows([trees, others])
    assert (type(both), len(both), both.symbols) == (Trees, 6, trees.symbols)
    np.testing.assert_array_equal(both[4], told[0])
    np.testing.assert_array_equal(Trees.from_list(["(* 3 x)"], trees.symbols)[0], told[0])


def test_summaries_count_nodes_and_symbols() -> None:
    trees = Trees.from_list([("a", np.array([1.0, 3.0]), "b"), ("b", "b", None)])
    expected = [[3, 2, 1, 1, 0.5, 1.5], [2, 1, 0, 2, 0, 0]]
    np.testing.assert_allclose(trees.summaries()[:, :-1], expected)
    assert trees.summary_names()[:4] == ("nodes", "leaves", "`a` in the tree", "`b` in the tree")
    assert len(trees.summary_names()) == 7


def test_only_equal_trees_have_equal_summaries() -> None:
    trees = Trees.from_list(["(+ a (- b c))", "(+ a (- c b))", "(+ (- b c) a)", "(- a (+ b c))", "(+ a (- b c))"])
    rows = trees.with_longest(20).summaries()
    assert (rows[:, :-1] == rows[0, :-1]).all()
    assert len(np.unique(rows, axis=0)) == 4
    np.testing.assert_array_equal(rows[0], rows[4])
    np.testing.assert_array_equal(trees[np.array([4])].summaries()[0], rows[0])


@pytest.mark.parametrize(
    ("data", "are_trees"),
    [
        (TEXTS, True),
        ([("a", "b"), "c"], True),
        (["plain", "text"], False),
        ([np.zeros((2, 1)), np.zeros((3, 1))], False),
        ([(1, 2), (3, 4)], False),
        ([[1.0, 2.0], [3.0, 4.0]], False),
        (TEXTS[:1], False),
    ],
)
def test_lists_of_trees_are_told_from_others(data: Any, are_trees: bool) -> None:
    assert is_list_of_trees(data) is are_trees


def test_wrong_ones_are_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match="tree 1: a bracket of the tree"):
        Trees.from_list(["a", "(a b c d)"])
    with pytest.raises(RequestError, match="there are no trees"):
        Trees.from_list([])
    with pytest.raises(RequestError, match="one length; got 2 and 3"):
        Trees.from_list([(np.ones(2), np.ones(3))])
    for rows in (
        [[1, -1, 0], [-1, -1, 0]],  # a node before its child
        [[-1, -1, 0], [-1, -1, 0], [0, -1, 0]],  # a root without all others
        [[-1, -1, 0], [-1, -1, 0], [0, 0, 0]],  # one child twice
        [[-1, -1, 0], [0, -1, 0], [0, 1, 0]],  # a child of two parents
        [[-1, -1, 0], [-1, -1, 0]],  # two roots
        [*[[-1, -1, 0]] * 4, [2, 3, 0], [1, 4, 0], [0, 5, 0]],  # four states wait for one another, and three would do
    ):
        with pytest.raises(RequestError, match="tree 1 is not in order"):
            Trees(np.array([[-1, -1, 0], *rows]), np.array([0, 1, 1 + len(rows)]))
    with pytest.raises(RequestError, match="at least three numbers"):
        Trees(np.zeros((2, 2)), np.array([0, 2]))
    assert isinstance(Trees.from_list(TEXTS), Sequences)
