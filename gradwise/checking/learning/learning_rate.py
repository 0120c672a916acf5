"""The learning rate (rows B2, H5, F18) and the mini-batch size (J5), measured in the user's own first updates.

    measured = measure_rates(subject, rehearse(subject, key=key), key=key)
    measured.factors, measured.losses, measured.limit, measured.ratios, measured.noise

Four questions. Does training diverge or stall, and which multiple of the updates trains best? All multiples are
tried side by side, including 0: the loss of the same batches without training. What is the Hessian's largest
eigenvalue, and the rate 2 / lambda that it allows? How large are updates relative to weights? How noisy is the
gradient of a batch, and which size would be efficient? `learning_rate_findings.find_rates` interprets the answers.
"""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from ...records.evidence.check_evidence import NoiseScale, RatesEvidence
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ..batch_access import count_of, stacked, take
from ..rehearsal import Rehearsal, order_of, trainer
from ..subject import Subject

STEP = 3.0
_RUNGS = tuple(range(-7, 8))
_RUNGS_BIG = (-6, -4, -2, 0, 2, 4, 6)
_UPDATES = 40
_UPDATES_BIG = 20
_BIG = 1_000_000
_DENSE = 8  # parameters whose Hessian is written out
_PRODUCTS = 16
_GROUPS = 16  # gradients from which the noise scale is estimated; of a big network fewer: all are held
_GROUPS_BIG = 6


@dataclasses.dataclass(frozen=True)
class RatesMeasured:
    """`factors` by which updates were multiplied, 0 first; `losses[i]` the quarters of the run with factor i.

    `ratios` are |update| / |weights| of each parameter `names`, NaN for those that are excluded.
    """

    factors: np.ndarray
    losses: Float[np.ndarray, "f 4"]
    rehearsed: tuple[float, float]  # the rehearsal's first and last quarter
    eigenvalue: float
    residual: float
    rate: float  # of plain gradient descent; NaN for other optimisers
    names: tuple[str, ...]
    ratios: np.ndarray
    sparse: np.ndarray  # whether a good part of the parameter never moved
    warming: bool  # whether updates were still growing
    noise: NoiseScale | None
    size: int  # the user's mini-batch size
    stand_in: bool
    place: str = ""

    @property
    def limit(self) -> float:
        """The largest rate of plain gradient descent."""
        return 2.0 / self.eigenvalue if self.eigenvalue > 0 else math.inf

    def evidence(self) -> RatesEvidence:
        factors, losses, ratios = (tuple(one.tolist()) for one in (self.factors, self.losses[:, -1], self.ratios))
        known = (self.eigenvalue, self.rate, self.limit)
        return RatesEvidence(factors, losses, self.names, ratios, self.size, *known, self.noise)


# --- the ladder


def train_at_factors(
    subject: Subject, factors: np.ndarray, *, updates: int, key: Key[Array, ""]
) -> Float[np.ndarray, "f 4"]:
    """The loss, by quarters, of training whose updates are multiplied by each factor: same start, batches and noise."""
    optimiser, update = trainer(subject)
    pool, order = order_of(subject, updates, key=key)
    noise = keys.named(key, "ladder")

    def one(start: PyTree, factor: Array) -> Array:
        def body(carry: Any, given: tuple[Array, Array]) -> Any:
            point, state = carry
            number, chosen = given
            batch = jax.tree.map(lambda leaf: leaf[chosen], pool)
            loss, _, moves, state = update(point, state, batch, jr.fold_in(noise, number))
            moved = jax.tree.map(lambda p, m: (p + factor * m).astype(p.dtype), point, moves)
            # Infinite moves times nothing would be no number.
            moved = optax.tree.where(factor > 0, moved, point)
            return (moved, state), loss

        numbers = (jnp.arange(updates), jnp.asarray(order))
        return jax.lax.scan(body, (start, optimiser.init(start)), numbers)[1]

    @partial(compile_quickly, size=subject.size)
    def run(start: PyTree, given: Array) -> Array:
        if subject.size > _BIG:
            return jax.lax.map(lambda factor: one(start, factor), given)
        return jax.vmap(one, (None, 0))(start, given)

    start = jax.tree.map(jnp.asarray, subject.parameters)
    losses = np.asarray(run(start, jnp.asarray(factors, jnp.float32)), np.float64)
    return losses.reshape(len(factors), 4, -1).mean(axis=2)


def measured_updates(measured: RatesMeasured) -> int:
    """How many updates each rung of the ladder had."""
    return _UPDATES_BIG if len(measured.factors) <= len(_RUNGS_BIG) + 1 else _UPDATES


# --- the noise scale


