"""The vocabulary of the training set, against counting by hand."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.data.scaling import Automatic
from gradwise.data.text.places import columns_of_text, encode_texts
from gradwise.data.text.vocabulary import Words
from gradwise.specs.dataset import Column, InputLayout
from gradwise.specs.serialisation import from_plain, to_plain

WORDS = ["the", "a", "film", "plot", "of", "good", "bad", "dull", "bright", "idea"]


def _texts(count: int, seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    share = np.arange(len(WORDS), 0, -1) ** 2.0
    return [random.choice(WORDS, random.integers(0, 7), p=share / share.sum()).tolist() for _ in range(count)]


def _numbers(texts: list[list[str]], known: list[str], places: int) -> np.ndarray:
    """The numbers of words, by a dictionary and two loops."""
    found = np.full((len(texts), places), len(known) + 1.0)
    for row, text in enumerate(texts):
        for place, word in enumerate(text[:places]):
            found[row, place] = known.index(word) if word in known else len(known)
    return found


@pytest.mark.parametrize(("least", "size"), [(1, 20), (3, 20), (1, 4)])
def test_the_vocabulary_is_that_of_the_training_texts_alone(least: int, size: int) -> None:
    texts = _texts(60, 0)
    columns = tuple(columns_of_text("t", texts))
    inputs = encode_texts(texts, columns)
    fitted = Words(least=least, size=size).fit(inputs[:15], columns)
    counts = Counter(word for text in texts[:15] for word in text)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    known = [word for word in ordered if counts[word] >= least][:size]
    assert fitted.layout(inputs.shape[1:]) == InputLayout(0, texts=((len(columns), len(known)),))
    np.testing.assert_array_equal(fitted.apply(inputs), _numbers(texts, known, len(columns)))
    new = encode_texts([["never", "the", "seen"]], columns)
    np.testing.assert_array_equal(fitted.apply(new), _numbers([["never", "the", "seen"]], known, len(columns)))
    assert f"{len(known)} of the {len(counts)} words" in fitted.describe()[0]


def test_numpy_and_jax_give_the_same_and_files_hold_it() -> None:
    texts = _texts(30, 1)
    columns = tuple(columns_of_text("t", texts))
    inputs = encode_texts(texts, columns)
    fitted = Words().fit(inputs, columns)
    np.testing.assert_array_equal(jax.vmap(fitted)(jnp.asarray(inputs)), fitted.apply(inputs))
    arrays: dict[str, np.ndarray] = {}
    again = from_plain(to_plain(fitted, arrays), arrays)
    np.testing.assert_array_equal(again.apply(inputs), fitted.apply(inputs))


def test_a_table_puts_words_last_after_numbers_flags_and_codes() -> None:
    texts, others = _texts(40, 2), _texts(40, 3)
    first, second = columns_of_text("t", texts), columns_of_text("u", others)
    columns = (*first, Column("age"), Column("kind", "category", ("x", "y")), *second)
    random = np.random.default_rng(0)
    age, kind = random.normal(size=(40, 1)), random.integers(0, 2, (40, 1)).astype(float)
    age[3] = np.nan
    inputs = np.hstack([encode_texts(texts, first), age, kind, encode_texts(others, second)])
    fitted = Automatic(texts=Words(least=1)).fit(inputs, columns)
    layout = fitted.layout((inputs.shape[1],))
    words = [sorted({word for text in each for word in text}) for each in (texts, others)]
    expected = tuple((len(own), len(known)) for own, known in zip((first, second), words, strict=True))
    assert layout == InputLayout(numbers=1, flags=3, texts=expected)
    scaled = fitted.apply(inputs)
    assert scaled.shape[1] == layout.width
    for each, own, start in ((texts, first, 4), (others, second, 4 + len(first))):
        alone = Words(least=1).fit(encode_texts(each, own), tuple(own)).apply(encode_texts(each, own))
        np.testing.assert_array_equal(scaled[:, start : start + len(own)], alone)
