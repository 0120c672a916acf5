"""Can it learn at all (row F2): a handful of examples by heart, a start no worse than chance, a loss that goes down.

    find_overfit(measure_overfit(subject, key=key))        L-BFGS on a few examples, from several starting points
    find_start(measure_start(subject, key=key))            the first loss against that of the best constant
    find_fall(rehearsal)                                   a hundred updates of the user's own training
    find_growth(subject_growth(subject, key=key))          error against the number of examples: `checking.growth`

Which criterion the loss is, is not asked but recognised: the same outputs are judged with their targets in several
other orders, and a loss that is `scale * criterion + rest` on all of them is that criterion (`recognise`). What is not
recognised is judged by its fall alone, and more carefully.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from ..core import keys
from ..core.finding import Finding
from ..core.tree import named_leaves
from .chance import Recognised, orders, recognise
from .codes import found
from .compiling import quickly
from .growth import Growth as Growth
from .growth import find_growth as find_growth
from .growth import measure_growth as measure_growth
from .growth import recipe_growth as recipe_growth
from .growth import subject_growth as subject_growth
from .rehearsal import Rehearsal
from .subject import Subject, count_of, inputs_of, take, targets_of, with_targets

RESTARTS = 3
LEARNED_LOSS = 0.01  # of the loss at the start
LEARNED_RESIDUAL = 0.05  # of the targets' deviation
_STUCK = 1e-3  # of the loss at the start
_CONSTANT = 0.95  # of the criterion of the best constant
_NO_SPREAD = 1e-7  # outputs equal to the last bits; on a plateau of deep sigmoids they differ by 2e-6
_BIG = 1_000_000
_ADAM_RATES = (1e-3, 1e-2, 1e-1)


@dataclasses.dataclass(frozen=True)
class OverfitMeasured:
    """How a handful of examples was learned; one entry a restart, the best one first.

    `wrong` is the share of examples given another class, `residual` the root mean square error in deviations of the
    targets; not-a-number where there is none. `spread` is how much the outputs differ between examples, against their
    size. `criterion`, `constant` are the recognised criterion at the end and that of the best constant; `penalty` the
    share of the loss that does not depend on the targets.
    """

    examples: int
    parameters: int
    starts: np.ndarray
    ends: np.ndarray
    slopes: np.ndarray  # |gradient| |parameters| / |loss| at the start
    curves: np.ndarray
    wrong: np.ndarray
    residual: np.ndarray
    spread: np.ndarray
    kind: str = ""
    criterion: float = math.nan
    constant: float = math.nan
    penalty: float = math.nan
    scaled: bool = True  # whether the inputs lie within reasonable units
    second: float = math.nan  # the best loss of Adam, tried where L-BFGS failed
    place: str = ""

    @property
    def learned(self) -> bool:
        low = (self.ends < LEARNED_LOSS * self.starts) & (self.starts > 0)
        return bool(np.any(low | (self.wrong == 0) | (self.residual < LEARNED_RESIDUAL)))

    def plain(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).tolist() for name in _OVERFIT_ARRAYS}
        names = ("examples", "parameters", "kind", "criterion", "constant", "penalty", "scaled", "second")
        return {"learned": self.learned, **arrays, **{name: getattr(self, name) for name in names}}


_OVERFIT_ARRAYS = ("starts", "ends", "slopes", "curves", "wrong", "residual", "spread")


def _rows_of(leaves: list[Any], count: int) -> np.ndarray:
    """Everything about an example in one row of numbers."""
    usable = [np.asarray(leaf, np.float64) for leaf in leaves if np.ndim(leaf) and np.shape(leaf)[0] == count]
    return np.concatenate([leaf.reshape(count, -1) for leaf in usable], axis=1) if usable else np.zeros((count, 0))


def chosen_rows(batch: Any, examples: int) -> np.ndarray:
    """The first so many examples whose inputs differ, of as many classes as there are."""
    count = count_of(batch)
    rows = _rows_of(jax.tree.leaves(inputs_of(batch)), count)
    distinct = np.sort(np.unique(rows, axis=0, return_index=True)[1]) if rows.shape[1] else np.arange(count)
    present = getattr(batch, "present", None)
    if present is not None:
        distinct = distinct[np.asarray(present)[distinct] > 0]
    targets = targets_of(batch)
    if targets is not None and np.ndim(targets) == 1 and np.shape(targets)[0] == count:
        values = np.asarray(targets)[distinct]
        # The rank of an example within its class: one of each class first, then a second of each.
        rank = np.array([int(np.sum(values[:place] == value)) for place, value in enumerate(values[:4096])], int)
        distinct = distinct[: len(rank)][np.argsort(rank, kind="stable")]
    return distinct[:examples]


def _jittered(flat: Array, sizes: Array, key: Any, restarts: int) -> Array:
    """The starting points: the user's own first, then a little beside it. All zeros is a place to leave."""
    noise = jr.normal(key, (restarts, flat.shape[0]), flat.dtype) * sizes
    return flat + noise.at[0].set(0.0)


