"""What the machine is, and whether the data fits."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from scipy.sparse import csr_matrix

from gradwise.runtime import machine
from gradwise.runtime.errors import RequestError


def test_inputs_that_do_not_fit_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 2**30)
    machine.check_memory(SimpleNamespace(shape=(2**10, 2**10)))
    with pytest.raises(RequestError, match=r"inputs \(262144, 2048\) need 2\.0 GiB .*only 1\.0 GiB") as caught:
        machine.check_memory(SimpleNamespace(shape=(2**18, 2**11)))
    assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match="the sparse inputs"):
        machine.check_memory(csr_matrix((2**18, 2**11)))


def test_memory_is_what_the_system_can_spare() -> None:
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert 0 < machine.available_bytes() <= total * 1024


def test_the_control_group_bounds_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_GROUP", tmp_path)
    everything = machine.available_bytes()
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert machine.available_bytes() == 2_000_000
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 400000\n")
    assert machine.available_bytes() == 2_400_000  # files the system would drop are free for us
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.available_bytes() > everything / 2


def test_the_description_names_device_and_versions() -> None:
    told = machine.describe_machine()
    assert told["jax"] == jax.__version__
    assert told["device"].startswith(jax.default_backend())
    assert told["cores"] >= 1
    json.dumps(told)


def _cache_after(monkeypatch: pytest.MonkeyPatch, before: Path | None, **environment: str) -> Any:
    """The cache folder that a fresh process with this environment would use."""
    for name in ("GRADWISE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    kept = {name: getattr(jax.config, name) for name in names}
    try:
        jax.config.update("jax_compilation_cache_dir", None if before is None else str(before))
        machine.use_compilation_cache.__wrapped__()  # the function itself, which otherwise runs once a process
        return jax.config.jax_compilation_cache_dir
    finally:
        for name, value in kept.items():
            jax.config.update(name, value)


def test_the_compilation_cache_goes_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _cache_after(monkeypatch, None, GRADWISE_CACHE=str(tmp_path / "own")) == str(tmp_path / "own")
    assert _cache_after(monkeypatch, None, GRADWISE_CACHE="") is None
    assert _cache_after(monkeypatch, None, XDG_CACHE_HOME=str(tmp_path)) == str(tmp_path / "gradwise")
    assert (tmp_path / "gradwise").is_dir()


def test_a_cache_that_was_chosen_before_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _cache_after(monkeypatch, tmp_path, GRADWISE_CACHE=str(tmp_path / "own")) == str(tmp_path)
    assert not (tmp_path / "own").exists()


def test_a_home_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert _cache_after(monkeypatch, None, XDG_CACHE_HOME=str(tmp_path / "file")) is None
