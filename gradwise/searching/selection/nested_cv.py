"""Nested cross-validation (row E2): an unbiased estimate of the whole procedure, on a small set.

    share(Budget(seconds=600))                                what the study itself gets, and each outer fold
    nested_search(space, dataset, budget=share(...)[1], key=key)      its mean, interval and folds

On small data, one test set is too noisy. Here the whole search is repeated for each outer fold on the examples of the
other folds, and the result is evaluated once on the fold: every example is tested once, by a network that was chosen
without it. A fold's search is shorter than the study's own (fewer trials, no extended ranges, no refinement around the
best, one finalist), so it finds slightly worse settings and the estimate is conservative.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ...data.splits import deal_folds as dealt
from ...evaluation.metrics import check_metric, measure
from ...evaluation.trials.selection_bias import nested_estimate
from ...records.evidence.fit_evidence import CrossValidationEstimate
from ...runtime import keys
from ...runtime.errors import WorkError
from ...runtime.progress import silent
from ...specs.dataset import Dataset
from ...specs.paths import knobs
from ...specs.search_space import Space
from ...training.prepare import CLASS_WEIGHTS
from ..running.driver import Watch
from ..search import SearchPlan, StudyOptions, run_study
from ..storage.budget import Budget
from ..strategies.contract import AbstractStrategy
from ..strategies.random_search import Random

FOLDS = 5
SHARE = 0.35  # of a time budget, for all outer folds together
_LEAST_SECONDS = 4.0  # for one fold; with less, one trial each would take longer than that by itself
_LEAST_TRIALS = 4
# With fewer test rows than this, an error rate of 10 % is known to no better than 3.7 points either way (1.96 times
# sqrt(0.1 * 0.9 / 250)), more than a third of itself: two procedures would have to be worlds apart to be told apart.
# Five outer folds test on five times as many rows, to 1.7 points.
_LEAST_TEST_ROWS = 250
_BOUNDS = {"r2": (-math.inf, 1.0), "rmse": (0.0, math.inf), "mae": (0.0, math.inf), "log_loss": (0.0, math.inf)}

Learn = Callable[[Dataset, int], Any]


class Interrupted(Exception):
    """Somebody asked to stop while a fold was searched; what the folds before it gave is in `watch`'s hands."""


def is_small(dataset: Dataset, test: float = 0.2) -> bool:
    """Whether one test set, of this fraction, would say too little: fewer than 250 rows.

    Where examples have times, the future is what counts, and folds dealt at random would mix it with the past.
    """
    if dataset.times is not None:
        return False
    rows = len(dataset.test) if dataset.test is not None else round(test * dataset.labelled.sum())
    return rows < _LEAST_TEST_ROWS


