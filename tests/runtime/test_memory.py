"""What the machine is, and whether the data fits."""

from pathlib import Path
from types import SimpleNamespace

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
