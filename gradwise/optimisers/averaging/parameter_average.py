"""Averages of the parameters over training (rows C9, J6): train as usual, validate and return the average.

PolyakAverage(Sgd(0.1), start_updates=1000)      every update after the start counts equally
MovingAverage(Adam(), decay=0.999)               the last 1/(1-decay) updates count most
TailAverage(Sgd(0.1), 5000, every_updates=100)   every hundredth point after the start counts (SWA)
AveragedSgd(0.1, decay=1e-4)                     Bottou's: its own schedule, and the mean
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import Spec, knob
from ...specs.paths import parts
from ...specs.priors import Choice, LogUniform, Uniform, ZeroOr
from ..first_order.schedules import BottouDecay, present_rate
from ..first_order.sgd import LEARNING_RATE, Sgd

_START: dict[str, Any] = {
    "allowed": "[0, inf)",
    "prior": ZeroOr(LogUniform(1.0, 1e5)),
    "row": "C9",
    "about": "updates before averaging starts",
}


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


def _alike_after(start: Any) -> Callable[[Int[Array, ""]], Scalar]:
    """Shares under which all points after the start count alike, and the present one alone before."""
    return lambda count: 1.0 / jnp.maximum(count - start, 1.0)


class PolyakAverage(AbstractOptimiser):
    """The plain mean of all points after `start_updates`."""

    optimiser: AbstractOptimiser
    start_updates: float = knob(0.0, **_START)

    def build(self) -> optax.GradientTransformationExtraArgs:
        return _averaging(self.optimiser.build(), _alike_after(self.start_updates))

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)


class MovingAverage(AbstractOptimiser):
    """An exponential average; at first a plain mean, so that the starting point has no weight."""

    optimiser: AbstractOptimiser
    decay: float = knob(
        0.999,
        allowed="[0, 1)",
        prior=Choice((0.9, 0.99, 0.999, 0.9999)),
        row="J6",
        about="the average covers about 1/(1 - decay) updates",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def share(count: Int[Array, ""]) -> Scalar:
            return jnp.maximum(1.0 - self.decay, 1.0 / count)

        return _averaging(self.optimiser.build(), share)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)


def _whole(number: Any, least: int) -> Int[Array, ""]:
    """A knob that counts updates as an integer, so that its multiples are met exactly however long the run is."""
    return jnp.clip(jnp.round(jnp.asarray(number, jnp.float32)), least, 2**30).astype(jnp.int32)


class TailAverage(AbstractOptimiser):
    """The plain mean of every `every_updates`-th point after `start_updates` (Izmailov et al. 2018, SWA).

    Distant points differ more than neighbours, so few of them make as good a mean; once an epoch is usual, at a
    constant rate. Until the first point of the average, the current one is evaluated.
    """

    optimiser: AbstractOptimiser
    start_updates: float = knob(1000.0, **{**_START, "row": "J6"})
    every_updates: float = knob(
        100.0, allowed="[1, inf)", prior=LogUniform(1.0, 1e4), row="J6", about="updates between two points"
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def share(count: Int[Array, ""]) -> Scalar:
            every = _whole(self.every_updates, 1)
            past = count - _whole(self.start_updates, 0)
            number = past // every
            counts = past == number * every
            return jnp.where(number < 1, 1.0, jnp.where(counts, 1.0 / jnp.maximum(number, 1), 0.0))

        return _averaging(self.optimiser.build(), share)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)


class AveragedSgd(AbstractOptimiser):
    """Averaged stochastic gradient descent as Bottou (2012) runs it, t counted from 0:

        theta <- theta - rate_t g,                  rate_t = rate / (1 + lambda rate t)**exponent
        mean  <- mean + mu_t (theta - mean),        mu_t = 1 / (1 + t - start), 1 before the start

    An exponent below 1 lets the points travel further than 1/t would; the mean removes their noise, and has
    the least variance that any method can reach (Polyak and Juditsky 1992). lambda is the criterion's least curvature:
    with an L2 penalty of coefficient c on the sum of T losses it is 2 c / T.
    """

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    decay: float = knob(
        1e-4,
        allowed="[0, inf)",
        prior=LogUniform(1e-7, 1e-1),
        row="C9",
        about="lambda, the criterion's least curvature: sets how soon the rate falls; it is not a penalty",
    )
    exponent: float = knob(
        0.75, allowed="(0, 1]", prior=Uniform(0.5, 1.0), row="C9", about="decay exponent; below 1 for averaging"
    )
    start_updates: float = knob(0.0, **_START)

    def build(self) -> optax.GradientTransformationExtraArgs:
        schedule = BottouDecay(pace=self.decay * self.learning_rate, exponent=self.exponent)
        inner = Sgd(self.learning_rate, schedule=schedule).build()
        return _averaging(inner, _alike_after(self.start_updates))

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return state.average

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state.inner)


AVERAGES = (PolyakAverage, MovingAverage, TailAverage, AveragedSgd)


def refuse_averages(spec: Spec) -> None:
    """For wrappers that change the moves of what they wrap: an average inside would be of points never visited."""
    for _, part in parts(spec):
        if isinstance(part, AVERAGES):
            kind, outer = type(part).__name__, type(spec).__name__
            remedy = f"Write {kind}({outer}(...))."
            if isinstance(part, AveragedSgd):
                remedy = f"Write PolyakAverage({outer}(Sgd(...))) with the schedule BottouDecay."
            raise RequestError(f"`{outer}` around `{kind}` would average steps that were never taken. {remedy}")
