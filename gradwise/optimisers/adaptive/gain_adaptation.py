"""Adaptive rates (row H2): one global rate, one per layer, neuron or parameter, or updates of a fixed relative size.

GlobalRate(learning_rate=0.01)              a slightly lower, equal or slightly higher rate: the next batch decides
LocalRates(learning_rate=0.01, by="neuron")     gains grow if gradients agree with earlier ones, and shrink if not
HeldRatio(HeavyBall(), ratio=0.001)             each layer moves by about a thousandth of its weights per update
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree, Scalar

from ...curvature.objective import Objective
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.paths import map_named, named_leaves
from ...specs.priors import Choice, LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from ..averaging.parameter_average import MovingAverage, PolyakAverage
from ..first_order.schedules import present_rate, scale_by_rate
from ..first_order.sgd import LEARNING_RATE, Sgd

# --- one rate for all


class _GlobalState(NamedTuple):
    rate: Float[Array, ""]


class GlobalRate(AbstractOptimiser):
    """One rate for all parameters, which each update may change by one per cent (Cho et al. 2011).

    theta <- theta - r' g, r' among (1 - d) r, r, (1 + d) r the one whose new point has the least criterion on the
    *next* mini-batch: on the current one a longer step along its own gradient would win too often. In a tie the
    current rate stays; if every candidate is NaN, the rate falls. Three evaluations per update, in one call.

    Cho uses it for a Boltzmann machine, whose likelihood must be estimated with particles; here the criterion itself
    is compared. The rate changes by at most a factor e in 1/d updates, so it adapts slowly.
    """

    needs_objective = True
    learning_rate: float = knob(0.01, **LEARNING_RATE)
    change: float = knob(
        0.01,
        allowed="(0, 1)",
        prior=LogUniform(0.001, 0.1),
        row="H2",
        about="d: the relative change of the rate allowed per update",
    )
    least_rate: float = knob(
        1e-6, allowed="(0, inf)", prior=LogUniform(1e-8, 1e-4), row="H2", about="the rate never falls below"
    )
    greatest_rate: float = knob(
        10.0, allowed="(0, inf)", prior=LogUniform(1.0, 100.0), row="H2", about="the rate never rises above"
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _GlobalState:
            return _GlobalState(jnp.asarray(self.learning_rate, jnp.float32))

        def update(
            updates: PyTree, state: _GlobalState, parameters: PyTree, *, objective: Objective, **_: Any
        ) -> tuple[PyTree, _GlobalState]:
            # The present rate comes first, so that it wins a tie; then the lower one.
            factors = 1.0 + jnp.stack([jnp.zeros(()), -jnp.ones(()), jnp.ones(())]) * self.change
            rates = jnp.clip(state.rate * factors, self.least_rate, self.greatest_rate).astype(jnp.float32)
            later = objective.upcoming()

            def criterion(rate: Scalar) -> Scalar:
                return later(optax.tree.add_scale(parameters, -rate, updates))

            values = jax.vmap(criterion)(rates)
            values = jnp.where(jnp.isfinite(values), values, jnp.inf)
            place = jnp.where(jnp.any(jnp.isfinite(values)), jnp.argmin(values), 1)
            rate = rates[place]
            return optax.tree.scale(-rate, updates), _GlobalState(rate)

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: PyTree) -> Scalar:
        return state.rate


# --- one rate a layer, a neuron or a parameter


def block_of(name: str, leaf: Array, by: str) -> str:
    """The name of the block, or of the family of blocks, that a parameter array belongs to.

    A layer is what stands under one path: `layers.0` for `layers.0.weight` and `layers.0.bias`. Arrays of one layer
    with the same number of rows share its neurons: row i of the weights and element i of the biases are one.
    """
    layer = name.rpartition(".")[0] or name
    if by == "neuron":
        return f"{layer}[{leaf.shape[0] if leaf.ndim else ''}]"
    return layer if by == "layer" else name


def _within(leaf: Array, by: str) -> Array:
    """Sums an array's elements within each of its blocks: one number a row, none lost, or one for all."""
    if by == "neuron":
        return jnp.sum(leaf, axis=tuple(range(1, leaf.ndim)))
    return leaf if by == "parameter" else jnp.sum(leaf)


