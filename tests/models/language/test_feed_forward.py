"""The network of Bengio et al. (2003) against a loop in NumPy."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.language.feed_forward import FeedForwardLanguageModel, FeedForwardLanguageNetwork
from gradwise.runtime.errors import RequestError
from gradwise.specs.networks import apply_batch

WINDOW = jnp.asarray([3, 1, 4, 1, 5, 2], jnp.float32)


def built(**choices: object) -> FeedForwardLanguageNetwork:
    model = FeedForwardLanguageModel(words=7, context=3, size=4, units=(5,), **choices)
    return model.build((6,), 0, key=jr.key(0))


def looped(network: FeedForwardLanguageNetwork) -> np.ndarray:
    """b + W x + U tanh(d + H x) at each place, word by word (equation 1 of the paper)."""
    table, window = np.asarray(network.embedding, np.float64), np.asarray(WINDOW, int)
    logits = []
    for place in range(3, 6):
        x = np.concatenate([table[window[place - 3 + before]] for before in range(3)])
        h = x
        for layer in network.layers:
            h = np.tanh(np.asarray(layer.bias, np.float64) + np.asarray(layer.weight, np.float64) @ h)
        h = np.concatenate([h, x]) if network.direct else h
        layer = network.word_layer
        logits.append(np.asarray(layer.bias, np.float64) + np.asarray(layer.weight, np.float64) @ h)
    return np.array(logits)


@pytest.mark.parametrize("choices", [{}, {"direct": True}, {"tied": True}], ids=str)
def test_every_place_is_the_loop(choices: dict[str, bool]) -> None:
    network = built(**choices)
    features, state = network.read(WINDOW, network.begin())
    logits = looped(network)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(network.word_layer.log_probabilities(features), expected, rtol=1e-5, atol=1e-6)
    assert state == ()
    np.testing.assert_allclose(network(WINDOW), features[-1])


def test_tied_weights_are_the_embeddings_and_counted_once() -> None:
    network = built(tied=True)
    assert network.output.weight is None
    assert network.word_layer.weight is network.embedding
    assert [layer.weight.shape for layer in network.layers] == [(5, 12), (4, 5)]


def test_dropout_changes_training_alone() -> None:
    network = built(dropout=0.5)
    plain = built()
    rows = WINDOW[None]
    np.testing.assert_array_equal(apply_batch(network, rows, None), apply_batch(plain, rows, None))
    assert not np.array_equal(apply_batch(network, rows, jr.key(1)), apply_batch(plain, rows, None))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(RequestError, match="choose one of them"):
        FeedForwardLanguageModel(tied=True, direct=True)
