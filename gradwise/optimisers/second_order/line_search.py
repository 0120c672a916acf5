"""A strong-Wolfe line search, and the descent along searched directions that batch methods share (rows C11, H7).

    found = wolfe_search(look, value, slope, 1.0, steps=20, tolerance=0.9)
    point = point + found.step * direction          step 0 where no lower point was found

    descent(method, iterations=1, steps=20, tolerance=0.9)      the transformation; `method` gives the directions

Optax has line searches too (`scale_by_zoom_linesearch`, `scale_by_backtracking_linesearch`). They do not work here:
one that fails still moves to its last finite trial, higher or not, and reports it only afterwards, in its `info`; a
gradwise run must stay where it is and end as "stalled".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar, UInt32

from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...runtime.keys import scramble
from ...runtime.line_search_state import LineSearch, line_search
from ...specs.priors import LogInteger, LogUniform
from .searched_criterion import line_of

_SUFFICIENT = 1e-4  # the share of the fall that the first slope promises which counts as a decrease (Armijo 1966)
_ROUNDING = 8.0  # sums over many examples are known to so many units in their last place
_BLIND = 10.0  # up to so many roundings of promised fall the criterion says nothing, and the slopes decide
_MARGIN = 0.1  # a trial keeps this share of the bracket between itself and either end
_INTO_THE_FINITE = 0.2  # how far towards a point that is not finite to go
_GROWTH = 9.0  # how far beyond the last trial the next may lie, while all are downhill, in distances between the last

LINE_STEPS: dict[str, Any] = {
    "allowed": "[1, inf)",
    "prior": LogInteger(3, 40),
    "row": "C11",
    "about": "maximal evaluations of criterion and gradient per line search",
}
TOLERANCE: dict[str, Any] = {
    "allowed": "(0, 1)",
    "prior": LogUniform(0.01, 0.9),
    "row": "C11",
    "about": "a line search stops when the slope is at most this share of the first",
}


def rounding_of(value: Scalar) -> Scalar:
    """How far two evaluations of a criterion of this size may differ by rounding alone."""
    return _ROUNDING * jnp.finfo(value.dtype).eps * jnp.abs(value)


# --- one search


class Found(NamedTuple):
    """Where a search ended: the step, the value and what was kept there. Without success the step is 0."""

    step: Scalar
    value: Scalar
    kept: Array
    found: Bool[Array, ""]


class _Probe(NamedTuple):
    """What is known at one step along the line."""

    step: Scalar
    value: Scalar
    slope: Scalar


class _Search(NamedTuple):
    trial: Scalar
    low: _Probe  # the end of the bracket from which the criterion falls into it
    high: _Probe
    closed: Bool[Array, ""]  # whether `high` is known: until then the search goes outwards
    tried: Int[Array, ""]
    done: Bool[Array, ""]
    best: Found


def _parts(now: _Search) -> tuple[Any, Array]:
    """The numbers of a search, and what it keeps."""
    best = now.best
    return (*now[:-1], (best.step, best.value, best.found)), best.kept


def _packed(now: _Search) -> tuple[Array, Array]:
    """All numbers as one array: to a compiler each number of a loop is a program of its own, and so is an array."""
    numbers, kept = _parts(now)
    return jnp.stack([number.astype(now.trial.dtype) for number in jax.tree.leaves(numbers)]), kept


def _unpacked(packed: tuple[Array, Array], like: _Search) -> _Search:
    leaves, shape = jax.tree.flatten(_parts(like)[0])
    numbers = [number.astype(leaf.dtype) for number, leaf in zip(packed[0], leaves, strict=True)]
    trial, low, high, closed, tried, done, (step, value, found) = jax.tree.unflatten(shape, numbers)
    return _Search(trial, low, high, closed, tried, done, Found(step, value, packed[1], found))


def _select(chosen: Bool[Array, ""], one: PyTree, other: PyTree) -> Any:
    # What both share is left alone: a memory may be many times as large as the parameters.
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(chosen, a, b), one, other)


def _inside(low: _Probe, high: _Probe, blind: Scalar, halve: Bool[Array, ""]) -> Scalar:
    """The next trial within a bracket: the least point of the cubic through both ends' values and slopes, or where
    the line through the slopes is 0 if the values differ by no more than rounding."""
    width = high.step - low.step
    rise = 3.0 * (high.value - low.value) / width
    bend = low.slope + high.slope - rise
    root = jnp.sqrt(jnp.maximum(bend**2 - low.slope * high.slope, 0.0)) * jnp.sign(width)
    cubic = 1.0 - (high.slope + root - bend) / (high.slope - low.slope + 2.0 * root)
    secant = low.slope / (low.slope - high.slope)
    share = jnp.where(jnp.abs(high.value - low.value) > blind, cubic, secant)
    share = jnp.where(jnp.isfinite(share) & ~halve, jnp.clip(share, _MARGIN, 1.0 - _MARGIN), 0.5)
    share = jnp.where(jnp.isfinite(high.value), share, _INTO_THE_FINITE)
    return low.step + share * width


def _outside(before: _Probe, last: _Probe) -> Scalar:
    """The next trial beyond two downhill ones: where the line through their slopes is 0, within reason."""
    moved = last.step - before.step
    bent = last.slope / (before.slope - last.slope)
    ahead = jnp.where(last.slope > before.slope, jnp.clip(bent, 1.0, _GROWTH), _GROWTH)
    return last.step + moved * ahead


class _Bracket(NamedTuple):
    """The interval that holds an acceptable step, whether both its ends are known, and whether it is used up."""

    low: _Probe
    high: _Probe
    closed: Bool[Array, ""]
    spent: Bool[Array, ""]
    following: Scalar  # the step to try next


def _bracketed(now: "_Search", trial: _Probe, ceiling: Scalar, rounding: Scalar) -> _Bracket:
    """The bracket after a trial; `ceiling` is the height above which the trial is no sufficient decrease."""
    low, high = now.low, now.high
    worse = (trial.value > ceiling + rounding) | (trial.value > low.value + rounding)
    forward = jnp.where(now.closed, high.step - low.step, 1.0)
    turned = ~worse & (trial.slope * forward >= 0)
    closed = now.closed | worse | turned
    new_high = _select(worse, trial, _select(turned, low, high))
    new_low = _select(worse, low, trial)
    width = jnp.abs(new_high.step - new_low.step)
    slow = now.closed & (width > 2.0 / 3.0 * jnp.abs(high.step - low.step))
    following = jnp.where(closed, _inside(new_low, new_high, rounding, slow), _outside(low, trial))
    spent = closed & (width <= jnp.finfo(width.dtype).eps * new_high.step)
    return _Bracket(new_low, new_high, closed, spent, following)


def wolfe_search(
    look: Callable[[Scalar], tuple[Scalar, Scalar, Array]],
    value: Scalar,
    slope: Scalar,
    first_step: Any,
    *,
    steps: Any,
    tolerance: Any,
) -> Found:
    """A step t along a direction with a sufficient decrease and a small slope (the strong conditions of Wolfe 1969):

        f(t) <= f(0) + 1e-4 t f'(0)   and   |f'(t)| <= tolerance |f'(0)|

    by bracketing and interpolation (Nocedal and Wright 2006, section 3.5). `look(t)` returns f(t), f'(t) and what to
    keep of the point; `value` and `slope` are those at 0. At most `steps` points are tried. If none meets both
    conditions, the lowest with a sufficient decrease is taken; if there is none, the search fails. Values that are not
    finite count as infinitely high.

    If the decrease that the slope promises is smaller than the rounding error of the criterion, a value no higher than
    rounding explains and the second condition are enough (the approximate conditions of Hager and Zhang 2005), so the
    optimum is reached in 32 bits too.
    """
    kind = jnp.result_type(value)
    slope, tolerance = jnp.asarray(slope, kind), jnp.asarray(tolerance, kind)

    def body(now: _Search) -> _Search:
        height, tilt, kept = look(now.trial)
        height, tilt = jnp.asarray(height, kind), jnp.asarray(tilt, kind)
        finite = jnp.isfinite(height) & jnp.isfinite(tilt)
        trial = _Probe(now.trial, jnp.where(finite, height, jnp.inf), jnp.where(finite, tilt, jnp.inf))

        rounding = rounding_of(jnp.maximum(jnp.abs(value), jnp.where(finite, jnp.abs(height), 0.0)))
        promised = now.trial * slope
        lower = (trial.value <= value + _SUFFICIENT * promised) & (trial.value < value)
        level = (trial.value <= value + rounding) & (-promised <= _BLIND * rounding)
        gentle = jnp.abs(trial.slope) <= -tolerance * slope
        done = (lower | level) & gentle
        keep = done | (lower & (trial.value < now.best.value))
        here = Found(now.trial, trial.value, kept, jnp.ones((), bool))

        ends = _bracketed(now, trial, value + _SUFFICIENT * promised, rounding)
        best = _select(keep, here, now.best)
        return _Search(ends.following, ends.low, ends.high, ends.closed, now.tried + 1, done | ends.spent, best)

    def going(now: _Search) -> Bool[Array, ""]:
        return ~now.done & (now.tried < steps)

    zero, no = jnp.zeros((), kind), jnp.zeros((), bool)
    start = _Probe(zero, value, slope)
    hopeless = ~(jnp.isfinite(value) & jnp.isfinite(slope) & (slope < 0))
    room = jax.eval_shape(look, zero)[2]
    nothing = Found(zero, value, jnp.zeros(room.shape, room.dtype), no)
    begin = _Search(jnp.asarray(first_step, kind), start, start, no, jnp.zeros((), jnp.int32), hopeless, nothing)
    end = jax.lax.while_loop(
        lambda packed: going(_unpacked(packed, begin)),
        lambda packed: _packed(body(_unpacked(packed, begin))),
        _packed(begin),
    )
    return _unpacked(end, begin).best


# --- one update: directions from a method, each searched


class Move(NamedTuple):
    """A successful step: its length along the direction, the first slope, and the batch's gradient at both ends."""

    step: Scalar
    direction: Float[Array, " n"]
    slope: Scalar
    before: Float[Array, " n"]
    after: Float[Array, " n"]