def sum_by_block(tree: PyTree, by: str) -> dict[str, Array]:
    """The sums over each layer, array, neuron or parameter, under their blocks' names."""
    sums: dict[str, Array] = {}
    for name, leaf in named_leaves(tree):
        block, part = block_of(name, leaf, by), _within(leaf, by)
        sums[block] = sums[block] + part if block in sums else part
    return sums


def spread_by_block(blocks: dict[str, Array], tree: PyTree, by: str) -> PyTree:
    """Each array's block values, shaped so that they multiply it."""

    def one(name: str, leaf: Array) -> Array:
        value = blocks[block_of(name, leaf, by)]
        return value.reshape(value.shape + (1,) * (leaf.ndim - value.ndim))

    return map_named(one, tree)


class _LocalState(NamedTuple):
    mean: PyTree  # of the gradients before
    gains: dict[str, Array]


def _scale_by_gains(local: "LocalRates") -> optax.GradientTransformation:
    by = local.by

    def init(parameters: PyTree) -> _LocalState:
        zeros = optax.tree.zeros_like(parameters)
        gains = {block: jnp.ones_like(value) for block, value in sum_by_block(zeros, by).items()}
        return _LocalState(zeros, gains)

    def update(updates: PyTree, state: _LocalState, parameters: PyTree = None) -> tuple[PyTree, _LocalState]:
        agreement = sum_by_block(optax.tree.mul(updates, state.mean), by)

        def adapt(gain: Array, agreed: Array) -> Array:
            gain = jnp.where(agreed > 0, gain + local.increase, gain)
            gain = jnp.where(agreed < 0, gain * (1.0 - local.decrease), gain)
            return jnp.clip(gain, 1.0 / local.greatest_gain, local.greatest_gain)

        gains = {block: adapt(gain, agreement[block]) for block, gain in state.gains.items()}
        mean = optax.tree.update_moment(updates, state.mean, local.memory, 1)
        direction = optax.tree.mul(updates, spread_by_block(gains, updates, by))
        return direction, _LocalState(mean, gains)

    return optax.GradientTransformation(init, update)


class LocalRates(AbstractOptimiser):
    """A rate for each layer, neuron or parameter: the learning rate times its own gain.

    gain <- gain + increase        where g . g_bar > 0, g_bar the running mean of the gradients *before* this one
    gain <- gain (1 - decrease)    where g . g_bar < 0
    g_bar <- memory g_bar + (1 - memory) g,   theta <- theta - rate gain g

    For single parameters this is delta-bar-delta (Jacobs 1988): rates rise additively and fall multiplicatively, so
    they fall faster than they rise. For layers and neurons, which the chapter names without a rule, the product is the
    inner product over the block: the same rule along the direction that the block moves in. Equal increase
    and decrease keep a gain near 1 if the signs are pure noise.
    """

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    by: str = switch(
        "neuron",
        allowed=("layer", "neuron", "parameter"),
        prior=Choice(("layer", "neuron", "parameter")),
        row="H2",
        kind="optimiser",
        about="what has its own rate",
    )
    increase: float = knob(
        0.05, allowed="[0, inf)", prior=LogUniform(0.005, 0.2), row="H2", about="added to a gain if gradients agree"
    )
    decrease: float = knob(
        0.05,
        allowed="[0, 1)",
        prior=LogUniform(0.005, 0.5),
        row="H2",
        about="the share of a gain lost if they do not",
    )
    memory: float = knob(
        0.7, allowed="[0, 1)", prior=Uniform(0.0, 0.99), row="H2", about="the share of the mean gradient that is kept"
    )
    greatest_gain: float = knob(
        10.0,
        allowed="(1, inf)",
        prior=LogUniform(3.0, 100.0),
        row="H2",
        about="gains lie between 1 / greatest_gain and greatest_gain",
    )
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(_scale_by_gains(self), scale_by_rate(self.learning_rate, self.schedule))

    def rate(self, state: PyTree) -> Scalar:
        """The learning rate that the gains multiply."""
        return present_rate(state)


# --- moves of a held size


class _HeldState(NamedTuple):
    inner: PyTree
    size: dict[str, Array]  # of the inner optimiser's moves, a slowly moving mean by block
    trust: Float[Array, ""]  # the weight that this mean rests on: 1 - memory ** updates


