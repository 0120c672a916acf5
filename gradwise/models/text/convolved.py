"""Filters over neighbouring words, the largest answer of each: what a text has somewhere (Kim 2014).

Embedded(texts=ConvolveWords(widths=(3, 4, 5), filters=100))
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from ...runtime.errors import RequestError
from ...specs.knobs import switch
from ...specs.priors import Choice
from ..initial_weights import AbstractInitial, FanIn
from .readers import (
    AbstractTextReader,
    TextWords,
    WordTable,
    vector_deviation,
    vector_size,
    word_dropout,
    word_vectors,
)


class WordFilters(eqx.Module):
    """Filters over windows of one width: max over t of max(0, b + sum_k W_k v_{t + k}), 0 for a text without words.

    A window may reach beyond either end of the text, but must hold one of its words.
    """

    weight: Float[Any, "window filters size"]
    bias: Float[Any, " filters"]

    def __call__(
        self, vectors: Float[Array, "places size"], present: Bool[Array, " places"]
    ) -> Float[Array, " filters"]:
        """The vectors are zeros where no word is present."""
        window = self.weight.shape[0]
        beyond = window - 1
        starts = vectors.shape[0] + beyond
        padded, held = jnp.pad(vectors, ((beyond, beyond), (0, 0))), jnp.pad(present, beyond)
        answers = sum(padded[k : k + starts] @ self.weight[k].T for k in range(window)) + self.bias
        counts = jnp.stack([held[k : k + starts] for k in range(window)]).any(axis=0)
        return jnp.max(jnp.where(counts[:, None], jnp.maximum(answers, 0.0), 0.0), axis=0)


class ConvolvedWords(eqx.Module):
    """The answers of filters of several widths, side by side."""

    vectors: WordTable
    filters: tuple[WordFilters, ...]

    def __call__(self, words: TextWords, *, key: Key[Array, ""] | None = None) -> Float[Array, " features"]:
        found = self.vectors(words, key)
        return jnp.concatenate([one(*found) for one in self.filters])


class ConvolveWords(AbstractTextReader):
    """Filters over windows of `widths` words, as many of each; of each filter the largest answer in the text."""

    size: int = vector_size(64)
    widths: tuple[int, ...] = switch(
        (3, 4, 5),
        prior=Choice(((2, 3), (3, 4, 5), (2, 3, 4, 5))),
        row="G6",
        kind="capacity",
        about="words that a filter sees at once, for each group of filters",
        convert=tuple,
    )
    filters: int = switch(
        64, allowed="[1, inf)", prior=Choice((32, 64, 100)), row="G6", kind="capacity", about="filters of each width"
    )
    initial: AbstractInitial = FanIn()
    deviation: float = vector_deviation(0.1)
    word_dropout: float = word_dropout(0.3)

    def __check_init__(self) -> None:
        if not self.widths or not all(type(width) is int and width >= 1 for width in self.widths):
            raise RequestError(
                f"`ConvolveWords.widths` must be whole numbers of at least 1, such as (3, 4, 5); got {self.widths!r}."
            )

    def build(self, words: int, *, key: Key[Array, ""]) -> ConvolvedWords:
        filters = []
        for number, width in enumerate(self.widths):
            drawn = self.initial.draw(self.filters, width * self.size, 1.0, key=jr.fold_in(key, number + 1))
            weight = drawn.reshape(self.filters, width, self.size).transpose(1, 0, 2)
            filters.append(WordFilters(weight, jnp.zeros(self.filters)))
        first = word_vectors(words, self.size, self.deviation, self.word_dropout, jr.fold_in(key, 0))
        return ConvolvedWords(first, tuple(filters))
