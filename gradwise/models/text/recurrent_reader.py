"""Gated units that read the words of a text in order.

Embedded(texts=ReadWords())
Embedded(texts=ReadWords(network=Recurrent(units=(64,), directions="forward")))
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..recurrence.pooling import AttentionPooling
from ..recurrence.recurrent import Recurrent, RecurrentNetwork
from .readers import (
    AbstractTextReader,
    TextWords,
    WordTable,
    vector_deviation,
    vector_size,
    word_dropout,
    word_vectors,
)


class WordsInOrder(eqx.Module):
    """The pooled states of recurrent layers over the vectors of the words; a word that is dropped is a vector of zeros.

    The network has no outputs of its own.
    """

    vectors: WordTable
    network: RecurrentNetwork

    def __call__(self, words: TextWords, *, key: Key[Array, ""] | None = None) -> Float[Array, " features"]:
        first, second = (None, None) if key is None else jr.split(key)
        vectors, _ = self.vectors(words, first)
        is_word = words.astype(jnp.int32) < self.vectors.table.shape[0]
        return self.network.features(jnp.where(is_word[:, None], vectors, jnp.nan), key=second)


class ReadWords(AbstractTextReader):
    """Recurrent layers over the words, from both ends; their states pooled to one vector (`Recurrent`)."""

    size: int = vector_size(64)
    network: Recurrent = Recurrent(units=(64,), directions="both", pooling=AttentionPooling())
    deviation: float = vector_deviation(0.1)
    word_dropout: float = word_dropout(0.3)

    def build(self, words: int, *, key: Key[Array, ""]) -> WordsInOrder:
        vectors = word_vectors(words, self.size, self.deviation, self.word_dropout, jr.fold_in(key, 0))
        network: Any = self.network.build((1, self.size), 1, key=jr.fold_in(key, 1))
        return WordsInOrder(vectors, eqx.tree_at(lambda one: one.output, network, None))