def _hold(held: "HeldRatio") -> optax.GradientTransformationExtraArgs:
    """Directions of the size of the weights: the inner moves turned round, times a slowly moving scale by block."""
    inner, by = held.optimiser.build(), held.by

    def init(parameters: PyTree) -> _HeldState:
        sizes = {block: jnp.zeros((), jnp.float32) for block in sum_by_block(parameters, by)}
        return _HeldState(inner.init(parameters), sizes, jnp.zeros((), jnp.float32))

    def update(updates: PyTree, state: _HeldState, parameters: PyTree, **extra: Any) -> tuple[PyTree, _HeldState]:
        moves, inner_state = inner.update(updates, state.inner, parameters, **extra)
        # Places that hold 0 and do not move (padded units) are not there: they must not dilute a mean.
        there = jax.tree.map(lambda p, m: ((p != 0) | (m != 0)).astype(jnp.float32), parameters, moves)
        count = sum_by_block(there, by)

        def size(tree: PyTree) -> dict[str, Array]:
            squares = sum_by_block(jax.tree.map(jnp.square, tree), by)
            return {block: jnp.sqrt(total / jnp.maximum(count[block], 1.0)) for block, total in squares.items()}

        now, weights = size(moves), size(parameters)
        mean = {block: held.memory * old + (1.0 - held.memory) * now[block] for block, old in state.size.items()}
        trust = held.memory * state.trust + (1.0 - held.memory)

        def scale(block: str) -> Array:
            typical = mean[block] / trust
            target = jnp.maximum(weights[block], held.floor)
            return jnp.where(typical > 0, target / jnp.where(typical > 0, typical, 1.0), 0.0)

        scales = spread_by_block({block: scale(block) for block in mean}, moves, by)
        return jax.tree.map(lambda m, s: -m * s, moves, scales), _HeldState(inner_state, mean, trust)

    return optax.GradientTransformationExtraArgs(init, update)


class HeldRatio(AbstractOptimiser):
    """Scales any optimiser's updates so that each layer moves by about `ratio` of its weights (Hinton's guide).

    m_bar <- the moving mean of rms(m), m the inner move of a layer (or of one array), corrected for its short past
    theta <- theta + ratio max(rms(theta), floor) / m_bar * m

    If each update were scaled by its own size, all would be equally long: pure noise, which is all that remains in the
    end, would move as far as a real gradient. The divisor is therefore a mean over about 1/(1 - memory)
    updates: updates keep their relative sizes, and only their mean is fixed. A fixed mean never comes
    to rest, so `schedule` lets the ratio fall as it would a rate.

    With by="layer" the biases share the scale of their weights, so arrays that start at 0 need no care. `floor` is
    the size that a block counts as having at least: with by="array" that is what gets biases off 0. Its default is
    the size of Hinton's initial weights. A constant inner learning rate cancels out: do not tune it.
    """

    optimiser: AbstractOptimiser = Sgd()
    ratio: float = knob(
        0.001,
        allowed="(0, inf)",
        prior=LogUniform(1e-5, 0.03),
        row="H2",
        about="the mean size of an update relative to the size of the weights",
    )
    by: str = switch(
        "layer",
        allowed=("layer", "array"),
        prior=Choice(("layer", "array")),
        row="H2",
        kind="optimiser",
        about="whose updates are scaled together: each layer's, or each array's of weights and of biases",
    )
    memory: float = knob(
        0.99, allowed="[0, 1)", prior=Uniform(0.9, 0.999), row="H2", about="how slowly the scale changes"
    )
    floor: float = knob(
        0.01, allowed="(0, inf)", prior=LogUniform(1e-3, 0.1), row="H2", about="lower bound on the size of the weights"
    )
    schedule: AbstractSchedule = Constant()

    def __check_init__(self) -> None:
        if isinstance(self.optimiser, (PolyakAverage, MovingAverage)):
            kind = type(self.optimiser).__name__
            raise RequestError(
                f"`HeldRatio.optimiser` is {kind}, whose average would miss the scaled moves. "
                f"Write {kind}(HeldRatio(...)) instead."
            )

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(_hold(self), scale_by_rate(self.ratio, self.schedule))

    def rate(self, state: PyTree) -> Scalar:
        """The ratio, scheduled: the inner optimiser's rate has no say."""
        return present_rate(state[1])
