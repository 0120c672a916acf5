"""Readers of text, against one-hot words times a matrix and against loops over the words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.input_stage import Direct, Embedded, NoEmbedding
from gradwise.models.mlp import Mlp
from gradwise.models.restricted_boltzmann import Rbm
from gradwise.models.text.readers import AverageWords, BagOfWords
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout

KNOWN = 5  # words of the vocabulary; 5 is any other, 6 is none
TEXT = jnp.array([2.0, 5.0, 2.0, 0.0, 6.0, 6.0])
NOTHING = jnp.full(6, 6.0)


def _one_hot(words: jax.Array) -> jax.Array:
    return jax.nn.one_hot(words.astype(int), KNOWN + 1)  # no word: zeros


def test_the_mean_of_words_is_one_hot_words_times_a_matrix_in_value_and_gradient() -> None:
    reader = AverageWords(size=3, word_dropout=0.0).build(KNOWN, key=jr.key(0))
    table = reader.vectors.table
    assert (np.asarray(table[KNOWN]) == 0).all()

    def by_product(matrix: jax.Array) -> jax.Array:
        return jnp.sum(_one_hot(TEXT) @ matrix, axis=0) / 4

    def by_rows(matrix: jax.Array) -> jax.Array:
        return eqx.tree_at(lambda one: one.vectors.table, reader, matrix)(TEXT)

    table = table + 0.1
    np.testing.assert_allclose(by_rows(table), by_product(table), rtol=1e-6)
    np.testing.assert_allclose(jax.jacobian(by_rows)(table), jax.jacobian(by_product)(table), rtol=1e-6)


def test_a_category_is_its_one_hot_flags_times_a_matrix_in_value_and_gradient() -> None:
    layout = InputLayout(numbers=0, categories=(4,))
    stage = Embedded(category_size=3, factor=False).build(layout, key=jr.key(1))
    for code in range(5):

        def by_rows(table: jax.Array, code: int = code) -> jax.Array:
            return eqx.tree_at(lambda one: one.tables[0], stage, table)(jnp.array([float(code)]))

        def by_product(table: jax.Array, code: int = code) -> jax.Array:
            return jax.nn.one_hot(code, 5) @ table

        np.testing.assert_allclose(by_rows(stage.tables[0]), by_product(stage.tables[0]), rtol=1e-6)
        slopes = [jax.jacobian(each)(stage.tables[0]) for each in (by_rows, by_product)]
        np.testing.assert_allclose(*slopes, rtol=1e-6)


def test_a_bag_is_the_share_of_each_word() -> None:
    np.testing.assert_allclose(BagOfWords(KNOWN)(TEXT), _one_hot(TEXT).sum(0) / 4)
    assert not np.asarray(BagOfWords(KNOWN)(NOTHING)).any()


def test_a_text_without_words_is_zeros_with_clean_gradients() -> None:
    reader = AverageWords(size=3).build(KNOWN, key=jr.key(0))
    assert not np.asarray(reader(NOTHING)).any()
    slope = eqx.filter_grad(lambda one: jnp.sum(one(NOTHING, key=jr.key(1)) ** 2))(reader)
    assert not np.asarray(slope.vectors.table).any()


def test_places_beyond_the_end_count_nothing() -> None:
    reader = AverageWords(size=3).build(KNOWN, key=jr.key(0))
    np.testing.assert_allclose(reader(TEXT), reader(TEXT[:4]), rtol=1e-6)


def test_dropped_words_are_missing_from_the_mean() -> None:
    reader = AverageWords(size=8, word_dropout=0.4).build(KNOWN, key=jr.key(0))
    table, rows = np.asarray(reader.vectors.table), TEXT[:4].astype(int)
    choices = [np.array([bool(n >> k & 1) for k in range(4)]) for n in range(16)]
    possible = np.array([table[rows][kept].sum(0) / max(1, kept.sum()) for kept in choices])
    chance = np.array([0.6 ** kept.sum() * 0.4 ** (4 - kept.sum()) for kept in choices])
    drawn = np.asarray(jax.vmap(lambda key: reader(TEXT, key=key))(jr.split(jr.key(3), 4000)))
    found = np.abs(drawn[:, None] - possible).max(-1).argmin(1)
    np.testing.assert_allclose(drawn, possible[found], atol=1e-6)
    # A word that stands twice makes pairs of choices alike, so outcomes are compared, not choices.
    same = np.abs(possible[:, None] - possible).max(-1) < 1e-6
    for outcome in range(16):
        expected = chance[same[outcome]].sum()
        seen = same[outcome][found].mean()
        assert abs(seen - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1e-9


@pytest.mark.parametrize("stage", [Embedded(numbers=NoEmbedding(), factor=False), Direct()])
def test_a_stage_gives_each_text_to_its_own_reader_after_all_else(stage: Embedded | Direct) -> None:
    layout = InputLayout(numbers=2, flags=1, categories=(3,), texts=((2, 4), (3, 5)))
    built = stage.build(layout, key=jr.key(0))
    x = jnp.array([0.5, -1.0, 1.0, 2.0, 1.0, 5.0, 0.0, 5.0, 6.0])
    joined = built(x)
    table = built.tables[0]
    category = jax.nn.one_hot(2, 3) if isinstance(table, int) else table[2]
    expected = [x[:3], category, built.texts[0](x[4:6]), built.texts[1](x[6:])]
    np.testing.assert_allclose(joined, jnp.concatenate(expected))
    with_key = built(x, key=jr.key(1))
    np.testing.assert_allclose(with_key[: 3 + len(category)], joined[: 3 + len(category)])


def test_a_network_hides_words_in_training_alone() -> None:
    layout = InputLayout(numbers=0, texts=((6, KNOWN),))
    model = Mlp(widths=(), inputs=Embedded(texts=AverageWords(word_dropout=0.5))).for_inputs(layout)
    network = model.build((6,), 2, key=jr.key(0))
    assert np.array_equal(network(TEXT), network(TEXT))
    drawn = {tuple(np.asarray(network(TEXT, key=jr.key(seed))).tolist()) for seed in range(8)}
    assert len(drawn) > 2


def test_a_model_of_numbers_refuses_text() -> None:
    layout = InputLayout(numbers=1, texts=((6, KNOWN),))
    with pytest.raises(RequestError, match="Rbm cannot read text: leave the column out"):
        Rbm().for_inputs(layout)
