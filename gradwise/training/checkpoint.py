"""Checkpoints: one file, replaced by one rename, so a kill at any moment leaves a complete one.

The file is safetensors: the state's arrays by path, and one JSON text with the history and a fingerprint of
the run. On the same machine, resuming is bit-identical to never having stopped.
"""

import dataclasses
import functools
import hashlib
import json
import types
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..records.outcome import Outcome
from ..runtime.errors import RequestError
from ..runtime.files import write_whole
from ..runtime.memory import row_blocks
from ..specs.dataset import Dataset
from ..specs.paths import named_leaves
from ..specs.recipe import Recipe
from ..specs.sequences import Sequences
from ..specs.serialisation import to_plain
from .state import State

NAME = "checkpoint.safetensors"


@dataclasses.dataclass(frozen=True)
class Saved:
    """A run between two intervals, or at its end: `ended` is the outcome if the run is over."""

    state: State
    history: dict[str, list[Any]]
    seconds: float
    ended: Outcome | None = None


def digest(dataset: Dataset) -> str:
    """A short fingerprint of the examples, so that a run is never continued on other data."""
    mark = hashlib.blake2b(digest_size=16)
    parts: list[Any] = [dataset.inputs, dataset.targets, dataset.weights, dataset.groups, dataset.times]
    for part in parts:
        if part is None:
            continue
        pieces = (part.data, part.indices, part.indptr) if hasattr(part, "indptr") else (part,)
        for array in (part.values, part.offsets) if isinstance(part, Sequences) else pieces:
            mark.update(str((array.shape, array.dtype)).encode())
            if array.dtype == object:  # told by their text: their bytes are addresses, which no two processes share
                mark.update(repr(array.ravel().tolist()).encode())
                continue
            for _, rows in row_blocks(array):
                mark.update(np.ascontiguousarray(rows).view(np.uint8).data)
    if dataset.test is not None:
        mark.update(digest(dataset.test).encode())
    return mark.hexdigest()


def _outline(thing: Any, within: tuple[int, ...] = ()) -> Any:
    """What can be said of an object without a written form, the same in every process: of a function of Optax, what
    was passed to whatever made it."""
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if id(thing) in within:  # a function that calls itself
        return "again"
    within = (*within, id(thing))
    if isinstance(thing, jax.Array | np.ndarray | np.generic):
        is_key = jnp.issubdtype(thing.dtype, jax.dtypes.prng_key)
        plain = np.asarray(jax.random.key_data(thing) if is_key else thing)  # type: ignore[arg-type]
        return [str(plain.dtype), list(plain.shape), hashlib.sha256(plain.tobytes()).hexdigest()]
    inside: Any = ()
    if isinstance(thing, tuple | list):
        inside = thing
    elif isinstance(thing, dict):
        inside = list(thing.items())
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        inside = [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    elif isinstance(thing, functools.partial):
        inside = [thing.func, thing.args, thing.keywords]
    elif isinstance(thing, types.FunctionType):
        try:
            bound = [cell.cell_contents for cell in thing.__closure__ or ()]
        except ValueError:  # a cell that is filled later
            bound = []
        numbers = [one for one in thing.__code__.co_consts if isinstance(one, int | float | str)]
        inside = [thing.__code__.co_code.hex(), numbers, thing.__defaults__, *bound]
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return [name, *(_outline(one, within) for one in inside)]


def _written(part: Any) -> Any:
    try:
        plain = to_plain(part)
    except RequestError:  # a part of the user's own has no written form
        return _outline(part)
    return _outline(part) if "<locals>" in json.dumps(plain) else plain  # a function by its name alone, bound to values


def written_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain values, for a fingerprint."""
    return {field.name: _written(getattr(recipe, field.name)) for field in dataclasses.fields(recipe)}


def _arrays(state: PyTree) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(eqx.filter(state, eqx.is_array))}


def save_checkpoint(folder: Path, saved: Saved, fingerprint: str, *, name: str = NAME) -> None:
    """Writes a new checkpoint over the last one."""
    from safetensors.numpy import save as to_bytes

    ended = None if saved.ended is None else [saved.ended.name, saved.ended.age_examples]
    notes = {"history": saved.history, "seconds": saved.seconds, "ended": ended, "fingerprint": fingerprint}
    text = json.dumps(notes)
    write_whole(folder / name, to_bytes(_arrays(saved.state), metadata={"gradwise": text}))


def load_checkpoint(folder: Path, like: State, fingerprint: str, *, name: str = NAME) -> Saved | None:
    """The last checkpoint as a state of the same shape; None if the folder has none."""
    from safetensors import SafetensorError, safe_open

    path = folder / name
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            notes = json.loads((file.metadata() or {})["gradwise"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        history, seconds, mark = dict(notes["history"]), float(notes["seconds"]), notes["fingerprint"]
        ended = None if notes["ended"] is None else Outcome(*notes["ended"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as problem:
        raise RequestError(
            f"{path} is damaged ({type(problem).__name__}: {problem}). Start again with --overwrite."
        ) from None
    if mark != fingerprint:
        raise RequestError(
            f"{path} belongs to another run: its data, recipe or seed differ. Resume with the original ones, "
            "or start again with --overwrite."
        )
    expected = _arrays(like)
    if {n: (a.shape, a.dtype) for n, a in arrays.items()} != {n: (a.shape, a.dtype) for n, a in expected.items()}:
        raise RequestError(f"{path} does not match this recipe. Start again with --overwrite.")
    leaves, structure = jax.tree.flatten(eqx.filter(like, eqx.is_array))
    names = [name for name, _ in named_leaves(eqx.filter(like, eqx.is_array))]
    assert len(names) == len(leaves)
    state = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in names])
    return Saved(eqx.combine(state, like), history, seconds, ended)
