"""Numbers for texts, against loops over their words."""

import numpy as np

from gradwise.data.text.places import columns_of_text, encode_texts
from gradwise.data.text.summaries import summarise_texts
from gradwise.specs.dataset import Column

TEXTS = [["a", "good", "film"], ["good"], [], ["film", "good", "a"], ["good"]]


def test_texts_become_their_length_and_the_mean_of_random_vectors() -> None:
    own = columns_of_text("t", TEXTS)
    columns = (*own, Column("age"))
    ages = np.arange(5.0)[:, None]
    inputs, named = summarise_texts(np.hstack([encode_texts(TEXTS, own), ages]), columns)
    assert [column.name for column in named] == ["age", "t:words", *(f"t:mean {k}" for k in range(1, 9))]
    vectors = np.random.default_rng(0).normal(size=(4, 8))
    known = list(own[0].categories)
    means = [np.mean([vectors[known.index(word)] for word in text] or [np.zeros(8)], axis=0) for text in TEXTS]
    np.testing.assert_allclose(inputs, np.hstack([ages, [[len(text)] for text in TEXTS], means]))
    assert (inputs[1, 1:] == inputs[4, 1:]).all()


def test_without_texts_nothing_changes() -> None:
    inputs = np.zeros((3, 1))
    assert summarise_texts(inputs, (Column("age"),))[0] is inputs
