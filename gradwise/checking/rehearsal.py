"""A short rehearsal of the user's own training: their loss, their optimiser, their batches, a hundred updates.

    seen = rehearse(subject, key=key)
    seen.losses, seen.ratios                 the loss, and |update| / |weights| of each parameter, at each update

Without an optimiser Adam is used (`seen.stand_in`), and rates are not reported. Without successive batches the
training set is shuffled, and without a training set the one batch is repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from ..runtime import keys
from ..runtime.compilation import compile_quickly
from .batch_access import count_of, stacked, take
from .subject import Subject

UPDATES = 100
_STAND_IN = 1e-3
_LEAST = 1e-30


@dataclass(frozen=True)
class Rehearsal:
    """The results of a hundred updates. Columns of the matrices are the parameters `names`; rows are updates."""

    names: tuple[str, ...]
    losses: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, "n p"]  # root mean square of each parameter before the update
    gradients: Float[np.ndarray, "n p"]  # of its gradient
    updates: Float[np.ndarray, "n p"]  # of its change
    moved: Float[np.ndarray, " p"]  # the largest change of any entry from beginning to end
    start: PyTree
    end: PyTree
    stand_in: bool

    @property
    def ratios(self) -> Float[np.ndarray, "n p"]:
        """The size of each update relative to that of the weights it changes."""
        with np.errstate(invalid="ignore"):  # infinite weights: training diverged
            return self.updates / np.maximum(self.weights, _LEAST)


def _on_device(batches: Sequence[Any]) -> Any:
    return jax.tree.map(jnp.asarray, stacked(batches))


def order_of(subject: Subject, updates: int, *, key: Key[Array, ""]) -> tuple[Any, np.ndarray]:
    """A pool of batches, stacked, and which of them each update uses."""
    if subject.batches:
        usable = [batch for batch in subject.batches if count_of(batch) == count_of(subject.batches[0])]
        return _on_device(usable), np.arange(updates) % len(usable)
    if subject.train is not None and count_of(subject.train) >= 2 * subject.count:
        count, size = count_of(subject.train), subject.count
        rounds = -(-updates // (count // size))
        generator = keys.generator(keys.named(key, "order"))
        rows = np.concatenate(
            [generator.permutation(count)[: count // size * size].reshape(-1, size) for _ in range(rounds)]
        )[:updates]
        return _on_device([take(subject.train, one) for one in rows]), np.arange(len(rows))
    return _on_device([subject.batch]), np.zeros(updates, int)


def _size(leaf: Array) -> Array:
    return jnp.sqrt(jnp.mean(jnp.square(leaf.astype(jnp.float32)))) if leaf.size else jnp.zeros(())


def trainer(subject: Subject) -> tuple[Any, Callable[..., tuple[Array, PyTree, PyTree, PyTree]]]:
    """The user's optimiser (Adam by default), and one update of their training with it.

    `update(parameters, state, batch, key)` returns the loss, its gradient, the updates, and the optimiser's new state.
    """
    optimiser = optax.with_extra_args_support(optax.adam(_STAND_IN) if subject.optimiser is None else subject.optimiser)

    def update(parameters: PyTree, state: PyTree, batch: Any, key: Any) -> tuple[Array, PyTree, PyTree, PyTree]:
        loss, gradient = jax.value_and_grad(subject.value)(parameters, batch, key)
        extra = {"value": loss, "grad": gradient, "value_fn": lambda there: subject.value(there, batch, key)}
        extra |= {} if subject.extra is None else subject.extra(parameters, batch, key)
        moves, state = optimiser.update(gradient, state, parameters, **extra)
        return loss, gradient, moves, state

    return optimiser, update


def rehearse(subject: Subject, *, updates: int = UPDATES, key: Key[Array, ""]) -> Rehearsal:
    """A number of updates as one compiled scan."""
    optimiser, update = trainer(subject)
    pool, order = order_of(subject, updates, key=key)
    noise = keys.named(key, "rehearsal")

    def body(carry: tuple[PyTree, PyTree], inputs: tuple[Array, Array]) -> Any:
        parameters, state = carry
        number, chosen = inputs
        batch = jax.tree.map(lambda leaf: leaf[chosen], pool)
        loss, gradient, moves, state = update(parameters, state, batch, jr.fold_in(noise, number))
        sizes = [jnp.stack([_size(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (parameters, gradient, moves)]
        return (optax.apply_updates(parameters, moves), state), (loss, *sizes)

    @partial(compile_quickly, size=subject.size)
    def run(parameters: PyTree) -> Any:
        numbers = (jnp.arange(updates), jnp.asarray(order))
        return jax.lax.scan(body, (parameters, optimiser.init(parameters)), numbers)

    start = jax.tree.map(jnp.asarray, subject.parameters)
    (end, _), (losses, weights, gradients, changes) = run(start)
    ends = zip(*(map(np.asarray, jax.tree.leaves(point)) for point in (start, end)), strict=True)
    with np.errstate(invalid="ignore"):  # infinite weights: training diverged
        moved = [np.max(np.abs(a - b), initial=0.0) for a, b in ends]
    return Rehearsal(
        names=subject.names,
        losses=np.asarray(losses, np.float64),
        weights=np.asarray(weights, np.float64),
        gradients=np.asarray(gradients, np.float64),
        updates=np.asarray(changes, np.float64),
        moved=np.asarray([float(value) for value in moved]),
        start=start,
        end=end,
        stand_in=subject.optimiser is None,
    )
