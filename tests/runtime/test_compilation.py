"""Programs that are run once are compiled with little optimisation, and give the same numbers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.runtime import compilation
from gradwise.runtime.compilation import QUICK, QUICK_ON_GPU, SMALL, compile_quickly, known_options, options_for


def test_small_programs_are_compiled_quickly_and_large_ones_well() -> None:
    assert options_for(SMALL - 1) == QUICK
    assert options_for(SMALL) is None


def test_on_a_gpu_what_runs_once_is_not_timed_by_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert options_for(0) == options_for(10 * SMALL) == QUICK_ON_GPU
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert options_for(0) is None


def test_an_option_that_this_version_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "xla_cpu_of_another_age", True)
    known_options.cache_clear()
    try:
        assert known_options() == {name: value for name, value in QUICK.items() if name != "xla_cpu_of_another_age"}
        assert compile_quickly(lambda x: x + 1)(1) == 2
    finally:
        known_options.cache_clear()


def test_the_numbers_are_the_same() -> None:
    x = jr.normal(jr.key(0), (30, 20))

    def function(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (jnp.tanh(carry + row), carry @ row), x[0], x)[1]

    np.testing.assert_allclose(compile_quickly(function)(x), jax.jit(function)(x), rtol=1e-5, atol=1e-5)


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
        compilation.use_compilation_cache.__wrapped__()  # the function itself, which otherwise runs once a process
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


@pytest.mark.slow
def test_programs_that_are_forgotten_leave_no_maps_behind() -> None:
    def count_maps() -> int:
        return Path("/proc/self/maps").read_text().count("\n")

    compilation.forget_programs()
    before = count_maps()
    triple = jax.jit(lambda x: 3 * x)
    for size in range(1, 41):
        triple(jax.numpy.ones(size))
    assert count_maps() > before + 40
    compilation.forget_programs()
    assert count_maps() < before + 20
    assert float(triple(2.0)) == 6.0
