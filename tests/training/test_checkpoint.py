"""Checkpoints: one whole file at any moment, refused where it does not belong."""

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from scipy.sparse import csr_matrix

from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.records.outcome import Outcome
from gradwise.runtime import files
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Dataset, Numbers
from gradwise.training.checkpoint import NAME, Saved, digest, load_checkpoint, save_checkpoint
from gradwise.training.state import State

Start = Callable[..., tuple[Any, State]]
HISTORY = {"age_examples": [10, 20], "valid_loss": [0.1 + 0.2, float("nan")], "best": [True, False]}


@pytest.fixture
def state(start: Start) -> State:
    return start()[1]


def _noise(state: State) -> State:
    """A state of the same shape with other numbers in it."""
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), leaf.dtype), state)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"optimiser": MovingAverage(Adam()), "model": Mlp(widths=(8, 4), normalisation=BatchNorm(), dropout=0.3)},
    ],
)
def test_a_checkpoint_comes_back_bit_for_bit(start: Start, tmp_path: Path, parts: dict[str, Any]) -> None:
    _, like = start(**parts)
    before = Saved(_noise(like), HISTORY, 12.5, Outcome("patience", 20))
    save_checkpoint(tmp_path, before, "mark")
    after = load_checkpoint(tmp_path, like, "mark")
    assert after is not None
    assert jax.tree.structure(after.state) == jax.tree.structure(before.state)
    for mine, theirs in zip(jax.tree.leaves(after.state), jax.tree.leaves(before.state), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    assert json.dumps(after.history) == json.dumps(HISTORY)
    assert (after.seconds, after.ended) == (12.5, Outcome("patience", 20))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_folder_without_a_checkpoint_has_none(tmp_path: Path, state: State) -> None:
    assert load_checkpoint(tmp_path, state, "mark") is None


def test_equal_runs_give_equal_bytes(tmp_path: Path, state: State) -> None:
    contents = []
    for _ in range(2):
        save_checkpoint(tmp_path, Saved(_noise(state), HISTORY, 1.0), "mark")
        contents.append((tmp_path / NAME).read_bytes())
    assert contents[0] == contents[1]
    with safe_open(tmp_path / NAME, framework="numpy") as file:
        assert list(file.metadata()) == ["gradwise"]  # several keys would come in any order


def test_another_run_is_refused(tmp_path: Path, state: State, start: Start) -> None:
    save_checkpoint(tmp_path, Saved(state, HISTORY, 1.0), "mark")
    with pytest.raises(RequestError, match="belongs to another run"):
        load_checkpoint(tmp_path, state, "another mark")
    with pytest.raises(RequestError, match="does not match this recipe"):
        load_checkpoint(tmp_path, start(model=Mlp(widths=(9,)))[1], "mark")


def _with_header(content: bytes, header: bytes) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _with_notes(content: bytes, notes: Any) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = {"gradwise": notes if isinstance(notes, str) else json.dumps(notes)}
    return _with_header(content, json.dumps(header).encode())


NOTES = {"history": HISTORY, "seconds": 1.0, "ended": None, "fingerprint": "mark"}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "last byte gone": lambda content: content[:-1],
    "junk": lambda content: b"\x93NUMPY" * 100,
    "enormous header": lambda content: struct.pack("<Q", 2**60) + content[8:],
    "header that is no JSON": lambda content: _with_header(content, b"{{{{"),
    "no notes": lambda content: _with_header(content, b"{}"),
    "notes that are no JSON": lambda content: _with_notes(content, "{"),
    "notes that are deep": lambda content: _with_notes(content, "[" * 100_000),
    "notes that are a list": lambda content: _with_notes(content, []),
    "history that is a number": lambda content: _with_notes(content, {**NOTES, "history": 3}),
    "seconds that are none": lambda content: _with_notes(content, {**NOTES, "seconds": None}),
    "an end that is none": lambda content: _with_notes(content, {**NOTES, "ended": ["bored", 3]}),
    "an end of another form": lambda content: _with_notes(content, {**NOTES, "ended": 3}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, state: State, name: str) -> None:
    save_checkpoint(tmp_path, Saved(state, HISTORY, 1.0), "mark")
    path = tmp_path / NAME
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    with pytest.raises(RequestError, match=r"checkpoint\.safetensors") as caught:
        load_checkpoint(tmp_path, state, "mark")
    assert "\n" not in str(caught.value)


def test_a_write_that_fails_leaves_the_last_generation(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, Saved(state, HISTORY, 1.0), "mark")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, Saved(_noise(state), HISTORY, 2.0), "mark")
    last = load_checkpoint(tmp_path, state, "mark")
    assert last is not None
    assert last.seconds == 1.0
    assert eqx.tree_equal(last.state, state)


X = np.arange(12.0).reshape(6, 2)
BASE = Dataset(X, X[:, :1], Numbers(), weights=np.ones(6), groups=np.array(list("aabbcc")), times=np.arange(6))


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": X + 1e-9},
        {"inputs": X.astype(np.float32)},
        {"inputs": X.reshape(6, 2, 1)},
        {"inputs": csr_matrix(X)},
        {"targets": X[:, 1:]},
        {"weights": np.full(6, 2.0)},
        {"groups": np.array(list("aabbcd"))},
        {"times": np.arange(6)[::-1]},
        {"test": Dataset(X[:2], X[:2, :1], Numbers())},
    ],
)
def test_the_fingerprint_follows_every_number(change: dict[str, Any]) -> None:
    assert digest(dataclasses.replace(BASE, **change)) != digest(BASE)


def test_the_fingerprint_does_not_depend_on_where_things_lie() -> None:
    shuffled = np.ascontiguousarray(X[::-1])[::-1]  # equal numbers, another stride
    assert digest(dataclasses.replace(BASE, inputs=shuffled)) == digest(BASE)
    words = [np.array(["".join(["gr", letter]) for letter in "aabbcc"], object) for _ in range(2)]
    assert words[0][0] is not words[1][0]
    first, second = (dataclasses.replace(BASE, groups=groups) for groups in words)
    assert digest(first) == digest(second) != digest(BASE)
