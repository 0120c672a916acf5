"""Trained networks on disk: one safetensors file with everything needed to predict raw rows.

    save_predictor(predictor, folder / "model.safetensors", about={"metric": "error_rate"})
    predictor, about = load_predictor(folder / "model.safetensors")

The file holds arrays, and one JSON text that names gradwise's own classes by their public names. Nothing is unpickled,
and the training data are not needed. A `Committee` is saved as one such file too.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..records.used_rows import UsedRows
from ..runtime.errors import RequestError
from ..runtime.files import write_whole
from ..specs.contracts import AbstractCriterion
from ..specs.dataset import Classes, Column, Inputs, Labels, Numbers, Several, Task
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import apply_batch
from ..specs.serialisation import Unwritten, from_plain, to_plain
from .committee import Committee
from .predictor import AbstractPredictor, Predictor

MODEL = "model.safetensors"  # in the folder of a run
_LONGEST_LABEL = 2**16  # bytes
_MOST_INPUTS = 2**26
_MOST_MEMBERS = 4096
_PIECES = ("scaler", "network", "criterion", "shift", "scale")
_USED = "used"  # marks of the rows that were learned from or chosen by
_ONE, _SEVERAL = 1, 2  # formats of the file: one network, a committee


def _task_to_plain(task: Task) -> dict[str, Any]:
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        return {"kind": task.kind, "name": task.name, "labels": labels.tolist(), "dtype": labels.dtype.str}
    if isinstance(task, Several):
        return {"kind": task.kind, "tasks": list(map(_task_to_plain, task.tasks))}
    return {"kind": task.kind, "names": list(task.names)}


def _task_from_plain(plain: dict[str, Any]) -> Task:
    if plain["kind"] == "classes":
        dtype = np.dtype(object if plain["dtype"] == "|O" else plain["dtype"])
        if dtype.kind not in "biufUO" or dtype.itemsize > _LONGEST_LABEL:
            raise RequestError(f"labels of type {dtype.str} are not supported.")
        return Classes(np.array(plain["labels"], dtype=dtype), plain["name"])
    if plain["kind"] == "several":
        return Several(tuple(_single_from_plain(one) for one in plain["tasks"]))
    kinds: dict[str, Any] = {"labels": Labels, "numbers": Numbers, "inputs": Inputs}
    return kinds[plain["kind"]](tuple(plain["names"]))


def _single_from_plain(plain: dict[str, Any]) -> Classes | Labels | Numbers:
    task = _task_from_plain(plain)
    if not isinstance(task, Classes | Labels | Numbers):
        raise RequestError("its tasks have the wrong form.")
    return task


def _leaves_to_plain(module: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The arrays of a module that has no written form, in order, and its type."""
    leaves = jax.tree.leaves(eqx.filter(module, eqx.is_array))
    return {"leaves": len(leaves), "type": type(module).__name__}, {str(n): np.asarray(a) for n, a in enumerate(leaves)}


def _filled(plain: dict[str, Any], arrays: Mapping[str, Any], given: tuple[Any, ...]) -> Any:
    """A module of the user's own with the arrays of the file; a criterion without arrays needs only be passed in."""
    kind, count = plain["type"], plain["leaves"]
    for module in given:
        own, rest = eqx.partition(module, eqx.is_array)
        shapes = [leaf.shape for leaf in jax.tree.leaves(own)]
        if type(module).__name__ == kind and shapes == [arrays[str(n)].shape for n in range(count)]:
            filled = jax.tree.unflatten(jax.tree.structure(own), [jnp.asarray(arrays[str(n)]) for n in range(count)])
            return eqx.combine(filled, rest)
    raise RequestError(f"it has the arrays of a `{kind}`, but not its code: pass a network like it, classes=[model].")


def _to_head(predictor: Predictor, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, Any]:
    """One network as JSON values, its arrays put among the others."""
    head: dict[str, Any] = {}
    for name in _PIECES:
        own: dict[str, np.ndarray] = {}
        try:
            head[name] = to_plain(getattr(predictor, name), own)
        except RequestError:  # holds functions or objects of its own: its arrays alone, to fill such a network with
            head[name], own = _leaves_to_plain(getattr(predictor, name))
        arrays.update({f"{prefix}{name}/{path}": array for path, array in own.items()})
    return head | {"temperature": predictor.temperature}


def _column_to_plain(column: Column) -> list[Any]:
    """Name, kind, categories, and the decimal mark if it has one."""
    return [column.name, column.kind, list(column.categories), *filter(None, [column.decimal])]


def save_predictor(
    predictor: AbstractPredictor, path: Path, *, about: dict[str, Any], used: UsedRows | None = None
) -> None:
    """Saves the predictor as one file, with `about` (metric, version) and hashes of its training rows."""
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, np.ndarray] = {}
    if isinstance(predictor, Committee):
        members = [_to_head(member, arrays, f"{number}/") for number, member in enumerate(predictor.members)]
        head: dict[str, Any] = {"members": members, "temperature": predictor.temperature}
        head |= {"weights": list(predictor.weights)} if predictor.weights else {}
    else:
        assert isinstance(predictor, Predictor)
        head = _to_head(predictor, arrays)
    if used is not None:
        arrays[_USED] = used.marks
        head["used_below"] = int(used.below)
    head |= {
        "task": _task_to_plain(predictor.task),
        "columns": list(map(_column_to_plain, predictor.columns)),
        "shape": list(predictor.shape),
        "about": about,
        "format": _SEVERAL if "members" in head else _ONE,
    }
    content = to_bytes({name: np.asarray(a, order="C") for name, a in arrays.items()}, {"gradwise": json.dumps(head)})
    write_whole(path, content)