def _sizes(parameters: PyTree, frozen: frozenset[str]) -> Array:
    """How far each parameter is moved before a restart: a fifth of its kind, 0 where it is not meant to learn."""

    def size(name: str, leaf: Any) -> np.ndarray:
        values = np.asarray(leaf, np.float32)
        usual = 0.2 * math.sqrt(float(np.mean(np.square(values)))) if values.size else 0.0
        least = 0.1 / math.sqrt(max(1, values.shape[-1])) if values.ndim > 1 else 0.01
        return np.full(values.size, 0.0 if name in frozen else max(usual, least), np.float32)

    return jnp.asarray(np.concatenate([size(name, leaf) for name, leaf in named_leaves(parameters)]))


def _descend(value: Callable[[Array], Array], start: Array, mask: Array, updates: int, memory: int) -> Any:
    """L-BFGS with a line search until the gradient is gone or the updates are used up."""
    # One vector, and a search by halving: compiled in half the time that a tree and the strong Wolfe conditions take.
    search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=25, store_grad=False)
    method = optax.lbfgs(memory_size=memory, linesearch=search)

    def unfinished(carry: Any) -> Array:
        _, _, loss, steep, number, curve, _ = carry
        goes = (jnp.isfinite(loss) | (number == 0)) & (steep > 1e-9) & (loss != 0)
        return (number < updates) & goes & ~((curve[0] > 0) & (loss > 0) & (loss < 1e-5 * curve[0]))

    def turn(carry: Any) -> Any:
        # The gradient is taken in one place only: most of the time of this check goes into compiling it.
        point, state, _, _, number, curve, first = carry
        loss, slope = jax.value_and_grad(value)(point)
        slope = slope * mask
        move, state = method.update(slope, state, point, value=loss, grad=slope, value_fn=value)
        # Negative curvature may point it up its own gradient, and so down the loss of a gradient with the wrong sign.
        down = move @ slope < 0
        move = jnp.where(down, move, 0.0)
        state = jax.tree.map(lambda new, fresh: jnp.where(down, new, fresh), state, method.init(start))
        steep = jnp.linalg.norm(slope)
        own = steep * jnp.linalg.norm(point) / jnp.maximum(jnp.abs(loss), 1e-30)
        first = jnp.where(number == 0, own, first)
        return point + move * mask, state, loss, steep, number + 1, curve.at[number].set(loss), first

    far = jnp.asarray(jnp.inf, start.dtype)
    curve = jnp.full(updates + 1, jnp.nan, start.dtype)
    end = jax.lax.while_loop(unfinished, turn, (start, method.init(start), far, far, 0, curve, far))
    loss = value(end[0]).astype(start.dtype)
    return end[0], loss, end[6], end[5].at[end[4]].set(loss)


def _second_try(value: Callable[[Array], Array], starts: Array, mask: Array, updates: int) -> float:
    """The best loss of Adam at several rates, which can follow a gradient that is none (straight through)."""

    def one(start: Array, rate: Array) -> Array:
        method = optax.scale_by_adam()

        def turn(carry: Any, _: None) -> Any:
            point, state, best = carry
            loss, slope = jax.value_and_grad(value)(point)
            move, state = method.update(slope * mask, state)
            return (point - rate * move * mask, state, jnp.fmin(best, loss)), None

        (_, _, best), _ = jax.lax.scan(turn, (start, method.init(start), value(start)), None, length=updates)
        return best

    rates = jnp.asarray(_ADAM_RATES)
    several = quickly(lambda points: jax.lax.map(lambda given: one(*given), points), starts.size)
    pairs = (jnp.repeat(starts, len(rates), axis=0), jnp.tile(rates, starts.shape[0]))
    return float(np.nanmin(np.asarray(several(pairs), np.float64)))


