"""Arrays of the batch that the loss does not read, such as one of several inputs (row F4).

    unread(subject, bits=64, key=key)        (Unread("meta", an_input=True),)

Each array is permuted across the examples while all others stay: if the loss does not change in a single bit, at
the given parameters and at two random points, nothing reads it. A single input array is tested column by
column (`wiring.py`), and padding marks in `poisoned_padding.py`.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ...runtime import keys
from ...specs.contracts import Batch
from ...specs.paths import named_leaves
from ...tracing.program import is_random_key
from ..batch_access import inputs_of, targets_of
from ..padding_masks import mark_of, used_rows
from ..probes import attempt, few_rows, in_evaluation_mode, points
from ..subject import Subject

_ROWS = 16
_SIZES = (0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Unread:
    """An array without effect; `an_input` if it is one of several inputs, not an extra."""

    name: str
    an_input: bool


def _asked(batch: Any, count: int) -> dict[int, Unread]:
    """The arrays to test, by their place among the leaves."""
    inputs, targets = inputs_of(batch), jax.tree.leaves(targets_of(batch))
    several = [] if hasattr(inputs, "dtype") else jax.tree.leaves(inputs)
    mark = mark_of(batch) if hasattr(inputs, "dtype") else None
    asked = {}
    for place, (name, leaf) in enumerate(named_leaves(batch)):
        known = leaf is inputs or any(leaf is one for one in targets) or (mark is not None and mark.path == name)
        if known or np.ndim(leaf) == 0 or np.shape(leaf)[0] != count or not hasattr(leaf, "dtype"):
            continue
        if is_random_key(leaf) or np.all(np.asarray(leaf) == np.asarray(leaf)[:1]):
            continue  # keys are noise; permuting what is the same for all examples shows nothing
        asked[place] = Unread(name, any(leaf is one for one in several))
    # The other leaves of a gradwise batch (row numbers, weights) need not be read by the user's loss.
    return {place: one for place, one in asked.items() if one.an_input or not isinstance(batch, Batch)}


def unread(subject: Subject, *, bits: int, key: Key[Array, ""]) -> tuple[Unread, ...]:
    """The arrays of the batch that can be permuted across examples without changing the loss."""
    rows = used_rows(subject.batch) if hasattr(inputs_of(subject.batch), "dtype") else None
    rows = np.arange(subject.count) if rows is None else rows
    few = few_rows(subject, rows[:_ROWS])
    asked = _asked(few.batch, few.count)
    if not asked or few.count < 2:
        return ()
    noise = keys.named(key, "noise")

    def question(near: Any, batch: Any) -> Array:
        leaves, structure = jax.tree.flatten(batch)

        def one(parameters: Any) -> Array:
            at = in_evaluation_mode(few, parameters)
            values = [few.value(at, batch, noise)]
            for place in asked:
                exchanged = [jnp.roll(leaf, 1, axis=0) if i == place else leaf for i, leaf in enumerate(leaves)]
                values.append(few.value(at, jax.tree.unflatten(structure, exchanged), noise))
            return jnp.stack(values)

        return jax.lax.map(one, near)

    values = attempt(question, points(few.parameters, _SIZES, key=key), few.batch, bits=bits)
    if values is None or not np.all(np.isfinite(values[:, 0])):
        return ()
    still = np.all(values[:, 1:] == values[:, :1], axis=0)
    return tuple(one for one, unmoved in zip(asked.values(), still, strict=True) if unmoved)
