"""A small network on digits and its loss, for tests that change one thing about them."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from gradwise.checking.subject import Subject

KEY = jax.random.key(3)
INPUTS, TARGETS = load_digits(return_X_y=True)
BATCH = (jnp.asarray(INPUTS[:64] / 8 - 1, jnp.float32), jnp.asarray(TARGETS[:64]))


def mlp(key: int = 0) -> dict[str, jax.Array]:
    first, second = jax.random.split(jax.random.key(key))
    return {
        "w": jax.random.normal(first, (64, 16)) / 8,
        "b": jnp.zeros(16),
        "v": jax.random.normal(second, (16, 10)) / 4,
        "c": jnp.zeros(10),
    }


def logits(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] + p["c"]


def cross_entropy(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean()


def subject(apply: Any = logits, parameters: Any = None, batch: Any = BATCH, loss: Any = None, **more: Any) -> Subject:
    given = loss or (lambda p, batch: cross_entropy(apply(p, batch[0]), batch[1]))
    return Subject.of(given, mlp() if parameters is None else parameters, batch, apply=apply, **more)
