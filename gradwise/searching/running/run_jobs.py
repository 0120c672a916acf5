"""Runs a list of jobs and returns their results, with the folds of a trial combined."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...records.trial import Trial
from .evaluation_data import EvaluationData, Variant
from .executors import AbstractExecutor
from .jobs import Done, Job


def run_jobs(
    executor: AbstractExecutor,
    jobs: Iterable[Job],
    *,
    each: Callable[[Done], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[int, Done]:
    """All jobs, by number; `each` is called as they end. When `stop` says so, what runs is cut as it stands."""
    jobs = list(jobs)
    executor.submit(jobs)
    found: dict[int, Done] = {}

    def take(ended: list[Done]) -> None:
        for done in ended:
            found[done.number] = done
            each(done)

    while len(found) < len(jobs):
        if stop():
            take(executor.cut("out_of_time"))
            break
        take(executor.wait(0.5))
    return found


def mean_curve(curves: Sequence[dict[str, list[float]]], sizes: Sequence[int]) -> dict[str, list[float]]:
    """The curve of a trial of several trainings, where all were validated at the same ages; nothing where not."""
    ages = [curve.get("age_examples", []) for curve in curves]
    if not ages[0] or any(one != ages[0] for one in ages):
        return {}
    means = {"valid_score", "valid_loss", "train_loss"} & set(curves[0])
    averages = {name: np.average([curve[name] for curve in curves], axis=0, weights=sizes).tolist() for name in means}
    return {name: averages.get(name, column) for name, column in curves[0].items()}


def join_folds(data: EvaluationData, several: Sequence[Done], variants: Sequence[Variant], width: int) -> Done:
    """The trainings of one trial as one: its scores are those of all examples that judged them.

    The first that failed speaks for all. `width` is that of a prediction; 0 where none are put together.
    """
    bad = next((done for done in several if done.outcome in {"failed", "diverged"}), None)
    if len(several) == 1:
        return several[0]
    if bad is not None:
        return dataclasses.replace(bad, scores=None, outputs=None, network=None)
    scores = np.zeros(len(data.pool), np.float32)
    outputs = np.full((len(data.pool), width), np.nan, np.float32)
    sizes = []
    for done, variant in zip(several, variants, strict=True):
        rows = data.judged_rows(variant)
        sizes.append(len(rows))
        if done.scores is not None:
            # An example more, that counts nothing, made the others count for more.
            scores[rows] = done.scores[: len(rows)] * (len(rows) / len(done.scores))
        if done.outputs is not None and width:
            outputs[rows] = done.outputs[: len(rows)]
    longest = max(several, key=lambda done: len(done.curve.get("seconds", ())))
    curve = mean_curve([done.curve for done in several], sizes) or longest.curve

    def mean(name: str) -> float:
        return float(np.average([getattr(done, name) for done in several], weights=sizes))

    return dataclasses.replace(
        longest,
        curve=curve,
        outcome="out_of_time" if any(d.outcome == "out_of_time" for d in several) else longest.outcome,
        score=mean("score"),
        loss=mean("loss"),
        train_loss=mean("train_loss"),
        seconds=sum(done.seconds for done in several),
        parameters=sum(done.parameters for done in several),
        scores=scores,
        outputs=None if not width or np.isnan(outputs).any() else outputs,
        network=tuple(done.network for done in several),
    )


def as_trial(done: Done, job: Job, values: dict[str, object], *, phase: str, continues: int | None = None) -> Trial:
    """What is written down of a job that ended."""
    return Trial(
        number=done.number,
        recipe=job.recipe,
        values=values,
        outcome=done.outcome,
        score=done.score,
        loss=done.loss,
        train_loss=done.train_loss,
        age_examples=done.age_examples,
        best_age=done.best_age,
        seconds=done.seconds,
        parameters=done.parameters,
        curve=done.curve,
        reason=done.reason,
        examples=job.examples,
        continues=continues,
        phase=phase,
    )
