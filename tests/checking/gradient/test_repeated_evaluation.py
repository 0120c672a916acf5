"""Numbers or none, and where that begins; the same twice or not."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from gradwise.checking.gradient.repeated_evaluation import evaluate_twice
from gradwise.checking.subject import Subject

HERE = Path(__file__).name

KEY = jax.random.key(0)
BATCH = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)


def seen(loss, model, batch=BATCH):
    return evaluate_twice(Subject.of(loss, model, batch), KEY)


def test_a_gradient_that_is_no_number_is_found_on_the_way_back():
    def loss(model, batch):
        distance = jnp.sqrt(jnp.sum((batch @ model["a"] - batch @ model["a"]) ** 2, axis=1))
        return jnp.mean(distance) + jnp.sum(model["b"] ** 2)

    found = seen(loss, {"a": jnp.ones((3, 2)), "b": jnp.ones(2)})
    assert found.loss == 2.0
    assert found.broken == ("a",)
    assert "sqrt" in found.broken_at
    assert HERE in found.broken_at


def test_a_loss_that_is_no_number_is_found_where_it_begins():
    found = seen(lambda model, batch: jnp.sum(jnp.log(batch @ model - 9.0) ** 2), jnp.ones(3))
    assert np.isnan(found.loss)
    assert "log" in found.broken_at
    assert not found.bad_batch
    bad = np.where(np.eye(4, 3) > 0, np.nan, BATCH).astype(np.float32)
    assert seen(lambda model, batch: jnp.sum(batch @ model), jnp.ones(3), bad).bad_batch


def test_noise_from_elsewhere_than_the_key_is_seen():
    generator = np.random.default_rng(0)

    def stray(model, batch):
        return jnp.mean((batch + generator.normal(size=batch.shape).astype(np.float32)) @ model)

    def keyed(model, batch, key):
        return jnp.mean((batch + jax.random.normal(key, batch.shape)) @ model)

    found = seen(stray, jnp.ones(3))
    assert abs(found.loss - found.again) > 1e-2
    sound = seen(keyed, jnp.ones(3))
    assert sound.loss == sound.again
    assert sound.broken == ()
