"""Can the network memorise a handful of examples (row F2)?

    measured = measure_overfit(subject, key=key)           L-BFGS on a few examples, from several starting points
    measured.learned, measured.ends, measured.curves       one entry per restart, the best one first
    find_overfit(measured)                                 finding GW401

The criterion of the loss is recognised: the same outputs are evaluated with their targets in several other orders,
and a loss that is `scale * criterion + rest` on all of them is that criterion (`loss_recognition.recognise`). An
unrecognised loss is assessed by its decrease alone, and more cautiously.
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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key, PyTree

from ...records.evidence.check_evidence import OverfitEvidence
from ...records.finding import Finding
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ...runtime.files import finite
from ...specs.paths import named_leaves
from ..batch_access import count_of, inputs_of, take, targets_of, with_targets
from ..codes import found
from ..subject import Subject
from .loss_minimiser import ADAM_RATES, descend, second_try
from .loss_recognition import Recognised, orders, recognise

RESTARTS = 3
LEARNED_LOSS = 0.01  # of the loss at the start
LEARNED_RESIDUAL = 0.05  # of the targets' deviation
_STUCK = 1e-3  # of the loss at the start
_CONSTANT = 0.95  # of the criterion of the best constant
_NO_SPREAD = 1e-7  # outputs equal to the last bits; on a plateau of deep sigmoids they differ by 2e-6
_BIG = 1_000_000


@dataclasses.dataclass(frozen=True)
class OverfitMeasured:
    """How well a handful of examples was memorised; one entry per restart, the best one first.

    `wrong` is the share of misclassified examples, `residual` the root mean square error in standard deviations of the
    targets; NaN if not applicable. `spread` is how much the outputs differ between examples, relative to their
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

    def evidence(self) -> OverfitEvidence:
        curves = tuple(map(tuple, np.atleast_2d(self.curves).tolist()))
        starts, ends = (tuple(values.tolist()) for values in (self.starts, self.ends))
        return OverfitEvidence(self.examples, self.learned, starts, ends, curves)


def _rows_of(leaves: list[Any], count: int) -> np.ndarray:
    """Everything about an example in one row of numbers."""
    usable = [np.asarray(leaf, np.float64) for leaf in leaves if np.ndim(leaf) and np.shape(leaf)[0] == count]
    return np.concatenate([leaf.reshape(count, -1) for leaf in usable], axis=1) if usable else np.zeros((count, 0))


def chosen_rows(batch: Any, examples: int) -> np.ndarray:
    """The first examples whose inputs differ, covering as many classes as possible."""
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
    """The starting points: the user's own first, then nearby ones, also if all parameters are 0."""
    noise = jr.normal(key, (restarts, flat.shape[0]), flat.dtype) * sizes
    return flat + noise.at[0].set(0.0)


def _sizes(parameters: PyTree, frozen: frozenset[str]) -> Array:
    """How far each parameter is moved before a restart: a fifth of its size, 0 if it should not learn."""

    def size(name: str, leaf: Any) -> np.ndarray:
        values = np.asarray(leaf, np.float32)
        usual = 0.2 * math.sqrt(float(np.mean(np.square(values)))) if values.size else 0.0
        least = 0.1 / math.sqrt(max(1, values.shape[-1])) if values.ndim > 1 else 0.01
        return np.full(values.size, 0.0 if name in frozen else max(usual, least), np.float32)

    return jnp.asarray(np.concatenate([size(name, leaf) for name, leaf in named_leaves(parameters)]))


def _wrong(outputs: np.ndarray, targets: np.ndarray | None, task: str) -> float:
    """The share of misclassified examples; NaN if there are no classes."""
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


