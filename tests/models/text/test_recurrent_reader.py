"""Recurrent layers over words, against the same layers on a sequence of vectors of its own length."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from gradwise.models.recurrence.pooling import LastState
from gradwise.models.recurrence.recurrent import Recurrent
from gradwise.models.text.recurrent_reader import ReadWords

KNOWN = 5
TEXT = jnp.array([2.0, 5.0, 1.0, 0.0, 6.0, 6.0])
SPEC = ReadWords(size=3, network=Recurrent(units=(4,), pooling=LastState(), dropout=0.0), word_dropout=0.0)


def test_words_are_read_as_a_sequence_of_their_vectors() -> None:
    reader = SPEC.build(KNOWN, key=jr.key(0))
    vectors = reader.vectors.table[TEXT[:4].astype(int)]
    np.testing.assert_allclose(reader(TEXT), reader.network.features(vectors), rtol=1e-6)
    (layer,) = reader.network.layers[0].directions
    state = np.zeros(4)
    for vector in np.asarray(vectors):
        driven = np.asarray(layer.weights.input) @ vector + np.asarray(layer.bias).ravel()
        held = np.asarray(layer.weights.recurrent) @ state
        reset, keep = (1 / (1 + np.exp(-(driven + held)[k * 4 : k * 4 + 4])) for k in (0, 1))
        new = np.tanh(driven[8:] + reset * held[8:])
        state = (1 - keep) * new + keep * state
    np.testing.assert_allclose(reader(TEXT), state, rtol=1e-5, atol=1e-6)


def test_no_words_are_zeros_with_clean_gradients() -> None:
    reader = SPEC.build(KNOWN, key=jr.key(0))
    assert not np.asarray(reader(jnp.full(6, 6.0))).any()
    table = reader.vectors.table

    def total(matrix: jax.Array) -> jax.Array:
        return jnp.sum(matrix[TEXT.astype(int)[:4]]) + jnp.sum(reader(jnp.full(6, 6.0)))

    assert np.isfinite(np.asarray(jax.grad(total)(table))).all()
