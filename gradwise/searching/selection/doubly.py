"""The whole procedure judged by double cross-validation: each outer fold is searched anew (row E2).

    share(Budget(seconds=600))                          the study itself, and the share of each outer fold
    estimate_doubly(space, dataset, budget=share(...)[1], key=key)

Where a set is small, one test part says little. Here every example judges once, and no choice has seen the examples
that it is judged by. A fold's search is shorter than the study's own: fewer trials, no look beyond borders or around
the best, one finalist. It finds settings that are a little worse, so the estimate is on the safe side.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import Array, Key

from ...runtime import keys
from ...runtime.errors import WorkError
from ...specs.dataset import Dataset
from ...specs.search_space import Space
from ...training.prepare import CLASS_WEIGHTS
from ..running.driver import Watch, silent
from ..search import SearchPlan, StudyOptions, search
from ..storage.study_file import Budget
from ..strategies.contract import AbstractStrategy
from ..strategies.random_search import Random
from .nested_cv import is_small, nested

FOLDS = 5
SHARE = 0.35  # of a time budget, for all outer folds together
_LEAST_SECONDS = 4.0  # for one fold; with less, one trial each would take longer than that by itself
_LEAST_TRIALS = 4


class Interrupted(Exception):
    """Somebody asked to stop while a fold was searched; what the folds before it gave is in `watch`'s hands."""


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


def _without_test(space: Space) -> Space:
    """The space with nothing held out to test within a fold: the fold's own examples do that."""
    split = space.recipe.split
    if not hasattr(split, "test"):
        return space
    return Space(dataclasses.replace(space.recipe, split=dataclasses.replace(split, test=0.0)), space.dimensions)


class _Clock:
    """Seconds for each of the folds that are left. What a search needs besides its budget is seen at the first."""

    def __init__(self, each: float, folds: int):
        self.end, self.left, self.beside = time.monotonic() + each * folds, folds, 0.0

    def next(self) -> float:
        wall = (self.end - time.monotonic()) / max(1, self.left)
        self.left -= 1
        return max(1.0, wall - self.beside)


def estimate_doubly(
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
) -> dict[str, Any]:
    """The estimate of the procedure as plain values: mean, interval, folds.

    `budget` is that of each outer fold. `known` holds folds measured before; `watch` hears of each as it ends, and
    `watch_trials` watches the search within one.
    """
    shorter = dataclasses.replace(plan, refine=False, borders=False, batch_size=False, finalists=min(1, plan.finalists))
    inner = _without_test(space)
    left = folds - len(known or {})
    clock = None if budget.seconds is None else _Clock(budget.seconds, left)

    def learn(train: Dataset, number: int) -> Any:
        begun = time.monotonic()
        own = budget if clock is None else Budget(seconds=clock.next())
        study = search(
            inner,
            train,
            strategy=strategy,
            budget=own,
            key=keys.of_trial(keys.named(key, "outer search"), number),
            metric=metric,
            class_weight=class_weight,
            plan=shorter,
            conduct=StudyOptions(on=on, watch=watch_trials(number)),
        )
        if study.outcome == "interrupted":
            raise Interrupted
        if study.predictor is None:
            raise WorkError(f"no trial of outer fold {number + 1} left a model: there is no double cross-validation.")
        if clock is not None:
            clock.beside = max(0.0, time.monotonic() - begun - study.seconds)
        return study.predictor

    return nested(dataset, folds, learn, key=key, metric=metric, known=known, watch=watch)
