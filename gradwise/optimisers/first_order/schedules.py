"""Learning-rate schedules, as factors on the initial rate. t counts *updates*.

Constant()                             1
InverseTime(tau_updates=10_000)        (tau / max(t, tau)) ** exponent           row C2
SelfTimed(threshold=0.01)              the same, tau set when the training criterion stops improving   row C3
BottouDecay(pace=1e-4)                 (1 + pace t) ** -exponent                         row C9
WarmUp(1000, InverseTime())            min(1, (t + 1) / warm_up) times another schedule  row J2
WarmUpStableDecay(500, 8000, 1500)     warm-up, then 1, then a line down to `final`      row J2
Cosine(10_000, 500)                    warm-up, then half a cosine down to `final`       row J2
OneCycle(peak=0.3)                     a cosine up to the whole rate, then one down to 0  row J2
RepeatedCosine(cycles=4)               waves from 0 to 1 and back, each twice as long     row J2
FlatCosine(flat=0.5)                   1 for half of the run, then a cosine down to 0     row J2

The last five have a horizon, an update at which they end. For the last four, a horizon of 0 means the length of the
run, which is known if it is fixed (`Off`). Early stopping ignores the horizon; a note in the report says so.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ...records.finding import Finding
from ...specs.knobs import is_plain_number, knob, switch
from ...specs.priors import Choice, LogUniform, Uniform, ZeroOr
from ...specs.schedules import AbstractSchedule, Constant

_EXPONENT: dict[str, Any] = {
    "allowed": "(0, 1]",
    "prior": Uniform(0.3, 1.0),
    "row": "C2",
    "about": "alpha: 1 is the classical choice, smaller ones suit averaging and non-convex problems",
}


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


class BottouDecay(AbstractSchedule):
    """rate_t = rate / (1 + lambda rate t)**exponent (Bottou 2012), with `pace` for lambda * rate.

    A schedule is a factor and does not see the rate it multiplies, so the product is a single knob; `AveragedSgd` takes
    lambda and the rate separately. Bottou's SGD has exponent 1, his averaged SGD 0.75.
    """

    pace: float = knob(
        1e-4,
        allowed="[0, inf)",
        prior=LogUniform(1e-8, 1e-1),
        row="C9",
        about="lambda times the initial rate: the rate has halved (at exponent 1) after 1/pace updates",
    )
    exponent: float = knob(1.0, **_EXPONENT)

    def init(self) -> PyTree:
        return ()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        return (), (1.0 + self.pace * update) ** -self.exponent


_WARM_UP: dict[str, Any] = {
    "allowed": "[0, inf)",
    "prior": ZeroOr(LogUniform(10.0, 1e4)),
    "row": "J2",
    "about": "updates in which the rate rises linearly; 0 or 1: none",
}
_FINAL: dict[str, Any] = {
    "allowed": "[0, 1]",
    "prior": Choice((0.0, 0.01, 0.1)),
    "row": "J2",
    "about": "the share of the initial rate that remains from the horizon on",
}


def _rising(update: Int[Array, ""], warm_up_updates: Any) -> Scalar:
    """(t + 1) / warm_up, at most 1: the first update moves already, the last of the warm-up at the whole rate."""
    return jnp.minimum((update + 1) / jnp.maximum(warm_up_updates, 1.0), 1.0)


def _part_done(update: Int[Array, ""], start: Any, length: Any) -> Scalar:
    """How much of a stretch of updates has passed, from 0 to 1; a stretch of no length is a step."""
    return jnp.clip((update - start) / jnp.maximum(length, 1.0), 0.0, 1.0)


def _falling_cosine(done: Any) -> Scalar:
    """From 1 to 0 as `done` goes from 0 to 1."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * done))


def _horizon(
    schedule: AbstractSchedule, final: float, knob_name: str, horizon: float | None = None
) -> tuple[Finding, ...]:
    """What the reader of a report should know of a schedule that ends; nothing where it ends with the run."""
    ends = float(schedule.horizon_updates) if horizon is None else horizon  # type: ignore[attr-defined]
    if ends == 0:
        return ()
    return (
        Finding(
            "note",
            f"`{type(schedule).__name__}` lowers the rate up to update {ends:,.0f}, its horizon. Early stopping does "
            "not wait for it: patience may end the run while the rate is still high. After the horizon the rate "
            f"stays at its floor, {final:g} of the initial one.",
            row="J2",
            next=f"set `{knob_name}` to the updates the run will have, and patience no shorter than that.",
        ),
    )


class WarmUp(AbstractSchedule):
    """A linear rise to the initial rate, times another schedule, which also counts from the first update."""

    warm_up_updates: float = knob(1000.0, **_WARM_UP)
    schedule: AbstractSchedule = Constant()

    def init(self) -> PyTree:
        return self.schedule.init()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        state, factor = self.schedule.step(state, update, value)
        return state, _rising(update, self.warm_up_updates) * factor


_HORIZON: dict[str, Any] = {
    "allowed": "[0, inf)",
    "prior": ZeroOr(LogUniform(1e3, 1e6)),
    "row": "J2",
    "about": "updates until the end of the schedule; 0: the whole run",
}