def share(budget: Budget, folds: int = FOLDS) -> tuple[Budget, Budget]:
    """What the study itself gets of a budget, and what each outer fold gets."""
    if budget.seconds is not None:
        return (
            Budget(seconds=(1.0 - SHARE) * budget.seconds),
            Budget(seconds=SHARE * budget.seconds / folds),
        )
    assert budget.trials is not None
    return budget, Budget(trials=max(_LEAST_TRIALS, budget.trials // 4))


def is_worth_it(dataset: Dataset, budget: Budget, folds: int = FOLDS) -> bool:
    """Whether to do it unasked: a small set without a test set of its own, and time enough for each fold."""
    if dataset.test is not None or not is_small(dataset) or len(dataset) < 10 * folds:
        return False
    return budget.seconds is None or SHARE * budget.seconds / folds >= _LEAST_SECONDS


def cross_validate_procedure(
    dataset: Dataset,
    folds: int,
    learn: Learn,
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    known: Mapping[int, float] | None = None,
    watch: Callable[[int, float], None] = lambda number, value: None,
) -> CrossValidationEstimate:
    """The estimate of a procedure. `known` holds folds that an earlier run measured: they are not learned again.

    An official test set is left alone: it is no part of what is learned from or judged by. Rows without a target judge
    nothing, and every fold may learn from them.
    """
    kind = dataset.task.kind
    metric = check_metric(metric or {"numbers": "rmse"}.get(kind, "error_rate"), kind)
    values: list[float] = []
    rows: list[int] = []
    labelled, rest = np.flatnonzero(dataset.labelled), np.flatnonzero(~dataset.labelled)
    told = dataset if len(rest) == 0 else dataset.take(labelled)
    for number, (others, own) in enumerate(dealt(told, folds, key=keys.named(key, "outer folds"))):
        if known is not None and number in known:
            value = float(known[number])
        else:
            predictor = learn(dataset.take(np.sort(np.concatenate([labelled[others], rest]))), number)
            part = told.take(own)
            value = measure(part.task, predictor.predict(part.inputs), part.targets, part.weights, (metric,))[metric]
        watch(number, value)
        values.append(value)
        rows.append(len(own))
    estimate = nested_estimate(values, rows)
    low, high = _BOUNDS.get(metric, (0.0, 1.0))
    ends = max(low, estimate.low), min(high, estimate.high)
    return CrossValidationEstimate(metric, tuple(values), estimate.mean, ends)


def _without_test(space: Space) -> Space:
    """The space with nothing held out to test within a fold: the fold's own examples do that."""
    if "split.test" not in {path for path, _, _ in knobs(space.recipe)}:
        return space
    without = dataclasses.replace(space.recipe.split, test=0.0)
    return space.with_recipes(lambda recipe: dataclasses.replace(recipe, split=without))


class _Clock:
    """Seconds for each of the folds that are left. What a search needs besides its budget is seen at the first."""

    def __init__(self, each: float, folds: int):
        self.end, self.left, self.beside = time.monotonic() + each * folds, folds, 0.0

    def next(self) -> float:
        wall = (self.end - time.monotonic()) / max(1, self.left)
        self.left -= 1
        return max(1.0, wall - self.beside)


def nested_search(
    space: Space,
    dataset: Dataset,
    *,
    strategy: AbstractStrategy = Random(),
    budget: Budget = Budget(trials=_LEAST_TRIALS),
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: CLASS_WEIGHTS = None,
    plan: SearchPlan = SearchPlan(),
    on: str | None = None,
    folds: int = FOLDS,
    known: Mapping[int, float] | None = None,
    watch: Callable[[int, float], None] = lambda number, value: None,
    watch_trials: Callable[[int], Watch] = lambda number: silent,
) -> CrossValidationEstimate:
    """The estimate of the whole search.

    `budget` is that of each outer fold. `known` holds folds measured before; `watch` is called for each fold, and
    `watch_trials` watches the search within one.
    """
    shorter = dataclasses.replace(plan, refine=False, borders=False, batch_size=None, finalists=min(1, plan.finalists))
    inner = _without_test(space)
    left = folds - len(known or {})
    clock = None if budget.seconds is None else _Clock(budget.seconds, left)

    def learn(train: Dataset, number: int) -> Any:
        begun = time.monotonic()
        own = budget if clock is None else Budget(seconds=clock.next())
        study = run_study(
            inner,
            train,
            strategy=strategy,
            budget=own,
            key=keys.of_trial(keys.named(key, "outer search"), number),
            metric=metric,
            class_weight=class_weight,
            plan=shorter,
            options=StudyOptions(on=on, watch=watch_trials(number)),
        )
        if study.outcome == "interrupted":
            raise Interrupted
        if study.predictor is None:
            raise WorkError(
                f"no trial of outer fold {number + 1} produced a model, so there is no nested cross-validation."
            )
        if clock is not None:
            clock.beside = max(0.0, time.monotonic() - begun - study.seconds)
        return study.predictor

    return cross_validate_procedure(dataset, folds, learn, key=key, metric=metric, known=known, watch=watch)
