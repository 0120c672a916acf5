"""Which slots of a batch are unused: finds, reads and replaces the leaf that marks them.

    mark = mark_of({"inputs": x, "targets": y, "mask": mask})     mark.used is True for used slots
    batch, mark = padded(batch, mark)                             marks some slots as unused, if all were used

A *mark* is the weights of a `gradwise` batch, a leaf of a dictionary called `mask`, `weights`, `present` or `lengths`,
or ones and zeros after inputs and targets in a tuple.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from ..specs.contracts import Batch
from .batch_access import inputs_of

_WEIGHTS = ("weights", "weight", "sample_weight", "sample_weights", "example_weights")
_MASKS = ("mask", "masks", "present", "valid", "padding_mask", "attention_mask", "input_mask")
_LENGTHS = ("length", "lengths", "seq_len", "seq_lens", "sequence_length", "sequence_lengths")


@dataclass(frozen=True)
class Mark:
    """A leaf of the batch that marks used slots. `named`: recognised by its name, not by its values.

    `used` is True where a slot (B,) or a position (B, T) counts; `tail` means that unused positions are at the ends of
    the sequences only, as padding is: zeros elsewhere may select what is predicted, and their inputs are context.
    """

    path: str
    kind: str  # "weights", "mask" or "lengths"
    named: bool
    used: Bool[np.ndarray, "..."]
    tail: bool
    reverse: bool = False  # True if 1 means padding


def _tail(used: np.ndarray) -> bool:
    """Whether every row is used from its beginning on, up to somewhere."""
    return used.ndim == 1 or bool(np.all(used[:, 0]) and np.all(np.diff(used.astype(int), axis=1) <= 0))


def _mark(path: str, kind: str, leaf: Any, inputs: Any, named: bool) -> Mark | None:
    """The leaf read as a mark, or None if it cannot be one."""
    if not hasattr(leaf, "dtype") or np.ndim(leaf) not in (1, 2):
        return None
    value = np.asarray(leaf)
    count, steps = np.shape(inputs)[0], np.shape(inputs)[1] if np.ndim(inputs) > 1 else -1
    if kind == "lengths":
        whole = np.issubdtype(value.dtype, np.integer) and value.shape == (count,)
        if not whole or steps < 2 or np.any(value < 0) or np.any(value > steps):
            return None
        return Mark(path, kind, named, np.arange(steps)[None] < value[:, None], True)
    if value.shape not in ((count,), (count, steps)) or not np.all(value >= 0):
        return None
    reverse = value.ndim == 2 and "pad" in path and bool(np.mean(value[:, 0] != 0) < 0.5)
    used = (value == 0) if reverse else (value != 0)
    return Mark(path, kind, named, used, _tail(used), reverse)


def mark_of(batch: Any) -> Mark | None:
    """The mark of a batch, if it has one: masks before weights, since they are more specific."""
    inputs = inputs_of(batch)
    if not hasattr(inputs, "shape") or np.ndim(inputs) == 0:
        return None
    if isinstance(batch, Batch):
        used = (np.asarray(batch.weights) != 0) & (np.asarray(batch.present) != 0)
        return Mark("weights", "weights", True, used, True)
    if isinstance(batch, dict):
        for kind, names in (("mask", _MASKS), ("lengths", _LENGTHS), ("weights", _WEIGHTS)):
            for name in batch:
                mark = _mark(name, kind, batch[name], inputs, True) if str(name).lower() in names else None
                if mark is not None:
                    return mark
        return None
    for place, leaf in enumerate(batch[2:], 2) if isinstance(batch, (tuple, list)) else ():
        floating = hasattr(leaf, "dtype") and (leaf.dtype == bool or jnp.issubdtype(leaf.dtype, jnp.floating))
        if floating and np.all(np.isin(np.asarray(leaf), (0, 1))):
            mark = _mark(str(place), "mask", leaf, inputs, False)
            if mark is not None:
                return mark
    return None


def used_rows(batch: Any) -> np.ndarray | None:
    """The rows that count, if some do not."""
    mark = mark_of(batch)
    if mark is None or mark.used.all():
        return None
    return np.flatnonzero(mark.used if mark.used.ndim == 1 else mark.used.any(axis=1))


def _leaf(batch: Any, mark: Mark) -> np.ndarray:
    if isinstance(batch, Batch):
        return np.asarray(batch.weights)
    return np.asarray(batch[mark.path] if isinstance(batch, dict) else batch[int(mark.path)])


def _marked(batch: Any, mark: Mark, value: Any) -> Any:
    """The batch with another mark."""
    leaf = np.asarray(value, _leaf(batch, mark).dtype)
    if isinstance(batch, Batch):
        return replace(batch, weights=jnp.asarray(leaf))
    if isinstance(batch, dict):
        return {**batch, mark.path: leaf}
    return type(batch)((*batch[: int(mark.path)], leaf, *batch[int(mark.path) + 1 :]))


def padded(batch: Any, mark: Mark) -> tuple[Any, Mark]:
    """The batch with its last rows (or the last steps of every other row) marked as unused, if all are used."""
    used = np.array(mark.used)
    if used.ndim == 1:
        used[-max(1, len(used) // 4) :] = False
    else:
        used[::2, -max(1, used.shape[1] // 4) :] = False
    value = _leaf(batch, mark)
    unused = 1 if mark.reverse else 0
    value = used.sum(axis=1) if mark.kind == "lengths" else np.where(used, value, unused)
    changed = _marked(batch, mark, value)
    if isinstance(changed, Batch):
        changed = replace(changed, present=changed.present * used)
    return changed, replace(mark, used=used, tail=True)


def other_mark(batch: Any, mark: Mark, generator: np.random.Generator) -> Any:
    """The batch with the mark itself changed: by different factors, since a common one may cancel."""
    value = _leaf(batch, mark)
    if mark.kind == "weights":
        return _marked(batch, mark, (value + 0.5 * value.mean()) * generator.uniform(0.2, 2.0, size=value.shape))
    if mark.kind == "lengths":
        return _marked(batch, mark, np.where(value > 1, value - 1, value + 1))
    flipped = np.array(value)
    flat = flipped.reshape(-1)
    flat[::2] = 1 - flat[::2] if flat.dtype != bool else ~flat[::2]
    if not flipped.any():
        flat[0] = 1
    return _marked(batch, mark, flipped)
