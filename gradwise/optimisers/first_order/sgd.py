"""Stochastic gradient descent and its momenta (rows B1, C1, C9), each a direction times a scheduled rate.

Sgd(learning_rate=0.01)                     theta <- theta - rate * g
Sgd(learning_rate=0.01, smoothing=0.1)      the chapter's momentum: g_bar <- (1 - beta) g_bar + beta g
HeavyBall(momentum=0.9)                     v <- momentum v + g
Nesterov(momentum=0.9)                      the gradient as if one step ahead
"""

from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob
from ...specs.priors import LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from .schedules import present_rate, scale_by_rate

LEARNING_RATE: dict[str, Any] = {
    "allowed": "(0, inf)",
    "prior": LogUniform(1e-6, 1.0),
    "row": "C1",
    "about": "the initial learning rate: if only one knob can be tuned, tune this one",
}
MOMENTUM: dict[str, Any] = {
    "allowed": "[0, 1)",
    "prior": Uniform(0.0, 0.99),
    "row": "C9",
    "about": "the share of the last step that is kept; tune it together with the mini-batch size",
}


class _SmoothedState(NamedTuple):
    mean: PyTree


def smooth(beta: Any) -> optax.GradientTransformation:
    """g_bar <- (1 - beta) g_bar + beta g, from g_bar = 0."""

    def init(parameters: PyTree) -> _SmoothedState:
        return _SmoothedState(optax.tree.zeros_like(parameters))

    def update(updates: PyTree, state: _SmoothedState, parameters: PyTree = None) -> Any:
        mean = jax.tree.map(lambda m, g: (1.0 - beta) * m + beta * g, state.mean, updates)
        return mean, _SmoothedState(mean)

    return optax.GradientTransformation(init, update)


class Sgd(AbstractOptimiser):
    """Plain stochastic gradient descent, with the chapter's momentum if `smoothing` is below 1."""

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    smoothing: float = knob(
        1.0,
        allowed="(0, 1]",
        prior=LogUniform(0.01, 1.0),
        row="C9",
        off=1.0,
        about="beta of the moving average of gradients; 1 is no momentum",
    )
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        direction = optax.identity() if is_off(self.smoothing) else smooth(self.smoothing)
        return optax.chain(direction, scale_by_rate(self.learning_rate, self.schedule))

    def acts_elementwise(self) -> bool:
        return True

    def rests_without_gradient(self) -> bool:
        return is_off(self.smoothing)

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)


class HeavyBall(AbstractOptimiser):
    """Polyak's momentum: the step is a decaying sum of past gradients."""

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    momentum: float = knob(0.9, **MOMENTUM)
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(optax.trace(self.momentum), scale_by_rate(self.learning_rate, self.schedule))

    def acts_elementwise(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)


class Nesterov(AbstractOptimiser):
    """Nesterov's momentum, in the form that takes the gradient at the current point."""

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    momentum: float = knob(0.9, **MOMENTUM)
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(optax.trace(self.momentum, nesterov=True), scale_by_rate(self.learning_rate, self.schedule))

    def acts_elementwise(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)