def _groups(subject: Subject, generator: np.random.Generator) -> tuple[Any, int] | None:
    """Disjoint batches: of the user's own size from the training set where it has enough, else parts of the batch."""
    pool = subject.batch if subject.train is None else subject.train
    size = subject.count
    if subject.train is None or count_of(pool) < 8 * size:
        size = count_of(pool) // _GROUPS
    if size < 1:
        return None
    groups = min(_GROUPS_BIG if subject.size > _BIG else _GROUPS, count_of(pool) // size)
    rows = generator.permutation(count_of(pool))[: groups * size].reshape(groups, size)
    return jax.tree.map(jnp.asarray, stacked([take(pool, one) for one in rows])), size


def noise_scale(subject: Subject, parameters: PyTree, *, key: Key[Array, ""]) -> NoiseScale | None:
    """B = tr(S) / |G|^2, S the covariance of one example's gradient, without the bias of either (jackknife interval).

    From m batches of size b: tr(S) / b is the variance of their gradients, and |mean|^2 exceeds |G|^2 by tr(S) / (m b).
    """
    drawn = _groups(subject, keys.generator(keys.named(key, "groups")))
    if drawn is None:
        return None
    pool, size = drawn
    count = int(jax.tree.leaves(pool)[0].shape[0])
    noise = keys.named(key, "noise scale")

    @partial(compile_quickly, size=subject.size)
    def run(point: PyTree) -> tuple[Array, Array, Array]:
        def slope(given: tuple[Array, Any]) -> Array:
            number, batch = given
            return ravel_pytree(jax.grad(subject.value)(point, batch, jr.fold_in(noise, number)))[0]

        slopes = jax.lax.map(slope, (jnp.arange(count), pool))
        mean = jnp.mean(slopes, axis=0)
        return jnp.sum(jnp.square(slopes), axis=1), slopes @ mean, mean @ mean

    squares, along, middle = (np.asarray(part, np.float64) for part in run(parameters))
    return estimate_noise(squares, along, float(middle), size)


def estimate_noise(squares: np.ndarray, along: np.ndarray, middle: float, size: int) -> NoiseScale | None:
    """The noise scale from |g_i|^2, g_i . mean and |mean|^2 of batch gradients g_i."""
    count = len(squares)
    if count < 4 or not np.isfinite(squares).all() or middle <= 0:
        return None

    def both(total_squares: Any, mean_square: Any, groups: int) -> tuple[Any, Any]:
        variance = (total_squares - groups * mean_square) / (groups - 1)
        return variance, mean_square - variance / groups

    variance, signal = both(squares.sum(), middle, count)
    left_mean = (count**2 * middle - 2 * count * along + squares) / (count - 1) ** 2
    variances, signals = both(squares.sum() - squares, left_mean, count - 1)
    angle, angles = math.atan2(variance, signal), np.arctan2(variances, signals)
    # The jackknife of the angle, not of the ratio: it goes on smoothly where the signal is lost in the noise.
    error = math.sqrt((count - 1) / count * float(np.sum((angles - angles.mean()) ** 2)))

    def ratio(given: float) -> float:
        return math.inf if given >= math.pi / 2 else size * math.tan(max(0.0, given))

    return NoiseScale(ratio(angle), ratio(angle - 1.75 * error), ratio(angle + 1.75 * error), size, count)


# --- measuring


def _plain_rate(rehearsal: Rehearsal) -> float:
    """The rate, where each update is the same multiple of its gradient: plain gradient descent."""
    usual = (rehearsal.gradients > 1e-12) & (rehearsal.gradients < 1e15)  # larger squares are infinite
    safe = np.where(usual, rehearsal.gradients, np.nan)
    with np.errstate(invalid="ignore"):  # where training diverged
        ratios = rehearsal.updates / safe
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < 4 or not ratios.mean() > 0 or ratios.std() > 1e-3 * ratios.mean():
        return math.nan
    return float(np.median(ratios))


def _judged_ratios(subject: Subject, rehearsal: Rehearsal) -> tuple[np.ndarray, np.ndarray]:
    """The ratio of each weight matrix over the last half; and which of them moved only in part (embeddings)."""
    half = rehearsal.ratios[len(rehearsal.losses) // 2 :]
    ratios = np.median(half, axis=0)
    gradients = rehearsal.gradients[len(rehearsal.losses) // 2 :]
    sparse, frozen = np.zeros(len(ratios), bool), subject.frozen_names
    ends = zip(jax.tree.leaves(rehearsal.start), jax.tree.leaves(rehearsal.end), strict=True)
    for place, (first, last) in enumerate(ends):
        learns = np.median(gradients[:, place]) > 0 and rehearsal.names[place] not in frozen
        usual = jnp.ndim(first) >= 2 and rehearsal.weights[0, place] > 1e-8
        ratios[place] = ratios[place] if learns and usual else math.nan
        sparse[place] = bool(np.mean(np.asarray(first) != np.asarray(last)) < 0.8)
    return ratios, sparse


def _warming(rehearsal: Rehearsal) -> bool:
    """Whether updates grew against the gradient: a rate that is warmed up is not yet the rate."""
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = [np.sqrt(np.sum(part**2, axis=1)) for part in (rehearsal.updates, rehearsal.weights)]
        ratio = sizes[0] / np.maximum(sizes[1], 1e-30)
    tenth = max(1, len(ratio) // 10)
    return bool(np.median(ratio[-tenth:]) > 2 * np.median(ratio[:tenth]))


def _largest_eigenvalue(subject: Subject, start: PyTree, batch: Any, noise: Any) -> tuple[float, float]:
    """Of the Hessian on this batch, by Lanczos on the host, and the length of its residual.

    Only the product with a vector is compiled: all of `eigenvalues` would take ten times as long to compile.
    """
    flat, tree_of = ravel_pytree(start)

    def product(point: Array, vector: Array) -> Array:
        # Backwards twice: a function with a backward pass of its own has no other derivative.
        slope = jax.grad(lambda there: subject.value(tree_of(there), batch, noise))
        return jax.grad(lambda there: jnp.vdot(slope(there), vector))(point)

    try:
        jax.eval_shape(product, flat, flat)
    except Exception:  # a backward pass that cannot be differentiated again: nothing is known of the curvature
        return math.nan, math.nan

    compiled = compile_quickly(product, subject.size)

    def times(vector: np.ndarray) -> np.ndarray:
        return np.asarray(compiled(flat, np.asarray(vector, flat.dtype).reshape(flat.shape)), np.float64)

    first = np.random.default_rng(0).normal(size=flat.size)
    image = times(first)
    if not np.isfinite(image).all():
        return math.nan, math.nan
    if not image.any():  # flat: Lanczos would have nowhere to go
        return 0.0, 0.0
    if flat.size <= _DENSE:
        values, vectors = np.linalg.eigh(np.stack([times(unit) for unit in np.eye(flat.size)]))
        value, vector = float(values[-1]), vectors[:, -1]
    else:
        from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

        operator = LinearOperator((flat.size, flat.size), matvec=times, dtype=np.float64)
        basis = min(flat.size - 1, _PRODUCTS // 2 if subject.size > _BIG else _PRODUCTS)
        try:
            values, vectors = eigsh(operator, k=1, which="LA", v0=first, ncv=basis, maxiter=3, tol=1e-2)
        except ArpackNoConvergence as problem:
            values, vectors = problem.eigenvalues, problem.eigenvectors
        if not len(values):
            return math.nan, math.nan
        value, vector = float(values[-1]), vectors[:, -1]
    return value, float(np.linalg.norm(times(vector) - value * vector))


def measure_rates(subject: Subject, rehearsal: Rehearsal, *, key: Key[Array, ""], ladder: bool = True) -> RatesMeasured:
    """The ladder of factors, the Hessian's largest eigenvalue, ratios of updates to weights, and the noise scale."""
    big = subject.size > _BIG
    factors, losses = np.zeros(0), np.zeros((0, 4))
    if ladder and not rehearsal.stand_in:
        factors = np.array([0.0, *(STEP**rung for rung in (_RUNGS_BIG if big else _RUNGS))])
        losses = train_at_factors(subject, factors, updates=_UPDATES_BIG if big else _UPDATES, key=key)
    batch, noise = jax.tree.map(jnp.asarray, subject.smaller(256).batch), keys.named(key, "curvature")
    start = jax.tree.map(jnp.asarray, subject.parameters)
    eigenvalue, residual = _largest_eigenvalue(subject, start, batch, noise)
    ratios, sparse = _judged_ratios(subject, rehearsal)
    quarter = max(1, len(rehearsal.losses) // 4)
    ended = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rehearsal.end))
    return RatesMeasured(
        factors=factors,
        losses=losses,
        rehearsed=(float(rehearsal.losses[:quarter].mean()), float(rehearsal.losses[-quarter:].mean())),
        eigenvalue=eigenvalue,
        residual=residual,
        rate=math.nan if rehearsal.stand_in else _plain_rate(rehearsal),
        names=rehearsal.names,
        ratios=ratios,
        sparse=sparse,
        warming=_warming(rehearsal),
        noise=noise_scale(subject, rehearsal.end if ended else start, key=key),
        size=subject.count,
        stand_in=rehearsal.stand_in,
        place=subject.place,
    )
