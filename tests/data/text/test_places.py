"""Texts as places in a row: what is written down can be read back."""

import numpy as np
import pytest

from gradwise.data.text.places import LONGEST, columns_of_text, encode_texts, text_note
from gradwise.specs.dataset import Column, places_of_columns, text_places

TEXTS = [["a", "good", "film"], [], ["good", "good"]]


def test_codes_are_places_in_the_sorted_words_and_read_back() -> None:
    columns = columns_of_text("review", TEXTS)
    words = columns[0].categories
    assert words == ("a", "film", "good")
    assert [column.name for column in columns] == ["review:1", "review:2", "review:3"]
    assert [column.categories for column in columns[1:]] == [(), ()]
    codes = encode_texts(TEXTS, columns)
    read_back = [[words[int(code)] for code in row if not np.isnan(code)] for row in codes]
    assert read_back == TEXTS


def test_new_words_share_the_code_beyond_the_last_and_long_texts_are_cut() -> None:
    columns = columns_of_text("review", TEXTS)
    codes = encode_texts([["idea", "good", "new", "film"]], columns)
    np.testing.assert_array_equal(codes, [[3.0, 2.0, 3.0]])


def test_no_text_takes_more_places_than_the_limit() -> None:
    texts = [["word"] * (LONGEST + 44), ["end"]]
    columns = columns_of_text("t", texts)
    assert len(columns) == LONGEST
    assert encode_texts(texts, columns).shape == (2, LONGEST)
    assert text_note("t", texts).endswith("300 at most; 1 texts are cut after 256 words")


def test_empty_texts_still_have_a_place() -> None:
    columns = columns_of_text("t", [[], []])
    assert len(columns) == 1
    assert np.isnan(encode_texts([[], []], columns)).all()


@pytest.mark.parametrize("name", ["review", "when:said"])
def test_columns_know_their_places(name: str) -> None:
    columns = [Column("age"), *columns_of_text(name, TEXTS), Column("when:year", "date")]
    assert places_of_columns(columns) == {"age": [0], name: [1, 2, 3], "when:year": [4]}
    assert text_places(columns) == {name: [1, 2, 3]}
