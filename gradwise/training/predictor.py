"""The trained network with all it needs to read raw rows: scaler, network, link, temperature, target units.

    predictor = load_predictor(folder / "model.safetensors")
    predictor.predict(rows)              # probabilities (n, k), or numbers (n, k)

It is saved as one safetensors file: arrays, and one JSON text that names gradwise's own classes. Nothing is unpickled,
and the training data is not needed. Several networks that answer together (`committee`) are one such file too.
"""

import abc
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..records.fit import write_whole
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractCriterion, FittedScaler, apply_batch
from ..specs.dataset import Classes, Column, Inputs, Labels, Numbers, Task
from ..specs.serialisation import from_plain, to_plain

_LONGEST_LABEL = 2**16  # bytes
_MOST_INPUTS = 2**26
_MOST_MEMBERS = 4096
_PIECES = ("scaler", "network", "criterion", "shift", "scale")
_ONE, _SEVERAL = 1, 2  # formats of the file: one network, a committee
_CHUNK = 512  # every forward pass has this many rows, so a row's prediction cannot depend on its neighbours


@eqx.filter_jit
def _forward(network: PyTree, rows: Float[Array, "chunk ..."]) -> Float[Array, "chunk k"]:
    return apply_batch(network, rows, None)


@eqx.filter_jit
def _link(criterion: AbstractCriterion, outputs: Float[Array, "n k"]) -> Float[Array, "n k"]:
    return jax.vmap(criterion.link)(outputs)


def _in_chunks(function: Callable[[Array], Array], inputs: Any) -> np.ndarray:
    """The function of all rows, in chunks of one fixed shape: one program serves any number of rows."""
    parts = []
    for start in range(0, inputs.shape[0], _CHUNK):
        rows = jnp.asarray(inputs[start : start + _CHUNK])
        missing = _CHUNK - rows.shape[0]
        if missing:
            rows = jnp.concatenate([rows, jnp.zeros((missing, *rows.shape[1:]), rows.dtype)])
        parts.append(np.asarray(function(rows))[: _CHUNK - missing])
    return np.concatenate(parts).astype(np.float64)


def outputs_of(network: PyTree, inputs: Any) -> np.ndarray:
    """The network's outputs for scaled inputs."""
    return _in_chunks(lambda rows: _forward(network, rows), inputs)


class AbstractPredictor(abc.ABC):
    """Raw rows in, predictions out."""

    temperature: float
    task: Task
    columns: tuple[Column, ...]
    shape: tuple[int, ...]

    @abc.abstractmethod
    def predict(self, rows: Any) -> np.ndarray:
        """Predictions (n, k) for raw rows, encoded as the training data was."""


@dataclasses.dataclass(frozen=True)
class Predictor(AbstractPredictor):
    """One network. `shift` and `scale` bring standardised numbers back to their own units."""

    scaler: FittedScaler
    network: PyTree
    criterion: AbstractCriterion
    temperature: float
    shift: np.ndarray
    scale: np.ndarray
    task: Task
    columns: tuple[Column, ...]
    shape: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """How many numbers a prediction has."""
        if self.task.kind != "inputs":
            return self.task.outputs
        inputs = self.scaler.apply(np.zeros((1, *self.shape)))
        return int(eqx.filter_eval_shape(apply_batch, self.network, inputs, None).shape[1])

    def from_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Probabilities for classes and labels, numbers in the target's own units; without a target, the features."""
        if self.task.kind in ("numbers", "inputs"):
            return outputs * self.scale + self.shift
        with jax.enable_x64(True):
            return _in_chunks(lambda rows: _link(self.criterion, rows), outputs / self.temperature)

    def predict(self, rows: Any) -> np.ndarray:
        if rows.shape[0] == 0:
            return np.zeros((0, self.outputs))
        if tuple(rows.shape[1:]) != self.shape:
            raise RequestError(f"each row must have shape {self.shape}; got {tuple(rows.shape[1:])}.")
        return self.from_outputs(outputs_of(self.network, self.scaler.apply(rows)))


def fit_temperature(criterion: AbstractCriterion, outputs: np.ndarray, targets: np.ndarray) -> float:
    """The temperature that makes validation probabilities most likely (row J9); 1 where there is no optimum inside."""
    from scipy.optimize import minimize_scalar

    if (outputs.argmax(1) == targets).all():
        return 1.0  # without an error, sharper is always better: the validation part cannot tell how sharp

    def loss(log_temperature: float) -> float:
        scaled = outputs / np.exp(log_temperature)
        top = scaled.max(1, keepdims=True)
        logs = scaled - top - np.log(np.exp(scaled - top).sum(1, keepdims=True))
        return float(-logs[np.arange(len(targets)), targets].mean())

    found = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    best = float(found.x)
    return float(np.exp(best)) if abs(best) < 2.9 and loss(best) < loss(0.0) else 1.0


def _task_to_plain(task: Task) -> dict[str, Any]:
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        return {"kind": task.kind, "name": task.name, "labels": labels.tolist(), "dtype": labels.dtype.str}
    return {"kind": task.kind, "names": list(task.names)}


def _task_from_plain(plain: dict[str, Any]) -> Task:
    if plain["kind"] == "classes":
        dtype = np.dtype(object if plain["dtype"] == "|O" else plain["dtype"])
        if dtype.kind not in "biufUO" or dtype.itemsize > _LONGEST_LABEL:
            raise RequestError(f"labels of the type {dtype.str} are not read.")
        return Classes(np.array(plain["labels"], dtype=dtype), plain["name"])
    kinds: dict[str, Any] = {"labels": Labels, "numbers": Numbers, "inputs": Inputs}
    return kinds[plain["kind"]](tuple(plain["names"]))


