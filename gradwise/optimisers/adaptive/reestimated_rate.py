"""Periodic re-estimation of the learning rate (row C4): N rates are tried at once from the current point.

    Reestimated(Sgd(0.1))                            8 rates, from r/16 to 8 r, every 1000 updates
    Reestimated(HeavyBall(0.01), every_updates=200)

At regular intervals, training continues from the current point and optimiser state with each of N rates for one
pass over a small subset of the training set, the same throughout the run (Bottou 2012, as described in the chapter).
The rate with the lowest regularised training criterion on that subset is used until the next estimate; the N
continuations are discarded. All N run in one call; where that is faster, their matrix products are one product.

Bottou's program halves or doubles the rate while that helps and returns the lower end of the bracket. Here the whole
ladder is tried; to be as cautious, near-ties are broken downwards: the lowest rate whose gain is within a hundredth of
the best one's.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...runtime.errors import RequestError
from ...runtime.keys import named
from ...specs.contracts import AbstractOptimiser, Batch
from ...specs.knobs import declarations, knob, switch
from ...specs.paths import get
from ...specs.priors import LogInteger, LogUniform
from ..first_order.sgd import Sgd

_TIE = 0.01  # of the best gain: what lies closer is no reason for a higher rate
_FIRST = (
    3.0  # the first ladder's steps are so many of the later ones: with 8 rates and steps of 2, from r/4096 to 512 r
)
_SMALL = 1000  # parameters
_INPUTS_PER_UNIT = 5.0  # a unit being as many parameters as there are inputs
_LEAST, _GREATEST = 1e-12, 1e6  # where ladders end, so that a rate never leaves the numbers


class Subset(eqx.Module):
    """Some training examples, gathered once: as mini-batches (one more axis in front) and as one batch."""

    several: Batch
    whole: Batch


def fixed_subset(objective: Objective, examples: int) -> Subset:
    """The run's small subset: drawn from the run's key by name, so the same at every update."""
    count = len(objective.train)
    chosen = min(examples, count)
    size = min(objective.batch.present.shape[0], chosen)
    number = -(-chosen // size)
    rows = jr.choice(named(objective.key, "re-estimation"), count, (chosen,), replace=False).astype(jnp.int32)
    slots = jnp.arange(number * size)
    several = objective.on(rows[slots % chosen], (slots < chosen).astype(jnp.float32)).batch

    def split(leaf: Array) -> Array:
        return leaf.reshape(number, size, *leaf.shape[1:])

    total = jnp.broadcast_to(several.total, (number,))
    several = jax.tree.map(lambda leaf: split(leaf) if leaf.ndim else total, several)
    return Subset(several, objective.on(rows).batch)


def _on(objective: Objective, batch: Batch, update: Int[Array, ""]) -> Objective:
    """The criterion on a batch at hand, with the noise of that update."""
    o = objective
    return Objective(o.criterion, o.batches, o.rest, o.train, o.key, update, batch)


def at_rate(optimiser: AbstractOptimiser, rate: Any) -> AbstractOptimiser:
    """The optimiser with another learning rate, which may be a traced number."""
    changed: AbstractOptimiser = eqx.tree_at(lambda spec: spec.learning_rate, optimiser, rate)
    return changed


def is_faster_together(parameters: PyTree, subset: Subset) -> bool:
    """Whether the products of all rates had better be one; otherwise one program goes through the rates one by one.

    On an accelerator they had. On a CPU only the first layer's gain: the rates share its inputs, so their products are
    one wide one. Those of later layers do not become one, and many sets of weights leave the cache. So it must have
    many inputs for each unit, or the network be so small that a loop's turns count (measured:
    benchmarks/reestimation.py).
    """
    if jax.default_backend() != "cpu":
        return True
    inputs = math.prod(subset.whole.inputs.shape[1:])
    size = sum(leaf.size for leaf in jax.tree.leaves(parameters))
    return size <= _SMALL or inputs**2 >= _INPUTS_PER_UNIT * size


def try_continuing(
    optimiser: AbstractOptimiser,
    state: PyTree,
    parameters: PyTree,
    objective: Objective,
    rates: Float[Array, " N"],
    subset: Subset,
    together: bool | None = None,
) -> Float[Array, " N"]:
    """The criterion on the subset after one pass over it from here, at each rate; infinite where it is no number.

    `state` is the optimiser's own. Examples and noise are the same for all rates, so only the rates differ. The first
    gradient is the same for all, and taken once. `together` says whether the products of all rates are one; by default
    that is as `is_faster_together` says. Either way gives the same losses within rounding.
    """
    numbers = objective.update + jnp.arange(subset.several.total.shape[0], dtype=jnp.int32)
    first = jax.tree.map(lambda leaf: leaf[0], (subset.several, numbers))
    rest = jax.tree.map(lambda leaf: leaf[1:], (subset.several, numbers))
    begin = _on(objective, *first)
    value, gradient = begin.value_and_gradient(parameters)

    def continued(rate: Scalar) -> Scalar:
        rule = at_rate(optimiser, rate).build()

        def body(carry: tuple[PyTree, PyTree], inputs: tuple[Batch, Array]) -> tuple[tuple[PyTree, PyTree], None]:
            here, inner = carry
            criterion = _on(objective, *inputs)
            value, gradient = criterion.value_and_gradient(here)
            moves, inner = rule.update(gradient, inner, here, value=value, objective=criterion)
            return (optax.apply_updates(here, moves), inner), None

        moves, inner = rule.update(gradient, state, parameters, value=value, objective=begin)
        carry = (optax.apply_updates(parameters, moves), inner)
        (reached, _), _ = jax.lax.scan(body, carry, rest)
        return _on(objective, subset.whole, objective.update)(reached)

    together = is_faster_together(parameters, subset) if together is None else together
    losses = jax.vmap(continued)(rates) if together else jax.lax.map(continued, rates)
    return jnp.where(jnp.isfinite(losses), losses, jnp.inf)


def best_rate(rates: Float[Array, " N"], losses: Float[Array, " N"], before: Scalar, present: Scalar) -> Scalar:
    """The lowest rate whose gain over the criterion `before` is nearly the best; where all ended in no number, the
    lowest rate tried; where there was none `before` either, the present one."""
    best = jnp.min(losses)
    near = losses <= best + _TIE * jnp.maximum(before - best, 0.0)
    chosen = jnp.min(jnp.where(near, rates, jnp.inf))
    chosen = jnp.where(jnp.isfinite(best), chosen, jnp.min(rates))
    return jnp.where(jnp.isfinite(before), chosen, present)


class _ReestimatedState(NamedTuple):
    inner: PyTree
    rate: Float[Array, ""]  # in force
    since: Int[Array, ""]  # updates since the last estimate
    estimates: Int[Array, ""]
    changes: Int[Array, ""]  # how many of them changed the rate


class Reestimated(AbstractOptimiser):
    """Re-estimates the learning rate of any optimiser at regular intervals.

    ladder_k = rate * factor ** (k - floor(N / 2)), k = 0 ... N-1; the first time with factor ** 3. The optimiser's own
    `learning_rate` is where the first ladder stands, its schedule multiplies the rate in force. One estimate computes
    about as much as N subset_examples / B updates: with the defaults and B = 32, 128 (the chapter; Bottou 2012).
    """

    needs_objective = True
    optimiser: AbstractOptimiser = Sgd()
    rates: int = switch(
        8,
        allowed="[2, 1024]",
        prior=LogInteger(4, 32),
        row="C4",
        kind="optimiser",
        about="learning rates tried at once",
    )
    subset_examples: int = switch(
        512,
        allowed="[1, inf)",
        prior=LogInteger(128, 4096),
        row="C4",
        kind="optimiser",
        about="training examples to try rates on, the same for the whole run; their number matters, not their share",
    )
    factor: float = knob(
        2.0,
        allowed="(1, inf)",
        prior=LogUniform(1.2, 4.0),
        row="C4",
        about="ratio of successive rates of the ladder",
    )
    every_updates: float = knob(
        1000.0,
        allowed="[1, inf)",
        prior=LogUniform(100.0, 1e4),
        row="C4",
        about="updates between two estimates of the rate",
    )

    def __check_init__(self) -> None:
        inner = self.optimiser
        known = dict(declarations(inner)) if isinstance(inner, AbstractOptimiser) else {"learning_rate": None}
        if "learning_rate" not in known:
            raise RequestError(
                f"`Reestimated.optimiser` is {type(inner).__name__}, which has no `learning_rate` to re-estimate. "
                "Use one that has (Sgd, HeavyBall, Adam), and put averages around Reestimated, not within."
            )

    def ladder(self, rate: Any, first: Any) -> Float[Array, " N"]:
        """The rates tried around this one: it is among them, with as many lower as higher ones, or one more."""
        power = (jnp.arange(self.rates) - self.rates // 2) * jnp.where(first, _FIRST, 1.0)
        return jnp.clip(rate * self.factor**power, _LEAST, _GREATEST).astype(jnp.float32)

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _ReestimatedState:
            none = jnp.zeros((), jnp.int32)
            rate = jnp.asarray(get(self.optimiser, "learning_rate"), jnp.float32)
            return _ReestimatedState(self.optimiser.build().init(parameters), rate, none, none, none)

        def update(
            updates: PyTree, state: _ReestimatedState, parameters: PyTree, *, objective: Objective, **extra: Any
        ) -> tuple[PyTree, _ReestimatedState]:
            def estimate(before: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
                rate, _, estimates, changes = before
                subset = fixed_subset(objective, self.subset_examples)
                rates = self.ladder(rate, estimates == 0)
                losses = try_continuing(self.optimiser, state.inner, parameters, objective, rates, subset)
                here = _on(objective, subset.whole, objective.update)(parameters)
                new = best_rate(rates, losses, here, rate)
                return new, jnp.zeros((), jnp.int32), estimates + 1, changes + (new != rate)

            due = (state.estimates == 0) | (state.since >= self.every_updates)
            present = (state.rate, state.since, state.estimates, state.changes)
            rate, since, estimates, changes = run_when(due, estimate, present)
            moved, inner = (
                at_rate(self.optimiser, rate)
                .build()
                .update(updates, state.inner, parameters, objective=objective, **extra)
            )
            return moved, _ReestimatedState(inner, rate, since + 1, estimates, changes)

        return optax.GradientTransformationExtraArgs(init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state.inner)

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)