class Method(NamedTuple):
    """How directions are found. All parameters stand in one vector; `forget` leaves the gradient's own direction."""

    init: Callable[[Float[Array, " n"]], PyTree]
    aim: Callable[[PyTree, Float[Array, " n"]], tuple[Float[Array, " n"], Scalar]]  # direction and first step
    learn: Callable[[PyTree, Move], PyTree]
    forget: Callable[[PyTree], PyTree]


class _Known(NamedTuple):
    """Where the last search ended: the point, the batch's mark, value and gradient."""

    point: Float[Array, " n"]
    examples: UInt32[Array, ""]
    value: Scalar
    gradient: Float[Array, " n"]


class DescentState(NamedTuple):
    """What is known of the curvature, the last step, what is known of the present point, failures in a row."""

    memory: PyTree
    step: Float[Array, ""]
    known: _Known
    searches: LineSearch


class _Iteration(NamedTuple):
    number: Int[Array, ""]
    failures: Int[Array, ""]  # in a row, on this batch
    step: Scalar
    found: Bool[Array, ""]  # whether any search of this update succeeded
    moved: Float[Array, " n"]
    memory: PyTree
    known: _Known


def cautious_step(gradient: Float[Array, " n"]) -> Scalar:
    """The first step along the gradient itself: at most 1, and no longer than 1 in the space of the parameters."""
    return 1.0 / jnp.maximum(jnp.linalg.norm(gradient), 1.0)