def _wrong(outputs: np.ndarray, targets: np.ndarray | None, task: str) -> float:
    """The share of examples whose class is not the one given; not-a-number where there are no classes."""
    if targets is None or task != "classes" or targets.shape[0] != outputs.shape[0]:
        return math.nan
    flat = outputs.reshape(len(outputs), -1)
    if flat.shape[1] == 1:
        told = flat[:, 0] > (0.5 if flat.min() >= 0 and flat.max() <= 1 else 0.0)
        return float(np.mean(told != (targets > 0)))
    return float(np.mean(flat.argmax(1) != targets)) if outputs.ndim == 2 else math.nan


def _residual(outputs: np.ndarray, targets: np.ndarray | None, task: str) -> float:
    if targets is None or task != "numbers" or targets.size != outputs.size or targets.shape[0] != outputs.shape[0]:
        return math.nan
    deviation = float(np.sqrt(np.mean(np.var(targets.reshape(len(targets), -1), axis=0))))
    off = outputs.reshape(len(outputs), -1) - targets.reshape(len(targets), -1)
    return float(np.sqrt(np.mean(off**2))) / deviation if deviation > 0 else math.nan


def _spread(outputs: np.ndarray) -> float:
    """How much the outputs differ between examples, against their size."""
    flat = outputs.reshape(len(outputs), -1).astype(np.float64)
    size = float(np.sqrt(np.mean(flat**2)))
    return float(np.max(np.std(flat, axis=0))) / size if size > 0 else 0.0


def _within_units(inputs: Any, count: int) -> bool:
    rows = _rows_of([leaf for leaf in jax.tree.leaves(inputs) if np.asarray(leaf).dtype.kind == "f"], count)
    if not rows.shape[1]:
        return True
    spread = float(np.sqrt(np.mean(np.var(rows, axis=0))))
    return 1e-2 <= spread <= 1e2 and abs(float(rows.mean())) <= 30 * spread


def measure_overfit(
    subject: Subject, *, examples: int = 8, updates: int = 200, key: Key[Array, ""]
) -> OverfitMeasured | None:
    """Learns a few examples of the batch by heart with L-BFGS; None where fewer than two of them differ.

    The noise is one draw, the same at every update: with dropout a fixed part of the network learns.
    """
    rows = chosen_rows(subject.batch, examples)
    if len(rows) < 2:
        return None
    batch = jax.tree.map(jnp.asarray, take(subject.batch, rows))
    big = subject.size > _BIG
    restarts, updates, memory = (1, min(updates, 50), 5) if big else (RESTARTS, updates, 10)
    flat, tree_of = ravel_pytree(jax.tree.map(jnp.asarray, subject.parameters))
    sizes = _sizes(subject.parameters, subject.frozen_names)
    noise, jitter = keys.named(key, "overfit"), keys.named(key, "restarts")
    inputs, targets = inputs_of(batch), targets_of(batch)
    others = orders(targets, len(rows), key=key)

    def value(point: Array, given: Any = batch) -> Array:
        return subject.value(tree_of(point), given, noise)

    @partial(quickly, size=subject.size)
    def run(flat: Array) -> Any:
        def one(start: Array) -> Any:
            end, loss, slope, curve = _descend(value, start, (sizes > 0).astype(start.dtype), updates, memory)
            outputs = None if subject.outputs is None else subject.outputs(tree_of(end), inputs, noise)
            reordered = None
            if others is not None and outputs is not None:
                reordered = jax.lax.map(lambda given: value(end, with_targets(batch, given)), jnp.asarray(others))
            return loss, slope, curve, outputs, reordered

        points = _jittered(flat, sizes, jitter, restarts)
        return points, (jax.vmap(one)(points) if restarts > 1 else jax.tree.map(lambda a: a[None], one(points[0])))

    points, (ends, slopes, curves, outputs, reordered) = jax.tree.map(np.asarray, run(flat))
    ends = np.where(np.isfinite(ends), ends, np.inf).astype(np.float64)
    order = np.argsort(ends, kind="stable")
    known = None if outputs is None or np.ndim(outputs) < 2 else outputs[order]
    told = None if targets is None else np.asarray(targets)
    blank = np.full(restarts, math.nan)
    seen = Recognised()
    if known is not None and reordered is not None and others is not None:
        seen = recognise(known[0], others, reordered[order][0])
    measured = OverfitMeasured(
        examples=len(rows),
        parameters=int(np.sum(np.asarray(sizes) > 0)),
        starts=np.asarray(curves, np.float64)[order, 0],
        ends=ends[order],
        slopes=np.asarray(slopes, np.float64)[order],
        curves=np.asarray(curves, np.float64)[order],
        wrong=blank if known is None else np.array([_wrong(one, told, subject.task) for one in known]),
        residual=blank if known is None else np.array([_residual(one, told, subject.task) for one in known]),
        spread=blank if known is None else np.array([_spread(one) for one in known]),
        kind=seen.kind,
        criterion=seen.criterion,
        constant=seen.constant,
        penalty=seen.penalty,
        scaled=_within_units(inputs, len(rows)),
        place=subject.place,
    )
    if measured.learned:
        return measured
    mask = (sizes > 0).astype(points.dtype)
    return dataclasses.replace(measured, second=_second_try(value, jnp.asarray(points), mask, 2 * updates))


