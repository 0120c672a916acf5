"""A study by population-based training (row J8): populations, each a job of the study's executor, saved when it ends.

    search(space, dataset, strategy=PopulationBasedTraining(), budget=Budget(trials=16), key=key)

A budget of trials is one population of so many members; with a budget of time there are populations of `members`
until it is over, as many side by side as there are workers. A member is a trial: its network is the best that its slot
has held, its values are the knobs at that moment. What a slot went through is in the study's analysis, under
"populations".

After every generation a population is written to `population/` in the study's folder, and a study that was killed or
interrupted, or that is given more time, goes on from there to the same end.
"""

import dataclasses
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import jax

from ...records.plain_values import from_values, to_values
from ...records.study_analysis import PopulationHistory
from ...runtime.errors import RequestError, WorkError
from ...runtime.files import write_whole
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ...training.stopping import Off
from ..running.driver import Driver
from ..running.evaluation_data import WHOLE, EvaluationData
from ..running.jobs import Done, Job, PopulationPlan, PopulationReport
from ..running.run_jobs import as_trial
from ..running.study_clock import SearchPlan
from ..selection.committee_members import ANSWERS
from ..storage.budget import Budget
from .population_based_training import PopulationBasedTraining, check_population
from .random_search import chosen_values

FOLDER = "population"
_INTERVALS = 40  # where the recipe leaves its end to early stopping


def plan_populations(strategy: PopulationBasedTraining, space: Space, budget: Budget, plan: SearchPlan) -> SearchPlan:
    """The plan of a study by populations, which has one validation set. Raises on unsupported options."""
    check_population(space, budget.trials or strategy.members, strategy.every)
    if plan.committee not in ANSWERS:
        raise RequestError(
            f"committee `{plan.committee}` retrains a setting, which pbt cannot do: its settings change during "
            f"training. Use {', '.join(ANSWERS[:-1])} or {ANSWERS[-1]}."
        )
    if (plan.folds or 1) > 1:
        raise RequestError(f"{plan.folds} folds: pbt uses one validation set. Leave out the folds.")
    if plan.batch_size:
        raise RequestError("pbt cannot choose the mini-batch size, which needs whole runs. Leave it out.")
    return dataclasses.replace(plan, folds=1)


def device_of_population(on: str | None) -> str:
    """Who trains populations: this process with all its cores, unless something else is asked for."""
    if on == "cpu":
        jax.config.update("jax_platforms", "cpu")
    return "here" if on in (None, "cpu") else on


def _with_length(strategy: PopulationBasedTraining, recipe: Recipe, data: EvaluationData) -> tuple[Recipe, int]:
    """How many intervals members train for; a recipe of fixed length gets it, so that its schedules end with it."""
    rows, judged = len(data.train), len(data.valid)
    each = recipe.stopping.interval_examples(rows, judged)
    if not isinstance(recipe.stopping, Off):
        return recipe, strategy.intervals or _INTERVALS
    intervals = strategy.intervals or max(1, math.ceil(recipe.stopping.limit_examples(rows) / each))
    stopping = dataclasses.replace(recipe.stopping, epochs=intervals * each / rows)
    return dataclasses.replace(recipe, stopping=stopping), intervals


def _stories(folder: Path | None) -> dict[int, PopulationHistory]:
    """Those of populations that have ended, by their first number."""
    found = {}
    for path in [] if folder is None else folder.glob("*.json"):
        try:
            story = from_values(PopulationHistory, json.loads(path.read_text()))
        except ValueError:
            raise WorkError(f"{path} is damaged. Delete it: the study can be resumed without that history.") from None
        found[story.first] = story
    return found


def _left(folder: Path | None) -> list[tuple[int, int]]:
    """The first number and the size of each population that has not ended: its folder is called by them."""
    names = [] if folder is None else [path.name for path in folder.iterdir() if path.is_dir()]
    return sorted((int(found[1]), int(found[2])) for name in names if (found := re.fullmatch(r"(\d+)-(\d+)", name)))


