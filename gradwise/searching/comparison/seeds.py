"""The same recipe with other seeds: how much of a score is chance (row D13), and how scores are formatted.

    with LocalExecutor(data) as executor:
        found = seed_distribution(recipe, data, executor, 200)
    found.mean, found.deviation, found.quantiles["0.95"]

Recipes that are equal share one program, so hundreds of seeds train as one population. The examples stay the same, only
initial weights, orders and noise differ: the spread is that of training, not that of the data.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...records.score_scale import ScoreScale
from ...records.study_analysis import SeedDistribution
from ...records.trial import Trial
from ...runtime.errors import RequestError
from ...specs.recipe import Recipe
from ..running.evaluation_data import EvaluationData
from ..running.executors import AbstractExecutor
from ..running.jobs import Job
from ..running.run_jobs import as_trial, join_folds, run_jobs

Stop = Callable[[], bool]
_PLACES = 64  # numbers that one trial's trainings may take, as everywhere in a study
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class SeedRequest:
    """A trial to run: its number, what it is, and the number its random keys come from."""

    number: int
    recipe: Recipe
    randomness: int
    values: dict[str, Any] = field(default_factory=dict)
    examples: int | None = None
    continues: int | None = None


def run_requests(
    requests: Iterable[SeedRequest],
    data: EvaluationData,
    executor: AbstractExecutor,
    *,
    phase: str,
    stop: Stop = lambda: False,
) -> dict[int, Trial]:
    """These trials, by number, each trained on every variant of the data; those that were cut short are left out."""
    requests = list(requests)
    jobs = [
        Job(one.number * _PLACES + place, one.recipe, one.randomness, one.examples, variant)
        for one in requests
        for place, variant in enumerate(data.variants)
    ]
    done = run_jobs(executor, jobs, stop=stop)
    trials = {}
    for one in requests:
        several = [done[n] for place in range(len(data.variants)) if (n := one.number * _PLACES + place) in done]
        if len(several) < len(data.variants):
            continue
        whole = replace(join_folds(data, several, data.variants, 0), number=one.number)
        if whole.outcome != "out_of_time":
            job = Job(one.number, one.recipe, one.randomness, one.examples)
            trials[one.number] = as_trial(whole, job, dict(one.values), phase=phase, continues=one.continues)
    return trials


def _sentence(scores: np.ndarray, count: int, scale: ScoreScale) -> str:
    if len(scores) < 2:
        return f"only {len(scores)} of {count} seeds produced a model: too few to measure the spread."
    shown = scale.on(scores)
    lost = f"; {count - len(scores)} of {count} seeds failed" if len(scores) < count else ""
    return (
        f"over {len(scores):,} seeds the {scale.name} is {scale.write(float(np.mean(shown)))} on average, with a "
        f"standard deviation of {scale.gap(float(np.std(shown, ddof=1)))}, from {scale.write(min(shown))} to "
        f"{scale.write(max(shown))}{lost}."
    )


def seed_distribution(
    recipe: Recipe,
    data: EvaluationData,
    executor: AbstractExecutor,
    count: int,
    *,
    first: int = 0,
    stop: Stop = lambda: False,
) -> SeedDistribution:
    """One recipe with `count` seeds: those of the trials with numbers from `first` on.

    When `stop` says so, the seeds that have ended by themselves are the answer.
    """
    if count < 1:
        raise RequestError(f"a distribution needs at least one seed; got {count}.")
    requests = [SeedRequest(number, recipe, number) for number in range(first, first + count)]
    found = run_requests(requests, data, executor, phase="seeds", stop=stop)
    trials = [found[number] for number in sorted(found)]
    scores = np.array([trial.score for trial in trials if trial.ok])
    failures: dict[str, int] = {}
    for trial in trials:
        if not trial.ok:
            failures[trial.outcome] = failures.get(trial.outcome, 0) + 1
    return SeedDistribution(
        tuple(scores.tolist()),
        float(scores.mean()) if len(scores) else math.nan,
        float(scores.std(ddof=1)) if len(scores) > 1 else math.nan,
        {str(level): float(np.quantile(scores, level)) for level in _LEVELS} if len(scores) else {},
        failures,
        _sentence(scores, len(trials), data.scale(recipe)),
        tuple(trials),
    )
