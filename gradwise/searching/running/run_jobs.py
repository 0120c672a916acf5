"""Small studies of their own: run these jobs, bring back what they did."""

from collections.abc import Callable, Iterable

from ...records.trial import Trial
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
