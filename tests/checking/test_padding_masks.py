"""Which slots of a batch are unused, read from every kind of mark, and not from what only looks like one."""

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.padding_masks import mark_of, other_mark, padded, used_rows
from gradwise.specs.contracts import Batch

STEPS = np.random.default_rng(0).normal(size=(4, 5, 2)).astype("float32")
ROWS = STEPS[:, 0]
LENGTHS = np.array([5, 3, 1, 4])
USED = np.arange(5)[None] < LENGTHS[:, None]
SOME = np.array([1, 1, 0, 1], "float32")


@pytest.mark.parametrize(
    ("batch", "path", "used", "tail"),
    [
        ({"x": STEPS, "mask": USED}, "mask", USED, True),
        ({"x": STEPS, "attention_mask": USED.astype("int32")}, "attention_mask", USED, True),
        ({"x": STEPS, "padding_mask": (~USED)[:, ::-1]}, "padding_mask", (~USED)[:, ::-1], False),
        ({"x": STEPS[1:3], "padding_mask": np.eye(2, 5) + USED[1:3] * 0}, "padding_mask", np.eye(2, 5) > 0, False),
        ({"inputs": STEPS, "lengths": LENGTHS}, "lengths", USED, True),
        ({"x": ROWS, "y": SOME, "sample_weight": SOME}, "sample_weight", SOME > 0, True),
        ((ROWS, ROWS, SOME), "2", SOME > 0, True),
        ([STEPS, ROWS, USED], "2", USED, True),
        (Batch(ROWS, SOME, SOME, np.ones(4), jnp.asarray(4.0)), "weights", SOME > 0, True),
    ],
)
def test_marks_are_found(batch, path, used, tail):
    mark = mark_of(batch)
    assert mark.path == path
    assert np.array_equal(mark.used, used)
    assert mark.tail == tail


def test_a_mask_that_says_padding_is_turned_round():
    mark = mark_of({"x": STEPS, "padding_mask": ~USED})
    assert mark.reverse
    assert np.array_equal(mark.used, USED)


@pytest.mark.parametrize(
    "batch",
    [
        (ROWS, SOME),  # targets of 0 and 1
        (ROWS, SOME, SOME + 0.5),  # numbers
        (ROWS, SOME, SOME.astype(int)),  # whole numbers may be groups
        {"x": ROWS, "y": SOME},
        {"x": ROWS, "mask": np.ones(3)},  # of something else
        {"x": ROWS, "length": np.array([9.5, 3.0, 2.0, 1.0])},  # a measured length
        {"x": STEPS, "length": np.array([9, 3, 2, 1])},  # longer than the sequences
        {"x": ROWS, "weight": np.array([-1.0, 1, 1, 1])},
        {"mask": SOME},
        ROWS,
    ],
)
def test_what_only_looks_like_a_mark_is_none(batch):
    assert mark_of(batch) is None
    assert used_rows(batch) is None


def test_some_slots_are_declared_unused_and_the_mark_itself_is_changed():
    generator = np.random.default_rng(0)
    whole = np.full(4, 5)
    batch, mark = padded({"x": STEPS, "lengths": whole}, mark_of({"x": STEPS, "lengths": whole}))
    assert batch["lengths"].tolist() == [4, 5, 4, 5]
    assert np.array_equal(mark_of(batch).used, mark.used)
    ones = np.ones(4, "float32")
    given = Batch(ROWS, SOME, ones, ones, jnp.asarray(4.0))
    batch, mark = padded(given, mark_of(given))
    assert batch.weights.tolist() == batch.present.tolist() == [1, 1, 1, 0]
    weights = np.asarray(other_mark(given, mark_of(given), generator).weights)
    assert len(set(weights.tolist())) == 4  # a common factor may be divided out
    assert np.all(weights > 0)
    flipped = other_mark({"x": STEPS, "mask": USED}, mark_of({"x": STEPS, "mask": USED}), generator)["mask"]
    assert np.count_nonzero(np.asarray(flipped) != USED) == 10
    assert used_rows({"x": ROWS, "mask": SOME}).tolist() == [0, 1, 3]
    assert used_rows({"x": ROWS, "mask": ones}) is None
