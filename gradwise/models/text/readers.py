"""What a network makes of a text before its first layer (row G6): a vector for each word, and one for the whole text.

    Embedded(texts=AverageWords(size=100))                 the mean of the vectors of its words
    Embedded(texts=ConvolveWords())                        filters over neighbouring words, the largest answer of each
    Embedded(texts=ReadWords())                            gated units that read the words in order

The words come as numbers (`InputLayout.texts`). Their vectors are the rows of a table: a row is what a weight matrix
gives for one-hot inputs, without the product. Words that are not in the vocabulary share the last row, which begins
at 0; places beyond the end of a text count nothing, and a text without words is a vector of zeros.

`word_dropout` hides that share of the words in every update, each text anew (Iyyer et al. 2015).
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from ...runtime.keys import coins
from ...specs.knobs import Spec, is_off, knob, switch
from ...specs.priors import Choice, LogUniform, Uniform, ZeroOr
from ...specs.schedules import Noise

TextWords = Float[Array, " places"]


class WordTable(eqx.Module):
    """The vector of each word of a text: a row of the table."""

    table: Float[Any, "words size"]
    dropout: Noise | None

    def __call__(
        self, words: TextWords, key: Key[Array, ""] | None
    ) -> tuple[Float[Array, "places size"], Bool[Array, " places"]]:
        """Vectors, zeros where there is no word or it was dropped, and which places hold one."""
        codes = words.astype(jnp.int32)
        unknown = self.table.shape[0] - 1
        present = codes <= unknown
        if key is not None and self.dropout is not None:
            present = present & coins(key, 1.0 - self.dropout.value, codes.shape[0])
        vectors = self.table[jnp.minimum(codes, unknown)]
        return jnp.where(present[:, None], vectors, 0.0), present


def word_vectors(words: int, size: int, deviation: Any, dropout: Any, key: Key[Array, ""]) -> WordTable:
    """Normal vectors of so many known words, and zeros for the unknown one."""
    table = jnp.concatenate([deviation * jr.normal(key, (words, size)), jnp.zeros((1, size))])
    return WordTable(table, None if is_off(dropout) else Noise(jnp.asarray(dropout)))


class BagOfWords(eqx.Module):
    """The share of each word in a text: what a linear model reads, and the mean of the one-hot words."""

    words: int = eqx.field(static=True)  # in the vocabulary; one more stands for all others

    def __call__(self, words: TextWords, *, key: Key[Array, ""] | None = None) -> Float[Array, " vocabulary"]:
        codes = words.astype(jnp.int32)
        present = (codes <= self.words).astype(jnp.float32)
        counts = jnp.zeros(self.words + 1).at[jnp.minimum(codes, self.words)].add(present)
        return counts / jnp.maximum(jnp.sum(present), 1.0)


class MeanOfWords(eqx.Module):
    """The mean of the vectors of the words."""

    vectors: WordTable

    def __call__(self, words: TextWords, *, key: Key[Array, ""] | None = None) -> Float[Array, " size"]:
        vectors, present = self.vectors(words, key)
        return jnp.sum(vectors, axis=0) / jnp.maximum(jnp.sum(present), 1)


class AbstractTextReader(Spec):
    @abc.abstractmethod
    def build(self, words: int, *, key: Key[Array, ""]) -> Any:
        """What maps the words (places,) of one text to one vector, for a vocabulary of so many words.

        It is called as `reader(words, key=key)`, and is deterministic without a key.
        """


def vector_size(default: int) -> Any:
    return switch(
        default,
        allowed="[1, inf)",
        prior=Choice((32, 64, 128, 256)),
        row="G6",
        kind="capacity",
        about="numbers in the vector of a word",
    )


def word_dropout(default: float) -> Any:
    return knob(
        default,
        allowed="[0, 1)",
        prior=ZeroOr(Uniform(0.1, 0.6)),
        row="J3",
        kind="capacity",
        off=0.0,
        about="the share of words hidden in an update",
    )


def vector_deviation(default: float) -> Any:
    return knob(
        default,
        allowed="(0, inf)",
        prior=LogUniform(0.01, 1.0),
        row="G6",
        kind="model",
        about="initial standard deviation of the vectors of words",
    )


class AverageWords(AbstractTextReader):
    """The mean of the vectors of all words: their order is not read (Iyyer et al. 2015; Joulin et al. 2017)."""

    size: int = vector_size(64)
    deviation: float = vector_deviation(0.1)
    word_dropout: float = word_dropout(0.3)

    def build(self, words: int, *, key: Key[Array, ""]) -> MeanOfWords:
        return MeanOfWords(word_vectors(words, self.size, self.deviation, self.word_dropout, key))
