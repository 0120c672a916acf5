"""From text to numbers of words."""

import gzip
from pathlib import Path

import pytest

from gradwise.language.tokens import Vocabulary, read_tokens
from gradwise.runtime.errors import RequestError

WORDS = ["the", "cat", "sat", "<eos>", "the", "dog", "<eos>"]


def test_a_text_its_file_and_its_packed_file_have_the_same_words(tmp_path: Path) -> None:
    text = " the cat sat \nthe dog\n"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    for source in (text, tmp_path / "a.txt", str(tmp_path / "a.txt.gz"), WORDS):
        assert read_tokens(source) == WORDS
    assert read_tokens("the cat sat") == WORDS[:4]
    assert read_tokens("x" * 5000) == ["x" * 5000, "<eos>"]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    for missing in ("no.txt", tmp_path / "nothing"):
        with pytest.raises(RequestError, match="no text at"):
            read_tokens(missing)
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="UTF-8"):
        read_tokens(tmp_path / "b.txt")
    with pytest.raises(RequestError, match="list of strings"):
        read_tokens([1, 2])  # type: ignore[list-item]


def test_words_are_ranked_and_rare_ones_are_unknown() -> None:
    tokens = ["b"] * 3 + ["a"] * 3 + ["c", "d"]
    assert Vocabulary.of(tokens).words == ("a", "b", "c", "d", "<eos>", "<unk>")
    assert Vocabulary.of(tokens, least=2).words == ("a", "b", "<unk>", "<eos>")
    small = Vocabulary.of(tokens, size=3)
    assert small.words == ("<unk>", "a", "<eos>")  # b, c and d are five words
    assert small.encode(["a", "b", "never seen", "<eos>"]).tolist() == [1, 0, 0, 2]
    assert (small.unknown, small.end, len(small)) == (0, 2, 3)


def test_a_vocabulary_without_its_marks_is_refused() -> None:
    for words in (("a", "<eos>"), ("<eos>", "<unk>", "a", "a")):
        with pytest.raises(RequestError, match="every word once"):
            Vocabulary(words)
    with pytest.raises(RequestError, match="`least` must be 1 or more"):
        Vocabulary.of(["a"], least=0)