@dataclasses.dataclass(frozen=True, eq=False)  # arrays have no hash, and JAX may ask for one of `value`
class _Handful:
    """The examples to memorise, and the parameters as one vector.

    The noise is drawn once and used in every update: with dropout a fixed sub-network learns.
    """

    subject: Subject
    batch: Any
    count: int
    flat: Array
    tree_of: Callable[[Array], PyTree]
    sizes: Array  # by how much a restart moves each parameter; 0 if it should not learn
    noise: Key[Array, ""]
    others: np.ndarray | None  # the targets in other orders, where there are any

    def mask(self, dtype: Any) -> Array:
        return (self.sizes > 0).astype(dtype)

    def value(self, point: Array) -> Array:
        return self.subject.value(self.tree_of(point), self.batch, self.noise)

    def outputs(self, point: Array) -> Array | None:
        given = self.subject.outputs
        return None if given is None else given(self.tree_of(point), inputs_of(self.batch), self.noise)

    def reordered(self, point: Array) -> Array | None:
        """The loss of the same outputs against each other order of the targets, by which it is recognised."""
        if self.others is None or self.subject.outputs is None:
            return None

        def against(targets: Array) -> Array:
            return self.subject.value(self.tree_of(point), with_targets(self.batch, targets), self.noise)

        return jax.lax.map(against, jnp.asarray(self.others))


def _handful(subject: Subject, rows: np.ndarray, *, key: Key[Array, ""]) -> _Handful:
    batch = jax.tree.map(jnp.asarray, take(subject.batch, rows))
    flat, tree_of = ravel_pytree(jax.tree.map(jnp.asarray, subject.parameters))
    return _Handful(
        subject=subject,
        batch=batch,
        count=len(rows),
        flat=flat,
        tree_of=tree_of,
        sizes=_sizes(subject.parameters, subject.frozen_names),
        noise=keys.named(key, "overfit"),
        others=orders(targets_of(batch), len(rows), key=key),
    )


@dataclasses.dataclass(frozen=True)
class _Tried:
    """What L-BFGS came to, one entry a restart, the best one first; None for outputs that are not known."""

    points: np.ndarray  # where it started from, as they were drawn
    ends: np.ndarray
    slopes: np.ndarray
    curves: np.ndarray
    outputs: np.ndarray | None
    reordered: np.ndarray | None


def _tried(handful: _Handful, restarts: int, updates: int, memory: int, *, key: Key[Array, ""]) -> _Tried:
    """All restarts in one compiled program: side by side where there are several."""

    def one(start: Array) -> Any:
        end, loss, slope, curve = descend(handful.value, start, handful.mask(start.dtype), updates, memory)
        return loss, slope, curve, handful.outputs(end), handful.reordered(end)

    @partial(compile_quickly, size=handful.subject.size)
    def run(flat: Array) -> Any:
        points = _jittered(flat, handful.sizes, key, restarts)
        return points, (jax.vmap(one)(points) if restarts > 1 else jax.tree.map(lambda a: a[None], one(points[0])))

    points, (ends, slopes, curves, outputs, reordered) = jax.tree.map(np.asarray, run(handful.flat))
    ends = np.where(np.isfinite(ends), ends, np.inf).astype(np.float64)
    order = np.argsort(ends, kind="stable")
    return _Tried(
        points=points,
        ends=ends[order],
        slopes=np.asarray(slopes, np.float64)[order],
        curves=np.asarray(curves, np.float64)[order],
        outputs=None if outputs is None or np.ndim(outputs) < 2 else outputs[order],
        reordered=None if reordered is None else reordered[order],
    )


