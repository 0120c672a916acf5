"""Word vectors against loops, SciPy and a reader of the file's format."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gradwise.language.embeddings import WordVectors, read_pairs, read_questions
from gradwise.runtime.errors import RequestError

from .planted import trained

WORDS = ("king", "queen", "man", "woman", "apple", "Paris")
# Royalty and sex are directions; all vectors but the last two have about one length.
MATRIX = np.array([[1, 1, 0.1], [1, -1, 0.2], [-1, 1, 0], [-1, -1.1, 0.3], [0.1, 0.3, 2], [2, 0.3, 1]], np.float32)
VECTORS = WordVectors(WORDS, MATRIX)


def cosine(first: str, second: str) -> float:
    a, b = (MATRIX[WORDS.index(word)].astype(float) for word in (first, second))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_neighbours_are_those_of_a_loop() -> None:
    for word in WORDS:
        others = sorted(((cosine(word, other), other) for other in WORDS if other != word), reverse=True)
        found = VECTORS.nearest(word, 9)
        assert [other for other, _ in found] == [other for _, other in others]
        np.testing.assert_allclose([value for _, value in found], [value for value, _ in others], atol=1e-6)
    with pytest.raises(RequestError, match=r"unknown word `quen`. Did you mean 'queen'"):
        VECTORS.nearest("quen")
    np.testing.assert_array_equal(VECTORS["queen"], MATRIX[1])


def test_similarity_is_spearmans_correlation_over_the_known_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "# judged\n# Word 1\tWord 2\tHuman (mean)\n"
        "Word 1\tWord 2\tHuman (mean)\nking\tqueen\t8.5\nking\tapple\t2\nMan\twoman\t8\npear\tapple\t9\n"
        "queen\tapple\t1\nParis\tking\t3\n"
    )
    pairs = [("king", "queen", 8.5), ("king", "apple", 2), ("man", "woman", 8), ("queen", "apple", 1)]
    pairs.append(("Paris", "king", 3))
    expected = stats.spearmanr([cosine(a, b) for a, b, _ in pairs], [score for *_, score in pairs]).statistic
    found = VECTORS.word_similarity(path)
    assert found.correlation == pytest.approx(expected)
    assert (found.covered, found.pairs) == (5, 6)
    assert len(read_pairs(path)) == 6


def test_analogies_are_answered_by_the_nearest_other_word(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt.gz"
    text = ": family\nman king woman queen\nking man queen woman\nman king woman apple\nman king woman prince\n"
    path.write_bytes(gzip.compress(text.encode()))
    unit = MATRIX / np.linalg.norm(MATRIX, axis=1, keepdims=True)
    right = 0
    for question in ("man king woman queen", "king man queen woman", "man king woman apple"):
        a, b, c, d = (WORDS.index(word) for word in question.split())
        cosines = {row: float(unit[row] @ (unit[b] - unit[a] + unit[c])) for row in range(6) if row not in (a, b, c)}
        right += max(cosines, key=lambda row: cosines[row]) == d
    assert right == 2
    found = VECTORS.analogies(path)
    assert (found.accuracy, found.covered, found.questions) == (pytest.approx(2 / 3), 3, 4)


def test_the_file_of_word2vec_is_read_back(tmp_path: Path) -> None:
    """By the format's own description: counts, then a word and its numbers, nine digits that hold 32 bits exactly."""
    model = trained("feed-forward")
    lines = model.export_word2vec(tmp_path / "v.txt").read_text().splitlines()
    count, size = map(int, lines[0].split())
    read = {words[0]: np.array(words[1:], np.float32) for words in map(str.split, lines[1:])}
    assert (count, size, len(lines) - 1) == (len(model.vocabulary), 6, len(read))
    for number, word in enumerate(model.vocabulary.words):
        np.testing.assert_array_equal(read[word], np.asarray(model.network.embedding)[number])
    assert model.nearest("a", 2) == model.embeddings.nearest("a", 2)
    with pytest.raises(RequestError, match="has a space in it"):
        WordVectors(("New York",), MATRIX[:1]).export_word2vec(tmp_path / "w.txt")


def test_what_holds_no_pairs_or_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nothing here\n")
    for read in (read_pairs, read_questions):
        with pytest.raises(RequestError, match="has no"):
            read(tmp_path / "a.txt")
        with pytest.raises(RequestError, match="no file at"):
            read(tmp_path / "b.txt")
