"""Trainings that share their examples, done together: those with one program in one population, the rest in turn.

for done in train_together(jobs, train, valid, outputs=10, key=key): ...
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ...curvature.objective import Examples
from ...training.population import program_signature
from ...training.state import for_building
from .cohort import Cohort, off_knobs, written_out
from .jobs import Done, Job
from .population_size import AbstractSlots, BySize


def train_together(
    jobs: Sequence[Job],
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    key: Any,
    slots: AbstractSlots | None = None,
) -> Iterator[Done]:
    """The jobs' results as they come. A job's own depends on the key, its `randomness` and its recipe alone."""
    varying = off_knobs(job.recipe for job in jobs)
    cohorts: dict[Any, Cohort] = {}
    for job in jobs:
        recipe = written_out(for_building(job.recipe, train), varying)
        mark = program_signature(recipe)
        if mark not in cohorts:
            cohorts[mark] = Cohort(train, valid, outputs, key, slots or BySize())
        cohorts[mark].queue.append((job, recipe))
    for cohort in cohorts.values():
        while cohort.busy:
            yield from cohort.refill()
            if not cohort.places:
                continue
            try:
                cohort.begin()
                yield from cohort.end()
            except Exception as problem:  # out of memory, or a mistake in a part: it costs trials, never the study
                yield from cohort.lost(problem)
        cohort.population = None  # its slots' memory goes back before the next program is made
