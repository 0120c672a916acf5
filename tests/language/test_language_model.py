"""What a trained language model tells: exact perplexities, next words, samples, files."""

import itertools
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import language
from gradwise.runtime.errors import RequestError

from .planted import BIGRAMS, TEST, WORDS, trained

KINDS = ["feed-forward", "recurrent"]


def whole_text(model: language.LanguageModel, numbers: np.ndarray) -> np.ndarray:
    """The log-probabilities of all words at each place of a text, from one long window."""
    network, end = model.network, model.vocabulary.end
    window = np.concatenate([np.full(network.context, end), numbers]).astype(np.float32)
    features, _ = network.read(jnp.asarray(window), network.begin())
    return np.asarray(network.word_layer.log_probabilities(features), np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 32, 1100])
def test_the_perplexity_is_that_of_one_run_over_the_whole_text(kind: str, count: int) -> None:
    model = trained(kind)
    numbers = model.vocabulary.encode(TEST[:count])
    told = whole_text(model, numbers)
    expected = math.exp(-told[np.arange(count), numbers].mean())
    assert model.perplexity(TEST[:count]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_next_words_are_those_after_the_whole_text(kind: str) -> None:
    model = trained(kind)
    told = whole_text(model, model.vocabulary.encode([*TEST[:20], "a"]))[20]
    words = model.next_words(TEST[:20], 3)
    best = np.argsort(-told)[:3]
    assert [word for word, _ in words] == [model.vocabulary.words[number] for number in best]
    np.testing.assert_allclose([chance for _, chance in words], np.exp(told[best]), rtol=1e-4)
    assert model.next_words(" ".join(TEST[:20]), 3) == words


def test_samples_follow_the_source() -> None:
    """Pairs drawn from the model are as frequent as those of the source, to the error of 3000 draws."""
    model = trained("recurrent")
    drawn = model.sample(words=3000, seed=1, start=TEST[:5], unknown=False).split()
    assert len(drawn) >= 2900
    pairs = np.zeros((5, 5))
    for first, second in itertools.pairwise(drawn):
        if first in WORDS and second in WORDS:
            pairs[WORDS.index(first), WORDS.index(second)] += 1
    assert np.abs(pairs / pairs.sum() - BIGRAMS.pairs()).sum() < 0.15
    assert model.sample(words=5, seed=1) == model.sample(words=5, seed=1)


def test_a_low_temperature_draws_the_most_probable_word() -> None:
    model = trained("feed-forward")
    drawn = model.sample(words=4, temperature=1e-3, start="a b").split()
    for place in range(2, 6):
        assert drawn[place] == model.next_words(drawn[:place], 1)[0][0]
    with pytest.raises(RequestError, match="must be positive; got 0"):
        model.sample(temperature=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same(kind: str, tmp_path: Path) -> None:
    model = trained(kind)
    again = language.load(model.save(tmp_path / "words"))
    assert again.vocabulary == model.vocabulary
    assert again.perplexities == model.perplexities
    assert again.perplexity(TEST[:50]) == model.perplexity(TEST[:50])
    assert again.history.empty
    assert list(model.history["valid_perplexity"]) == pytest.approx(np.exp(model.history["valid_loss"]))
    assert f"test perplexity {model.test_perplexity:.4g}" in repr(model)


def test_what_is_no_language_model_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"it has no words.json"):
        language.load(tmp_path)
    (tmp_path / "words.json").write_text("{")
    with pytest.raises(RequestError, match="is damaged"):
        language.load(tmp_path)
