"""Scalers of categories: scikit-learn and plain loops as oracles, and the order of a network's inputs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.preprocessing import OneHotEncoder

from gradwise.data.category_scaling import Categories, OneHot
from gradwise.data.scaling import Automatic, Columns, NoScaling, Standardise
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Column, InputLayout
from gradwise.specs.serialisation import from_json, from_plain, to_json, to_plain

WORDS = tuple(f"word {number}" for number in range(40))
# Few values; many of them, not all in the training part; and few again.
COLUMNS = (Column("sex", "category", ("f", "m")), Column("word", "category", WORDS), Column("size", "category", "sml"))


def rows_of_categories(count=200, seed=0):
    """Category codes as a table has them: every third word is never seen, and some values are missing."""
    random = np.random.default_rng(seed)
    rows = np.column_stack([random.integers(0, 2, count), random.integers(0, 39, count), random.integers(0, 3, count)])
    rows = rows.astype(float)
    rows[rows[:, 1] % 3 == 0, 1] += 1
    rows[random.random((count, 3)) < [0.0, 0.1, 0.1]] = np.nan
    return rows


def code_by_hand(train, new):
    """The place of each new value among the training part's, one value at a time."""
    known = sorted({value for value in train.tolist() if value == value})
    return np.array([known.index(value) if value in known else len(known) for value in new.tolist()]), len(known)


# --- one-hot


def test_one_hot_is_one_hot_encoder():
    random = np.random.default_rng(0)
    raw = random.integers(0, [3, 5, 2], (40, 3)).astype(float)
    new = random.integers(-1, 7, (30, 3)).astype(float)
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(raw)
    fitted = OneHot().fit(raw)
    for rows in (raw, new):
        np.testing.assert_array_equal(fitted.apply(rows), oracle.transform(rows))


def test_a_category_that_only_the_test_part_has_gets_no_input():
    column = Column("city", "category", ("Bern", "Oslo", "Rome"))
    fitted = OneHot().fit(np.array([[0.0], [1.0], [0.0]]), (column,))
    np.testing.assert_array_equal(fitted.apply(np.array([[1.0], [2.0], [np.nan]])), [[0, 1], [0, 0], [0, 0]])
    assert fitted.describe() == ["`city`: categories not in the training set are encoded as all zeros"]


# --- codes


def test_few_values_become_flags_and_many_become_codes():
    train, new = rows_of_categories(), rows_of_categories(50, seed=1)
    new[:5, 1] = [0.0, 3.0, 39.0, np.nan, -7.0]  # never seen, and missing
    new[5:8, 2] = [9.0, np.nan, 0.0]
    fitted = Categories().fit(train, COLUMNS)
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(train[:, [0, 2]])
    for rows in (train, new):
        codes, size = code_by_hand(train[:, 1], rows[:, 1])
        expected = np.column_stack([oracle.transform(rows[:, [0, 2]]), codes])
        np.testing.assert_array_equal(fitted.apply(rows), expected)
        assert fitted.layout((7,)) == InputLayout(numbers=0, flags=6, categories=(size,))
    codes = fitted.apply(new)[:5, -1]
    assert codes[0] == codes[1] == codes[2] == codes[3] == codes[4] == size == 26


def test_the_number_of_values_decides_and_missing_is_none():
    train = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, np.nan], [np.nan, 5.0]])
    assert Categories(one_hot=3).fit(train).layout((6,)) == InputLayout(0, flags=6)
    assert Categories(one_hot=2).fit(train).layout((3,)) == InputLayout(0, flags=2, categories=(3,))
    assert Categories(one_hot=0).fit(train).layout((2,)) == InputLayout(0, flags=0, categories=(3, 1))
    np.testing.assert_array_equal(Categories(one_hot=0).fit(train).apply(train), [[0, 0], [1, 0], [2, 1], [3, 0]])


def test_columns_of_few_values_alone_are_one_hot():
    train = rows_of_categories()[:, [0, 2]]
    fitted = Categories().fit(train, (COLUMNS[0], COLUMNS[2]))
    assert type(fitted) is type(OneHot().fit(train))
    np.testing.assert_array_equal(fitted.apply(train), OneHot().fit(train).apply(train))


