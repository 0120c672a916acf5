"""The trained network with all it needs to read raw rows: scaler, network, link, temperature, target units.

    predictor.predict(rows)              # probabilities (n, k), or numbers (n, k)

The training data is not needed. `model_files` writes it down, `committee` lets several answer together.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractCriterion, FittedScaler, apply_batch
from ..specs.dataset import Column, Task

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
