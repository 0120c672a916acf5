"""Random keys by name: each use has its own stream, so adding one never shifts another.

A trial's randomness depends on the study's seed and the trial's number alone, never on what runs beside it.
"""

import zlib

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

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


def generator(key: Key[Array, ""]) -> np.random.Generator:
    """A NumPy generator seeded by a key, for work on the host such as splitting."""
    return np.random.default_rng([int(word) for word in np.ravel(jax.random.key_data(key))])


def seed_of(key: Key[Array, ""]) -> int:
    """The seed that `from_seed` would make this key from; for other keys a number that names them."""
    number = 0
    for word in np.ravel(jax.random.key_data(key)):
        number = (number << 32) | int(word)
    return number
