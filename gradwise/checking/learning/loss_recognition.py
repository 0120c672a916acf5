"""Recognises the criterion of a loss from its values alone, with the value of the best constant prediction.

    seen = recognise(outputs, orders(targets, count, key=key), values)
    seen.kind, seen.criterion, seen.constant        "classes", 2.31, 2.30

`values` are the user's loss with the targets in those orders and the same outputs. If they equal
`scale * criterion + rest` for all of them, with any scale and rest (mean or sum, a half, a penalty), it is that one.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Key
from scipy.special import entr, log_softmax

from ...runtime import keys

_ORDERS = 8
_MISFIT = 0.02  # of the values' own variation; noise that the loss draws otherwise than the outputs leaves as much


@dataclasses.dataclass(frozen=True)
class Recognised:
    """The criterion ("classes", "labels", "squared", "absolute", or "" if unrecognised) and its levels.

    loss = `scale` * `criterion` + `rest`. `constant` is the criterion of the best constant prediction, `even` that of
    a uniform guess. `misfit` is what the line leaves unexplained.
    """

    kind: str = ""
    criterion: float = math.nan
    constant: float = math.nan
    even: float = math.nan
    scale: float = math.nan
    rest: float = math.nan
    misfit: float = math.nan

    @property
    def penalty(self) -> float:
        """The share of the loss that does not depend on the targets."""
        whole = abs(self.scale * self.criterion) + abs(self.rest)
        return abs(self.rest) / whole if whole > 0 else math.nan


def orders(targets: Any, count: int, *, key: Key[Array, ""]) -> np.ndarray | None:
    """The targets, then resampled ones; None if there are none, or all are equal.

    Resampled, not permuted: for targets 0 and 1 a cross-entropy and a squared error differ only in their mean.
    """
    if targets is None or not hasattr(targets, "dtype") or np.ndim(targets) < 1 or np.shape(targets)[0] != count:
        return None
    given = np.asarray(targets)
    if given.dtype.kind not in "fiub" or not given.size or np.all(given == given[0]):
        return None
    generator = keys.generator(keys.named(key, "orders"))
    return np.stack([given, *(given[generator.integers(count, size=count)] for _ in range(_ORDERS - 1))])


def _entropy(shares: np.ndarray) -> np.ndarray:
    return np.asarray(entr(shares).sum(-1))


def _softmax(outputs: np.ndarray, targets: np.ndarray) -> float:
    logs = log_softmax(outputs, axis=-1)
    if targets.shape == outputs.shape:  # one-hot
        return -float(np.mean(np.sum(logs * targets, -1)))
    return -float(np.mean(np.take_along_axis(logs, targets[..., None].astype(int), -1)))


def _sigmoid(outputs: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, outputs) - outputs * targets))


def _shares(targets: np.ndarray, classes: int) -> np.ndarray:
    if targets.ndim > 1 and targets.dtype.kind == "f":
        return np.asarray(targets.reshape(-1, targets.shape[-1]).mean(0))
    return np.bincount(targets.ravel().astype(int), minlength=classes) / targets.size


def _candidates(outputs: np.ndarray, targets: np.ndarray, priors: np.ndarray) -> dict[str, tuple[Any, float, float]]:
    """By name: the criterion as a function of outputs and targets, its best constant, and that of a uniform guess."""
    found: dict[str, tuple[Callable[..., float], float, float]] = {}
    whole = targets.dtype.kind in "iub"
    classes = outputs.shape[-1] if outputs.ndim > 1 else 0
    if whole and classes > 1 and targets.shape == outputs.shape[:-1] and targets.min() >= 0 and targets.max() < classes:
        found["classes"] = (_softmax, float(_entropy(_shares(priors, classes))), math.log(classes))
        positive = outputs.min() >= 0 and np.allclose(outputs.sum(-1), 1, atol=1e-4)
        if positive:  # the network's outputs are probabilities already
            found["classes of probabilities"] = (
                lambda p, t: _softmax(np.log(np.maximum(p, 1e-30)), t),
                *found["classes"][1:],
            )
    same = targets.size == outputs.size and targets.shape[0] == outputs.shape[0]
    if not same:
        return found
    flat = priors.reshape(len(priors), -1).astype(np.float64)
    one_hot = targets.ndim > 1 and targets.shape[-1] > 1 and np.all((targets == 0) | (targets == 1))
    if one_hot and targets.shape == outputs.shape and np.all(targets.sum(-1) == 1):
        found["classes"] = (_softmax, float(_entropy(_shares(priors.astype(float), classes))), math.log(classes))
    if np.all((targets == 0) | (targets == 1)):
        share = flat.mean(0)
        entropy = float(np.mean(_entropy(np.stack([share, 1 - share], -1))))
        found["labels"] = (_sigmoid, entropy, math.log(2))
        if outputs.min() >= 0 and outputs.max() <= 1:
            found["labels of probabilities"] = (
                lambda p, t: _sigmoid(np.log(np.maximum(p, 1e-30)) - np.log(np.maximum(1 - p, 1e-30)), t),
                *found["labels"][1:],
            )
    variance, median = float(np.mean(flat.var(0))), np.median(flat, axis=0)
    found["squared"] = (lambda o, t: float(np.mean((o - t) ** 2)), variance, float(np.mean(flat**2)))
    away = float(np.mean(np.abs(flat - median)))
    found["absolute"] = (lambda o, t: float(np.mean(np.abs(o - t))), away, float(np.mean(np.abs(flat))))
    return found


def recognise(outputs: Any, several: Any, values: Any, *, priors: np.ndarray | None = None) -> Recognised:
    """The criterion that fits these values of the loss, where value i has the targets `several[i]`.

    `priors` are the targets for the best constant; those of the batch by default.
    """
    outputs, values = np.asarray(outputs, np.float64), np.asarray(values, np.float64)
    several = np.asarray(several)
    variation = float(np.std(values))
    size = float(np.max(np.abs(values), initial=0.0))
    if not np.isfinite(values).all() or not np.isfinite(outputs).all() or variation <= 1e-6 * size:
        return Recognised()
    fitting = []
    known = several[0] if priors is None else priors
    for name, (criterion, constant, even) in _candidates(outputs, several[0], known).items():
        measured = np.array([criterion(outputs, one.reshape(_shape_for(outputs, one))) for one in several])
        if np.std(measured) <= 1e-9 * max(1e-30, float(np.abs(measured).max())):
            continue
        scale, rest = np.polyfit(measured, values, 1)
        misfit = float(np.std(values - scale * measured - rest)) / variation
        if scale > 0 and misfit < _MISFIT:
            rest = 0.0 if abs(rest) < 1e-3 * size else float(rest)
            kind = name.partition(" ")[0]
            fitting.append(Recognised(kind, float(measured[0]), constant, even, float(scale), rest, misfit))
    if not fitting:
        return Recognised()
    close = max(1e-3, 3 * min(one.misfit for one in fitting))
    # Of those that fit alike (a squared error and a cross-entropy of one-hot targets do) the one that needs no rest.
    return min((one for one in fitting if one.misfit <= close), key=lambda one: one.penalty)


def _shape_for(outputs: np.ndarray, targets: np.ndarray) -> tuple[int, ...]:
    """Targets of one column are taken as the outputs' shape, with or without its last axis of 1."""
    return outputs.shape if targets.size == outputs.size else targets.shape
