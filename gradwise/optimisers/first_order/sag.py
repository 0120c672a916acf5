"""The stochastic average gradient (row C9): every update moves along the mean of all examples' last gradients.

    Sag()                       the step 1/L, L found by the line search
    Sag(safety=1 / 16)          the step of the theory
    Sag(smoothness=3.5)         a known L: for logistic regression max |x|^2 / 4 plus the penalty's curvature

With y_i the last gradient of example i, d their sum over the m examples seen so far and Omega the penalty,

    d <- d - y_i + f_i'(theta),   y_i <- f_i'(theta),   theta <- theta - (1/L) [d / m + Omega'(theta) / T].

One example costs little more than in plain stochastic descent, but on a strongly convex sum the distance to the
optimum shrinks by a constant factor each pass (Le Roux, Schmidt and Bach 2012). With B examples in an update all B are
renewed. The method needs independently drawn examples: in orders that visit each example once an epoch all of d is
about an epoch old, and at steps like 1/L it oscillates around the optimum for ever. So `Sag` draws its own B examples
from the training set for each update, whatever the order of the recipe's batches; `order="given"` takes theirs.

Each example's gradient is stored in the shortest form that the parameters allow:

| network                              | kept of an example                                             | numbers  |
|--------------------------------------|----------------------------------------------------------------|----------|
| one matrix, linear in its parameters | the loss's slope in the outputs (the inputs are the data)      | k        |
| others, weights used as W @ h        | slope and input of each matrix (h moves with the layers below) | in + out |
| `memory="whole"`, and other shapes   | the gradient                                                   | in x out |

Sparse inputs save memory only. Published code also postpones updates of weights whose input is 0, and stores the
penalty's shrinkage as one number. Here examples are dense on the device and the weights must be current after every
update, because the next gradient, the penalty and validation read them; this costs one fused pass over them per update.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ...curvature.example_gradients import Terms, example_terms, is_linear
from ...curvature.objective import Objective
from ...runtime.errors import RequestError
from ...runtime.keys import named, scramble
from ...runtime.memory import require_memory
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob, switch
from ...specs.paths import named_leaves
from ...specs.priors import LogUniform, ZeroOr

_NAME = "Sag"
_SMALL = 1e-8  # the line search trusts no gradient whose squared length is below (the paper's number)
_DOUBLINGS = 60  # at most, in one update: a criterion with a kink may refuse every L
_ROUNDINGS = 8.0  # relative errors of the criterion that must not pass for curvature: in 32 bits they soon would

Kept = tuple[Array, ...]  # of one parameter: (slopes, inputs) in the order of its axes, or (gradients,)


class _SagState(NamedTuple):
    total: PyTree  # d, the sum of the gradients kept
    memory: tuple[Kept, ...]
    seen: Bool[Array, " T"]
    distinct: Int[Array, ""]  # m
    smoothness: Float[Array, ""]  # L
    rate: Float[Array, ""]


# --- what is kept of each example


def _outputs(parameters: PyTree) -> int:
    """The outputs of a linear network, told by its parameters' shapes: a matrix, and a bias or none; 0 for others."""
    leaves = jax.tree.leaves(parameters)
    matrices = [leaf.shape for leaf in leaves if leaf.ndim == 2]
    biases = [leaf.shape[0] for leaf in leaves if leaf.ndim == 1]
    if len(matrices) != 1 or len(biases) > 1 or len(leaves) != 1 + len(biases):
        return 0
    return int(biases[0] if biases else matrices[0][0])


def _room(parameters: PyTree, examples: int, memory: str) -> tuple[tuple[Any, ...], ...]:
    """Shapes and types of what is kept; one entry for each parameter, or a single one for a linear network."""
    leaves = jax.tree.leaves(parameters)
    outputs = _outputs(parameters) if memory == "short" else 0
    if outputs:
        return ((jax.ShapeDtypeStruct((examples, outputs), leaves[0].dtype),),)

    def kept(leaf: Array) -> tuple[Any, ...]:
        shapes: tuple[tuple[int, ...], ...] = (leaf.shape,)
        if memory == "short" and leaf.ndim == 2 and sum(leaf.shape) < leaf.size:
            shapes = ((leaf.shape[0],), (leaf.shape[1],))
        return tuple(jax.ShapeDtypeStruct((examples, *shape), leaf.dtype) for shape in shapes)

    return tuple(kept(leaf) for leaf in leaves)


