"""Words of texts, in several scripts, against what a reader would count."""

import unicodedata

import pytest

from gradwise.data.text.words import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 3.5 stars, isn't it?", ["it's", "3.5", "stars", ",", "isn't", "it", "?"]),
        ("  one\n\ttwo\u00a0three ", ["one", "two", "three"]),
        ("1,200.50 is 3d. v2", ["1,200.50", "is", "3d", ".", "v2"]),
        ("Straße ÉTÉ Ελλάδα", ["straße", "été", "ελλάδα"]),
        ("हिन्दी फ़िल्म।", ["हिन्दी", "फ़िल्म", "।"]),
        ("素晴らしい film", [*"素晴らしい", "film"]),
        ("good :-) 👍", ["good", ":", "-", ")", "👍"]),
        ("snake_case", ["snake_case"]),
        ("", []),
        (" \n", []),
    ],
)
def test_words_are_those_a_reader_sees(text: str, words: list[str]) -> None:
    assert split_words(text) == [unicodedata.normalize("NFC", word) for word in words]


def test_two_ways_to_write_a_letter_are_one_word() -> None:
    assert split_words("cafe\u0301") == split_words("caf\u00e9") == ["caf\u00e9"]
