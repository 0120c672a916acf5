"""Training and validation error against the number of examples (row F2), and what twice as many would bring.

    growth = recipe_growth(recipe, dataset, key=key)           gradwise's own training at 1/32, 1/16, ..., all of it
    growth = subject_growth(subject, key=key)                  the user's loss and optimiser on parts of `train`
    growth = measure_growth(train_at, (100, 200, 400), 3)      any training: train_at(count, seed) -> both errors
    find_growth(growth); growth.predicted                      findings; validation error at twice the examples

All sizes are trained side by side as one program: an update draws its examples from the first n rows. Validation error
is extrapolated by the power law a + b n^-c.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key, PyTree

from ..core import keys
from ..core.dataset import Dataset
from ..core.errors import RequestError
from ..core.finding import Finding
from ..core.objective import gather
from ..core.recipe import Recipe
from ..training.state import Examples, Problem, State, asks
from ..training.step import step
from .codes import found
from .recipes import prepare
from .rehearsal import trainer
from .subject import Subject, count_of, inputs_of, take, targets_of

FRACTIONS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
_LEAST = 8  # examples of the smallest part
_JUDGED = 1024  # examples on which an error is measured
_LOOKS = 5  # times at which the networks are judged; the best look counts, as with early stopping
_BIG = 500_000
_DRAWS = 200


@dataclasses.dataclass(frozen=True)
class Growth:
    """Errors by number of examples, one row a count, one column a seed; `noise` is the standard error of each

    validation error that comes from the number of its examples, 0 where it is not known. `law` is (a, b, c) of
    a + b n^-c, `predicted` the validation error at twice the largest count, `interval` 90 % of its bootstrap.
    """

    counts: np.ndarray
    train: np.ndarray
    valid: np.ndarray
    noise: np.ndarray
    metric: str = "error"
    law: tuple[float, float, float] | None = None
    predicted: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)

    @property
    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """The standard error of the mean over seeds of training and of validation error, at each count."""
        seeds = self.train.shape[1]
        if seeds < 2:
            return np.zeros(len(self.counts)), self.noise
        over = [np.std(part, axis=1, ddof=1) / math.sqrt(seeds) for part in (self.train, self.valid)]
        return over[0], np.hypot(over[1], self.noise)

    @property
    def gain(self) -> float:
        """How much validation error twice the examples are predicted to take off; negative is better."""
        if self.law is None:
            return math.nan
        return self.predicted - float(_law(np.asarray(self.law), self.counts[-1:])[0])

    def plain(self) -> dict[str, Any]:
        return {
            "counts": self.counts.tolist(),
            "train": self.train.tolist(),
            "valid": self.valid.tolist(),
            "noise": self.noise.tolist(),
            "metric": self.metric,
            "law": None if self.law is None else list(self.law),
            "predicted": self.predicted,
            "gain": self.gain,
            "interval": list(self.interval),
        }


# --- the power law


def _law(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    return values[0] + values[1] * shares ** -values[2]


_POWERS = np.geomspace(0.02, 2.0, 80)


def _on_grid(shares: np.ndarray, errors: np.ndarray, weights: np.ndarray, floor: float) -> np.ndarray:
    """(a, b, c) for each row of errors, c one of a few: for a given c the best a and b are known in closed form."""
    best, least = np.zeros((len(errors), 3)), np.full(len(errors), np.inf)
    share = weights**2 / np.sum(weights**2)
    for power in _POWERS:
        across = shares**-power
        middle, heights = float(share @ across), errors @ share
        slope = (errors * (across - middle)) @ share / max(float(share @ (across - middle) ** 2), 1e-30)
        below = heights - slope * middle < floor
        slope = np.where(below & (floor == 0.0), errors @ (share * across) / float(share @ across**2), slope)
        slope = np.maximum(slope, 0.0)
        base = np.maximum(heights - slope * middle, floor)
        cost = ((base[:, None] + slope[:, None] * across - errors) ** 2) @ share
        found_better = cost < least
        least = np.where(found_better, cost, least)
        here = np.stack([base, slope, np.full(len(errors), power)], axis=1)
        best = np.where(found_better[:, None], here, best)
    return best


def fit_law(shares: np.ndarray, errors: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """(a, b, c) of errors = a + b shares^-c by least squares; a at least 0 where no error is below it."""
    from scipy.optimize import least_squares

    spread = max(float(np.ptp(errors)), 1e-12)
    floor = 0.0 if errors.min() >= 0 else -np.inf
    weights = 1 / np.maximum(noise, 0.02 * spread)
    low, high = np.array([floor, 0.0, 0.02]), np.array([np.inf, np.inf, 2.0])
    start = _on_grid(shares, errors[None], weights, floor)[0]
    inside = np.clip(start, low + 1e-9 * spread, high - 1e-9)
    done = least_squares(
        lambda given: (_law(given, shares) - errors) * weights,
        inside,
        bounds=(low, high),
        x_scale=[spread, spread, 1.0],
    )
    return np.asarray(done.x)


def extrapolate(growth: Growth, *, seed: int = 0) -> Growth:
    """The same with the power law, the error it predicts at twice the examples and a bootstrap interval of that.

    Where seeds and examples say nothing of the noise, what the law leaves over does.
    """
    errors, shares = growth.valid.mean(axis=1), growth.counts / growth.counts[-1]
    if len(errors) < 4 or not np.isfinite(errors).all() or np.ptp(errors) == 0:
        return growth
    noise = growth.errors[1]
    law = fit_law(shares, errors, noise)
    left = math.sqrt(float(np.sum((_law(law, shares) - errors) ** 2)) / max(1, len(errors) - 3))
    noise = np.where(noise > 0, noise, left)
    generator = np.random.default_rng(seed)
    twice = np.array([2.0])
    smooth = _law(law, shares)
    least = 0.0 if errors.min() >= 0 else -np.inf
    several = np.maximum(smooth + noise * generator.normal(size=(_DRAWS, len(noise))), least)
    weights = 1 / np.maximum(noise, 0.02 * float(np.ptp(errors)))
    drawn = [float(_law(one, twice)[0]) for one in _on_grid(shares, several, weights, least)]
    low, high = np.quantile(drawn, (0.05, 0.95))
    a, b, c = float(law[0]), float(law[1] * growth.counts[-1] ** law[2]), float(law[2])
    predicted = float(_law(law, twice)[0])
    return dataclasses.replace(growth, law=(a, b, c), predicted=predicted, interval=(float(low), float(high)))


# --- measuring


def _of(counts: Any, train: Any, valid: Any, *, metric: str, valid_count: int = 0, deviations: Any = None) -> Growth:
    """A growth from what was measured. Without deviations, errors that are shares have that of a coin."""
    train, valid = np.atleast_2d(np.asarray(train, np.float64)), np.atleast_2d(np.asarray(valid, np.float64))
    means = valid.mean(axis=1)
    noise = np.zeros(len(means))
    if deviations is not None and valid_count:
        noise = np.mean(np.atleast_2d(deviations), axis=1) / math.sqrt(valid_count)
    elif valid_count and metric == "error_rate":
        noise = np.sqrt(np.clip(means * (1 - means), 0, None) / valid_count)
    return extrapolate(Growth(np.asarray(counts, np.float64), train, valid, noise, metric))


def measure_growth(
    train_at: Callable[[int, int], tuple[float, float]],
    counts: Sequence[int],
    seeds: int | Sequence[int] = 1,
    *,
    metric: str = "error",
    valid_count: int = 0,
) -> Growth:
    """`train_at(count, seed)` trains on so many examples and tells training and validation error.

    With `metric="error_rate"` and the number of validation examples the noise of the errors is known without seeds.
    """
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    if sorted(set(counts)) != list(counts) or not counts or not len(list(chosen)):
        raise RequestError(f"`counts` must rise, and there must be a seed; got {list(counts)}.")
    told = [[train_at(count, seed) for seed in chosen] for count in counts]
    errors = np.asarray(told, np.float64)
    return _of(counts, errors[:, :, 0], errors[:, :, 1], metric=metric, valid_count=valid_count)


def counts_of(whole: int, fractions: Sequence[float]) -> list[int]:
    """So many examples for each part, at least a few, no number twice."""
    return sorted({max(min(_LEAST, whole), round(whole * fraction)) for fraction in fractions})


def _side_by_side(one: Callable[..., Any], big: bool, *given: Array) -> Any:
    """Every network in one program: at once where they are small, one after another where they are not."""
    many = jax.vmap(one) if not big else lambda *several: jax.lax.map(lambda each: one(*each), several)
    return jax.tree.map(np.asarray, jax.jit(many)(*given))


def _best_looks(told: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As counts by seeds: the training error at the end, the least validation error of all looks and its deviation.

    Not the training error of that look: where validation is mere noise it may be any, and learning by heart takes time.
    """
    train, valid, deviation = (np.asarray(part, np.float64) for part in told)
    safe = np.where(np.isfinite(valid), valid, np.inf)
    place = np.argmin(safe, axis=1)[:, None]
    best = [np.take_along_axis(part, place, axis=1)[:, 0].reshape(shape) for part in (valid, deviation)]
    return train[:, -1].reshape(shape), best[0], best[1]