def test_what_is_not_in_the_training_part_is_told():
    train = rows_of_categories()
    train[:, 2] = np.minimum(train[:, 2], 1.0)
    assert Categories().fit(train, COLUMNS).describe() == [
        "`size`: categories not in the training set are encoded as all zeros",
        "`word`: categories not in the training set share the code of missing values",
    ]
    assert Categories().fit(train).describe() == []


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 12), st.just(np.nan)), min_size=1, max_size=30),
    st.lists(st.one_of(st.integers(-2, 15), st.just(np.nan)), min_size=1, max_size=30),
    st.integers(0, 12),
)
def test_any_column_is_coded_as_by_hand(train, new, one_hot):
    train, new = np.array(train, float), np.array(new, float)
    codes, size = code_by_hand(train, new)
    fitted = Categories(one_hot=one_hot).fit(train[:, None])
    found = fitted.apply(new[:, None])
    layout = fitted.layout(found.shape[1:])
    assert layout.width == found.shape[1]
    if size > one_hot:
        assert layout.categories == (size,)
        np.testing.assert_array_equal(found[:, 0], codes)
    else:
        assert layout.flags == size + np.isnan(train).any()
        np.testing.assert_array_equal(found[:, :size], codes[:, None] == np.arange(size))


# --- tables


MIXED = (COLUMNS[1], Column("age"), COLUMNS[0], Column("income"), COLUMNS[2], Column("other", "category", WORDS))


def mixed_rows(count=200, seed=0):
    random = np.random.default_rng(seed)
    categories = rows_of_categories(count, seed)
    numbers = random.normal(size=(count, 2)) * [10.0, 1e4]
    numbers[random.random(count) < 0.2, 1] = np.nan
    other = random.integers(0, 30, count).astype(float)
    return np.column_stack([categories[:, 1], numbers[:, 0], categories[:, 0], numbers[:, 1], categories[:, 2], other])


@pytest.mark.parametrize("kind", [Columns, Automatic])
def test_numbers_then_flags_then_codes(kind):
    """The columns stand in any order; the inputs do not: numbers, one-hot, indicators, codes."""
    train, new = mixed_rows(), mixed_rows(60, seed=1)
    fitted = kind(numbers=Standardise(), categories=Categories()).fit(train, MIXED)
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(train[:, [2, 4]])
    mean, deviation = np.nanmean(train[:, [1, 3]], axis=0), np.nanstd(train[:, [1, 3]], axis=0)
    for rows in (train, new):
        (words, words_size), (others, others_size) = (code_by_hand(train[:, j], rows[:, j]) for j in (0, 5))
        expected = np.column_stack(
            [
                np.nan_to_num((rows[:, [1, 3]] - mean) / deviation),
                one_hot.transform(rows[:, [2, 4]]),
                np.isnan(rows[:, 3]),
                words,
                others,
            ]
        )
        np.testing.assert_allclose(fitted.apply(rows, np.float64), expected, atol=1e-12)
        assert fitted.layout((11,)) == InputLayout(numbers=2, flags=7, categories=(words_size, others_size))


def test_categories_save_and_agree_with_jax():
    raw = mixed_rows()
    fitted = Columns(NoScaling(), Categories()).fit(raw, MIXED)
    arrays = {}
    loaded = from_plain(json.loads(json.dumps(to_plain(fitted, arrays))), arrays)
    assert jax.tree.structure(loaded) == jax.tree.structure(fitted)
    assert loaded.apply(raw).tobytes() == fitted.apply(raw).tobytes()
    assert loaded.layout((11,)) == fitted.layout((11,))
    assert loaded.describe() == fitted.describe()
    np.testing.assert_array_equal(jax.vmap(fitted)(jnp.asarray(raw)), fitted.apply(raw))
    # A predictor's scaler may be an argument of a compiled program, whose statistics have no values.
    compiled = jax.jit(lambda scaler, rows: jax.vmap(scaler)(rows))
    np.testing.assert_array_equal(compiled(fitted, jnp.asarray(raw)), fitted.apply(raw))
    nested = Columns(numbers=Columns(NoScaling(), Categories())).fit(raw[:, [1, 3]], (MIXED[1], MIXED[3]))
    found = nested.apply(raw[:, [1, 3]])
    np.testing.assert_array_equal(compiled(nested, jnp.asarray(raw[:, [1, 3]])), found)
    assert nested.layout((4,)) == InputLayout(numbers=2, flags=2)


def test_missing_categories_are_told():
    raw = mixed_rows()
    count = np.isnan(raw[:, 0]).sum()
    notes = Columns(categories=Categories()).fit(raw, MIXED).describe()
    assert notes[0] == f"`word` is missing in {count} of 200 training rows: missing is treated as a category"


def test_what_categories_refuse():
    with pytest.raises(RequestError, match="`Categories` needs a table with columns; got a sparse matrix"):
        Categories().fit(csr_matrix(np.eye(3)))
    with pytest.raises(RequestError, match=r"`Categories.one_hot` must lie in \[0, inf\); got -1"):
        Categories(one_hot=-1)
    assert from_json(to_json(Categories(one_hot=4))) == Categories(one_hot=4)
