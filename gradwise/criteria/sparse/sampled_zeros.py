"""Which inputs of sparse rows a reconstruction is computed at: the non-zeros, and a sample of the zeros (row G3).

    Reconstruction(corruption=Masking(0.25))                             512 columns of zeros for a mini-batch
    Reconstruction(corruption=Masking(0.25), zeros=SampledZeros(2048))
    Reconstruction(corruption=Masking(0.25), zeros=EveryZero())          dense rows

After Dauphin, Glorot and Bengio (2011), "Large-scale learning of embeddings with reconstruction sampling". Where an
input is not 0 its loss counts once. Each zero that was drawn, with probability q, counts 1 / q times:

    loss of a row = sum over its non-zeros of L_k + sum over the drawn columns k where it is 0 of L_k / q_k

so that the loss and its gradient are, in the mean over the draws, those of all inputs; a row without non-zeros too.

All rows of a mini-batch share the columns drawn: the decoder is then a product with a small dense table. A column is
drawn in proportion to 1 + (its share of non-zeros / the mean share), at most with certainty: an input that is often 1
is expected often and has large gradients where it is 0. One random number draws them all (systematic sampling).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ...specs.knobs import Spec, switch
from ...specs.networks import apply_batch, score_in_chunks
from ...specs.priors import Choice
from ...specs.sparse.rows import SparseRows

Shares = Int[Array, " width"]  # where the share of each column in a lottery of `_tickets` a draw ends


class Drawn(NamedTuple):
    """The columns of one mini-batch, and the weight of each."""

    columns: Int[Array, " k"]
    weights: Float[Array, " k"]


Elements = Callable[[Array, Array], Array]  # the loss of each input: (output, target)


class AbstractZeros(Spec):
    """The zeros of sparse rows at which the reconstruction counts."""


class EveryZero(AbstractZeros):
    """All of them: rows are dense."""


class SampledZeros(AbstractZeros):
    """Those in columns drawn anew for each mini-batch."""

    count: int = switch(
        512,
        allowed="[1, inf)",
        prior=Choice((256, 512, 1024, 2048)),
        row="G3",
        kind="optimiser",
        about="columns drawn for each mini-batch, in the mean",
    )

    def shares(self, rows: SparseRows) -> Shares:
        """What `draw` needs of the training rows."""
        filled = jnp.where(rows.values != 0, 1.0, 0.0)
        often = jnp.zeros(rows.width).at[rows.columns].add(filled, mode="drop")
        return lottery(1.0 + often / jnp.maximum(jnp.mean(often), 1e-30), self.count)

    def draw(self, shares: Shares, *, key: Key[Array, ""]) -> Drawn:
        """The columns of this mini-batch, in order, and 1 / q of each; an empty place has the column `width`."""
        if self.count >= shares.shape[0]:
            return Drawn(jnp.arange(shares.shape[0], dtype=jnp.int32), jnp.ones(shares.shape[0]))
        tickets = _tickets(self.count)
        return drawn(shares, self.count, jr.randint(key, (), 0, tickets))


def _tickets(count: int) -> int:
    """Tickets for each of so many draws, a power of two: all of them together are a number of 32 bits."""
    return 2 ** (30 - (count - 1).bit_length())


def lottery(weights: Float[Array, " width"], count: int) -> Shares:
    """Shares for `count` columns in the mean, as probable as their weights, none more than certain."""
    if count >= weights.shape[0]:
        return jnp.arange(1, weights.shape[0] + 1, dtype=jnp.int32)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        fits = jnp.sum(jnp.minimum(1.0, middle * weights)) <= count
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    low, _ = jax.lax.fori_loop(0, 60, halve, (jnp.zeros(()), count / jnp.min(weights)))
    own = jnp.floor(jnp.minimum(1.0, low * weights) * _tickets(count)).astype(jnp.int32)
    return jnp.cumsum(jnp.maximum(own, 1))


def drawn(shares: Shares, count: int, first: Int[Array, ""]) -> Drawn:
    """The columns that hold every `_tickets`-th ticket from the first one on, and 1 / q of each."""
    tickets, width = _tickets(count), shares.shape[0]
    held = first.astype(jnp.int32) + tickets * jnp.arange(count + 1, dtype=jnp.int32)  # one more, against rounding
    columns = jnp.searchsorted(shares, held, side="right").astype(jnp.int32)
    ends = shares.at[columns].get(mode="fill", fill_value=0)
    starts = jnp.where(columns > 0, shares.at[columns - 1].get(mode="fill", fill_value=0), 0)
    there = columns < width
    return Drawn(columns, jnp.where(there, tickets / jnp.where(there, ends - starts, 1), 0.0))


def sampled_losses(
    elements: Elements,
    model: Any,
    codes: Float[Array, "B h"],
    rows: SparseRows,
    columns: Int[Array, " k"],
    weights: Float[Array, " k"],
) -> Float[Array, " B"]:
    """The loss of each row: its non-zeros, and the zeros in these columns, each by its weight.

    A column that was drawn has been summed for all rows alike; those where it is not 0 get it back.
    """
    elements = jax.vmap(elements)
    at_columns = jax.vmap(model.decode_at, (0, None))(codes, columns)
    of_zeros = elements(at_columns, jnp.zeros_like(at_columns)) @ weights
    own = jax.vmap(model.decode_at)(codes, rows.columns)
    weight_of = jnp.zeros(rows.width).at[columns].set(weights, mode="drop")
    back = weight_of.at[rows.columns].get(mode="fill", fill_value=0.0) * elements(own, jnp.zeros_like(own))
    of_slots = jnp.where(rows.columns < rows.width, elements(own, rows.values) - back, 0.0)
    return of_zeros + jnp.sum(of_slots, axis=1)


_SCORED = 2**15  # columns whose zeros a score looks at: all of them, or a sample that is the same for every model
_ROWS = 128  # scored at once


def scored_columns(width: int) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
    """The columns at which rows are scored, and the weight of each."""
    if width <= _SCORED:
        return jnp.arange(width, dtype=jnp.int32), jnp.ones(width)
    chosen = np.sort(np.random.default_rng(0).choice(width, _SCORED, replace=False)).astype(np.int32)
    return jnp.asarray(chosen), jnp.full(_SCORED, width / _SCORED)


def score_sparse(
    elements: Elements, model: Any, rows: SparseRows, spoilt: Float[Array, "n slots"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The loss of each row, reconstructed from its non-zeros as spoilt, and from the row itself."""
    columns, weights = scored_columns(rows.width)

    def scores(few: SparseRows, values: Array) -> tuple[Array, Array]:
        given = dataclasses.replace(few, values=values)
        both = (apply_batch(model, each, None) for each in (given, few))
        noisy, clean = (sampled_losses(elements, model, codes, few, columns, weights) for codes in both)
        return noisy, clean

    return score_in_chunks(scores, rows, spoilt, most=_ROWS)