class _Populations:
    """The populations of a study: those left by an earlier run, those under way, and the stories of all."""

    def __init__(self, driver: Driver, strategy: PopulationBasedTraining, trials: int | None, folder: Path | None):
        self.driver, self.strategy, self.trials = driver, strategy, trials
        recipe, self.intervals = _with_length(strategy, driver.space.recipe, driver.data)
        self.space = dataclasses.replace(driver.space, recipe=recipe)
        self.folder = None if folder is None else folder.resolve() / FOLDER  # workers find it by its full path
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
        self.stories, self.left = _stories(self.folder), _left(self.folder)
        self.running: dict[int, PopulationPlan] = {}
        self.reports: dict[int, PopulationReport] = {}

    def _next(self, late: bool) -> tuple[int, int] | None:
        """The first number and the size of the population to start now. One runs, whatever the budget."""
        if self.left:
            return self.left.pop(0)
        taken = set(self.driver.trials).union(*(range(n, n + plan.members) for n, plan in self.running.items()))
        size = self.strategy.members if self.trials is None else self.trials - len(taken)
        if size <= 0 or (late and taken):
            return None
        return next(n for n in itertools.count() if taken.isdisjoint(range(n, n + size))), size

    def start(self, late: bool) -> None:
        """Gives populations to the executor, one to each that can train."""
        executor, every = self.driver.executor, self.strategy.every
        while len(self.running) < executor.hands and (found := self._next(late)) is not None:
            first, size = found
            check_population(self.space, size, every)
            folder = None if self.folder is None else self.folder / f"{first}-{size}"
            self.running[first] = plan = PopulationPlan(self.space, size, self.intervals, every, folder)
            executor.submit([Job(first, self.space.recipe, first, population=plan)])

    def take(self, done: Done) -> None:
        """Notes how far a population has come, or its members where it ended."""
        if done.outcome == "refused":
            raise RequestError(done.reason)
        if done.report is None:
            raise WorkError(f"the population of trial {done.number} failed: {done.reason}")
        if done.ended:
            self._conclude(self.running.pop(done.number), done, done.report)
            self.reports.pop(done.number, None)
        else:
            self.reports[done.number] = done.report

    def _conclude(self, plan: PopulationPlan, done: Done, report: PopulationReport) -> None:
        """Every member as a trial; those of a population that has not ended serve for now and are not written down."""
        driver, whole = self.driver, done.outcome == "finished"
        trials = []
        for member, knobs in report.members:
            recipe = plan.space.recipe_of(knobs)
            driver.contenders.offer(member, recipe, (WHOLE,))
            job = Job(member.number, recipe, member.number)
            values = chosen_values(plan.space, recipe)
            trials.append(as_trial(member, job, values, phase="search" if whole else "cut"))
        # After a kill some may have been written down already.
        driver.adopt([trial for trial in trials if trial.number not in driver.trials], write=whole)
        assert report.story is not None
        self.stories[done.number] = report.story
        if self.folder is not None and plan.folder is not None and whole:
            write_whole(self.folder / f"{done.number}.json", json.dumps(to_values(report.story)).encode())
            shutil.rmtree(plan.folder, ignore_errors=True)  # a machine that does not see it has written none

    def tell(self) -> None:
        """Says how far those under way have come."""
        reports = self.reports.values()
        self.driver.watch(
            {
                "phase": FOLDER,
                "done": sum(report.intervals for report in reports),
                "total": self.intervals * len(self.running),
                "running": sum(plan.members for plan in self.running.values()),
                "failed": sum(report.lost for report in reports),
                "best": min(report.best for report in reports),
                "seconds": self.driver.seconds,
            }
        )


def train_populations(
    driver: Driver, strategy: PopulationBasedTraining, *, trials: int | None, until: float, folder: Path | None
) -> None:
    """Populations until there are so many members, or the study is so old; the driver keeps their histories.

    When time is up, or somebody asks for it, those under way are cut, once there is one that has made an interval.
    """
    several = _Populations(driver, strategy, trials, folder)
    begun = cut = False
    while not cut:
        late = driver.asked.is_set() or driver.seconds >= until
        several.start(late)
        if not several.running:
            break
        cut = late and begun
        found = driver.executor.cut("out_of_time") if cut else driver.executor.wait(0.25)
        for done in found:
            several.take(done)
        begun = begun or bool(found)
        if not cut and not all(done.ended for done in found):
            several.tell()
        driver.spend()
    driver.populations = tuple(several.stories[first] for first in sorted(several.stories))
