"""Compiling what is run once: for a small network most of a check's time is the compiler's, so it is asked for less.

quickly(function, subject.size)          like `jax.jit`; with little optimisation where the network is small
"""

from collections.abc import Callable
from typing import Any

import jax

SMALL = 300_000  # numbers: beyond, running well takes longer than compiling well
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def options_for(size: int) -> dict[str, Any] | None:
    """The compiler's options for a program over so many numbers; its own where the work is large, or not the CPU's."""
    return QUICK if size < SMALL and jax.default_backend() == "cpu" else None


def quickly(function: Callable[..., Any], size: int = 0) -> Any:
    """The function compiled for a network of this size."""
    return jax.jit(function, compiler_options=options_for(size))