def recipe_growth(
    recipe: Recipe,
    dataset: Dataset,
    *,
    fractions: Sequence[float] = FRACTIONS,
    seeds: int = 1,
    key: Key[Array, ""],
    budget: int = 500,
) -> Growth:
    """Trains a recipe on parts of the training set, `budget` updates each, and judges by its own score.

    Split and scaler are those of the whole. An optimiser that asks for other examples than the batch's is refused.
    """
    if asks(recipe.optimiser):
        raise RequestError(f"{type(recipe.optimiser).__name__} looks beyond a batch: use `measure_growth` with `fit`.")
    prepared = prepare(recipe, dataset, key=key)
    problem, state = prepared.problem, prepared.state
    count = len(problem.train)
    mixed = keys.generator(keys.named(key, "growth")).permutation(count)  # the first n must be like the rest
    train = jax.tree.map(lambda leaf: leaf[mixed], problem.train)
    problem = dataclasses.replace(problem, train=train)
    counts = counts_of(count, fractions)
    valid = jnp.arange(min(len(problem.valid), 2 * _JUDGED))
    per_look = max(1, min(budget, problem.limit_updates) // _LOOKS)

    def one(size: Array, noise: Any) -> Any:
        return _grown(problem, state, size, noise, valid, per_look)

    sizes = jnp.repeat(jnp.asarray(counts, jnp.int32), seeds)
    noises = jr.split(keys.named(key, "growing"), len(counts) * seeds)
    big = prepared.subject.size > _BIG
    told = _side_by_side(one, big, sizes, noises)
    errors = _best_looks(told, (len(counts), seeds))
    metric = "error_rate" if dataset.task.kind in ("classes", "labels") else "score"
    return _of(counts, *errors[:2], metric=metric, valid_count=len(valid), deviations=errors[2])


def _grown(problem: Problem, state: State, size: Array, noise: Any, valid: Array, per_look: int) -> Any:
    """One network trained on the first `size` rows: its errors at each look."""
    train = problem.train
    problem = dataclasses.replace(problem, key=noise)
    every = jnp.arange(min(len(train), _JUDGED)) % size

    def update(carry: Any, number: Array) -> Any:
        before = State(carry[0], carry[1], (), (), number, carry[2])
        rows = jr.randint(jr.fold_in(noise, number), (problem.batch_size,), 0, size)
        batch = dataclasses.replace(gather(train, rows, jnp.ones(problem.batch_size)), total=size.astype(jnp.float32))
        after, _ = step(problem, before, batch)
        return (after.parameters, after.optimiser, after.memory), None

    def errors_on(model: Any, part: Examples, rows: Array) -> Array:
        return problem.recipe.criterion.examples(model, part.inputs[rows], part.targets[rows])[0]

    def look(carry: Any, number: Array) -> Any:
        carry, _ = jax.lax.scan(update, carry, number * per_look + jnp.arange(per_look, dtype=jnp.int32))
        model = problem.model(problem.recipe.optimiser.judged(carry[0], carry[1]))
        if getattr(model, "needs_calibration", False):
            model = model.calibrate(train.inputs[every])
        judged = errors_on(model, problem.valid, valid)
        return carry, (jnp.mean(errors_on(model, train, every)), jnp.mean(judged), jnp.std(judged))

    first = (state.parameters, state.optimiser, state.memory)
    return jax.lax.scan(look, first, jnp.arange(_LOOKS, dtype=jnp.int32))[1]


def _gathered(batch: PyTree, rows: Array) -> PyTree:
    """`take` for rows that are computed."""
    count = count_of(batch)
    return jax.tree.map(lambda leaf: leaf[rows] if jnp.ndim(leaf) and jnp.shape(leaf)[0] == count else leaf, batch)


def _judge_of(subject: Subject, part: Any, noise: Any) -> tuple[str, Callable[[PyTree, Array], Array]]:
    """What an error is: the share of wrong classes, a squared error, or else the loss itself, of each example."""
    inputs, targets = inputs_of(part), targets_of(part)
    if subject.evaluated is not None and targets is not None and inputs is not None and subject.task:
        few = take(part, np.arange(1))
        shape = jax.eval_shape(subject.evaluated, subject.parameters, inputs_of(few)).shape
        if subject.task == "classes" and len(shape) == 2 and shape[1] > 1:
            return (
                "error_rate",
                lambda point, rows: (
                    (
                        jnp.argmax(subject.evaluated(point, _gathered(inputs, rows)), -1) != targets[rows]  # type: ignore[misc]
                    ).astype(jnp.float32)
                ),
            )
        if subject.task == "numbers" and math.prod(shape) == math.prod(np.shape(targets)[1:]):
            return "squared_error", lambda point, rows: jnp.mean(
                jnp.square(
                    subject.evaluated(point, _gathered(inputs, rows)).reshape(len(rows), -1)  # type: ignore[misc]
                    - targets[rows].reshape(len(rows), -1)
                ),
                axis=1,
            )
    return "loss", lambda point, rows: subject.value(point, _gathered(part, rows), noise)[None]


def subject_growth(
    subject: Subject,
    *,
    fractions: Sequence[float] = FRACTIONS,
    updates: int = 300,
    seeds: int = 1,
    key: Key[Array, ""],
) -> Growth | None:
    """The user's loss and optimiser (Adam where there is none) on parts of `train`; None without `train` or `valid`."""
    if subject.train is None or subject.valid is None or count_of(subject.train) < 2 * _LEAST:
        return None
    train, valid = (jax.tree.map(jnp.asarray, part) for part in (subject.train, subject.valid))
    mixed = keys.generator(keys.named(key, "growth")).permutation(count_of(train))
    train = take(train, mixed)
    counts = counts_of(count_of(train), fractions)
    optimiser, move = trainer(subject)
    noise = keys.named(key, "judging")
    (metric, train_error), (_, valid_error) = (_judge_of(subject, part, noise) for part in (train, valid))
    judged = jnp.arange(min(count_of(valid), 2 * _JUDGED))
    size, per_look = min(subject.count, count_of(train)), max(1, updates // _LOOKS)

    def one(count: Array, own: Any) -> Any:
        def update(carry: Any, number: Array) -> Any:
            point, state = carry
            this = jr.fold_in(own, number)
            batch = _gathered(train, jr.randint(this, (size,), 0, count))
            _, _, moves, state = move(point, state, batch, this)
            return (optax.apply_updates(point, moves), state), None

        def look(carry: Any, number: Array) -> Any:
            carry, _ = jax.lax.scan(update, carry, number * per_look + jnp.arange(per_look))
            errors = valid_error(carry[0], judged)
            every = jnp.arange(min(count_of(train), _JUDGED)) % count
            return carry, (jnp.mean(train_error(carry[0], every)), jnp.mean(errors), jnp.std(errors))

        first = jax.tree.map(jnp.asarray, subject.parameters)
        return jax.lax.scan(look, (first, optimiser.init(first)), jnp.arange(_LOOKS))[1]

    sizes = jnp.repeat(jnp.asarray(counts, jnp.int32), seeds)
    told = _side_by_side(one, subject.size > _BIG, sizes, jr.split(keys.named(key, "growing"), len(sizes)))
    errors = _best_looks(told, (len(counts), seeds))
    one_each = len(judged) if metric != "loss" else 0
    return _of(counts, *errors[:2], metric=metric, valid_count=one_each, deviations=errors[2] if one_each else None)


# --- findings


def expected(growth: Growth) -> str:
    """What twice the examples would bring, in words: "-1.2 points at 2x"; empty where nothing can be told."""
    if growth.law is None:
        return ""
    factor, unit = (100, " points") if growth.metric == "error_rate" else (1, "")
    return f"{factor * growth.gain:+.2g}{unit} at 2x"


def find_growth(growth: Growth | None, *, place: str = "") -> tuple[Finding, ...]:
    """Training error should rise gradually with more examples, validation error fall, by more than their noise."""
    if growth is None or len(growth.counts) < 2 or not np.isfinite([growth.train, growth.valid]).all():
        return ()
    train, valid = growth.train.mean(axis=1), growth.valid.mean(axis=1)
    of_train, of_valid = growth.errors
    scale = max(float(valid[0]), float(np.max(train)), 1e-30)  # with so few examples: about chance
    told = [*_find_rise(growth, train, of_train, scale, place)]
    fall, error = float(valid[0] - valid[-1]), float(np.hypot(of_valid[0], of_valid[-1]))
    easy = growth.metric == "error_rate" and valid[0] <= 0.05
    if fall <= max(2 * error, 1e-3 * abs(scale)) and not easy:
        what = (
            f"validation error does not fall with more examples: {valid[0]:.3g} with {growth.counts[0]:.0f}, "
            f"{valid[-1]:.3g} with {growth.counts[-1]:.0f} (standard error {error:.1g})."
        )
        step = "shuffle the targets of `train` and check again: no change means that the inputs do not tell the targets"
        told.append(found("GW403", what, where=place, next=step, **growth.plain()))
    return tuple(told)


def _find_rise(growth: Growth, train: np.ndarray, error: np.ndarray, scale: float, place: str) -> list[Finding]:
    """A fall of training error beyond noise, or half of chance lost from one count to the next."""
    counts = growth.counts
    worst, pair = 0.0, (0, 0)
    for i in range(len(train)):
        for j in range(i + 1, len(train)):
            fall = train[i] - train[j] - 3 * math.hypot(error[i], error[j])
            worst, pair = (fall, (i, j)) if fall > worst else (worst, pair)
    step = "train on the added examples alone, one half at a time: some of them do not fit the rest"
    if worst > 0.1 * scale:
        i, j = pair
        what = (
            f"training error falls with more examples, from {train[i]:.3g} with {counts[i]:.0f} to {train[j]:.3g} with "
            f"{counts[j]:.0f}: fewer should be easier to learn by heart."
        )
        easier = "train longer, or at a larger rate: a few examples must be learned by heart before many are"
        return [found("GW402", what, where=place, next=easier, **growth.plain())]
    steps = np.diff(train) - 3 * np.hypot(error[1:], error[:-1])
    at = int(np.argmax(steps))
    gradual = float(np.log2(counts[at + 1] / counts[at]))  # a step of many doublings may be a large one
    if steps[at] > 0.5 * scale * max(1.0, gradual):
        what = (
            f"training error jumps from {train[at]:.3g} with {counts[at]:.0f} examples to {train[at + 1]:.3g} with "
            f"{counts[at + 1]:.0f}; it should rise gradually."
        )
        return [found("GW402", what, where=place, next=step, **growth.plain())]
    return []
