"""Windows of a text: every word is predicted once, from its own predecessors, and nothing is copied."""

import numpy as np
import pytest

from gradwise.language.text_windows import window_rows, windows
from gradwise.runtime.errors import RequestError


@pytest.mark.parametrize(("words", "context", "steps"), [(10, 1, 4), (12, 3, 4), (5, 2, 7)])
def test_every_word_is_predicted_once_from_those_before_it(words: int, context: int, steps: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 9, words)
    rows = window_rows(numbers, context=context, steps=steps, begin=9)
    assert np.concatenate(rows[:, context:])[:words].tolist() == numbers.tolist()
    assert (np.concatenate(rows[:, context:])[words:] == -1).all()
    padded = [9] * context + numbers.tolist()
    for place in range(words):
        row, column = divmod(place, steps)
        assert rows[row, column : column + context].tolist() == padded[place : place + context]


def test_a_long_text_takes_four_bytes_a_word() -> None:
    rows = window_rows(np.arange(10_000), context=5, steps=16, begin=0)
    assert rows.dtype == np.int32
    assert not rows.flags.owndata
    assert rows.base is not None
    assert rows.strides == (64, 4)


def test_the_last_window_weighs_what_it_has() -> None:
    data = windows(np.arange(10), context=2, steps=4, begin=0)
    assert data.weights is not None
    assert data.weights.tolist() == [1.0, 1.0, 0.5]
    assert windows(np.arange(8), context=2, steps=4, begin=0).weights is None
    assert [column.name for column in data.columns] == ["word -1", "word 0", "word 1", "word 2", "word 3", "word 4"]


def test_what_makes_no_window_is_refused() -> None:
    with pytest.raises(RequestError, match="1 or more; got 0 and 4"):
        window_rows(np.arange(3), context=0, steps=4, begin=0)
    with pytest.raises(RequestError, match="no words"):
        window_rows(np.arange(0), context=1, steps=4, begin=0)