def _refuse_too_much(room: tuple[tuple[Any, ...], ...], memory: str) -> None:
    needed = sum(one.size * one.dtype.itemsize for one in jax.tree.leaves(room))
    stats = jax.local_devices()[0].memory_stats() or {}
    remedy = 'memory="short", fewer examples' if memory == "whole" else "fewer examples, a smaller network"
    what = f"{_NAME} stores the gradients of all training examples, which need"
    require_memory(needed, what, f"Use {remedy} or another optimiser.", share=0.25, free=stats.get("bytes_limit"))


def _of_linear(objective: Objective, parameters: PyTree) -> tuple[tuple[Kept, ...], Callable[..., PyTree]]:
    """The loss's slopes in the outputs; a change of them is pulled back through the data at once."""
    criterion = objective.summed(_NAME)
    outputs, pull = jax.vjp(objective.outputs, parameters)
    slopes = jax.vmap(jax.grad(criterion.of_output))(outputs, objective.batch.targets)

    def change(new: tuple[Kept, ...], old: tuple[Kept, ...], taken: Float[Array, " B"]) -> PyTree:
        return pull(taken[:, None] * (new[0][0] - old[0][0]))[0]

    return ((objective.batch.weights[:, None] * slopes,),), change


def _change_of_one(new: Kept, old: Kept, taken: Float[Array, " B"]) -> Array:
    if len(new) == 1:
        return jnp.einsum("b,b...->...", taken, new[0] - old[0])
    return jnp.einsum("b,bi,bj->ij", taken, *new) - jnp.einsum("b,bi,bj->ij", taken, *old)


def _factors(terms: Terms, number: int, name: str) -> Kept:
    """Slope and input of one weight matrix, the one along its first axis first."""
    if number not in terms.inputs:
        raise RequestError(
            f"{_NAME} keeps slope and input of each weight matrix, but `{name}` is used otherwise than in one product "
            f'W @ x. Use {_NAME}(memory="whole") or another optimiser.'
        )
    slopes = terms.weights[:, None] * terms.slopes[number][:, 0]
    inputs = terms.inputs[number]
    return (inputs, slopes) if number in terms.flipped else (slopes, inputs)


def _of_network(
    objective: Objective, parameters: PyTree, memory: tuple[Kept, ...]
) -> tuple[tuple[Kept, ...], Callable[..., PyTree]]:
    """Each parameter for itself: as factors where two arrays are kept of it, else written out."""
    terms = example_terms(objective, parameters, _NAME)
    names = [name for name, _ in named_leaves(parameters)]
    whole = jax.tree.leaves(terms.written_out())  # those that are not read are never computed

    def weighted(gradients: Array) -> Array:
        return jnp.einsum("b,b...->b...", terms.weights, gradients)

    def change(new: tuple[Kept, ...], old: tuple[Kept, ...], taken: Float[Array, " B"]) -> PyTree:
        leaves = [_change_of_one(one, before, taken) for one, before in zip(new, old, strict=True)]
        return jax.tree.unflatten(terms.structure, leaves)

    new = tuple(
        _factors(terms, number, names[number]) if len(kept) == 2 else (weighted(whole[number]),)
        for number, kept in enumerate(memory)
    )
    return new, change


def _drawn(objective: Objective) -> Objective:
    """The criterion on as many examples, each drawn from the whole training set."""
    slots = objective.batch.present.shape[0]
    # A mixer over a counter: the cipher behind `jax.random` would cost more than the rest of an update.
    first, second = jr.key_data(named(objective.key, _NAME))
    numbers = jnp.asarray(objective.update, jnp.uint32) * slots + jnp.arange(slots, dtype=jnp.uint32)
    rows = scramble(scramble(numbers + first) ^ second) % jnp.uint32(len(objective.train))
    return objective.on(rows.astype(jnp.int32), objective.batch.present)


