"""Learning-rate schedules, as factors on the initial rate. t counts *updates*.

Constant()                             1
InverseTime(tau_updates=10_000)        (tau / max(t, tau)) ** exponent           row C2
SelfTimed(threshold=0.01)              the same, tau set when the training criterion stops improving   row C3
"""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..core.knob import Spec, knob
from ..core.prior import LogUniform, Uniform

_EXPONENT: dict[str, Any] = {
    "allowed": "(0, 1]",
    "prior": Uniform(0.3, 1.0),
    "row": "C2",
    "about": "alpha: 1 is the classical choice, smaller ones suit averaging and non-convex problems",
}


class AbstractSchedule(Spec):
    @abc.abstractmethod
    def init(self) -> PyTree:
        """The state before the first update."""

    @abc.abstractmethod
    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        """The state and the factor for this update (counted from 0), given the training criterion on its batch."""


class Constant(AbstractSchedule):
    """The initial rate throughout."""

    def init(self) -> PyTree:
        return ()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        return (), jnp.ones(())


class InverseTime(AbstractSchedule):
    """Constant for tau updates, then falling as 1/t**exponent."""

    tau_updates: float = knob(
        10_000.0, allowed="[1, inf)", prior=LogUniform(100.0, 1e6), row="C2", about="updates before the rate falls"
    )
    exponent: float = knob(1.0, **_EXPONENT)

    def init(self) -> PyTree:
        return ()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        return (), (self.tau_updates / jnp.maximum(update, self.tau_updates)) ** self.exponent


class _SelfTimedState(NamedTuple):
    total: Float[Array, ""]  # the criterion summed over the present window
    seen: Int[Array, ""]  # updates in it
    last: Float[Array, ""]  # the mean over the window before
    tau: Float[Array, ""]  # infinite until the rate starts to fall


class SelfTimed(AbstractSchedule):
    """Constant until the mean training criterion of a window falls by less than `threshold` of the one before."""

    threshold: float = knob(
        0.01, allowed="[0, 1)", prior=LogUniform(1e-4, 0.1), row="C3", about="the least relative improvement"
    )
    window_updates: float = knob(
        500.0, allowed="[1, inf)", prior=LogUniform(50.0, 5000.0), row="C3", about="updates averaged before comparing"
    )
    exponent: float = knob(1.0, **_EXPONENT)

    def init(self) -> PyTree:
        return _SelfTimedState(jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf), jnp.asarray(jnp.inf))

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        total, seen = state.total + value, state.seen + 1
        full = seen >= self.window_updates
        mean = total / seen
        # Relative to the size of the last mean, so that a criterion below 0 is judged alike.
        slow = state.last - mean < self.threshold * jnp.abs(state.last)
        stalled = full & slow & jnp.isfinite(state.last)
        tau = jnp.where(stalled & jnp.isinf(state.tau), jnp.maximum(update, 1).astype(jnp.float32), state.tau)
        new = _SelfTimedState(
            total=jnp.where(full, 0.0, total),
            seen=jnp.where(full, 0, seen),
            last=jnp.where(full, mean, state.last),
            tau=tau,
        )
        factor = jnp.where(jnp.isinf(tau), 1.0, tau / jnp.maximum(update, tau))
        return new, factor**self.exponent


class RateState(NamedTuple):
    """What every optimiser of ours keeps last in its chain: updates so far, the schedule's state, the present rate."""

    update: Int[Array, ""]
    schedule: PyTree
    rate: Scalar


def scale_by_rate(learning_rate: Any, schedule: AbstractSchedule) -> optax.GradientTransformationExtraArgs:
    """Multiplies a direction by minus the scheduled learning rate."""

    def init(parameters: PyTree) -> RateState:
        return RateState(jnp.zeros((), jnp.int32), schedule.init(), jnp.asarray(learning_rate, jnp.float32))

    def update(updates: PyTree, state: RateState, parameters: PyTree = None, *, value: Any = 0.0, **_: Any) -> Any:
        inner, factor = schedule.step(state.schedule, state.update, jnp.asarray(value))
        rate = jnp.asarray(learning_rate * factor, jnp.float32)
        moved = jax.tree.map(lambda g: -rate * g, updates)
        return moved, RateState(state.update + 1, inner, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def present_rate(state: PyTree) -> Scalar:
    """The learning rate of the last update (before any: the initial one), wherever in a state it stands."""
    states = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, RateState))
    return next(node.rate for node in states if isinstance(node, RateState))
