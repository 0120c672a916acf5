"""Training and validation error against the number of examples (row F2), and the effect of twice as many.

    growth = recipe_growth(recipe, dataset, key=key)           gradwise's own training at 1/32, 1/16, ..., all of it
    growth = subject_growth(subject, key=key)                  the user's loss and optimiser on parts of `train`
    growth.law, growth.predicted, growth.gain                  validation error at twice the examples, and its change

All sizes are trained side by side as one program: an update draws its examples from the first n rows. Validation error
is extrapolated by the power law a + b n^-c (`law`). `learning_curve_findings.find_growth` interprets the curves.
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

from ...curvature.objective import Examples, gather
from ...records.evidence.check_evidence import GrowthEvidence
from ...runtime import keys
from ...runtime.errors import RequestError
from ...runtime.files import finite
from ...specs.dataset import Dataset
from ...specs.networks import as_network
from ...specs.recipe import Recipe
from ...training.state import Problem, State, uses_objective
from ...training.update import step
from ..batch_access import count_of, inputs_of, take, targets_of
from ..recipe_subject import prepare_recipe
from ..rehearsal import trainer
from ..subject import Subject
from .power_law import extrapolate, power_law

FRACTIONS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
_LEAST = 8  # examples of the smallest part
_JUDGED = 1024  # examples on which an error is measured
_LOOKS = 5  # times at which the networks are evaluated; the best counts, as with early stopping
_BIG = 500_000


@dataclasses.dataclass(frozen=True)
class ErrorsBySize:
    """Errors by number of examples: a row for each count, a column for each seed.

    `noise` is the standard error of a validation error due to the size of its set, 0 if unknown. `law` is (a, b, c) of
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
        """The predicted change of validation error with twice the examples; negative is better."""
        if self.law is None:
            return math.nan
        return self.predicted - float(power_law(np.asarray(self.law), self.counts[-1:])[0])

    def numbers(self) -> dict[str, Any]:
        """What its findings rest on."""
        return dict(finite({**vars(self), "gain": self.gain}))

    def evidence(self) -> GrowthEvidence:
        train, valid = (tuple(part.mean(axis=1).tolist()) for part in (self.train, self.valid))
        errors = [tuple(part.tolist()) for part in self.errors]
        told = (self.metric, self.law, self.predicted, self.interval, self.gain)
        return GrowthEvidence(tuple(int(count) for count in self.counts), train, valid, errors[0], errors[1], *told)


def errors_by_size(
    counts: Any, train: np.ndarray, valid: np.ndarray, *, metric: str, valid_count: int = 0, deviations: Any = None
) -> ErrorsBySize:
    """The errors (counts, seeds) with their noise; without deviations, error rates have the binomial one."""
    means = valid.mean(axis=1)
    noise = np.zeros(len(means))
    if deviations is not None and valid_count:
        noise = np.mean(deviations, axis=1) / math.sqrt(valid_count)
    elif valid_count and metric == "error_rate":
        noise = np.sqrt(np.clip(means * (1 - means), 0, None) / valid_count)
    growth = ErrorsBySize(np.asarray(counts, np.float64), train, valid, noise, metric)
    seen = extrapolate(growth.counts, means, growth.errors[1])
    if seen is None:
        return growth
    return dataclasses.replace(growth, law=seen.law, predicted=seen.predicted, interval=seen.interval)


def counts_of(whole: int, fractions: Sequence[float]) -> list[int]:
    """The number of examples of each subset: at least a few, no number twice."""
    return sorted({max(min(_LEAST, whole), round(whole * fraction)) for fraction in fractions})


def _side_by_side(one: Callable[..., Any], big: bool, *given: Array) -> Any:
    """Every network in one program: at once where they are small, one after another where they are not."""
    many = jax.vmap(one) if not big else lambda *several: jax.lax.map(lambda each: one(*each), several)
    return jax.tree.map(np.asarray, jax.jit(many)(*given))


def _best_looks(told: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts by seeds: the final training error, the lowest validation error and its standard deviation.

    Not the training error at that time: if validation is mere noise it is arbitrary, and memorising takes time.
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
) -> ErrorsBySize:
    """Trains a recipe on subsets of the training set, `budget` updates each, and evaluates its own score.

    Split and scaler are those of the whole. Optimisers that need examples beyond the batch are rejected.
    """
    if uses_objective(recipe.optimiser):
        raise RequestError(f"{type(recipe.optimiser).__name__} needs examples beyond the batch: no learning curve.")
    prepared = prepare_recipe(recipe, dataset, key=key)
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
    return errors_by_size(counts, *errors[:2], metric=metric, valid_count=len(valid), deviations=errors[2])


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
        if as_network(model).needs_calibration:
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
    """The error of each example: 0-1 for classes, squared, or else the loss itself."""
    inputs, targets, evaluated = inputs_of(part), targets_of(part), subject.evaluated
    if evaluated is not None and targets is not None and inputs is not None and subject.task:
        shape = jax.eval_shape(evaluated, subject.parameters, inputs_of(take(part, np.arange(1)))).shape

        def wrong(point: PyTree, rows: Array) -> Array:
            return (jnp.argmax(evaluated(point, _gathered(inputs, rows)), -1) != targets[rows]).astype(jnp.float32)

        def squared(point: PyTree, rows: Array) -> Array:
            outputs, wanted = evaluated(point, _gathered(inputs, rows)), targets[rows]
            return jnp.mean(jnp.square(outputs.reshape(len(rows), -1) - wanted.reshape(len(rows), -1)), axis=1)

        if subject.task == "classes" and len(shape) == 2 and shape[1] > 1:
            return "error_rate", wrong
        if subject.task == "numbers" and math.prod(shape) == math.prod(np.shape(targets)[1:]):
            return "squared_error", squared
    return "loss", lambda point, rows: subject.value(point, _gathered(part, rows), noise)[None]


def subject_growth(
    subject: Subject, *, fractions: Sequence[float] = FRACTIONS, updates: int = 300, seeds: int = 1, key: Key[Array, ""]
) -> ErrorsBySize | None:
    """The user's loss and optimiser (Adam by default) on subsets of `train`; None without `train` or `valid`."""
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
    if metric == "loss":  # one number for all examples: its noise is unknown
        return errors_by_size(counts, *errors[:2], metric=metric)
    return errors_by_size(counts, *errors[:2], metric=metric, valid_count=len(judged), deviations=errors[2])
