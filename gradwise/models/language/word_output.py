"""From features to the probabilities of all words: the last layer of a language model (row G6).

    FullSoftmax()                  one row of weights for each word
    TwoLevelSoftmax(classes=100)   P(word) = P(class) P(word | class): two small softmaxes in place of a large one

Words are numbered by falling frequency, and a class is a run of neighbours: frequent words lie together (Goodman 2001).
Biases begin at the logarithms of the words' frequencies, so that training begins where a unigram model ends.
"""

import abc
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ...runtime import keys
from ...specs.knobs import Spec, switch
from ...specs.priors import Choice
from ..initial_weights import AbstractInitial, GaussianWeights

Features = Float[Array, "n width"]
Words = Int[Array, " n"]


class SoftmaxWords(eqx.Module):
    """One row of weights and one bias for each word. `weight` is None where it is the table of embeddings."""

    weight: Float[Any, "words width"] | None
    bias: Float[Any, " words"]

    def log_probabilities(self, features: Features) -> Float[Array, "n words"]:
        """The logarithm of each word's probability."""
        assert self.weight is not None
        return jax.nn.log_softmax(features @ self.weight.T + self.bias, axis=1)

    def log_probability(self, features: Features, words: Words) -> Float[Array, " n"]:
        """The logarithm of the probability of one word for each row of features."""
        assert self.weight is not None
        logits = features @ self.weight.T + self.bias
        return jnp.take_along_axis(logits, words[:, None], 1)[:, 0] - jax.nn.logsumexp(logits, axis=1)

    def begun(self, frequencies: Float[Array, " words"]) -> "SoftmaxWords":
        """The same layer with the biases of a unigram model."""
        return dataclasses.replace(self, bias=jnp.log(frequencies))


class TwoLevelWords(eqx.Module):
    """A softmax over classes, and one within each class. The last class may have places beyond the last word."""

    classes: SoftmaxWords
    weight: Float[Any, "classes places width"]
    bias: Float[Any, "classes places"]
    words: int = eqx.field(static=True)

    def _within(self, logits: Float[Array, "... places"], which: Any) -> Float[Array, "... places"]:
        """Log-probabilities within a class; a place without a word has probability 0."""
        places = logits.shape[-1]
        there = jnp.expand_dims(which, -1) * places + jnp.arange(places) < self.words
        return jax.nn.log_softmax(jnp.where(there, logits, -1e30), axis=-1)  # finite, so that gradients are too

    def log_probabilities(self, features: Features) -> Float[Array, "n words"]:
        """The logarithm of each word's probability."""
        classes = self.classes.log_probabilities(features)
        within = jnp.einsum("nd,cpd->ncp", features, self.weight) + self.bias
        both = classes[:, :, None] + self._within(within, jnp.arange(self.weight.shape[0]))
        return both.reshape(features.shape[0], -1)[:, : self.words]

    def log_probability(self, features: Features, words: Words) -> Float[Array, " n"]:
        """The logarithm of the probability of one word for each row: its class alone is computed."""
        which, place = words // self.weight.shape[1], words % self.weight.shape[1]
        within = jnp.einsum("nd,npd->np", features, self.weight[which]) + self.bias[which]
        chosen = jnp.take_along_axis(self._within(within, which), place[:, None], 1)[:, 0]
        return self.classes.log_probability(features, which) + chosen

    def begun(self, frequencies: Float[Array, " words"]) -> "TwoLevelWords":
        """The same layer with the biases of a unigram model."""
        count, places = self.bias.shape
        spread = jnp.pad(frequencies, (0, count * places - self.words), constant_values=1.0).reshape(count, places)
        there = (jnp.arange(count * places) < self.words).reshape(count, places)
        classes = self.classes.begun(jnp.sum(spread, axis=1, where=there))
        return dataclasses.replace(self, classes=classes, bias=jnp.log(spread))


WordLayer = SoftmaxWords | TwoLevelWords


class AbstractWordOutput(Spec):
    @abc.abstractmethod
    def build(self, words: int, width: int, *, key: Key[Array, ""]) -> WordLayer:
        """The layer for so many words and features."""

    def can_be_tied(self) -> bool:
        """Whether its weights may be the table of embeddings."""
        return False


class FullSoftmax(AbstractWordOutput):
    """Every word has its row of weights; the work of a prediction grows with the number of words."""

    initial: AbstractInitial = GaussianWeights(0.05)

    def build(self, words: int, width: int, *, key: Key[Array, ""]) -> SoftmaxWords:
        return SoftmaxWords(self.initial.draw(words, width, 1.0, key=key), jnp.zeros(words))

    def can_be_tied(self) -> bool:
        return True


class TwoLevelSoftmax(AbstractWordOutput):
    """Classes by frequency, then the words of a class (Goodman 2001; Mikolov et al. 2011).

    With as many classes as each has words, a word of V costs two softmaxes of about sqrt(V).
    """

    classes: int = switch(
        0,
        allowed="[0, inf)",
        prior=Choice((0, 50, 100, 200)),
        row="G6",
        about="classes of words; 0: as many as a class has words",
    )
    initial: AbstractInitial = GaussianWeights(0.05)

    def build(self, words: int, width: int, *, key: Key[Array, ""]) -> TwoLevelWords:
        asked = min(self.classes or math.isqrt(words - 1) + 1, words)
        places = -(-words // asked)
        count = -(-words // places)  # the classes that have words
        upper = self.initial.draw(count, width, 1.0, key=keys.named(key, "classes"))
        lower = self.initial.draw(count * places, width, 1.0, key=keys.named(key, "words"))
        classes = SoftmaxWords(upper, jnp.zeros(count))
        return TwoLevelWords(classes, lower.reshape(count, places, width), jnp.zeros((count, places)), words)
