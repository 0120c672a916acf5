"""Filters over words, against loops over windows, filters and words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.text.convolved import ConvolvedWords, ConvolveWords
from gradwise.runtime.errors import RequestError

KNOWN = 5
TEXT = jnp.array([2.0, 5.0, 1.0, 0.0, 6.0, 6.0])


def _reader(widths: tuple[int, ...] = (2, 3)) -> ConvolvedWords:
    spec = ConvolveWords(size=3, widths=widths, filters=4, word_dropout=0.0, deviation=1.0)
    reader = spec.build(KNOWN, key=jr.key(0))
    biases = [jr.normal(jr.key(number), (4,)) for number in range(len(widths))]
    return eqx.tree_at(lambda one: [group.bias for group in one.filters], reader, biases)


def _by_loops(reader: ConvolvedWords, words: list[int]) -> np.ndarray:
    """Every window that holds a word of the text, the vectors beyond its ends zeros."""
    table = np.asarray(reader.vectors.table)
    found = []
    for group in reader.filters:
        window, filters, _ = group.weight.shape
        for unit in range(filters):
            best = 0.0
            for start in range(1 - window, len(words)):
                answer = float(group.bias[unit])
                for k in range(window):
                    if 0 <= start + k < len(words):
                        answer += float(np.asarray(group.weight)[k, unit] @ table[words[start + k]])
                best = max(best, answer)
            found.append(best)
    return np.array(found)


@pytest.mark.parametrize("words", [[2, 5, 1, 0], [3], [0, 1, 2, 3, 4, 5]])
def test_filters_answer_as_loops_over_windows_do(words: list[int]) -> None:
    reader = _reader()
    text = jnp.array([*words, *[6] * (6 - len(words))], jnp.float32)
    np.testing.assert_allclose(reader(text), _by_loops(reader, words), rtol=1e-5, atol=1e-6)


def test_room_beyond_the_end_changes_nothing_and_no_words_are_zeros() -> None:
    reader = _reader()
    np.testing.assert_allclose(reader(TEXT), reader(TEXT[:4]), rtol=1e-6)
    assert not np.asarray(reader(jnp.full(6, 6.0))).any()


def test_the_order_of_words_is_read() -> None:
    reader = _reader()
    assert not np.allclose(reader(TEXT), reader(TEXT[jnp.array([3, 2, 1, 0, 4, 5])]))


def test_one_filter_of_one_word_is_a_layer_of_units_at_every_word() -> None:
    reader = _reader((1,))
    group, table = reader.filters[0], reader.vectors.table
    answers = jax.nn.relu(table[TEXT[:4].astype(int)] @ group.weight[0].T + group.bias).max(0)
    np.testing.assert_allclose(reader(TEXT), answers, rtol=1e-6)


def test_widths_must_be_whole_numbers() -> None:
    with pytest.raises(RequestError, match=r"`ConvolveWords.widths` must be whole numbers of at least 1"):
        ConvolveWords(widths=(3, 0))
