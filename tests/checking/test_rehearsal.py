"""A hundred updates of the user's own training, told in sizes of weights, gradients and updates."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from gradwise.checking.rehearsal import order_of, rehearse
from gradwise.checking.subject import Subject

X = np.asarray(jr.normal(jr.key(0), (40, 3)))
Y = X @ np.array([1.0, -2.0, 0.5])


def _loss(model: Any, x: Any, y: Any) -> Any:
    return 0.5 * jnp.mean((x @ model["w"] - y) ** 2)


def test_plain_descent_is_followed_exactly() -> None:
    start = {"w": jnp.ones(3), "unused": jnp.ones(2)}
    subject = Subject.of(_loss, start, (X, Y), optimiser=optax.sgd(0.1))
    seen = rehearse(subject, updates=20, key=jr.key(1))
    weights, losses, updates = np.ones(3), [], []
    for _ in range(20):
        residual = X @ weights - Y
        losses.append(0.5 * np.mean(residual**2))
        step = -0.1 * X.T @ residual / len(X)
        updates.append(np.sqrt(np.mean(step**2)) / np.sqrt(np.mean(weights**2)))
        weights = weights + step
    assert seen.names == ("unused", "w")
    np.testing.assert_allclose(seen.losses, losses, rtol=1e-4)
    np.testing.assert_allclose(seen.ratios[:, 1], updates, rtol=1e-3)
    np.testing.assert_allclose(seen.end["w"], weights, rtol=1e-4)
    assert seen.moved[0] == 0.0
    assert seen.moved[1] > 0.1
    assert not seen.stand_in


def test_batches_come_in_the_order_that_training_sees() -> None:
    halves = [(X[:20], Y[:20]), (X[20:], Y[20:]), (X[:7], Y[:7])]
    subject = Subject.of(_loss, {"w": jnp.zeros(3)}, halves[0], batches=halves)
    pool, order = order_of(subject, 5, key=jr.key(0))
    assert pool[0].shape == (2, 20, 3)  # a batch of another size is left out
    assert order.tolist() == [0, 1, 0, 1, 0]


def test_without_batches_the_training_set_is_shuffled_and_seen_once_an_epoch() -> None:
    subject = Subject.of(_loss, {"w": jnp.zeros(3)}, (X[:10], Y[:10]), train=(X, Y))
    pool, order = order_of(subject, 4, key=jr.key(0))
    assert order.tolist() == [0, 1, 2, 3]
    seen = np.sort(np.asarray(pool[1]).ravel())
    np.testing.assert_allclose(seen, np.sort(Y).astype(np.float32), rtol=1e-6)
    assert not np.allclose(np.asarray(pool[1]).ravel(), Y)
    assert rehearse(subject, updates=4, key=jr.key(0)).stand_in
