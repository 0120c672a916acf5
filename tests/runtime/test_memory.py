"""What the machine is, and whether the data fits."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.runtime import memory
from gradwise.runtime.errors import RequestError


def test_inputs_that_do_not_fit_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    memory.check_memory(SimpleNamespace(shape=(2**10, 2**10)))
    with pytest.raises(
        RequestError, match=r"inputs \(262144, 2048\), as dense .* need 2\.0 GiB, more than 1\.0 GiB free"
    ) as caught:
        memory.check_memory(SimpleNamespace(shape=(2**18, 2**11)))
    assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match="the sparse inputs"):
        memory.check_memory(csr_matrix((2**18, 2**11)))


def test_a_share_of_the_free_memory_is_named_where_it_is_the_limit() -> None:
    memory.require_memory(2**30, "it needs", "Use less.", share=0.25, free=2**32)
    with pytest.raises(RequestError, match=r"^it needs 2\.0 GiB, more than 25% of the 4\.0 GiB free\. Use less\.$"):
        memory.require_memory(2**31, "it needs", "Use less.", share=0.25, free=2**32)


def test_memory_is_what_the_system_can_spare() -> None:
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert 0 < memory.available_bytes() <= total * 1024


def test_the_control_group_bounds_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    everything = memory.available_bytes()
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert memory.available_bytes() == 2_000_000
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 400000\n")
    assert memory.available_bytes() == 2_400_000  # files the system would drop are free for us
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > everything / 2


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE", 1000)
    monkeypatch.setattr(memory, "_BLOCK", 4096)


@pytest.mark.usefixtures("small_is_large")
def test_rows_of_a_large_array_are_those_of_numpy_whatever_their_order() -> None:
    random = np.random.default_rng(0)
    plain = random.standard_normal((3000, 7)).astype(np.float32)
    large = memory.make_room(plain.shape, plain.dtype)
    for start, block in memory.row_blocks(large):
        block[:] = plain[start : start + len(block)]
    assert memory._maps, "a large array lies in a file"
    for rows in (
        np.arange(0, 3000, 2),
        random.permutation(3000),
        random.integers(0, 3000, 5000),
        np.array([-1, 0, -3000]),
        random.random(3000) < 0.3,
        np.arange(0),
    ):
        np.testing.assert_array_equal(memory.take_rows(large, rows), plain[rows])
    np.testing.assert_array_equal(memory.copy_in_blocks(large[:, 2:4], np.float64), plain[:, 2:4])
    np.testing.assert_array_equal(np.concatenate([block for _, block in memory.row_blocks(large, 50)]), plain)
    memory.let_go()
    np.testing.assert_array_equal(large, plain)


@pytest.mark.usefixtures("small_is_large")
def test_an_array_without_room_for_a_file_lies_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory.os, "posix_fallocate", full)
    room = memory.make_room((1000, 10), np.float64)
    room[:] = 1.0
    assert room.base is None
    assert room.sum() == 10_000


def test_pages_that_were_let_go_leave_the_process() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    large = memory.make_room((2**27,), np.uint8)
    before = resident()
    large[:] = 7
    filled = resident()
    memory.let_go()
    assert filled - before > 2**26
    assert resident() - before < 2**24
    assert large[0] == large[-1] == 7


@pytest.mark.parametrize("width", [1, 3, 50])
def test_an_aligned_array_is_used_by_jax_as_it_is(width: int) -> None:
    rows = memory.make_aligned((1001, width), np.float32)
    rows[:] = np.arange(width)
    placed = jax.device_put(rows)
    if jax.default_backend() == "cpu":
        assert placed.unsafe_buffer_pointer() == rows.ctypes.data
    np.testing.assert_array_equal(placed, rows)
