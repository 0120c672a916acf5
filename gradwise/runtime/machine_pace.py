"""How fast this machine multiplies matrices, measured in a moment: what training takes is planned by it.

core_pace()              floating-point operations a second of one core
accelerator_pace()       of the accelerator, in products of many small matrices, as a population has them
"""

import functools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

_SIZE = 256
_MANY = 64  # products side by side
_TURNS = 64  # in one call
_REPEATS = 9


def _median_seconds(work: Callable[[], object]) -> float:
    work()  # to compile, and to warm up
    seconds = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


@functools.cache
def core_pace() -> float:
    """By NumPy on one core: a measure of the machine, and of what else it is doing."""
    from threadpoolctl import threadpool_limits

    matrix = np.random.default_rng(0).random((_SIZE, _SIZE), np.float32)
    with threadpool_limits(1):
        seconds = _median_seconds(lambda: [matrix @ matrix for _ in range(10)])
    return 10 * 2.0 * _SIZE**3 / seconds


@functools.cache
def accelerator_pace() -> float:
    """By a loop on the device, so that the way there and back does not count."""
    matrices = jnp.ones((_MANY, _SIZE, _SIZE)) / _SIZE
    turn = jax.jit(lambda several: jax.lax.fori_loop(0, _TURNS, lambda _, x: jnp.tanh(x @ several), several))
    seconds = _median_seconds(lambda: jax.block_until_ready(turn(matrices)))
    return _TURNS * _MANY * 2.0 * _SIZE**3 / seconds