def find_overfit(measured: OverfitMeasured | None) -> tuple[Finding, ...]:
    """An error where the network certainly cannot; a warning where it only did not."""
    if measured is None or measured.learned or not np.isfinite(measured.starts[0]):
        return ()
    numbers = {k: v for k, v in measured.plain().items() if k != "curves"}
    handful = f"{measured.examples} different examples"
    best = float(np.fmin(measured.ends[0], measured.second))
    at_most = f"the loss went from {measured.starts[0]:.4g} to {best:.4g}"
    if measured.penalty > 0.2:
        what = f"{handful} were not learned by heart ({at_most}), but {measured.penalty:.0%} of it is a penalty."
        return (found("GW401", what, where=measured.place, next="check again without the penalty", level="note"),)
    if measured.parameters <= measured.examples:
        return ()
    least = np.nanmin(measured.starts)
    stuck = np.all(measured.starts - measured.ends <= _STUCK * np.abs(measured.starts)) and bool(
        np.all(measured.slopes > 1e-2) and not least - measured.second > _STUCK * abs(least)
    )
    at_chance = measured.criterion >= _CONSTANT * measured.constant
    ignores = at_chance and bool(np.all(measured.spread <= _NO_SPREAD))
    easier = "gradwise.check(..., only=['gradient', 'wiring']): is the gradient right, and every input used?"
    if ignores:
        what = (
            f"{handful} cannot be learned by heart: {at_most}, that of the best constant, "
            f"and the outputs are the same for all of them (they differ by {measured.spread.max():.1e} of their size)."
        )
        level = "error"
    elif stuck:
        tries = f"L-BFGS from {len(measured.ends)} starting points and Adam at {len(_ADAM_RATES)} rates"
        what = f"{handful} cannot be learned by heart: {at_most}, although the gradient is not 0 ({tries})."
        level = "error"
    elif at_chance or measured.criterion > 0.3 * measured.constant:
        share = measured.criterion / measured.constant
        what = (
            f"{handful} were not learned by heart by {measured.parameters} parameters: {at_most}, "
            f"{share:.0%} of what the best constant has."
        )
        level = "warning"
    else:
        return ()
    level = level if measured.scaled else "warning"
    return (found("GW401", what, where=measured.place, next=easier, level=level, **numbers),)


# --- the start against chance


@dataclasses.dataclass(frozen=True)
class StartMeasured:
    """The first loss, recognised. `chance` is the criterion of the best constant, `even` of one that knows nothing."""

    loss: float
    seen: Recognised
    outputs: float = math.nan  # their root mean square
    centre: float = math.nan  # mean and deviation of the targets, where they are numbers
    deviation: float = math.nan
    place: str = ""

    def plain(self) -> dict[str, Any]:
        numbers = {"loss": self.loss, "outputs": self.outputs, "centre": self.centre, "deviation": self.deviation}
        return {**numbers, **dataclasses.asdict(self.seen)}