def _judged(handful: _Handful, tried: _Tried) -> OverfitMeasured:
    """How well the examples are memorised: by classes, by numbers, and by the recognised criterion."""
    subject, known, targets = handful.subject, tried.outputs, targets_of(handful.batch)
    told = None if targets is None else np.asarray(targets)
    blank = np.full(len(tried.ends), math.nan)
    seen = Recognised()
    if known is not None and tried.reordered is not None and handful.others is not None:
        seen = recognise(known[0], handful.others, tried.reordered[0])
    return OverfitMeasured(
        examples=handful.count,
        parameters=int(np.sum(np.asarray(handful.sizes) > 0)),
        starts=tried.curves[:, 0],
        ends=tried.ends,
        slopes=tried.slopes,
        curves=tried.curves,
        wrong=blank if known is None else np.array([_wrong(one, told, subject.task) for one in known]),
        residual=blank if known is None else np.array([_residual(one, told, subject.task) for one in known]),
        spread=blank if known is None else np.array([_spread(one) for one in known]),
        kind=seen.kind,
        criterion=seen.criterion,
        constant=seen.constant,
        penalty=seen.penalty,
        scaled=_within_units(inputs_of(handful.batch), handful.count),
        place=subject.place,
    )


def measure_overfit(
    subject: Subject, *, examples: int = 8, updates: int = 200, key: Key[Array, ""]
) -> OverfitMeasured | None:
    """Memorises a few examples of the batch with L-BFGS; None if fewer than two of them differ.

    If that fails, Adam is tried from the same starting points.
    """
    rows = chosen_rows(subject.batch, examples)
    if len(rows) < 2:
        return None
    big = subject.size > _BIG
    restarts, updates, memory = (1, min(updates, 50), 5) if big else (RESTARTS, updates, 10)
    handful = _handful(subject, rows, key=key)
    tried = _tried(handful, restarts, updates, memory, key=keys.named(key, "restarts"))
    measured = _judged(handful, tried)
    if measured.learned:
        return measured
    mask = handful.mask(tried.points.dtype)
    return dataclasses.replace(measured, second=second_try(handful.value, jnp.asarray(tried.points), mask, 2 * updates))


def find_overfit(measured: OverfitMeasured | None) -> tuple[Finding, ...]:
    """GW401: an error if the network certainly cannot, a warning if it merely did not."""
    if measured is None or measured.learned or not np.isfinite(measured.starts[0]):
        return ()
    numbers = {k: v for k, v in finite({**vars(measured), "learned": measured.learned}).items() if k != "curves"}
    handful = f"{measured.examples} different examples"
    best = float(np.fmin(measured.ends[0], measured.second))
    at_most = f"the loss went from {measured.starts[0]:.4g} to {best:.4g}"
    if measured.penalty > 0.2:
        what = f"{handful} were not memorised ({at_most}), but {measured.penalty:.0%} of it is a penalty."
        return (found("GW401", what, where=measured.place, next="check again without the penalty", level="note"),)
    if measured.parameters <= measured.examples:
        return ()
    least = np.nanmin(measured.starts)
    stuck = np.all(measured.starts - measured.ends <= _STUCK * np.abs(measured.starts)) and bool(
        np.all(measured.slopes > 1e-2) and not least - measured.second > _STUCK * abs(least)
    )
    criterion = float(np.fmin(measured.criterion, measured.second))
    at_chance = criterion >= _CONSTANT * measured.constant
    ignores = at_chance and bool(np.all(measured.spread <= _NO_SPREAD))
    easier = "gradwise.check(..., only=['gradient', 'wiring']): is the gradient right, and every input used?"
    if ignores:
        what = (
            f"{handful} cannot be memorised: {at_most}, that of the best constant, "
            f"and the outputs are the same for all of them (they differ by {measured.spread.max():.1e} of their size)."
        )
        level = "error"
    elif stuck:
        tries = f"L-BFGS from {len(measured.ends)} starting points and Adam at {len(ADAM_RATES)} rates"
        what = f"{handful} cannot be memorised: {at_most}, although the gradient is not 0 ({tries})."
        level = "error"
    elif at_chance or criterion > 0.3 * measured.constant:
        share = criterion / measured.constant
        what = (
            f"{measured.parameters} parameters did not memorise {handful}: {at_most}, "
            f"{share:.0%} of that of the best constant."
        )
        level = "warning"
    else:
        return ()
    level = level if measured.scaled else "warning"
    return (found("GW401", what, where=measured.place, next=easier, level=level, **numbers),)