def all_products(*vectors: Float[Array, " n"]) -> Float[Array, "k k"]:
    """The products of some vectors with one another, in one product of matrices: on a CPU each sum of its own would be
    three small programs, and beside a criterion of few parameters they would show."""
    rows = jnp.stack(vectors)
    return jnp.matmul(rows, rows.T, precision=jax.lax.Precision.HIGHEST)


def _aimed(method: Method, memory: PyTree, gradient: Array) -> tuple[PyTree, Array, Scalar, Scalar]:
    """Memory, direction, slope and first step; where the method does not lead downhill, along the gradient."""
    direction, first = method.aim(memory, gradient)
    (square, slope), (_, length) = all_products(gradient, direction)
    least = jnp.finfo(gradient.dtype).eps * jnp.sqrt(square) * jnp.sqrt(length)
    downhill = jnp.isfinite(slope) & (slope < -least) & jnp.isfinite(first) & (first > 0)
    known = (memory, direction, slope, first)
    anew = (method.forget(memory), -gradient, -square, cautious_step(gradient))
    return _select(downhill, known, anew)


def _is_noisy(objective: Objective, parameters: PyTree) -> bool:
    """Whether the criterion draws on an update's noise (dropout, mixup), as read off its traced program."""

    def value(key: Array) -> Scalar:
        return eqx.tree_at(lambda one: one.key, objective, key)(parameters)

    program = jax.make_jaxpr(value)(objective.key).jaxpr
    needed = set(program.outvars)
    for step in reversed(program.eqns):
        if not needed.isdisjoint(step.outvars):
            needed.update(one for one in step.invars if not hasattr(one, "val"))  # what has a value is a constant
    return program.invars[0] in needed


