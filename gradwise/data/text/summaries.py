"""A few numbers for each text, for checks of data that look at columns of numbers.

    inputs, columns = summarise_texts(dataset.inputs, dataset.columns)
    [column.name for column in columns]                    age, review:words, review:mean 1, ..., review:mean 8

The code of a word is a name and no size, so neither its mean nor its spread means anything. Instead each word gets a
random vector, and a text their mean: equal texts have equal numbers, and sets that speak of different things differ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.memory import row_blocks
from ...specs.dataset import Column, text_places

_MEANS = 8


def _of_text(inputs: np.ndarray, words: int) -> np.ndarray:
    """The number of words, and the mean of their random vectors."""
    vectors = np.random.default_rng(0).normal(size=(words + 1, _MEANS))
    found = np.empty((len(inputs), _MEANS + 1))
    for start, block in row_blocks(inputs, 2**18):
        codes = np.asarray(block, np.float64)
        present = ~np.isnan(codes)
        counts = present.sum(1, keepdims=True)
        own = vectors[np.where(present, np.minimum(codes, words), 0).astype(np.int64)] * present[..., None]
        found[start : start + len(codes)] = np.hstack([counts, own.sum(1) / np.maximum(counts, 1)])
    return found


def summarise_texts(inputs: Any, columns: Sequence[Column]) -> tuple[Any, tuple[Column, ...]]:
    """The inputs with these numbers in place of their texts, and what they are called."""
    texts = text_places(columns)
    if not texts:
        return inputs, tuple(columns)
    others = [place for place, column in enumerate(columns) if column.kind != "text"]
    pieces, named = [np.asarray(inputs[:, others], np.float64)], [columns[place] for place in others]
    for name, places in texts.items():
        pieces.append(_of_text(inputs[:, places], len(columns[places[0]].categories)))
        named += [Column(f"{name}:words"), *(Column(f"{name}:mean {number + 1}") for number in range(_MEANS))]
    return np.hstack(pieces), tuple(named)