class _Places(NamedTuple):
    """Where a batch's examples are kept: for each slot its row, the slot whose value is written there, whether any."""

    rows: Int[Array, " S"]
    head: Int[Array, " S"]
    renewed: Bool[Array, " S"]
    counts: Float[Array, " B"]  # 1 for a slot in use, of an example that stands in several only the first

    def exchange(self, kept: Array, new: Array) -> tuple[Array, Array]:
        """What was kept, slot by slot, and all that is kept now.

        Unused slots write too, and the same as the others of their row, so that the writing waits for the reading: else
        the compiler would copy the whole memory in every update.
        """
        old = kept[self.rows]
        value = jnp.where(jnp.expand_dims(self.renewed, tuple(range(1, new.ndim))), new[self.head], old)
        value = value.astype(kept.dtype)
        if new.shape[0] == 1:  # a slice is written with fewer small programs than scattered rows
            return old[:1], jax.lax.dynamic_update_slice_in_dim(kept, value[:1], self.rows[0], 0)
        return old[: new.shape[0]], kept.at[self.rows].set(value)


def _places(rows: Int[Array, " B"], present: Float[Array, " B"]) -> _Places:
    used = present > 0
    slots = jnp.arange(rows.shape[0])
    if rows.shape[0] == 1:
        # Twice the same: a single row would be read as a slice wherever it is used, and the memory copied so that all
        # these could still read it.
        twice = jnp.zeros(2, slots.dtype)
        return _Places(rows[twice], twice, used[twice], present)
    order = jnp.lexsort((~used, rows))
    first = jnp.concatenate([jnp.ones(1, bool), rows[order][1:] != rows[order][:-1]])
    begins = jax.lax.cummax(jnp.where(first, slots, 0))
    head = jnp.zeros_like(slots).at[order].set(order[begins])
    counts = ((head == slots) & used).astype(present.dtype)
    return _Places(rows, head, used[head], counts)


# --- the step


def _searched(
    objective: Objective, parameters: PyTree, value: Scalar, gradient: PyTree, share: Scalar, smoothness: Scalar
) -> Scalar:
    """L, doubled while f(theta - f'/L) > f(theta) - |f'|^2 / (2L), where f is the mean criterion of the batch."""
    value = share * value
    gradient = optax.tree.scale(share, gradient)
    square = sum((jnp.sum(g**2) for g in jax.tree.leaves(gradient)), start=jnp.zeros(()))
    allowance = _ROUNDINGS * jnp.finfo(value.dtype).eps * jnp.abs(value)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        present, _, tries = carry
        there = share * objective(jax.tree.map(lambda p, g: p - g / present, parameters, gradient))
        low = there <= value - square / (2.0 * present) + allowance  # not-a-number is not low
        return jnp.where(low, present, 2.0 * present).astype(present.dtype), ~low, tries + 1

    asked = (square > _SMALL) & jnp.isfinite(value) & jnp.isfinite(square)
    start = (smoothness, asked, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[1] & (carry[2] < _DOUBLINGS), body, start)[0]


