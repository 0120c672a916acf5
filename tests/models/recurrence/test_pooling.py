"""Pooling looks at the steps of the sequence alone."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.recurrence.pooling import AttentionOverStates, AttentionPooling, LastState, MeanState

STATES = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
MASK = jnp.arange(6) < 4


def _attention() -> AttentionOverStates:
    random = np.random.default_rng(1)
    return AttentionOverStates(*(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((3, 4), (3,), (3,))))


def test_pooled_vectors_are_those_of_numpy() -> None:
    last = STATES[3]
    key = jr.key(0)
    np.testing.assert_allclose(LastState().build(4, key=key)(STATES, MASK, last), STATES[3])
    np.testing.assert_allclose(MeanState().build(4, key=key)(STATES, MASK, last), STATES[:4].mean(0), rtol=1e-5)
    pool = _attention()
    energy = np.tanh(np.asarray(STATES[:4]) @ np.asarray(pool.weight).T + pool.bias) @ np.asarray(pool.score)
    weights = np.exp(energy) / np.exp(energy).sum()
    np.testing.assert_allclose(pool(STATES, MASK, last), weights @ np.asarray(STATES[:4]), rtol=1e-5)
    np.testing.assert_allclose(pool.weights(STATES, MASK)[4:], 0.0)


def test_attention_begins_as_the_mean() -> None:
    pool = AttentionPooling(units=3).build(4, key=jr.key(0))
    np.testing.assert_allclose(pool(STATES, MASK, STATES[3]), STATES[:4].mean(0), rtol=1e-5)


@pytest.mark.parametrize("steps", [0, 4])
def test_gradients_are_finite_even_without_a_step(steps: int) -> None:
    mask = jnp.arange(6) < steps
    for pool in (MeanState().build(4, key=jr.key(0)), _attention()):

        def total(states: jax.Array, pool=pool) -> jax.Array:
            return jnp.sum(pool(states, mask, states[0]) ** 2)

        found = np.asarray(jax.grad(total)(STATES))
        assert np.isfinite(found).all()
        assert not found[steps:].any()