class _AbstractOverRun(AbstractSchedule):
    """A curve over the part of the run that is done, from 0 to 1."""

    horizon_updates: float

    def init(self) -> PyTree:
        return ()

    def over(self, updates: int) -> AbstractSchedule:
        if is_plain_number(self.horizon_updates) and self.horizon_updates == 0:
            return dataclasses.replace(self, horizon_updates=float(updates))
        return self


class Cosine(_AbstractOverRun):
    """Warm-up, then final + (1 - final) (1 + cos(pi p)) / 2, p from 0 at its end to 1 at the horizon.

    Loshchilov and Hutter 2017, without restarts.
    """

    horizon_updates: float = knob(10_000.0, **_HORIZON)
    warm_up_updates: float = knob(0.0, **_WARM_UP)
    final: float = knob(0.01, **_FINAL)

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        done = _part_done(update, self.warm_up_updates, self.horizon_updates - self.warm_up_updates)
        falling = self.final + (1.0 - self.final) * _falling_cosine(done)
        return (), _rising(update, self.warm_up_updates) * falling

    def findings(self) -> tuple[Finding, ...]:
        return _horizon(self, float(self.final), "horizon_updates")


class OneCycle(_AbstractOverRun):
    """Half a cosine up to the whole rate at `peak` of the run, then half a cosine down to 0 (Smith 2018)."""

    horizon_updates: float = knob(0.0, **_HORIZON)
    peak: float = knob(
        0.3,
        allowed="(0, 1)",
        prior=Uniform(0.05, 0.5),
        row="J2",
        about="the fraction of the run after which the rate falls",
    )

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        done = _part_done(update, 0.0, self.horizon_updates)
        up, down = done / self.peak, (done - self.peak) / (1.0 - self.peak)
        return (), jnp.where(done < self.peak, 1.0 - _falling_cosine(up), _falling_cosine(down))

    def findings(self) -> tuple[Finding, ...]:
        return _horizon(self, 0.0, "horizon_updates")


class RepeatedCosine(_AbstractOverRun):
    """(1 - cos(2 pi log2(1 + (2**cycles - 1) p))) / 2: waves from 0 to 1 and back, each twice as long as the last.

    The schedule of RealMLP (Holzmueller, Grinsztajn and Steinwart 2024), who take four. Every wave ends at a rate of
    0, so the run passes several well-settled networks, and the best of them is kept.
    """

    horizon_updates: float = knob(0.0, **_HORIZON)
    cycles: int = switch(
        4, allowed="[1, inf)", prior=Choice((1, 2, 3, 4, 5)), row="J2", kind="optimiser", about="number of waves"
    )

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        done = _part_done(update, 0.0, self.horizon_updates)
        return (), 0.5 * (1.0 - jnp.cos(2.0 * jnp.pi * jnp.log2(1.0 + (2**self.cycles - 1) * done)))

    def findings(self) -> tuple[Finding, ...]:
        return _horizon(self, 0.0, "horizon_updates")


class FlatCosine(_AbstractOverRun):
    """1 for the first part of the run, then half a cosine down to 0: for dropout, decay and smoothing.

    Regularisation is released at the end, when the learning rate is small.
    """

    horizon_updates: float = knob(0.0, **_HORIZON)
    flat: float = knob(
        0.5, allowed="[0, 1)", prior=Uniform(0.0, 0.9), row="J2", about="the fraction of the run before the decay"
    )

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        done = _part_done(update, 0.0, self.horizon_updates)
        return (), _falling_cosine(jnp.maximum(0.0, (done - self.flat) / (1.0 - self.flat)))


class WarmUpStableDecay(AbstractSchedule):
    """Warm-up, a constant rate, then a line from 1 to final: the horizon can be moved without starting again."""

    warm_up_updates: float = knob(500.0, **_WARM_UP)
    stable_updates: float = knob(
        8000.0,
        allowed="[0, inf)",
        prior=LogUniform(100.0, 1e6),
        row="J2",
        about="updates at the full rate, after the warm-up",
    )
    decay_updates: float = knob(
        1500.0,
        allowed="[0, inf)",
        prior=LogUniform(10.0, 1e5),
        row="J2",
        about="updates in which the rate falls linearly to its floor",
    )
    final: float = knob(0.01, **_FINAL)

    def init(self) -> PyTree:
        return ()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        done = _part_done(update, self.warm_up_updates + self.stable_updates, self.decay_updates)
        return (), _rising(update, self.warm_up_updates) * (1.0 - (1.0 - self.final) * done)

    def findings(self) -> tuple[Finding, ...]:
        horizon = float(self.warm_up_updates) + float(self.stable_updates) + float(self.decay_updates)
        return _horizon(self, float(self.final), "stable_updates", horizon)


class RateState(NamedTuple):
    """The last state in every optimiser's chain: updates so far, the schedule's state, the current rate."""

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
        moved = optax.tree.scale(-rate, updates)
        return moved, RateState(state.update + 1, inner, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def present_rate(state: PyTree) -> Scalar:
    """The learning rate of the last update (before the first: the initial one), found anywhere in a state."""
    states = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, RateState))
    return next(node.rate for node in states if isinstance(node, RateState))