def _mark(objective: Objective) -> UInt32[Array, ""]:
    """A number for the set of a batch's examples, whatever their order."""
    each = scramble(objective.rows.astype(jnp.uint32))
    return jnp.sum(jnp.where(objective.batch.present > 0, each, 0), dtype=jnp.uint32)


def _here(
    known: _Known, point: Array, given: tuple[Scalar, PyTree], objective: Objective, parameters: PyTree
) -> tuple[UInt32[Array, ""], Scalar, Float[Array, " n"]]:
    """The batch's mark, and value and gradient at the present point.

    On the whole training set without noise the last search ended with both: then nothing is computed anew, and the work
    of an update is halved. A point that someone else moved since is seen.
    """
    if objective.batch.inputs.shape[0] < len(objective.train) or _is_noisy(objective, parameters):
        return known.examples, given[0], ravel_pytree(given[1])[0]
    mark = _mark(objective)
    near = jnp.abs(point - known.point) <= _ROUNDING * jnp.finfo(point.dtype).eps * jnp.abs(point)
    same = jnp.all(near) & (mark == known.examples) & jnp.isfinite(known.value)

    def anew(_: Any) -> Any:
        value, gradient = objective.value_and_gradient(parameters)
        return value, ravel_pytree(gradient)[0]

    return mark, *run_when(~same, anew, (known.value, known.gradient))


def descent(
    method: Method, *, iterations: int, steps: Any, tolerance: Any, often: bool = False
) -> optax.GradientTransformationExtraArgs:
    """Some iterations of a method on each batch: aim, search, learn. `often` says that its searches look about twice.

    A failed search forgets what was learned, so that the next goes along the gradient; if that fails too the batch is
    left, and two such updates in a row end the run.
    """

    def init(parameters: PyTree) -> DescentState:
        point = ravel_pytree(parameters)[0]
        copy, unknown = jnp.zeros_like(point), jnp.full((), jnp.nan, point.dtype)
        known = _Known(copy, jnp.zeros((), jnp.uint32), unknown, jnp.zeros_like(point))
        return DescentState(method.init(point), jnp.ones((), jnp.float32), known, line_search())

    def update(updates: PyTree, state: DescentState, parameters: PyTree = None, **extra: Any) -> Any:
        objective: Objective = extra["objective"]
        point, restored = ravel_pytree(parameters)
        line_along = line_of(objective, restored, parameters, often=often)
        mark, value, gradient = _here(state.known, point, (jnp.asarray(extra["value"]), updates), objective, parameters)

        def iterate(now: _Iteration) -> _Iteration:
            here = now.known
            memory, direction, slope, first = _aimed(method, now.memory, here.gradient)
            line = line_along(here.point, direction)
            there = wolfe_search(line.look, here.value, slope, first, steps=steps, tolerance=tolerance)
            found = there.found
            after = jnp.where(found, line.gradient(there.kept, there.step), here.gradient)
            memory = method.learn(memory, Move(there.step, direction, slope, here.gradient, after))
            # Of a direction that is not finite not even a step of 0 may be taken.
            move = jnp.where(found, there.step * direction, 0.0)
            return _Iteration(
                now.number + 1,
                jnp.where(found, 0, now.failures + 1),
                jnp.where(found, there.step, now.step),
                now.found | found,
                now.moved + move,
                _select(found, memory, method.forget(memory)),
                _Known(here.point + move, mark, there.value, after),
            )

        none = jnp.zeros((), jnp.int32)
        here = _Known(point, mark, value, gradient)
        step = state.step.astype(value.dtype)
        begin = _Iteration(none, none, step, jnp.zeros((), bool), jnp.zeros_like(point), state.memory, here)
        if iterations == 1:
            end = iterate(begin)
        else:
            end = jax.lax.while_loop(lambda now: (now.number < iterations) & (now.failures < 2), iterate, begin)
        new = DescentState(end.memory, end.step.astype(jnp.float32), end.known, state.searches.after(end.found))
        return restored(end.moved), new

    return optax.GradientTransformationExtraArgs(init, update)
