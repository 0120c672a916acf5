"""Several tasks that share all but the last layer (row G7): the sum of their losses, each over the targets present.

    Supervised(SeveralLosses())                      each task the usual loss of its kind, all weights 1
    Supervised(SeveralLosses(weights=(1.0, 0.3)))    one weight for each task, in the order of the targets

For an example with targets t_1, ..., t_m, of which some may be missing, and the network's output cut into one piece for
each task,

    loss = sum over the tasks present of weight * loss of its piece.

Numbers are standardised before, so that a squared error of 1 is that of the mean. What early stopping follows puts the
tasks on one scale: the error of each relative to that of the best constant, the mean by weight,

    score = sum of (weight / sum of weights) * score / (share of examples with this target * score of the constant),

so that its mean over examples is 1 for a network that has learned nothing, and 0 for one that is always right.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar

from ..runtime.errors import RequestError
from ..specs.dataset import Piece, Several, Task, is_labelled
from ..specs.knobs import switch
from .losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss


class _Part(NamedTuple):
    """One task of one example: its loss, its output, its target, whether that is present, its weight and scale."""

    loss: AbstractLoss
    output: Float[Array, " k"]
    target: Array
    present: Scalar
    weight: float
    scale: float


def _as_weights(value: Any) -> Any:
    return (float(value),) if isinstance(value, (int, float)) else tuple(value)


def _constant_score(piece: Piece, targets: np.ndarray, score_by: str) -> float:
    """The score of the best constant prediction of these targets, numbers standardised; above 0."""
    kind = piece.task.kind
    if kind == "numbers":
        if score_by == "squared":
            return 1.0
        deviation = targets.std(axis=0)
        each = np.abs(targets - np.median(targets, axis=0)).mean(axis=0) / np.where(deviation > 0, deviation, 1.0)
        return float(each.mean()) or 1.0
    counts = (
        np.bincount(targets, minlength=2) if kind == "classes" else np.stack([targets.sum(0), (1 - targets).sum(0)])
    )
    shares = counts / counts.sum(axis=0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    each = -(shares * logs).sum(axis=0) if score_by == "loss" else 1.0 - shares.max(axis=0)
    return max(float(np.mean(each)), 1.0 / (len(targets) + 1))  # of one value alone: as if one more were another


class SeveralLosses(AbstractLoss):
    """The losses of several tasks by their kind, summed by weight."""

    has_root = True
    classes: SoftmaxLoss = SoftmaxLoss()
    labels: SigmoidLoss = SigmoidLoss()
    numbers: GaussianLoss = GaussianLoss()
    weights: tuple[float, ...] = switch(
        (1.0,),
        row="G7",
        kind="model",
        about="the weight of each task's loss, in the order of the targets, or one for all",
        convert=_as_weights,
    )
    pieces: tuple[tuple[str, int, int, float], ...] = switch(
        (),
        row="G7",
        kind="model",
        about="kind, targets, outputs and scale of the score of each task; set when a run begins",
        convert=lambda value: tuple(map(tuple, value)),
    )

    def __check_init__(self) -> None:
        if not all(math.isfinite(one) and one >= 0 for one in self.weights) or not any(self.weights):
            raise RequestError(
                f"`SeveralLosses.weights` must be numbers of at least 0, not all of them 0; got {self.weights}."
            )

    def for_targets(self, task: Task, targets: np.ndarray) -> "SeveralLosses":
        if not isinstance(task, Several):
            return self
        if len(self.weights) not in (1, len(task.tasks)):
            raise RequestError(
                f"`SeveralLosses.weights` has {len(self.weights)} entries for {len(task.tasks)} targets "
                f"({', '.join(piece.name for piece in task.pieces)}): give one for each."
            )
        found = []
        for piece in task.pieces:
            own = piece.of(targets)
            known = is_labelled(own, piece.task)
            if not known.any():
                raise RequestError(f"target `{piece.name}` is missing in every training row: leave it out.")
            loss: Any = getattr(self, piece.task.kind)
            scale = float(known.mean()) * _constant_score(piece, own[known], loss.score_by)
            found.append((piece.task.kind, len(piece.task.names), piece.task.outputs, 1.0 / scale))
        return dataclasses.replace(self, pieces=tuple(found))

    def _parts(self, output: Float[Array, " k"], target: Array) -> Iterator[_Part]:
        """One task after another; a target that is missing is 0, and not present."""
        if not self.pieces:
            raise RequestError("`SeveralLosses` does not know its tasks yet: `for_targets(task, targets)` tells it.")
        weights = self.weights * (len(self.pieces) if len(self.weights) == 1 else 1)
        column, place = 0, 0
        for (kind, width, outputs, scale), weight in zip(self.pieces, weights, strict=True):
            own = target[column : column + width]
            present = jnp.all(jnp.isfinite(own))
            own = jnp.where(present, own, 0.0)
            aim = own[0].astype(jnp.int32) if kind == "classes" else own
            yield _Part(getattr(self, kind), output[place : place + outputs], aim, present, weight, scale)
            column, place = column + width, place + outputs

    def loss(self, output: Float[Array, " k"], target: Array) -> Scalar:
        each = [
            one.weight * jnp.where(one.present, one.loss.loss(one.output, one.target), 0.0)
            for one in self._parts(output, target)
        ]
        return jnp.sum(jnp.stack(each))

    def score(self, output: Float[Array, " k"], target: Array) -> Scalar:
        parts = list(self._parts(output, target))
        total = sum(one.weight for one in parts)
        each = [
            one.weight / total * one.scale * jnp.where(one.present, one.loss.score(one.output, one.target), 0.0)
            for one in parts
        ]
        return jnp.sum(jnp.stack(each))

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        blank = jnp.zeros(sum(width for _, width, _, _ in self.pieces))
        return jnp.concatenate([one.loss.link(one.output) for one in self._parts(output, blank)])

    def root(self, output: Float[Array, " k"], target: Array, noise: Float[Array, " k"]) -> Float[Array, " k"]:
        roots, place = [], 0
        for one in self._parts(output, target):
            own = noise[place : place + one.output.shape[0]]
            root = one.loss.root(one.output, one.target, own)
            roots.append(jnp.where(one.present, math.sqrt(one.weight) * root, 0.0))
            place += one.output.shape[0]
        return jnp.concatenate(roots)

    def at(self, update: Int[Array, ""]) -> "SeveralLosses":
        classes: Any = self.classes.at(update)
        labels: Any = self.labels.at(update)
        if classes is self.classes and labels is self.labels:
            return self
        return dataclasses.replace(self, classes=classes, labels=labels)

    def task(self) -> str:
        return "several"
