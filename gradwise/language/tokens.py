"""From a text to numbers of words (row G6): one sentence a line, words between spaces, `<eos>` after each line.

tokens = read_tokens("train.txt.gz")                 ["the", "cat", "sat", "<eos>", ...]
vocabulary = Vocabulary.of(tokens, size=10_000)      by falling frequency; the others are `<unk>`
vocabulary.encode(tokens)                            array([5, 812, 1290, 1, ...])
"""

import dataclasses
import functools
import gzip
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..runtime.errors import RequestError

END, UNKNOWN = "<eos>", "<unk>"
Text = str | Path | Iterable[str]


def _lines(source: str | Path) -> list[str]:
    """The lines of a file, or of the text itself."""
    path = Path(source) if isinstance(source, Path) or "\n" not in source else None
    try:
        is_file = path is not None and path.is_file()
    except OSError:  # a text too long for the name of a file
        is_file = False
    if path is not None and is_file:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        try:
            return content.decode("utf-8").splitlines()
        except UnicodeDecodeError:
            raise RequestError(f"{path} is not a text in UTF-8. Convert it, for example with `iconv`.") from None
    if isinstance(source, Path) or source.endswith((".txt", ".gz")):
        raise RequestError(f"no text at {source}.")
    return source.splitlines()


def read_tokens(source: Text) -> list[str]:
    """The words of a text file (`.gz` too), or of a text itself, with `<eos>` after each line; a list stays itself."""
    if not isinstance(source, str | Path):
        tokens = list(source)
        if not all(isinstance(token, str) for token in tokens[:100]):
            raise RequestError("tokens must be words: a list of strings.")
        return tokens
    return [word for line in _lines(source) for word in (*line.split(), END)]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Words by falling frequency; `<eos>` and `<unk>` are always among them."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        missing = [word for word in (END, UNKNOWN) if word not in self.numbers]
        if missing or len(self.numbers) != len(self.words):
            raise RequestError(f"a vocabulary needs {END} and {UNKNOWN}, and every word once.")

    @classmethod
    def of(cls, tokens: Iterable[str], *, least: int = 1, size: int = 0) -> "Vocabulary":
        """The words that occur at least so often, the most frequent ones if there are more than `size`."""
        if least < 1 or size < 0 or size == 1:
            raise RequestError(f"`least` must be 1 or more and `size` 2 or more, or 0 for all; got {least} and {size}.")
        counts = Counter(tokens)
        kept = {word: count for word, count in counts.items() if count >= least or word in (END, UNKNOWN)}
        cut = {END: kept.pop(END, 0), UNKNOWN: kept.pop(UNKNOWN, 0)}
        ranked = sorted(kept, key=lambda word: (-kept[word], word))
        kept = {word: kept[word] for word in (ranked[: size - 2] if size else ranked)}
        cut[UNKNOWN] += sum(counts.values()) - sum(kept.values()) - sum(cut.values())
        known = kept | cut
        return cls(tuple(sorted(known, key=lambda word: (-known[word], word))))

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def end(self) -> int:
        """The number of `<eos>`, which also stands before the first word of a text."""
        return self.numbers[END]

    @property
    def unknown(self) -> int:
        """The number of `<unk>`, for all words that are not in the vocabulary."""
        return self.numbers[UNKNOWN]

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """The numbers of these words."""
        numbers, unknown = self.numbers, self.unknown
        return np.array([numbers.get(token, unknown) for token in tokens], np.int32)
