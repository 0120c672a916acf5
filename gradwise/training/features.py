"""What a finished run without a target tells: the criterion's own measures of each part, and pictures of features."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..core.metric import interval_of_mean
from ..core.parts import AbstractUnsupervised
from .predictor import Predictor
from .state import Problem

_CHUNK = 512
Measured = tuple[dict[str, dict[str, float]], dict[str, Any], tuple[float, float]]


@eqx.filter_jit
def _measures(criterion: AbstractUnsupervised, network: PyTree, rows: Float[Array, "chunk ..."]) -> dict[str, Array]:
    return criterion.measures(network, rows)


def measures_of(criterion: AbstractUnsupervised, network: PyTree, inputs: Any) -> dict[str, np.ndarray]:
    """What the criterion tells of each example, by name, for scaled inputs; in chunks of one shape."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in criterion.measured()}
    for start in range(0, inputs.shape[0], _CHUNK):
        rows = jnp.asarray(inputs[start : start + _CHUNK])
        missing = _CHUNK - rows.shape[0]
        if missing:  # repeated rows, which every criterion can read
            rows = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (missing, *rows.shape[1:]))])
        for name, values in _measures(criterion, network, rows).items():
            found[name].append(np.asarray(values)[: _CHUNK - missing])
    return {name: np.concatenate(values).astype(np.float64) for name, values in found.items()}


def measure_features(predictor: Predictor, problem: Problem, parts: dict[str, Any], metric: str) -> Measured:
    """Every measure of every part, what the pictures need, and the interval of the chosen one on the test part."""
    criterion = problem.recipe.criterion
    scaled = {"train": problem.train.inputs, "valid": problem.valid.inputs}
    metrics: dict[str, dict[str, float]] = {}
    ends = (np.nan, np.nan)
    for name, part in parts.items():
        if part is None:
            metrics[name] = dict.fromkeys(criterion.measured(), np.nan)
            continue
        inputs = scaled[name] if name in scaled else predictor.scaler.apply(part.inputs)
        values = measures_of(criterion, predictor.network, inputs)
        metrics[name] = {key: float(np.mean(each)) for key, each in values.items()}
        if name == "test":
            ends = interval_of_mean(values[metric])
    return metrics, {}, ends
