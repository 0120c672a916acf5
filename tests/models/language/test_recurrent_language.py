"""Recurrent language models: a loop in NumPy, and windows that go on where the last one ended."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.language.recurrent_language import RecurrentLanguageModel
from gradwise.models.recurrence.cells import AbstractCell, Gru, Lstm, SimpleCell

TEXT = jnp.asarray(np.random.default_rng(0).integers(0, 6, 13), jnp.float32)


def test_a_simple_layer_is_the_loop() -> None:
    network = RecurrentLanguageModel(words=6, cell=SimpleCell(), size=3, units=(4,)).build((13,), 0, key=jr.key(0))
    layer = network.layers[0]
    h, states = np.zeros(4), []
    for word in np.asarray(TEXT, int)[:-1]:
        x = np.asarray(network.embedding, np.float64)[word]
        inside = np.asarray(layer.weights.input) @ x + np.asarray(layer.weights.recurrent) @ h
        h = np.tanh(inside + np.asarray(layer.bias)[0])
        states.append(h)
    features, state = network.read(TEXT, network.begin())
    np.testing.assert_allclose(features, states, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state[0][0], states[-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", [Lstm(), Gru()], ids=repr)
def test_windows_that_go_on_are_one_long_window(cell: AbstractCell) -> None:
    network = RecurrentLanguageModel(words=6, cell=cell, size=3, units=(4, 5)).build((5,), 0, key=jr.key(0))
    whole, last = network.read(TEXT, network.begin())
    state, pieces = network.begin(), []
    for start in range(0, 12, 4):
        features, state = network.read(TEXT[start : start + 5], state)
        pieces.append(features)
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=1e-5, atol=1e-6)
    for one, other in zip(state, last, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    alone, _ = network.read(TEXT[4:9], network.begin())
    assert not np.allclose(alone, whole[4:8], atol=1e-4)


def test_tied_weights_take_a_map_where_sizes_differ() -> None:
    same = RecurrentLanguageModel(words=6, size=4, units=(4,), tied=True).build((5,), 0, key=jr.key(0))
    other = RecurrentLanguageModel(words=6, size=3, units=(4,), tied=True).build((5,), 0, key=jr.key(0))
    assert same.projection is None
    assert other.projection.shape == (3, 4)
    for network in (same, other):
        features, _ = network.read(TEXT[:5], network.begin())
        assert network.word_layer.log_probabilities(features).shape == (4, 6)
        assert network.word_layer.weight is network.embedding


def test_dropout_leaves_what_is_carried_from_step_to_step() -> None:
    """With all words alike, a mask that reached the state would change the carried part of a simple layer."""
    model = RecurrentLanguageModel(words=6, size=3, units=(4,), dropout=0.5)
    network = model.build((5,), 0, key=jr.key(0))
    quiet, _ = network.read(jnp.zeros(5), network.begin())
    dropped, _ = network.read(jnp.zeros(5), network.begin(), key=jr.key(1))
    assert not np.array_equal(quiet, dropped)
    assert (np.asarray(dropped) == 0).any()
