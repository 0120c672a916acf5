"""Sequences of different lengths: taken like rows of an array, padded with NaN, never by their neighbours."""

import numpy as np
import pytest

import gradwise as gw
from gradwise.records.used_rows import row_marks
from gradwise.runtime.memory import row_blocks, take_rows
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.sequences import Sequences, is_list_of_sequences, stack_sequences, with_steps_of


def _arrays(seed: int = 0, lengths: tuple[int, ...] = (3, 1, 5, 2)) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(steps, 2)) for steps in lengths]


def test_rows_are_those_of_a_list() -> None:
    arrays = _arrays()
    some = Sequences.from_list(arrays)
    assert (len(some), some.shape, some.ndim, some.dtype) == (4, (4, 5, 2), 3, np.float64)
    for place, one in enumerate(arrays):
        np.testing.assert_array_equal(some[place], one)
    np.testing.assert_array_equal(some[-1], arrays[-1])
    for rows in (slice(1, 3), slice(None, None, 2), np.array([3, 0, 3]), np.array([True, False, False, True])):
        taken = some[rows]
        wanted = [arrays[place] for place in np.arange(4)[rows]]
        assert taken.shape == (len(wanted), 5, 2)  # the room stays, so that parts of a set have one shape
        for place, one in enumerate(wanted):
            np.testing.assert_array_equal(taken[place], one)
    np.testing.assert_array_equal(np.asarray(take_rows(some, np.array([2]))), np.asarray(some[2:3]))
    assert [start for start, _ in row_blocks(some, 16)] == [0]


def test_the_dense_array_is_nan_beyond_the_end() -> None:
    some = Sequences.from_list([[1, 2, 3], [4]])
    np.testing.assert_array_equal(np.asarray(some), [[[1.0], [2.0], [3.0]], [[4.0], [np.nan], [np.nan]]])
    assert np.asarray(some.with_longest(7)).shape == (2, 7, 1)
    stacked = stack_sequences([some, Sequences.from_list([[5, 6]])])
    assert [len(stacked[k]) for k in range(3)] == [3, 1, 2]


def test_summaries_are_those_of_numpy() -> None:
    arrays = _arrays()
    arrays[0][1, 0] = np.nan
    wanted = [[len(one), *np.nanmean(one, 0), *np.nanstd(one, 0)] for one in arrays]
    np.testing.assert_allclose(Sequences.from_list(arrays).summaries(), wanted, atol=1e-12)


def test_a_longer_one_doubles_the_room() -> None:
    some = Sequences.from_list(_arrays())
    assert with_steps_of(some, (5, 2)).shape[1] == 5
    assert with_steps_of(some, (8, 2)).shape[1] == 8
    assert with_steps_of(some, (2, 2)).shape[1] == 8


def test_a_sequence_is_known_again_whatever_its_room() -> None:
    some = Sequences.from_list(_arrays())
    np.testing.assert_array_equal(row_marks(some), row_marks(some.with_longest(40)))
    assert len(np.unique(row_marks(some))) == 4


def test_a_list_of_like_lengths_stays_an_array() -> None:
    assert is_list_of_sequences(_arrays())
    assert is_list_of_sequences([np.zeros(2), np.zeros(3)])
    assert not is_list_of_sequences([[1.0, 2.0], [3.0]])  # lists may be anything: arrays are meant
    assert not is_list_of_sequences([[1.0, 2.0], [3.0, 4.0]])
    assert not is_list_of_sequences(np.zeros((3, 2)))
    assert not is_list_of_sequences([1.0, 2.0])


def test_a_data_set_of_sequences_may_be_tested_on_longer_ones() -> None:
    task = Classes(np.array(["a", "b"]))
    test = Dataset(Sequences.from_list(_arrays(1, (9, 9))), np.array([0, 1]), task)
    whole = Dataset(Sequences.from_list(_arrays()), np.array([0, 1, 0, 1]), task, test=test)
    assert whole.take(np.array([1, 2])).shape == (5, 2)
    with pytest.raises(gw.RequestError, match="test examples have shape"):
        Dataset(whole.inputs, whole.targets, task, test=Dataset(np.zeros((2, 5, 3)), np.array([0, 1]), task))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Sequences(np.zeros((3, 1)), np.array([0, 2])),
            "and end with the number of steps, 3",
        ),
        (lambda: Sequences(np.zeros((3, 1)), np.array([0, 2, 2, 3])), "sequence 1 has no steps: leave it out"),
        (lambda: Sequences(np.zeros((3, 1)), np.array([0.0, 3.0])), "`offsets` must be whole numbers"),
        (lambda: Sequences.from_list([np.zeros((2, 2)), np.zeros((2, 3))]), "sequence 1 has"),
        (lambda: Sequences.from_list([["a", "b"]]), "must be numbers"),
        (lambda: Sequences.from_list([[[1.0], [2.0, 3.0]]]), "must be an array of numbers"),
        (lambda: Sequences.from_list([]), "there are no sequences"),
        (lambda: Sequences.from_list(_arrays())[:0], "no sequences are left"),
    ],
)
def test_what_is_no_sequence_is_refused_in_one_line(make, message: str) -> None:
    with pytest.raises(gw.RequestError, match=message) as refusal:
        make()
    assert "\n" not in str(refusal.value)
