"""The words of a text: lower-case words, numbers and single punctuation marks, in their order.

split_words("It's 3.5 stars, isn't it?")          ["it's", "3.5", "stars", ",", "isn't", "it", "?"]
split_words("素晴らしい film")                       each character of Chinese and Japanese is a word of its own

The standard library alone reads them, so that a model gives the same words everywhere.
"""

import re
import unicodedata

# Scripts without spaces between words: a sentence would otherwise be one word, never seen again.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A letter, or a mark that belongs to one: vowel signs of the scripts of India and South-East Asia are no `\w`.
_LETTER = rf"(?:[^\W{_UNSPACED}]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0eff])"
_WORD = re.compile(rf"\d+(?:[.,]\d+)*(?!\w)|{_LETTER}+(?:['\u2019]{_LETTER}+)*|\S")


def split_words(text: str) -> list[str]:
    """The words, numbers and punctuation marks of a text."""
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())
