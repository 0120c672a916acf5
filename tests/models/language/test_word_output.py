"""The layer of all words against NumPy: a softmax, and one in two levels whose probabilities sum to 1."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.language.word_output import FullSoftmax, TwoLevelSoftmax, TwoLevelWords

WIDTH = 5
FEATURES = jnp.asarray(np.random.default_rng(0).normal(size=(4, WIDTH)), jnp.float32)


@pytest.mark.parametrize("output", [FullSoftmax(), TwoLevelSoftmax(), TwoLevelSoftmax(classes=1)], ids=repr)
@pytest.mark.parametrize("words", [2, 11])
def test_probabilities_sum_to_one_and_each_alone_is_the_same(output: FullSoftmax, words: int) -> None:
    layer = output.build(words, WIDTH, key=jr.key(1))
    layer = jax.tree.map(lambda leaf: leaf + jr.normal(jr.key(2), leaf.shape), layer)
    whole = np.asarray(layer.log_probabilities(FEATURES), np.float64)
    assert whole.shape == (4, words)
    np.testing.assert_allclose(np.exp(whole).sum(1), 1.0, rtol=1e-6)
    each = layer.log_probability(jnp.repeat(FEATURES, words, axis=0), jnp.tile(jnp.arange(words), 4))
    np.testing.assert_allclose(each, whole.ravel(), rtol=1e-4, atol=1e-5)


def test_two_levels_are_the_product_of_two_softmaxes() -> None:
    words = 11
    layer = TwoLevelSoftmax(classes=3).build(words, WIDTH, key=jr.key(1))
    assert isinstance(layer, TwoLevelWords)
    assert layer.weight.shape == (3, 4, WIDTH)
    found = np.exp(np.asarray(layer.log_probabilities(FEATURES)))
    for row, h in enumerate(np.asarray(FEATURES, np.float64)):
        classes = np.exp(np.asarray(layer.classes.weight, np.float64) @ h)
        for word in range(words):
            which, place = divmod(word, 4)
            there = 3 if which == 2 else 4
            within = np.exp(np.asarray(layer.weight[which], np.float64) @ h)[:there]
            expected = classes[which] / classes.sum() * within[place] / within.sum()
            assert found[row, word] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("output", [FullSoftmax(), TwoLevelSoftmax()], ids=repr)
def test_begun_it_is_a_unigram_model(output: FullSoftmax) -> None:
    frequencies = np.random.default_rng(3).dirichlet(np.ones(10))
    layer = output.build(10, WIDTH, key=jr.key(1)).begun(jnp.asarray(frequencies, jnp.float32))
    told = np.exp(np.asarray(layer.log_probabilities(jnp.zeros((1, WIDTH)))[0]))
    np.testing.assert_allclose(told, frequencies, rtol=1e-4)


def test_a_place_without_a_word_has_no_gradient() -> None:
    layer = TwoLevelSoftmax(classes=3).build(11, WIDTH, key=jr.key(1))
    slope = jax.grad(lambda one: -jnp.sum(one.log_probability(FEATURES, jnp.asarray([8, 9, 10, 0]))))(layer)
    assert np.isfinite(np.asarray(slope.weight)).all()
    assert not np.asarray(slope.weight[2, 3]).any()
    assert np.asarray(slope.weight[2, 2]).any()
