"""Compilation: a cache of compiled programs, and quick compiling of what is run once.

    use_compilation_cache()                  a second run starts at once
    compile_quickly(function, subject.size)  like `jax.jit`; with little optimisation where the network is small
    forget_programs()                        a long run does not grow for ever

For a small network most of a check's time is the compiler's. XLA's older way to compile for a CPU, without fusion
emitters, takes half as long and gives a program as good.
"""

import functools
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from .memory import give_back


@functools.cache
def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, so that a second run starts at once.

    A cache that somebody configured already is left as it is; `GRADWISE_CACHE=` (empty) switches ours off.
    """
    import jax

    chosen = os.environ.get("GRADWISE_CACHE")
    if chosen == "" or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else home / "gradwise"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home: nothing is lost but time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def forget_programs() -> None:
    """Drops every compiled program, and the memory it took; those that are needed again come from the cache on disk."""
    jax.clear_caches()
    gc.collect()
    give_back()  # what the compiler is done with


SMALL = 300_000  # numbers: beyond, running well takes longer than compiling well
QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# A GPU's compiler times many kernels for each product, which takes seconds.
QUICK_ON_GPU: dict[str, Any] = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def _is_known(option: str, value: Any) -> bool:
    """Whether this version of XLA has an option: they come and go."""
    try:
        jax.jit(lambda: 0, compiler_options={option: value}).lower().compile()
    except jax.errors.JaxRuntimeError:  # no such compile option
        return False
    return True


@functools.cache
def known_options(backend: str = "cpu") -> dict[str, Any]:
    """Those of the quick options that there are here."""
    options = {"cpu": QUICK, "gpu": QUICK_ON_GPU}.get(backend, {})
    return {option: value for option, value in options.items() if _is_known(option, value)}


def options_for(size: int) -> dict[str, Any] | None:
    """The compiler's options for a program that runs once; on a CPU its own ones where it works on many numbers."""
    backend = jax.default_backend()
    return known_options(backend) or None if size < SMALL or backend == "gpu" else None


def compile_quickly(function: Callable[..., Any], size: int = 0) -> Any:
    """The function compiled for a network of this size."""
    return jax.jit(function, compiler_options=options_for(size))
