"""Losses are negative log-likelihoods of the output model (row D7), computed in the log domain (row B7).

| loss | output model | target of one example |
|---|---|---|
| `SoftmaxLoss` | multinomial | the index of a class |
| `SigmoidLoss` | independent binomials | k labels, each 0 or 1 |
| `GaussianLoss` | normal, linear outputs | k numbers |
| `SeveralLosses` | those of several tasks side by side (`several_losses.py`) | what each of them takes |
"""

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar

from ..specs.dataset import Task
from ..specs.knobs import Spec, is_off, knob, switch
from ..specs.priors import Choice, Uniform, ZeroOr
from ..specs.schedules import AbstractSchedule, Constant

_SMOOTHING: dict[str, Any] = {
    "allowed": "[0, 1)",
    "prior": ZeroOr(Uniform(0.01, 0.2)),
    "row": "J9",
    "kind": "model",
    "off": 0.0,
    "about": "the share of each target's probability that is spread evenly",
}


class AbstractLoss(Spec):
    has_root: ClassVar[bool] = False  # whether it knows the `root` of its curvature, for Gauss-Newton methods

    @abc.abstractmethod
    def loss(self, output: Float[Array, " k"], target: Array) -> Scalar:
        """The negative log-likelihood of one example."""

    @abc.abstractmethod
    def score(self, output: Float[Array, " k"], target: Array) -> Scalar:
        """What early stopping follows: 0 or 1 for a class, the squared error for numbers."""

    @abc.abstractmethod
    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        """The prediction."""

    @abc.abstractmethod
    def task(self) -> str:
        """The kind of task it learns."""

    def margin(self, output: Float[Array, " k"], target: Array) -> Scalar:
        """By how much the output favours the target over anything else, above 0 where it is right; NaN for numbers."""
        return jnp.asarray(jnp.nan, output.dtype)

    def for_targets(self, task: Task, targets: np.ndarray) -> "AbstractLoss":
        """The loss for this task, whose training targets these are; itself if it needs to know neither."""
        return self

    def at(self, update: Int[Array, ""]) -> "AbstractLoss":
        """The loss at this update; itself if it does not change over a run."""
        return self

    def of_members(self, outputs: Float[Array, "..."], target: Array) -> Scalar:
        """The loss of one example; the mean loss if the network returns a row of outputs for each member."""
        if outputs.ndim == 1:
            return self.loss(outputs, target)
        return jnp.mean(jax.vmap(lambda output: self.loss(output, target))(outputs))

    def root(self, output: Float[Array, " k"], target: Array, noise: Float[Array, " k"]) -> Float[Array, " k"]:
        """S noise, where S S' is the second derivative of the loss in the output: no k x k matrix is needed."""
        raise NotImplementedError(f"{type(self).__name__} has no `root`.")

    def root_of_members(
        self, outputs: Float[Array, "..."], target: Array, noise: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """The same for `of_members`: a mean of m losses has an m-th of each one's curvature."""
        if outputs.ndim == 1:
            return self.root(outputs, target, noise)
        roots = jax.vmap(lambda output, one: self.root(output, target, one))(outputs, noise)
        return roots / jnp.sqrt(float(outputs.shape[0]))


class _AbstractSmoothed(AbstractLoss):
    """A loss whose smoothing may change over a run."""

    label_smoothing: float
    smoothing_schedule: AbstractSchedule

    def at(self, update: Int[Array, ""]) -> "AbstractLoss":
        if is_off(self.label_smoothing) or isinstance(self.smoothing_schedule, Constant):
            return self
        smoothing: Any = self.label_smoothing * self.smoothing_schedule.factor(update)
        return dataclasses.replace(self, label_smoothing=smoothing)


class SoftmaxLoss(_AbstractSmoothed):
    """-log P(class), P = softmax(output)."""

    has_root = True
    label_smoothing: float = knob(0.0, **_SMOOTHING)
    score_by: str = switch(
        "error",
        allowed=("error", "loss"),
        prior=Choice(("error", "loss")),
        row="C6",
        kind="optimiser",
        about="what early stopping follows; the loss breaks ties of the error",
    )
    smoothing_schedule: AbstractSchedule = Constant()

    def loss(self, output: Float[Array, " k"], target: Array) -> Scalar:
        logs = jax.nn.log_softmax(output)
        exact = -jnp.sum(jnp.where(jnp.arange(output.shape[0]) == target, logs, 0.0))
        if is_off(self.label_smoothing):
            return exact
        return (1.0 - self.label_smoothing) * exact - self.label_smoothing * jnp.mean(logs)

    def score(self, output: Float[Array, " k"], target: Array) -> Scalar:
        if self.score_by == "loss":
            return -jax.nn.log_softmax(output)[target]
        # Whether argmax is another class: the first of equal ones counts. XLA's argmax takes longer than the loss.
        places, own = jnp.arange(output.shape[0]), self._own(output, target)
        above = jnp.where(places < target, ~(output < own), (places > target) & ~(output <= own))
        return jnp.max(above.astype(jnp.float32))

    def margin(self, output: Float[Array, " k"], target: Array) -> Scalar:
        others = jnp.where(jnp.arange(output.shape[0]) == target, -jnp.inf, output)
        return self._own(output, target) - jnp.max(others)

    @staticmethod
    def _own(output: Float[Array, " k"], target: Array) -> Scalar:
        """The output of the class."""
        return jnp.sum(jnp.where(jnp.arange(output.shape[0]) == target, output, 0.0))

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return jax.nn.softmax(output)

    def root(self, output: Float[Array, " k"], target: Array, noise: Float[Array, " k"]) -> Float[Array, " k"]:
        chances = jax.nn.softmax(output)  # S = (I - p 1') diag(sqrt p), so that S S' = diag(p) - p p'
        spread = jnp.sqrt(chances) * noise
        return spread - chances * jnp.sum(spread)

    def task(self) -> str:
        return "classes"


class SigmoidLoss(_AbstractSmoothed):
    """-sum over the labels of log P(label), P = sigmoid(output)."""

    has_root = True
    label_smoothing: float = knob(0.0, **_SMOOTHING)
    score_by: str = switch(
        "error",
        allowed=("error", "loss"),
        prior=Choice(("error", "loss")),
        row="C6",
        kind="optimiser",
        about="what early stopping follows; the loss breaks ties of the error",
    )
    smoothing_schedule: AbstractSchedule = Constant()

    def loss(self, output: Float[Array, " k"], target: Array) -> Scalar:
        if not is_off(self.label_smoothing):
            target = target * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        # log(1 + e^a) - t a, where softplus does not overflow
        return jnp.sum(jax.nn.softplus(output) - target * output)

    def score(self, output: Float[Array, " k"], target: Array) -> Scalar:
        if self.score_by == "loss":
            return jnp.mean(jax.nn.softplus(output) - target * output)
        return jnp.mean(((output > 0) != (target > 0.5)).astype(jnp.float32))

    def margin(self, output: Float[Array, " k"], target: Array) -> Scalar:
        return jnp.min(jnp.where(target > 0.5, output, -output))

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return jax.nn.sigmoid(output)

    def root(self, output: Float[Array, " k"], target: Array, noise: Float[Array, " k"]) -> Float[Array, " k"]:
        chances = jax.nn.sigmoid(output)
        return jnp.sqrt(chances * (1.0 - chances)) * noise

    def task(self) -> str:
        return "labels"


class GaussianLoss(AbstractLoss):
    """Half the squared error, summed over the outputs: Gaussian densities of unit variance, without the constant."""

    has_root = True
    score_by: str = switch(
        "squared",
        allowed=("squared", "absolute"),
        prior=Choice(("squared", "absolute")),
        row="C6",
        kind="optimiser",
        about="what early stopping follows",
    )

    def loss(self, output: Float[Array, " k"], target: Array) -> Scalar:
        return 0.5 * jnp.sum((output - target) ** 2)

    def score(self, output: Float[Array, " k"], target: Array) -> Scalar:
        error = output - target
        return jnp.mean(jnp.abs(error)) if self.score_by == "absolute" else jnp.mean(error**2)

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return output

    def root(self, output: Float[Array, " k"], target: Array, noise: Float[Array, " k"]) -> Float[Array, " k"]:
        return noise

    def task(self) -> str:
        return "numbers"
