"""The sampled softmax against the full one: unbiased normaliser, gradients that tend to the exact ones, equality."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.language.next_word import NextWord
from gradwise.criteria.language.sampled_next_word import SampledNextWord, draw_words
from gradwise.models.language.feed_forward import FeedForwardLanguageModel
from gradwise.models.language.word_output import TwoLevelSoftmax
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.paths import trainable

WORDS = 40
ROWS = jnp.asarray(np.random.default_rng(0).zipf(1.5, (30, 6)) % WORDS, jnp.float32)
MODEL = FeedForwardLanguageModel(words=WORDS, context=2, size=6, units=(8,))
NETWORK = MODEL.build((6,), 0, key=jr.key(0)).with_unigram_biases(ROWS)
PARAMETERS, REST = trainable(NETWORK)
BATCH = Batch(ROWS, jnp.zeros((30, 0)), jnp.ones(30), jnp.ones(30), jnp.asarray(30.0))


def gradient_of(criterion: NextWord | SampledNextWord, key: jax.Array) -> jax.Array:
    """The gradient of the criterion in all parameters, as one vector."""
    memory = criterion.begin(NETWORK, ROWS, key=key)
    batch = eqx.tree_at(lambda one: one.memory, BATCH, memory, is_leaf=lambda node: node is None)

    def loss(parameters: object) -> jax.Array:
        return criterion(eqx.combine(parameters, REST), batch, key=key)[0]

    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(jax.grad(loss)(PARAMETERS))])


EXACT = gradient_of(NextWord(), jr.key(1))


def distance(criterion: SampledNextWord, draws: int = 200) -> tuple[float, float]:
    """How far a gradient is from the exact one on average, and how far their mean is, relative to its length."""
    some = jax.jit(jax.vmap(lambda key: gradient_of(criterion, key)))(jr.split(jr.key(2), draws))
    length = jnp.linalg.norm(EXACT)
    each = jnp.mean(jnp.linalg.norm(some - EXACT, axis=1)) / length
    return float(each), float(jnp.linalg.norm(some.mean(0) - EXACT) / length)


@pytest.mark.parametrize("noise", ["unigram", pytest.param("log-uniform", marks=pytest.mark.slow)])
def test_the_gradient_tends_to_that_of_all_words(noise: str) -> None:
    found = [distance(SampledNextWord(samples=samples, noise=noise)) for samples in (5, 15, 35)]
    each, mean = zip(*found, strict=True)
    assert each[0] > 1.5 * each[1] > 2.25 * each[2]
    assert mean[0] > mean[2]
    assert mean[2] < 1.5 * each[2] / 200**0.5  # the error of a mean of 200: no bias is seen
    for samples in (WORDS, WORDS + 5):
        found_all = gradient_of(SampledNextWord(samples=samples, noise=noise), jr.key(3))
        np.testing.assert_allclose(found_all, EXACT, rtol=1e-5, atol=1e-8)


def test_the_weighted_sum_over_a_sample_is_unbiased() -> None:
    """E[sum_j f_j / pi_j] is the sum over all words, within four standard errors, and no word comes twice."""
    noise = jnp.log(jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(WORDS)), jnp.float32))
    values = jnp.asarray(np.random.default_rng(2).gamma(1.0, size=WORDS), jnp.float32)

    def estimate(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        words, log_chances = draw_words(noise, 8, key)
        return jnp.sum(values[words] * jnp.exp(-log_chances)), jnp.sum(jnp.zeros(WORDS).at[words].set(1.0))

    sums, distinct = jax.jit(jax.vmap(estimate))(jr.split(jr.key(0), 20_000))
    assert (np.asarray(distinct) == 8).all()
    error = float(jnp.std(sums)) / 20_000**0.5
    assert abs(float(jnp.mean(sums) - jnp.sum(values))) < 4 * error


def test_the_predicted_word_counts_once() -> None:
    """With all words but one drawn, a loss is at most that of all words: nothing is counted twice."""
    memory = jnp.zeros(WORDS)
    features = NETWORK.read(ROWS[0], ())[0]
    words = ROWS[0, 2:].astype(jnp.int32)
    almost = SampledNextWord(samples=WORDS - 1, noise="uniform")
    exact = -np.asarray(NETWORK.word_layer.log_probability(features, words))
    several = jax.vmap(lambda key: almost.word_losses(NETWORK, features, words, memory, key=key))(
        jr.split(jr.key(0), 500)
    )
    np.testing.assert_allclose(np.asarray(several).mean(0), exact, atol=0.02)


def test_validation_is_exact() -> None:
    sampled, full = SampledNextWord(samples=3), NextWord()
    one, other = (criterion.examples(NETWORK, ROWS, BATCH.targets) for criterion in (sampled, full))
    np.testing.assert_array_equal(one, other)


def test_two_levels_are_not_sampled() -> None:
    network = FeedForwardLanguageModel(words=9, output=TwoLevelSoftmax()).build((6,), 0, key=jr.key(0))
    with pytest.raises(RequestError, match="train two levels by NextWord"):
        SampledNextWord().check_network(network)