def _to_head(predictor: Predictor, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, Any]:
    """One network as JSON values, its arrays put among the others."""
    head: dict[str, Any] = {}
    for name in _PIECES:
        own: dict[str, np.ndarray] = {}
        head[name] = to_plain(getattr(predictor, name), own)
        arrays.update({f"{prefix}{name}/{path}": array for path, array in own.items()})
    return head | {"temperature": predictor.temperature}


def save_predictor(predictor: AbstractPredictor, path: Path, *, about: dict[str, Any]) -> None:
    """Writes the predictor as one file; `about` travels with it (metric, version)."""
    from safetensors.numpy import save as to_bytes

    from .committee import Committee

    arrays: dict[str, np.ndarray] = {}
    if isinstance(predictor, Committee):
        members = [_to_head(member, arrays, f"{number}/") for number, member in enumerate(predictor.members)]
        head: dict[str, Any] = {"members": members, "temperature": predictor.temperature}
    else:
        assert isinstance(predictor, Predictor)
        head = _to_head(predictor, arrays)
    head |= {
        "task": _task_to_plain(predictor.task),
        "columns": [[column.name, column.kind, list(column.categories)] for column in predictor.columns],
        "shape": list(predictor.shape),
        "about": about,
        "format": _SEVERAL if "members" in head else _ONE,
    }
    content = to_bytes({name: np.ascontiguousarray(a) for name, a in arrays.items()}, {"gradwise": json.dumps(head)})
    write_whole(path, content)


def _try_out(predictor: Predictor) -> None:
    """Refuses pieces that do not fit together, before anybody's rows are blamed: one row of zeros goes through."""
    scaler, criterion, shape = predictor.scaler, predictor.criterion, predictor.shape
    if not (isinstance(scaler, FittedScaler) and isinstance(criterion, AbstractCriterion)):
        raise RequestError("this is not a model of gradwise.")
    if not (math.isfinite(predictor.temperature) and predictor.temperature > 0):
        raise RequestError(f"its temperature is {predictor.temperature}; it must be positive.")
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) > _MOST_INPUTS:
        raise RequestError(f"its rows have the shape {shape}, which cannot be.")
    with np.errstate(all="ignore"):
        inputs = scaler.apply(np.zeros((1, *shape)))
    outputs = eqx.filter_eval_shape(apply_batch, predictor.network, inputs, None)
    if outputs.shape != (1, predictor.outputs):
        raise RequestError(f"its network has {outputs.shape[1:]} outputs for a task of {predictor.task.outputs}.")
    for units in (predictor.shift, predictor.scale):
        if not isinstance(units, np.ndarray) or units.shape not in {(1,), (predictor.outputs,)}:
            raise RequestError("the units of its target are of another form.")
    predictor.from_outputs(np.zeros(outputs.shape))


def _from_head(head: dict[str, Any], whole: dict[str, Any], arrays: dict[str, Any], classes: Any) -> Predictor:
    """One network of a file; what all networks of a file share stands in `whole`. Arrays have their paths alone."""

    def piece(name: str) -> Any:
        own = {full.partition("/")[2]: a for full, a in arrays.items() if full.startswith(f"{name}/")}
        return from_plain(head[name], own, classes)

    predictor = Predictor(
        scaler=piece("scaler"),
        network=jax.tree.map(jnp.asarray, piece("network")),
        criterion=piece("criterion"),
        temperature=float(head["temperature"]),
        shift=piece("shift"),
        scale=piece("scale"),
        task=_task_from_plain(whole["task"]),
        columns=tuple(Column(name, kind, tuple(categories)) for name, kind, categories in whole["columns"]),
        shape=tuple(whole["shape"]),
    )
    _try_out(predictor)
    return predictor


def _read(head: dict[str, Any], arrays: dict[str, Any], classes: tuple[Any, ...]) -> AbstractPredictor:
    from .committee import Committee

    if head["format"] not in (_ONE, _SEVERAL):
        raise RequestError(f"it was written in format {head['format']!r:.20}, which this version cannot read.")
    if head["format"] == _ONE:
        return _from_head(head, head, arrays, classes)
    if not 1 <= len(head["members"]) <= _MOST_MEMBERS:
        raise RequestError(f"it is a committee of {len(head['members'])} networks, which cannot be.")
    own: list[dict[str, Any]] = [{} for _ in head["members"]]
    for full, array in arrays.items():
        number, _, name = full.partition("/")
        own[int(number)][name] = array
    members = (_from_head(one, head, some, classes) for one, some in zip(head["members"], own, strict=True))
    return Committee(tuple(members), float(head["temperature"]))


def load_predictor(path: Path, classes: tuple[Any, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """The predictor in a file, a `Predictor` or a `Committee`, and what travelled with it.

    A network of the user's own needs its classes passed in.
    """
    from safetensors import safe_open

    if not path.is_file():
        raise RequestError(f"there is no model at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            head = json.loads((file.metadata() or {})["gradwise"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        return _read(head, arrays, classes), dict(head["about"])
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None
    except Exception as problem:  # what a file of unknown origin can do to the code that reads it has no list
        told = str(problem).partition("\n")[0][:200]
        raise RequestError(
            f"{path} is damaged or not a model of gradwise ({type(problem).__name__}: {told})."
        ) from None
