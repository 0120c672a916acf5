"""What the embeddings of words know: neighbours, similarity as people judge it, analogies, and a file for others.

vectors = model.embeddings
vectors.words, vectors.matrix                     row i is the vector of word i
vectors.nearest("monday", 5)                      [("tuesday", 0.81), ...], by the cosine of the angle
vectors.word_similarity("simlex999.txt")          Spearman's correlation with judgements, and the pairs covered
vectors.analogies("questions-words.txt.gz")       how often a is to b as c is to d
vectors.export_word2vec("vectors.txt")            gensim, spaCy and others read it
"""

import dataclasses
import functools
import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..runtime.errors import RequestError, nearest
from ..runtime.files import write_whole


@dataclasses.dataclass(frozen=True)
class SimilarityScore:
    """Spearman's rank correlation of cosines with judgements, over the pairs whose words are both known."""

    correlation: float
    covered: int
    pairs: int


@dataclasses.dataclass(frozen=True)
class AnalogyScore:
    """The share of questions answered right, of those whose four words are all known."""

    accuracy: float
    covered: int
    questions: int


def _lines(path: str | Path) -> Iterator[str]:
    path = Path(path)
    if not path.is_file():
        raise RequestError(f"no file at {path}.")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from content.decode("utf-8").splitlines()


def read_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Two words and a judgement on each line, as in WordSim-353 and SimLex-999; a heading or a comment is left out."""
    found = []
    for line in _lines(path):
        if line.startswith("#"):
            continue
        cells = line.replace(",", "\t").split("\t")
        cells = cells if len(cells) >= 3 else line.split()
        try:
            found.append((cells[0].strip(), cells[1].strip(), float(cells[2])))
        except (ValueError, IndexError):
            continue
    if not found:
        raise RequestError(f"{path} has no pairs: each line must hold two words and a number, with tabs between.")
    return found


def read_questions(path: str | Path) -> list[tuple[str, str, str, str]]:
    """Four words on each line, as in the questions of word2vec; headings begin with a colon."""
    lines = [line.split() for line in _lines(path) if not line.startswith(":")]
    found = [(a, b, c, d) for a, b, c, d in (words for words in lines if len(words) == 4)]
    if not found:
        raise RequestError(f"{path} has no questions: each line must hold four words.")
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, one row each."""

    words: tuple[str, ...]
    matrix: np.ndarray

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _unit(self) -> np.ndarray:
        """The vectors with length 1."""
        lengths = np.linalg.norm(self.matrix.astype(np.float64), axis=1, keepdims=True)
        return self.matrix / np.maximum(lengths, 1e-12)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordVectors({len(self.words):,} words, {self.matrix.shape[1]} numbers each)"

    def __getitem__(self, word: str) -> np.ndarray:
        """The vector of a word."""
        vector: np.ndarray = self.matrix[self._number(word)]
        return vector

    def _number(self, word: str) -> int:
        if word not in self._numbers:
            raise RequestError(f"unknown word `{word}`.{nearest(word, self.words)}")
        return self._numbers[word]

    def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words whose vectors point most nearly the same way, with the cosine of the angle."""
        own = self._number(word)
        cosines = self._unit @ self._unit[own]
        cosines[own] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(count, len(self) - 1)]
        return [(self.words[number], float(cosines[number])) for number in best]

    def _known(self, word: str) -> int | None:
        """The number of a word as it is written, or in small letters."""
        return self._numbers.get(word, self._numbers.get(word.lower()))

    def word_similarity(self, path: str | Path) -> SimilarityScore:
        """How well cosines rank pairs of words as people do; pairs with an unknown word are left out and counted."""
        from scipy.stats import spearmanr

        pairs = read_pairs(path)
        known = [(self._known(a), self._known(b), score) for a, b, score in pairs]
        covered = [(a, b, score) for a, b, score in known if a is not None and b is not None]
        if len(covered) < 3:
            return SimilarityScore(float("nan"), len(covered), len(pairs))
        cosines = [float(self._unit[a] @ self._unit[b]) for a, b, _ in covered]
        found = spearmanr(cosines, [score for _, _, score in covered]).statistic
        return SimilarityScore(float(found), len(covered), len(pairs))

    def analogies(self, path: str | Path) -> AnalogyScore:
        """How often d is the word nearest to b - a + c, the three words themselves left out (Mikolov et al. 2013)."""
        questions = read_questions(path)
        known = [[self._known(word) for word in question] for question in questions]
        rows = np.array([row for row in known if None not in row], int).reshape(-1, 4)
        right = 0
        for start in range(0, len(rows), 256):
            some = rows[start : start + 256]
            a, b, c = (self._unit[some[:, place]] for place in range(3))
            cosines = (b - a + c) @ self._unit.T
            np.put_along_axis(cosines, some[:, :3], -np.inf, axis=1)
            right += int((cosines.argmax(1) == some[:, 3]).sum())
        return AnalogyScore(right / len(rows) if len(rows) else float("nan"), len(rows), len(questions))

    def export_word2vec(self, path: str | Path) -> Path:
        """Writes the text format of word2vec: a line with both counts, then a word and its numbers on each line."""
        path = Path(path)
        spaced = [word for word in self.words if not word or any(sign.isspace() for sign in word)]
        if spaced:
            raise RequestError(f"the word {spaced[0]!r} has a space in it, which the format of word2vec cannot hold.")
        text = io.StringIO()
        text.write(f"{len(self)} {self.matrix.shape[1]}\n")
        for word, vector in zip(self.words, self.matrix, strict=True):
            text.write(f"{word} {' '.join(f'{number:.9g}' for number in vector)}\n")
        write_whole(path, text.getvalue().encode())
        return path
