"""Inputs as arrays or sequences, from memory and from a file: what is read, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

import gradwise as gw
from gradwise.data.reading.input_arrays import alike, check_input_array
from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.specs.sequences import Sequences


def _lists(count: int = 6) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(2 + k, 3)) for k in range(count)]


def _write(path: Path, name: str = "values", **more: np.ndarray) -> str:
    some = Sequences.from_list(_lists())
    np.savez(path, **{name: some.values, "offsets": some.offsets, **more})
    return str(path)


def test_a_list_of_arrays_of_different_lengths_is_a_set_of_sequences() -> None:
    targets = np.array([0, 1] * 3)
    for data in (_lists(), Sequences.from_list(_lists())):
        dataset = read(data, ReadRequest(), targets)
        assert isinstance(dataset.inputs, Sequences)
        assert (dataset.shape, dataset.task.kind) == ((7, 3), "classes")
        np.testing.assert_array_equal(dataset.inputs[2], _lists()[2])
    pictures = read(np.zeros((6, 7, 3)), ReadRequest(), targets)  # an array stays what it was
    assert isinstance(pictures.inputs, np.ndarray)


@pytest.mark.parametrize("name", ["values", "frames"])
def test_a_file_with_offsets_is_a_set_of_sequences(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / "some.npz", name, digit=np.arange(6) % 2, speaker=np.array(list("aabbcc")))
    dataset = read(path, ReadRequest(targets=("digit",), group="speaker"))
    assert isinstance(dataset.inputs, Sequences)
    assert dataset.groups is not None
    np.testing.assert_array_equal(dataset.groups, [0, 0, 1, 1, 2, 2])
    for place, one in enumerate(_lists()):
        np.testing.assert_array_equal(dataset.inputs[place], one)
    rows = read_rows(path, (), dataset.shape, sequences=True)
    np.testing.assert_array_equal(np.asarray(rows.inputs), np.asarray(dataset.inputs))


def test_a_file_without_a_target_has_none(tmp_path: Path) -> None:
    assert read(_write(tmp_path / "some.npz"), ReadRequest()).task.kind == "inputs"


def test_a_test_set_may_be_longer() -> None:
    test = ([np.zeros((40, 3)), np.ones((2, 3))], [0, 1])
    dataset = read(_lists(), ReadRequest(test=test), np.array([0, 1] * 3))
    assert dataset.test is not None
    assert dataset.test.shape == (40, 3)
    with pytest.raises(gw.RequestError, match="has examples of shape"):
        read(_lists(), ReadRequest(test=([np.zeros((4, 2)), np.ones((2, 2))], [0, 1])), np.array([0, 1] * 3))


def test_new_rows_of_a_model_of_sequences() -> None:
    for data in ([np.zeros((4, 3))], np.zeros((1, 4, 3)), Sequences.from_list([np.zeros((4, 3))])):
        assert read_rows(data, (), (7, 3), sequences=True).inputs.shape == (1, 4, 3)
    with pytest.raises(gw.RequestError, match="has sequences of 2 channels; the model expects 3"):
        read_rows([np.zeros((4, 2))], (), (7, 3), sequences=True)
    with pytest.raises(gw.RequestError, match="the model expects sequences: a list of arrays"):
        read_rows(np.zeros(4), (), (7, 3), sequences=True)


def test_infinite_values_and_broken_offsets_are_refused(tmp_path: Path) -> None:
    several = _lists()
    several[3][1, 2] = np.inf
    with pytest.raises(gw.RequestError, match="the data: sequence 3 contains infinite values"):
        check_input_array(Sequences.from_list(several), "the data")
    np.savez(tmp_path / "some.npz", values=np.zeros((4, 1)), offsets=np.array([0, 3]))
    with pytest.raises(gw.RequestError, match=r"some.npz: `offsets` must begin with 0"):
        read(str(tmp_path / "some.npz"), ReadRequest())


def test_alike() -> None:
    some = Sequences.from_list(_lists())
    assert alike(some, some.with_longest(50))
    assert alike(np.zeros((2, 3)), np.zeros((5, 3)))
    assert not alike(np.zeros((2, 3)), np.zeros((5, 4)))