def measure_start(subject: Subject, *, key: Key[Array, ""]) -> StartMeasured:
    """The loss at the initial parameters, and what the best constant prediction would have on the same examples."""
    batch = jax.tree.map(jnp.asarray, subject.smaller(256).batch)
    targets, noise = targets_of(batch), keys.named(key, "start")
    others = None if subject.outputs is None else orders(targets, count_of(batch), key=key)
    if others is None:
        loss = float(quickly(subject.value, subject.size)(subject.parameters, batch, noise))
        return StartMeasured(loss, Recognised(), place=subject.place)

    @partial(quickly, size=subject.size)
    def run(parameters: PyTree) -> Any:
        outputs = subject.outputs(parameters, inputs_of(batch), noise)  # type: ignore[misc]
        return outputs, jax.lax.map(
            lambda given: subject.value(parameters, with_targets(batch, given), noise), jnp.asarray(others)
        )

    outputs, values = jax.tree.map(np.asarray, run(subject.parameters))
    whole = targets_of(subject.train) if subject.train is not None else None
    seen = recognise(outputs, others, values, priors=None if whole is None else np.asarray(whole))
    numbers = np.asarray(targets, np.float64) if seen.kind in ("squared", "absolute") else np.full(1, math.nan)
    return StartMeasured(
        loss=float(values[0]),
        seen=seen,
        outputs=float(np.sqrt(np.mean(np.square(outputs, dtype=np.float64)))),
        centre=float(numbers.mean()),
        deviation=float(np.sqrt(np.mean(np.var(numbers.reshape(len(numbers), -1), axis=0)))),
        place=subject.place,
    )


def find_start(measured: StartMeasured) -> tuple[Finding, ...]:
    """A start far above chance: outputs too large at first, or targets that are not scaled."""
    seen = measured.seen
    if not seen.kind or not math.isfinite(seen.criterion):
        return ()
    if seen.kind in ("classes", "labels"):
        # Unequal classes: the even guess, and not the log-prior, is what a network may be asked to start from.
        level = max(seen.constant, seen.even)
        if seen.criterion <= 2 * level:
            return ()
        what = (
            f"the loss starts at {seen.criterion:.3g}, {seen.criterion / level:.1f} times the {level:.3g} of an even "
            f"guess: the initial outputs are too large (root mean square {measured.outputs:.3g})."
        )
        small = "start the output layer at zero or small weights, and scale the inputs to deviation 1"
        return (found("GW404", what, where=measured.place, next=small, **measured.plain()),)
    unusual = not 1e-2 <= measured.deviation <= 1e2 and measured.deviation > 0
    if seen.criterion <= 4 * seen.constant and not unusual:
        return ()
    what = (
        f"the loss starts at {seen.criterion:.3g}, {seen.criterion / max(seen.constant, 1e-30):.3g} times that of the "
        f"best constant ({seen.constant:.3g}): targets have mean {measured.centre:.3g} and deviation "
        f"{measured.deviation:.3g}, the initial outputs a root mean square of {measured.outputs:.3g}."
    )
    scale = "targets = (targets - targets.mean(0)) / targets.std(0), with the training set's mean and deviation"
    return (found("GW404", what, where=measured.place, next=scale, **measured.plain()),)


# --- the rehearsal


def fall_of(losses: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """How far a series has come down from its first fifth to its last, and the standard error of that."""
    part = max(2, len(losses) // 5)
    first, last = losses[:part], losses[-part:]
    slack = np.std(np.diff(losses)) / math.sqrt(2)  # the noise of one batch: a trend hardly changes differences
    return float(np.mean(first) - np.mean(last)), float(slack * math.sqrt(2 / part))


def find_fall(rehearsal: Rehearsal, *, place: str = "") -> tuple[Finding, ...]:
    """A warning where a hundred updates certainly took less than 2 % off the loss though there was a gradient."""
    losses = rehearsal.losses
    moving = np.isfinite(rehearsal.gradients).all() and bool(np.median(rehearsal.gradients.max(axis=1)) > 1e-8)
    if len(losses) < 10 or not np.isfinite(losses).all() or not moving:
        return ()
    fall, error = fall_of(losses)
    first = float(np.mean(losses[: max(2, len(losses) // 5)]))
    if fall + 2 * error >= 0.02 * abs(first) or fall > 2 * error:
        return ()
    with_what = "Adam at 0.001" if rehearsal.stand_in else "your optimiser"
    what = (
        f"the loss does not go down: {len(losses)} updates with {with_what} took it from {first:.4g} to "
        f"{first - fall:.4g} (noise {error:.1g}), though the gradient is not 0."
    )
    step = "gradwise.check(..., only=['gradient', 'rates']): is the gradient right, and which rate trains?"
    return (found("GW405", what, where=place, next=step, fall=fall, error=error, losses=losses.tolist()),)
