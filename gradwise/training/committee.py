"""Committees: the weighted mean of several networks' predictions (row D9).

    committee = committee_of(members, mean, targets)                     its temperature fitted on validation examples
    committee.predict(rows)                                              as a `Predictor` does; saved like one

The mean of probabilities, or of numbers. Since the log-loss and the squared error are convex, the mean prediction is
never worse than the members are on average; it is better by as much as they disagree.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..specs.dataset import Column, Task
from .predictor import AbstractPredictor, Predictor, fit_temperature, predict_each

_LEAST = 1e-38  # below it a probability has no logarithm in 32 bits


def _logs(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probabilities, _LEAST))


@dataclasses.dataclass(frozen=True)
class Committee(AbstractPredictor):
    """The mean of its members. A `temperature` T makes class probabilities sharper or softer: p^(1/T), normalised.

    `weights` has one per member, with sum 1; by default all are equal.
    """

    members: tuple[Predictor, ...]
    temperature: float = 1.0
    weights: tuple[float, ...] = ()
    task: Task = dataclasses.field(init=False)
    columns: tuple[Column, ...] = dataclasses.field(init=False)
    shape: tuple[int, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if not self.members:
            raise RequestError("a committee needs at least one member.")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise RequestError(f"its temperature is {self.temperature}; it must be positive.")
        given = np.asarray(self.weights, float)
        if self.weights and (given.shape != (len(self.members),) or given.min() < 0 or abs(given.sum() - 1) > 1e-6):
            raise RequestError("a committee needs one non-negative weight per member, with sum 1.")
        first = self.members[0]
        alike = [(m.task.kind, m.task.outputs, m.shape) for m in self.members]
        if len(set(alike)) > 1:
            raise RequestError("all members of a committee must have the same inputs and predict the same target.")
        for name in ("task", "columns", "shape"):
            object.__setattr__(self, name, getattr(first, name))

    def tempered(self, mean: np.ndarray) -> np.ndarray:
        """The committee's prediction for this mean of its members."""
        if self.task.kind != "classes" or self.temperature == 1.0:
            return mean
        logs = _logs(mean) / self.temperature
        powers = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, rows: Any) -> np.ndarray:
        return self.tempered(mean_prediction(predict_each(self.members, rows), self.weights))


def mean_prediction(predictions: Sequence[Any], weights: tuple[float, ...] = ()) -> Any:
    """The members' mean, of NumPy or of JAX, summed in their order, so that it is always bit-identical."""
    shares = weights or (1.0,) * len(predictions)
    total = shares[0] * predictions[0]
    for share, one in zip(shares[1:], predictions[1:], strict=True):
        total += share * one
    return total if weights else total / len(predictions)


def committee_of(
    members: tuple[Predictor, ...], mean: np.ndarray, targets: np.ndarray, weights: tuple[float, ...] = ()
) -> Committee:
    """A committee, its temperature fitted to its members' mean predictions of validation examples.

    The mean is passed in, since members may have different validation examples, which only the caller knows. Its
    logarithm is used as the outputs: the softmax of the logarithm is the mean itself.
    """
    committee = Committee(members, weights=weights)
    if committee.task.kind != "classes" or len(members) == 1:
        return committee  # a member alone has its own temperature already
    temperature = fit_temperature(members[0].criterion, _logs(mean), np.asarray(targets))
    return dataclasses.replace(committee, temperature=temperature)