def _try_out(predictor: Predictor) -> None:
    """Raises if the file is inconsistent, by predicting one row of zeros."""
    scaler, criterion, shape = predictor.scaler, predictor.criterion, predictor.shape
    if not (isinstance(scaler, FittedScaler) and isinstance(criterion, AbstractCriterion)):
        raise RequestError("this is not a model of gradwise.")
    if not (math.isfinite(predictor.temperature) and predictor.temperature > 0):
        raise RequestError(f"its temperature is {predictor.temperature}; it must be positive.")
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) > _MOST_INPUTS:
        raise RequestError(f"its rows have the invalid shape {shape}.")
    with np.errstate(all="ignore"):
        inputs = scaler.apply(np.zeros((1, *shape)))
    outputs = eqx.filter_eval_shape(apply_batch, predictor.network, inputs, None)
    if outputs.shape != (1, predictor.outputs):
        raise RequestError(f"its network has {outputs.shape[1:]} outputs for a task of {predictor.task.outputs}.")
    for units in (predictor.shift, predictor.scale):
        if not isinstance(units, np.ndarray) or units.shape not in {(1,), (predictor.outputs,)}:
            raise RequestError("the units of its target have the wrong form.")
    predictor.from_outputs(np.zeros(outputs.shape))


def _from_head(head: dict[str, Any], whole: dict[str, Any], arrays: dict[str, Any], classes: Any) -> Predictor:
    """One network of a file; what all networks of a file share stands in `whole`. Arrays have their paths alone."""

    def piece(name: str) -> Any:
        own = {full.partition("/")[2]: a for full, a in arrays.items() if full.startswith(f"{name}/")}
        if isinstance(head[name], dict) and "leaves" in head[name]:
            return _filled(head[name], own, tuple(one for one in classes if not isinstance(one, type)))
        found = from_plain(head[name], own, classes, incomplete=name == "criterion")  # a loss is not needed to predict
        if isinstance(found, Unwritten):
            raise RequestError(f"`{found.kind}` is not part of gradwise. Pass it in: classes=[...].")
        return found

    predictor = Predictor(
        scaler=piece("scaler"),
        network=jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, piece("network")),
        criterion=piece("criterion"),
        temperature=float(head["temperature"]),
        shift=piece("shift"),
        scale=piece("scale"),
        task=_task_from_plain(whole["task"]),
        columns=tuple(Column(name, kind, tuple(rest[0]), *rest[1:]) for name, kind, *rest in whole["columns"]),
        shape=tuple(whole["shape"]),
    )
    _try_out(predictor)
    return predictor


def _share_scalers(members: Iterable[Predictor]) -> tuple[Predictor, ...]:
    """The members, those that scale alike with one scaler, so that a committee scales its rows once for all of them."""
    found: list[FittedScaler] = []
    shared = []
    for member in members:
        known = next((one for one in found if eqx.tree_equal(one, member.scaler)), None)
        if known is None:
            found.append(member.scaler)
        shared.append(member if known is None else dataclasses.replace(member, scaler=known))
    return tuple(shared)


def _read(head: dict[str, Any], arrays: dict[str, Any], classes: tuple[Any, ...]) -> AbstractPredictor:
    if head["format"] not in (_ONE, _SEVERAL):
        raise RequestError(f"it was written in format {head['format']!r:.20}, which this version cannot read.")
    if head["format"] == _ONE:
        return _from_head(head, head, arrays, classes)
    if not 1 <= len(head["members"]) <= _MOST_MEMBERS:
        raise RequestError(f"it has an invalid committee of {len(head['members'])} networks.")
    own: list[dict[str, Any]] = [{} for _ in head["members"]]
    for full, array in arrays.items():
        number, _, name = full.partition("/")
        own[int(number)][name] = array
    members = (_from_head(one, head, some, classes) for one, some in zip(head["members"], own, strict=True))
    weights = tuple(float(weight) for weight in head.get("weights", ()))
    return Committee(_share_scalers(members), float(head["temperature"]), weights)


def load_used_rows(path: Path) -> UsedRows | None:
    """The rows used to train or choose the network of a file; None if the file does not record them."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        below = json.loads((file.metadata() or {})["gradwise"]).get("used_below")
        return None if below is None else UsedRows(file.get_tensor(_USED), np.uint64(below))


def load_predictor(path: Path, classes: tuple[Any, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """The predictor in a file, a `Predictor` or a `Committee`, and the values saved with it.

    A network of the user's own needs its classes passed in.
    """
    from safetensors import safe_open

    if not path.is_file():
        raise RequestError(f"no model at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            head = json.loads((file.metadata() or {})["gradwise"])
            arrays = {name: file.get_tensor(name) for name in file.keys() if name != _USED}  # noqa: SIM118 (no mapping)
        return _read(head, arrays, classes), dict(head["about"])
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None
    except Exception as problem:  # what a file of unknown origin can do to the code that reads it has no list
        told = str(problem).partition("\n")[0][:200]
        raise RequestError(
            f"{path} is damaged or not a model of gradwise ({type(problem).__name__}: {told})."
        ) from None
