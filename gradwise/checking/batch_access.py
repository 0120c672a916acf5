"""Access to a batch of any form: its number of examples, its inputs and targets, some of its rows."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..runtime.errors import RequestError
from ..specs.contracts import Batch
from ..tracing.program import is_random_key

_INPUTS = ("inputs", "x", "X", "image", "images", "features", "input", "data", "tokens")
_TARGETS = ("targets", "y", "Y", "label", "labels", "target", "output", "outputs")


def count_of(batch: PyTree) -> int:
    """How many examples a batch has: the common first axis of its arrays."""
    sizes = [np.shape(leaf)[0] for leaf in jax.tree.leaves(batch) if np.ndim(leaf) > 0]
    if not sizes:
        raise RequestError("the batch has no array with the examples along its first axis.")
    return max(set(sizes), key=lambda size: (sizes.count(size), size))


def take(batch: PyTree, rows: Any) -> PyTree:
    """Some examples of a batch; leaves that are not per example (a total, a mask of another size) stay unchanged."""
    count = count_of(batch)
    rows = np.asarray(rows)

    def chosen(leaf: Any) -> Any:
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != count:
            return leaf
        if isinstance(leaf, jax.core.Tracer) or is_random_key(leaf):
            return leaf[rows]
        found = np.asarray(leaf)[rows]  # by NumPy: as an operation of JAX each shape would be compiled
        return jnp.asarray(found) if isinstance(leaf, jax.Array) else found

    return jax.tree.map(chosen, batch)


def stacked(trees: Sequence[Any]) -> Any:
    """Batches of one shape as one, with another axis in front, by NumPy: JAX would compile many small programs."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def named_part(batch: Any, names: Sequence[str], place: int) -> Any:
    if isinstance(batch, Batch):
        return getattr(batch, names[0])
    if isinstance(batch, dict):
        return next((batch[name] for name in names if name in batch), None)
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return batch[place]
    return None


def inputs_of(batch: Any) -> Any:
    """The inputs in a batch; the batch itself if it is a single array. None if unknown."""
    found = named_part(batch, _INPUTS, 0)
    return batch if found is None and hasattr(batch, "shape") else found


def targets_of(batch: Any) -> Any:
    """The targets in a batch, or None."""
    return named_part(batch, _TARGETS, 1)


def with_inputs(batch: Any, inputs: Any) -> Any:
    """The batch with other inputs."""
    if isinstance(batch, Batch):
        return dataclasses.replace(batch, inputs=inputs)
    if isinstance(batch, dict):
        name = next(name for name in _INPUTS if name in batch)
        return {**batch, name: inputs}
    if isinstance(batch, (tuple, list)):
        return type(batch)((inputs, *batch[1:]))
    return inputs


def with_targets(batch: Any, targets: Any) -> Any:
    """The batch with other targets, if `targets_of` finds some."""
    if isinstance(batch, Batch):
        return dataclasses.replace(batch, targets=targets)
    if isinstance(batch, dict):
        return {**batch, next(name for name in _TARGETS if name in batch): targets}
    return type(batch)((batch[0], targets, *batch[2:]))
