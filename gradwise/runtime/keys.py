"""Random keys by name: each use has its own stream, so adding one never shifts another.

A trial's randomness depends on the study's seed and the trial's number alone, never on what runs beside it.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Key, UInt32

from .errors import RequestError


def from_seed(seed: int) -> Key[Array, ""]:
    """The root key of a run."""
    if seed < 0 or seed >= 2**32:
        raise RequestError(f"`seed` must lie in [0, 2**32); got {seed}.")
    return jr.key(seed)


def named(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """The stream of this name under a key."""
    return jr.fold_in(key, zlib.crc32(name.encode()))


def of_trial(key: Key[Array, ""], number: int) -> Key[Array, ""]:
    """The root key of trial `number` of a study."""
    return jr.fold_in(named(key, "trial"), number)


def of_trials(key: Key[Array, ""], numbers: Sequence[int]) -> Key[Array, " k"]:
    """The root keys of several trials, by one program."""
    return _of_each(named(key, "trial"), np.asarray(numbers, np.uint32))


@jax.jit
def _of_each(key: Key[Array, ""], numbers: Any) -> Key[Array, " k"]:
    return jax.vmap(lambda number: jr.fold_in(key, number))(numbers)


def scramble(value: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A good 32-bit mixer: every input bit moves every output bit (constants found by C. Wellons's search)."""
    value = (value ^ (value >> 16)) * jnp.uint32(0x21F0AAAD)
    value = (value ^ (value >> 15)) * jnp.uint32(0x735A2D97)
    return value ^ (value >> 15)


def coins(key: Key[Array, ""], probability: Any, count: int) -> Bool[Array, " count"]:
    """Independent coins that fall on True with this probability.

    Two rounds of a mixer over a counter, instead of JAX's twenty of a cipher: on a CPU the draws of a dropout layer
    would otherwise cost as much as its products. Good enough for noise; not for keys.
    """
    first, second = jr.key_data(key)
    bits = scramble(scramble(jnp.arange(count, dtype=jnp.uint32) + first) ^ second)
    return (bits >> 8).astype(jnp.float32) * 2.0**-24 < probability


def generator(key: Key[Array, ""]) -> np.random.Generator:
    """A NumPy generator seeded by a key, for work on the host such as splitting."""
    return np.random.default_rng([int(word) for word in np.ravel(jax.random.key_data(key))])


def generators(key: Key[Array, ""], numbers: Sequence[int]) -> list[np.random.Generator]:
    """The generator of `fold_in(key, number)` for each of these numbers, by one program for them all."""
    room = 1 << max(0, len(numbers) - 1).bit_length()  # few programs for any count
    padded = np.zeros(room, np.uint32)
    padded[: len(numbers)] = numbers
    words = np.asarray(jr.key_data(_of_each(key, padded))).tolist()
    return [np.random.default_rng(pair) for pair in words[: len(numbers)]]


def seed_of(key: Key[Array, ""]) -> int:
    """The seed that `from_seed` would make this key from; for other keys a number that names them."""
    number = 0
    for word in np.ravel(jax.random.key_data(key)):
        number = (number << 32) | int(word)
    return number
