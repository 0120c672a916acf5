"""A column of text as columns of numbers: one for each place of the text, with the code of the word that stands there.

    columns = columns_of_text("review", [["a", "good", "film"], ["good"]])
    [column.name for column in columns]                    review:1, review:2, review:3
    columns[0].categories                                  ("a", "film", "good"): the words, written down once
    encode_texts([["good", "idea"]], columns)              [[2, 3, nan]]: a new word has the next code; NaN is no word

So a row stays a row of numbers: what splits, stores, samples or shuffles rows need not know of text. Nothing is fitted
here: which of these words a network knows is decided on the training set alone (`Words`).
"""

from collections.abc import Sequence

import numpy as np

from ...specs.dataset import Column

LONGEST = 256  # words of a text; what follows is cut off


def columns_of_text(name: str, texts: Sequence[Sequence[str]]) -> list[Column]:
    """The columns of these texts, given as words: as many as the longest has, at least one."""
    places = max(1, min(LONGEST, max(map(len, texts), default=0)))
    words = tuple(sorted({word for text in texts for word in text[:LONGEST]}))
    return [Column(f"{name}:{place + 1}", "text", () if place else words) for place in range(places)]


def encode_texts(texts: Sequence[Sequence[str]], columns: Sequence[Column]) -> np.ndarray:
    """The codes (texts, places) of these texts under the columns of one text."""
    words = columns[0].categories
    place = {word: code for code, word in enumerate(words)}
    codes = np.full((len(texts), len(columns)), np.nan)
    for row, text in enumerate(texts):
        found = [place.get(word, len(words)) for word in text[: len(columns)]]
        codes[row, : len(found)] = found
    return codes


def text_note(name: str, texts: Sequence[Sequence[str]]) -> str:
    """What a reader should know of a column of text."""
    lengths = list(map(len, texts))
    cut = sum(length > LONGEST for length in lengths)
    mean, most = sum(lengths) / max(1, len(lengths)), max(lengths, default=0)
    note = f"column `{name}`: text, {mean:.0f} words per row, {most} at most"
    return f"{note}; {cut:,} texts are cut after {LONGEST} words" if cut else note
