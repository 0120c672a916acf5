"""A data set checks itself when it is made."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import (
    Classes,
    Column,
    Dataset,
    InputLayout,
    Inputs,
    Labels,
    Numbers,
    Several,
    refuse_several,
)

X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0)[:, None]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((X, Y[:5], Numbers()), "6 rows of inputs but 5 targets"),
        ((X[:0], Y[:0], Numbers()), "no examples"),
        ((X[:, 0], Y, Numbers()), "2 to 4 dimensions"),
        ((X.reshape(6, 1, 1, 1, 2), Y, Numbers()), "2 to 4 dimensions"),
        ((X, Y[:, 0], Numbers()), r"shape \(6, 1\)"),
        ((X, Y, Numbers(("a", "b"))), r"shape \(6, 2\)"),
        ((X, Y, Labels(("a", "b"))), r"shape \(6, 2\)"),
        ((X, Y, Classes(np.arange(6))), r"shape \(6,\)"),
        ((X, Y[:, 0], Classes(np.arange(6))), "integer indices"),
        ((X, np.arange(6), Classes(np.arange(5))), "from 0 to 4"),
        ((X, np.arange(6) - 2, Classes(np.arange(6))), "from 0 to 5, or -1"),
        ((X, np.where(Y == 3, np.inf, Y), Numbers()), "row 3"),
        ((X, Y * -2e306, Numbers()), r"row 1 is 2e\+306 in size, too large .* at most 1e\+30\. Divide the target"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        Dataset(*arguments)
    assert "\n" not in str(caught.value)


def test_examples_without_a_target_are_told_from_the_others() -> None:
    """A class of -1, or NaN in any of the numbers or labels."""
    several = np.ones((6, 2))
    several[[1, 4], [0, 1]] = np.nan
    for targets, task in (
        (np.array([0, -1, 1, 1, -1, 0]), Classes(np.arange(2))),
        (several, Numbers(("a", "b"))),
        (several, Labels(("a", "b"))),
    ):
        dataset = Dataset(X, targets, task)
        assert dataset.labelled.tolist() == [True, False, True, True, False, True]
        assert dataset.take(np.array([4, 0])).labelled.tolist() == [False, True]


def test_a_data_set_without_targets_keeps_everything_else() -> None:
    weights = np.arange(6.0)
    dataset = Dataset(X, Y, Numbers(), weights=weights, test=Dataset(X[:2], Y[:2], Numbers())).without_targets()
    assert dataset.test is not None
    for one, inputs in ((dataset, X), (dataset.test, X[:2])):
        assert isinstance(one.task, Inputs)
        assert one.targets.shape == (len(inputs), 0)
        assert one.labelled.all()
        np.testing.assert_array_equal(one.inputs, inputs)
    assert dataset.weights is weights


@pytest.mark.parametrize("name", ["weights", "groups", "times"])
def test_what_goes_beside_the_rows_has_their_number(name: str) -> None:
    with pytest.raises(RequestError, match=f"`{name}`.*5.*6"):
        Dataset(X, Y, Numbers(), **{name: np.ones(5)})


def test_an_official_test_set_has_the_shape_of_the_others() -> None:
    with pytest.raises(RequestError, match=r"\(3,\).*\(2,\)"):
        Dataset(X, Y, Numbers(), test=Dataset(np.zeros((4, 3)), np.zeros((4, 1)), Numbers()))


def test_take_takes_every_field_and_leaves_the_test_set() -> None:
    official = Dataset(X[:2], Y[:2], Numbers())
    dataset = Dataset(
        X, Y, Numbers(), (Column("a"), Column("b")), np.arange(6.0), np.array(list("aabbcc")), np.arange(6), official
    )
    rows = np.array([4, 1])
    part = dataset.take(rows)
    np.testing.assert_array_equal(part.inputs, X[rows])
    np.testing.assert_array_equal(part.targets, Y[rows])
    assert (part.weights.tolist(), part.groups.tolist(), part.times.tolist()) == ([4.0, 1.0], ["c", "a"], [4, 1])
    assert part.columns == dataset.columns
    assert part.test is None
    assert (len(part), part.shape) == (2, (2,))


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_sparse_rows_are_rows(kind: Any) -> None:
    dataset = Dataset(kind(X), Y, Numbers())
    assert (len(dataset), dataset.shape) == (6, (2,))
    np.testing.assert_array_equal(dataset.take(np.array([5, 0])).inputs.toarray(), X[[5, 0]])


def test_tasks_know_their_outputs() -> None:
    assert Classes(np.array(["a", "b", "c"])).outputs == 3
    assert Classes(np.array(["a"])).outputs == 2  # one class alone still needs a softmax
    assert Labels(("a", "b", "c")).outputs == 3
    assert Numbers().outputs == 1
    assert Inputs().outputs == 0
    assert (Classes.kind, Labels.kind, Numbers.kind, Inputs.kind) == ("classes", "labels", "numbers", "inputs")


def test_a_layout_counts_its_inputs_and_can_be_static() -> None:
    layout = InputLayout(numbers=3, flags=5, categories=(12, 40))
    assert layout.width == 10
    assert InputLayout(numbers=4).width == 4
    assert hash(layout) == hash(InputLayout(3, 5, (12, 40)))
    assert layout != InputLayout(3, 5, (12, 41))


def test_several_tasks_are_cut_into_pieces() -> None:
    task = Several((Numbers(("price",)), Classes(np.array(["a", "b", "c"]), "colour"), Labels(("old", "new"))))
    assert (task.names, task.outputs, task.width) == (("price", "colour", "old", "new"), 6, 4)
    first, second, third = task.pieces
    assert [one.outputs for one in task.pieces] == [slice(0, 1), slice(1, 4), slice(4, 6)]
    targets = np.array([[1.5, 2.0, 0.0, 1.0], [np.nan, np.nan, 1.0, 1.0], [np.nan, np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(first.of(targets), targets[:, :1])
    assert second.of(targets).tolist() == [2, -1, -1]
    np.testing.assert_array_equal(third.of(targets), targets[:, 2:])
    assert Dataset(X[:3], targets, task).labelled.tolist() == [True, True, False]  # one target is enough
    for place, value, message in ((1, 0.5, "indices of classes"), (1, 3.0, "from 0 to 2"), (0, np.inf, "infinite")):
        wrong = targets.copy()
        wrong[0, place] = value
        with pytest.raises(RequestError, match=message):
            Dataset(X[:3], wrong, task)
    with pytest.raises(RequestError, match="a search needs targets of one kind, but `price`, `colour`"):
        refuse_several(task, "a search")
