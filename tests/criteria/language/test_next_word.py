"""The likelihood of next words: against a long run, in any order, at the end of a text."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.language.next_word import NextWord, losses_in_order
from gradwise.curvature.objective import Examples
from gradwise.models.language.feed_forward import FeedForwardLanguageModel
from gradwise.models.language.recurrent_language import RecurrentLanguageModel
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch

STEPS, STREAMS, EACH = 4, 3, 5
TEXTS = np.random.default_rng(0).integers(0, 6, (STREAMS, STEPS * EACH + 1))
# Row b * EACH + t is window t of text b.
ROWS = jnp.asarray(
    [text[start : start + STEPS + 1] for text in TEXTS for start in range(0, STEPS * EACH, STEPS)], jnp.float32
)
NETWORK = RecurrentLanguageModel(words=6, size=3, units=(4,)).build((STEPS + 1,), 0, key=jr.key(0))


def batch_of(rows: np.ndarray, memory: object = None) -> Batch:
    ones = jnp.ones(len(rows))
    targets = jnp.zeros((len(rows), 0))
    return Batch(ROWS[rows], targets, ones, ones, jnp.asarray(15.0), jnp.asarray(rows), memory)


def long_run() -> np.ndarray:
    """The mean loss of a word in each window, from one run over each whole text."""
    found = []
    for text in TEXTS:
        features, _ = NETWORK.read(jnp.asarray(text, jnp.float32), NETWORK.begin())
        told = NETWORK.word_layer.log_probabilities(features)
        losses = -np.asarray(told)[np.arange(len(text) - 1), text[1:]]
        found.append(losses.reshape(EACH, STEPS).mean(1))
    return np.array(found)


def test_a_carried_state_is_one_long_run_over_the_text_in_every_epoch() -> None:
    criterion = NextWord(streams=STREAMS)
    memory = criterion.begin(NETWORK, ROWS, key=jr.key(1))
    run = jax.jit(lambda batch: criterion(NETWORK, batch, key=jr.key(2)))
    for _ in range(2):
        found = []
        for turn in range(EACH):
            total, terms = run(batch_of(np.arange(STREAMS) * EACH + turn, memory))
            memory = terms["memory"]
            found.append(np.asarray(terms["loss"]))
            assert float(total) == pytest.approx(float(terms["loss"].mean()), rel=1e-5)
        np.testing.assert_allclose(np.array(found).T, long_run(), rtol=1e-5)


def test_an_order_that_does_not_go_on_carries_nothing() -> None:
    criterion = NextWord(streams=STREAMS)
    memory = criterion.begin(NETWORK, ROWS, key=jr.key(1))
    _, terms = criterion(NETWORK, batch_of(np.array([0, 5, 9]), memory), key=jr.key(2))
    follows = np.array(
        [1, 7, 10]
    )  # the second slot skips a window, the third begins the next text: it goes on as asked
    _, found = criterion(NETWORK, batch_of(follows, terms["memory"]), key=jr.key(2))
    _, alone = NextWord()(NETWORK, batch_of(follows), key=jr.key(2))
    same = np.isclose(found["loss"], alone["loss"], rtol=1e-6)
    assert same.tolist() == [False, True, False]
    assert "memory" not in alone


def test_streams_that_do_not_fit_the_order_are_refused() -> None:
    criterion = NextWord(streams=4)
    memory = criterion.begin(NETWORK, ROWS, key=jr.key(1))
    with pytest.raises(RequestError, match=r"streams` is 4, but an update reads 3 windows. Use `Streams\(size=4\)`"):
        criterion(NETWORK, batch_of(np.arange(3), memory), key=jr.key(2))


def test_validation_reads_windows_in_order_and_the_unfinished_one_by_its_words() -> None:
    np.testing.assert_allclose(losses_in_order(NETWORK, ROWS, STREAMS).reshape(STREAMS, EACH), long_run(), rtol=1e-5)
    cut = ROWS.at[4, 3:].set(-1.0)
    features, _ = NETWORK.read(jnp.asarray(TEXTS[0], jnp.float32), NETWORK.begin())
    told = np.asarray(NETWORK.word_layer.log_probabilities(features))
    expected = -np.mean([told[16, TEXTS[0][17]], told[17, TEXTS[0][18]]])
    assert float(losses_in_order(NETWORK, cut[:5], 1)[4]) == pytest.approx(expected, rel=1e-5)
    assert float(losses_in_order(NETWORK, cut[:5], 9)[4]) != pytest.approx(expected, rel=1e-5)  # five empty states


def test_a_feed_forward_network_is_scored_alike_by_any_number_of_streams() -> None:
    network = FeedForwardLanguageModel(words=6, context=2, size=3, units=(4,)).build((5,), 0, key=jr.key(0))
    one, several = (losses_in_order(network, ROWS, streams) for streams in (1, 4))
    np.testing.assert_allclose(one, several, rtol=1e-5)
    scores = NextWord().judge(network, None, Examples(ROWS, jnp.zeros((15, 0))))
    np.testing.assert_allclose(scores.loss, one, rtol=1e-5)
    np.testing.assert_allclose(NextWord().measures(network, ROWS)["nats_per_word"], one, rtol=1e-5)


def test_a_network_of_numbers_is_refused() -> None:
    with pytest.raises(RequestError, match="NextWord needs a network with `read`"):
        NextWord().check_network(Mlp(widths=(3,)).build((3,), 2, key=jr.key(0)))
