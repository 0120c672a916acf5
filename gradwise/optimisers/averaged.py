"""Averages of the parameters over training (rows C9, J6): train as usual, judge and keep the average.

PolyakAverage(Sgd(0.1), start_updates=1000)      every update after the start counts alike
MovingAverage(Adam(), decay=0.999)               the last 1/(1-decay) updates count most
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ..core.knob import knob
from ..core.parts import AbstractOptimiser
from ..core.prior import Choice, LogUniform


class _AveragedState(NamedTuple):
    inner: PyTree
    average: PyTree
    update: Int[Array, ""]


def _averaging(
    inner: optax.GradientTransformationExtraArgs, share: Callable[[Int[Array, ""]], Scalar]
) -> optax.GradientTransformationExtraArgs:
    """Runs the inner rule and moves an average towards each new point by `share(number of the update, from 1)`."""

    def init(parameters: PyTree) -> _AveragedState:
        # A copy: the average and the parameters must not be one buffer, since both are donated.
        copy = jax.tree.map(jnp.array, parameters)
        return _AveragedState(inner.init(parameters), copy, jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: _AveragedState, parameters: PyTree = None, **extra: Any) -> Any:
        moved, inner_state = inner.update(updates, state.inner, parameters, **extra)
        count = state.update + 1
        amount = share(count)
        average = jax.tree.map(lambda m, p, u: m + amount * (p + u - m), state.average, parameters, moved)
        return moved, _AveragedState(inner_state, average, count)

    return optax.GradientTransformationExtraArgs(init, update)


class PolyakAverage(AbstractOptimiser):
    """The plain mean of all points after `start_updates`."""

    optimiser: AbstractOptimiser
    start_updates: float = knob(
        0.0,
        allowed="[0, inf)",
        prior=LogUniform(1.0, 1e5),
        row="C9",
        about="updates before the average begins",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def share(count: Int[Array, ""]) -> Scalar:
            return 1.0 / jnp.maximum(count - self.start_updates, 1.0)

        return _averaging(self.optimiser.build(), share)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)


class MovingAverage(AbstractOptimiser):
    """An exponential average; at first a plain mean, so that it never remembers the starting point."""

    optimiser: AbstractOptimiser
    decay: float = knob(
        0.999,
        allowed="[0, 1)",
        prior=Choice((0.9, 0.99, 0.999, 0.9999)),
        row="J6",
        about="the average remembers about 1/(1 - decay) updates",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def share(count: Int[Array, ""]) -> Scalar:
            return jnp.maximum(1.0 - self.decay, 1.0 / count)

        return _averaging(self.optimiser.build(), share)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)
