"""The order of the examples (row B3), and their division into mini-batches of B (row B1).

An order is computed, not stored: the examples of any update follow from the update's number and a key, so
nothing is sorted, and a resumed run needs only the number of its last update.

    Reshuffled(size=64)     another order each epoch (default)
    ShuffledOnce(size=64)   one random order, repeated
    Fixed(size=1)           the order of the file, repeated: the incremental gradient
    Stream(size=1)          the order of the file, once
    Streams(size=20)        twenty places of the file at once, each read on from update to update

A shuffled order is a keyed bijection of 0 … T-1: a Feistel network over a grid of about sqrt(T) x sqrt(T) cells,
applied again where it leaves the set. Each example is thus visited exactly once per epoch. Small grids mix slowly, so a
small set takes more rounds.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key, UInt32

from ..runtime.keys import named, scramble
from ..specs.contracts import AbstractBatches
from ..specs.knobs import switch
from ..specs.priors import LogInteger

_LEAST_ROUNDS = 6
# rows ** (rounds / 2) from which on chi-square tests of positions and neighbours see no bias (400 000 values for each T
# from 2 to 300, three keys; at T = 6 six rounds are seen at once).
_MIXED = 4096


def _rows(count: int) -> int:
    """Rows of the grid; from T = 2 on at least two, since one row could only be rotated."""
    return min(count, max(2, math.isqrt(count)))


def rounds_for(count: int) -> int:
    """Rounds after which the permutations of this many examples look uniform: 6 from T = 256 on, 24 at T = 3."""
    rows = _rows(count)
    rounds = _LEAST_ROUNDS
    while rows > 1 and rows ** (rounds // 2) < _MIXED:
        rounds += 2
    return rounds


def permute(positions: Int[Array, "..."], count: int, words: UInt32[Array, "... rounds"]) -> Int[Array, "..."]:
    """The images of these positions under a keyed permutation of 0 … count-1; `words` holds one key word per round."""
    rows = _rows(count)
    columns = -(-count // rows)

    def network(cell: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
        left, right = cell // columns, cell % columns
        for round_ in range(words.shape[-1]):
            word = words[..., round_]
            if round_ % 2 == 0:
                left = (left + scramble(right ^ word) % rows) % rows
            else:
                right = (right + scramble(left ^ word) % columns) % columns
        return left * columns + right

    def outside(cells: UInt32[Array, "..."]) -> Array:
        return jnp.any(cells >= count)

    cells = network(positions.astype(jnp.uint32))
    if rows * columns > count:
        cells = jax.lax.while_loop(outside, lambda c: jnp.where(c >= count, network(c), c), cells)
    return cells.astype(jnp.int32)


def _words(key: Key[Array, ""], count: int) -> UInt32[Array, " rounds"]:
    """The key words of one permutation."""
    return jr.bits(key, (rounds_for(count),), jnp.uint32)


def _slots(updates: Int[Array, " N"], count: int, size: int) -> tuple[Array, Array, Array, Array]:
    """Epoch, position in it, presence and age for each slot; slots past the end wrap to the epoch's start."""
    size = min(size, count)
    per_epoch = -(-count // size)
    epoch = updates // per_epoch
    start = (updates % per_epoch) * size
    position = start[:, None] + jnp.arange(size)
    age = epoch * count + jnp.minimum(start + size, count)
    return epoch, position % count, (position < count).astype(jnp.float32), age


class AbstractOrder(AbstractBatches):
    """What all orders share: the mini-batch size, and that most of them never end."""

    size: int = switch(
        64,
        allowed="[1, inf)",
        prior=LogInteger(1, 256),
        row="C5",
        kind="optimiser",
        about="B, the number of examples in one update; at most T, the size of the training set",
    )

    def limit_examples(self, count: int) -> int | None:
        return None


class Reshuffled(AbstractOrder):
    """Another random order each epoch."""

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        epoch, position, present, age = _slots(updates, count, self.size)
        order = named(key, "order")  # the same key numbers the updates of a run: its plain children are taken
        words = jax.vmap(lambda e: _words(jr.fold_in(order, e), count))(epoch)
        return permute(position, count, words[:, None, :]), present, age


class ShuffledOnce(AbstractOrder):
    """One random order, the same in every epoch."""

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        _, position, present, age = _slots(updates, count, self.size)
        return permute(position, count, _words(named(key, "order"), count)), present, age


class Fixed(AbstractOrder):
    """The order of the file, every epoch."""

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        _, position, present, age = _slots(updates, count, self.size)
        return position, present, age

    def is_whole(self, count: int) -> bool:
        return self.size >= count


class Stream(AbstractOrder):
    """The order of the file, once: each example is seen when it arrives and never again.

    A stream has no T, so a penalty is divided by t, the number of examples seen so far (rows D2, G10): beside the mean
    loss of an update it is lambda Omega / t. When the stream ends, t is T.
    """

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        _, position, present, age = _slots(updates, count, self.size)
        return position, present, age

    def limit_examples(self, count: int) -> int | None:
        return count

    def examples_seen(self, update: Int[Array, ""], count: int) -> Int[Array, ""] | None:
        return _slots(jnp.asarray(update)[None], count, self.size)[3][0]


class Streams(AbstractOrder):
    """The file cut into as many pieces as an update has slots, each read from its beginning to its end in every epoch.

    So slot b of an update continues where slot b of the last one ended: what text and series with a memory need. Pieces
    differ by what is left where the rows cannot be divided; a piece that has ended leaves its slot empty.
    """

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        size = min(self.size, count)
        each = -(-count // size)
        turn = (updates % each)[:, None]
        rows = jnp.arange(size) * each + turn
        full, rest = divmod(count, each)  # pieces of full length, and the rows of one that is shorter
        age = (updates // each) * count + full * (turn[:, 0] + 1) + jnp.minimum(turn[:, 0] + 1, rest)
        return jnp.minimum(rows, count - 1), (rows < count).astype(jnp.float32), age