class Sag(AbstractOptimiser):
    """Stochastic average gradient of Le Roux, Schmidt and Bach (2012).

    theta <- theta - (safety / L) [d / m + Omega'(theta) / T], d the sum of the m gradients kept. The penalty's gradient
    is that of the present point: for L2, theta is shrunk exactly. Without `smoothness`, L starts at 1; each update
    doubles it while f(theta - f'/L) > f(theta) - |f'|^2 / (2L) on its batch, wherever |f'|^2 > 1e-8, then multiplies it
    by 2^(-B/T). Where noise (dropout) enters the network, the gradient kept is that of the noise of its visit.
    """

    needs_objective = True
    safety: float = knob(
        1.0,
        allowed="(0, inf)",
        prior=LogUniform(0.0625, 2.0),
        row="C9",
        about="the step times L: 1 works in practice, 1/16 is proven by the theory",
    )
    smoothness: float = knob(
        0.0,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(0.01, 1e4)),
        row="C9",
        off=0.0,
        about="L, the largest curvature of one example's criterion, if known; 0 finds it by a line search",
    )
    memory: str = switch(
        "short",
        allowed=("short", "whole"),
        row="C9",
        kind="optimiser",
        about="what is stored of an example: slopes, with inputs if they change, or its whole gradient",
    )
    order: str = switch(
        "drawn",
        allowed=("drawn", "given"),
        row="C9",
        kind="optimiser",
        about="drawn with replacement for each update, or given by the recipe's batches",
    )
    examples: int = switch(
        0, allowed="[0, inf)", row="C9", kind="optimiser", about="room for the training examples; set by fit"
    )

    def sized(self, examples: int) -> "Sag":
        return dataclasses.replace(self, examples=examples)

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _SagState:
            if self.examples == 0:
                raise RequestError(f"{_NAME} has no room for examples yet. Use `sized(T)`, as `fit` does.")
            room = _room(parameters, self.examples, self.memory)
            _refuse_too_much(room, self.memory)
            smoothness = jnp.asarray(1.0 if is_off(self.smoothness) else self.smoothness, float)
            return _SagState(
                total=optax.tree.zeros_like(parameters),
                memory=jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), room),
                seen=jnp.zeros(self.examples, bool),
                distinct=jnp.zeros((), jnp.int32),
                smoothness=smoothness,
                rate=jnp.asarray(self.safety / smoothness, float),
            )

        def update(
            updates: PyTree, state: _SagState, parameters: PyTree = None, *, value: Any, objective: Objective, **_: Any
        ) -> tuple[PyTree, _SagState]:
            return self._update(updates, state, parameters, value, objective)

        return optax.GradientTransformationExtraArgs(init, update)

    def _update(
        self, gradient: PyTree, state: _SagState, parameters: PyTree, value: Any, objective: Objective
    ) -> tuple[PyTree, _SagState]:
        self._check(state, parameters, objective)
        if self.order == "drawn":
            objective = _drawn(objective)
            value, gradient = objective.value_and_gradient(parameters)
        batch = objective.batch
        slots = jnp.sum(batch.present)
        share = batch.present.shape[0] / jnp.maximum(slots, 1.0)  # of a short last batch, the mean over its own

        if is_off(self.smoothness):
            smoothness = _searched(objective, parameters, jnp.asarray(value), gradient, share, state.smoothness)
        else:
            smoothness = jnp.asarray(self.smoothness, state.smoothness.dtype)
        rate = jnp.asarray(self.safety / smoothness, state.rate.dtype)

        if self._is_short(parameters):
            new, change = _of_linear(objective, parameters)
        else:
            new, change = _of_network(objective, parameters, state.memory)
        places = _places(objective.rows, batch.present)
        known, seen = places.exchange(state.seen, jnp.ones(batch.present.shape, bool))
        pairs = [
            [places.exchange(*one) for one in zip(*both, strict=True)] for both in zip(state.memory, new, strict=True)
        ]
        old, memory = (tuple(tuple(pair[side] for pair in kept) for kept in pairs) for side in (0, 1))
        moved = change(new, old, places.counts)
        total = jax.tree.map(lambda d, c: d + c.astype(d.dtype), state.total, moved)
        distinct = state.distinct + jnp.sum((places.counts > 0) & ~known, dtype=jnp.int32)

        penalty = jax.grad(lambda point: share * objective.penalty(point, _NAME))(parameters)
        scale = jnp.where(slots > 0, rate, 0.0)
        mean = 1.0 / jnp.maximum(distinct, 1)
        moves = jax.tree.map(lambda d, p: (-scale * (mean * d + p)).astype(d.dtype), total, penalty)
        if is_off(self.smoothness):
            smoothness = (smoothness * 2.0 ** (-slots / batch.total)).astype(smoothness.dtype)
        return moves, _SagState(total, memory, seen, distinct, smoothness, rate)

    def _is_short(self, parameters: PyTree) -> bool:
        return self.memory == "short" and _outputs(parameters) > 0

    def _check(self, state: _SagState, parameters: PyTree, objective: Objective) -> None:
        """Refuses, while the update is traced, what the memory was not made for."""
        objective.check_alone(parameters, _NAME)
        if state.seen.shape[0] != len(objective.train):
            raise RequestError(
                f"{_NAME} keeps something of {state.seen.shape[0]} training examples, but there are "
                f"{len(objective.train)}: a run can be continued on the same training part only."
            )
        if self._is_short(parameters):
            outputs = jax.eval_shape(objective.outputs, parameters).shape[1]
            if outputs != _outputs(parameters) or not is_linear(objective, parameters):
                raise RequestError(
                    f"{_NAME} keeps only the slopes of a network with one weight matrix, but this one's outputs are "
                    f'not linear in its parameters, or noisy. Use {_NAME}(memory="whole") or another optimiser.'
                )

    def rate(self, state: PyTree) -> Scalar:
        return state.rate
