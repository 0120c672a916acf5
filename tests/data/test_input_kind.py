"""What kind of examples inputs hold."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.data.input_kind import kind_of_inputs
from gradwise.data.scaling import Automatic
from gradwise.specs.dataset import Column
from gradwise.specs.sequences import Sequences
from gradwise.specs.trees.container import Trees


@pytest.mark.parametrize(
    ("inputs", "columns", "kind"),
    [
        (np.zeros((3, 2)), (), "table"),
        (np.zeros((3, 64), np.uint8), (), "images"),
        (np.zeros((3, 2)), (Column("a", "pixel"), Column("b", "pixel")), "images"),
        (np.zeros((3, 4, 4)), (), "images"),
        (csr_matrix(np.eye(3)), (), "sparse"),
        (Sequences.from_list([np.zeros(2), np.zeros(3)]), (), "sequences"),
        (Trees.from_list(["(a b)", "c"]), (), "trees"),
    ],
)
def test_the_kind_of_inputs(inputs: object, columns: tuple[Column, ...], kind: str) -> None:
    assert kind_of_inputs(inputs, columns) == kind


def test_the_nodes_of_trees_are_left_alone_and_their_vectors_scaled() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(3.0, 2.0, (8, 2)).astype(np.float32)
    trees = Trees.from_list([("s", one, two) for one, two in zip(vectors[:4], vectors[4:], strict=True)])
    fitted = Automatic().fit(trees)
    scaled = fitted.apply(trees)
    np.testing.assert_array_equal(scaled[..., :3], np.asarray(trees)[..., :3])
    leaves = scaled[:, :2, 3:].reshape(-1, 2)
    np.testing.assert_allclose([leaves.mean(0), leaves.std(0)], [[0, 0], [1, 1]], atol=1e-5)
    assert (fitted.layout((3, 5)).numbers, fitted.layout((3, 5)).categories) == (2, (1,))


def test_trees_of_another_vocabulary_are_scaled_in_that_of_the_training_set() -> None:
    trees = Trees.from_list(["(+ a b)", "(* b c)"])
    fitted = Automatic().fit(trees)
    np.testing.assert_array_equal(fitted.apply(Trees.from_list(["(* a d)"]))[0, :, 2], [2, 5, 0])
    longer = fitted.apply(trees.with_longest(5))
    assert np.isnan(longer[:, 3:]).all()
