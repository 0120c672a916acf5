"""The vocabulary of a text (row G6), fitted on the training set: which words a network knows, and their numbers.

    fitted = Words(least=2, size=20_000).fit(train.inputs, train.columns)      of one column of text
    fitted.layout(shape).texts                                                 its places, and the words that are known

| input             | is                                                             |
|-------------------|----------------------------------------------------------------|
| 0 to size - 1     | a known word, the most frequent first                          |
| size              | any other word: rare in training, or never seen                |
| size + 1          | no word: beyond the end of the text                            |
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from ...runtime.memory import row_blocks
from ...specs.contracts import AbstractScaler
from ...specs.dataset import Column, InputLayout
from ...specs.fitted_scaler import FittedScaler
from ...specs.knobs import switch
from ...specs.priors import Choice
from ..category_scaling import check_table


class WordNumbers(FittedScaler):
    """From the codes of a text's words to their numbers in the vocabulary.

    `numbers` has one entry for each code of the file, one for words that are not in the file, and one for no word.
    """

    numbers: np.ndarray
    size: int = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True)

    def map(self, examples: Any, library: Any) -> Any:
        last = len(self.numbers) - 1
        codes = library.where(library.isnan(examples), last, library.clip(examples, 0, last - 1))
        return library.take(library.asarray(self.numbers), codes.astype(np.int32)).astype(examples.dtype)

    def layout(self, shape: tuple[int, ...]) -> InputLayout:
        return InputLayout(numbers=0, texts=((shape[0], self.size),))

    def describe(self) -> list[str]:
        return list(self.notes)


def _counts(inputs: Any, words: int) -> np.ndarray:
    """How often each word of the file stands in these texts."""
    counts = np.zeros(words + 1, np.int64)
    for _, block in row_blocks(inputs):
        codes = np.asarray(block, np.float64).ravel()
        codes = codes[~np.isnan(codes)].astype(np.int64)
        counts += np.bincount(np.minimum(codes, words), minlength=words + 1)
    return counts


class Words(AbstractScaler):
    """The words of one column of text as numbers; those that are rare in the training set become one unknown word.

    Only a network that reads the layout of its inputs (`gradwise.InputLayout`) can tell them from numbers.
    """

    least: int = switch(
        2, allowed="[1, inf)", prior=Choice((1, 2, 5)), row="G6", about="a word seen less often in training is unknown"
    )
    size: int = switch(
        20_000,
        allowed="[1, inf)",
        prior=Choice((5000, 20_000, 100_000)),
        row="G6",
        kind="capacity",
        about="words of the vocabulary at most, the most frequent ones",
    )

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        check_table(self, inputs)
        words: Sequence[str] = columns[0].categories if columns else ()
        largest = np.nanmax(inputs, initial=-1.0) if inputs.dtype.kind == "f" else inputs.max(initial=-1)
        total = len(words) or int(largest) + 1
        counts = _counts(inputs, total)[:total]
        order = np.argsort(-counts, kind="stable")
        known = order[counts[order] >= self.least][: self.size]
        numbers = np.full(total + 2, len(known), np.int32)
        numbers[known] = np.arange(len(known), dtype=np.int32)
        numbers[-1] = len(known) + 1
        seen = int(np.count_nonzero(counts))
        name = f"`{columns[0].name.rpartition(':')[0]}`" if columns else "the text"
        note = f"{name}: {len(known):,} of the {seen:,} words of the training set are known, the others are one word"
        return WordNumbers(numbers, len(known), (note,))
