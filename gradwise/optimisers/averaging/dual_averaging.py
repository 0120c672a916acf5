"""Dual averaging (row C9): the point is the start minus a scaled sum of all gradients so far.

    DualAveraging(learning_rate=0.1)                      evaluates the mean of the points, as in the theorem
    DualAveraging(learning_rate=0.1, averaged=False)      evaluates the last point

Unlike in gradient descent, old gradients count as much as new ones: the rate falls for all of them together.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.priors import LogUniform


class _DualState(NamedTuple):
    start: PyTree  # x_0
    total: PyTree  # s_t, the sum of the gradients
    average: PyTree  # of the points where they were taken; nothing where it is not wanted
    update: Int[Array, ""]
    rate: Scalar


class DualAveraging(AbstractOptimiser):
    """Nesterov's (2009) simple dual averaging, gamma being 1 / learning_rate:

        s_t = s_{t-1} + g(x_{t-1}),     x_t = x_0 - s_t / (gamma sqrt(t)),     mean_t = (x_0 + ... + x_{t-1}) / t

    On a convex criterion whose gradients are no longer than G, at distance D from the optimum, and for t > 1,

        f(mean_t) - f* <= (gamma D^2 / 2 + G^2 / gamma) / sqrt(t),

    smooth or not; gamma = sqrt(2) G / D is the best. (Derived from x_t minimising <s_t, x> + gamma sqrt(t) |x - x_0|^2
    / 2; the sum over k < t of 1/sqrt(max(k, 1)) is at most 2 sqrt(t).) The rate falls by itself: there is no schedule.
    """

    learning_rate: float = knob(
        0.03,
        allowed="(0, inf)",
        prior=LogUniform(1e-4, 1.0),
        row="C1",
        about="1/gamma: the rate of the first update; after t updates, all gradients so far count 1/sqrt(t) of it",
    )
    averaged: bool = switch(
        True,
        allowed=(True, False),
        row="C9",
        kind="optimiser",
        about="whether the mean of the points is evaluated, rather than the last",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _DualState:
            return _DualState(
                start=jax.tree.map(jnp.array, parameters),  # copies: the parameters' buffers are donated
                total=optax.tree.zeros_like(parameters),
                average=jax.tree.map(jnp.array, parameters) if self.averaged else (),
                update=jnp.zeros((), jnp.int32),
                rate=jnp.asarray(self.learning_rate, jnp.float32),
            )

        def update(updates: PyTree, state: _DualState, parameters: PyTree = None, **_: Any) -> Any:
            count = state.update + 1
            rate = jnp.asarray(self.learning_rate / jnp.sqrt(count), jnp.float32)
            total = optax.tree.add(state.total, updates)
            moved = jax.tree.map(lambda x, s, p: (x - rate * s) - p, state.start, total, parameters)
            average = state.average
            if self.averaged:
                average = jax.tree.map(lambda m, p: m + (p - m) / count, average, parameters)
            return moved, _DualState(state.start, total, average, count, rate)

        return optax.GradientTransformationExtraArgs(init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average if self.averaged else parameters

    def rate(self, state: PyTree) -> Scalar:
        """What each gradient so far is multiplied by."""
        return state.rate
