"""A study by population-based training (row J8): a sequence of populations, each saved when it ends.

    search(space, dataset, strategy=PopulationBasedTraining(), budget=Budget(trials=16), key=key)

A budget of trials is one population of so many members; with a budget of time there are populations of `members`
until it is over. A member is a trial: its network is the best that its slot has held, its values are the knobs at that
moment. What a slot went through is in the study's analysis, under "populations".

After every generation the population is written to `population/` in the study's folder, and a study that was killed or
interrupted, or that is given more time, goes on from there to the same end.
"""

import dataclasses
import json
import math
import re
import shutil
import time
from pathlib import Path
from typing import Any

import jax

from ...records.plain_values import from_values, to_values
from ...records.study_analysis import PopulationHistory
from ...records.trial import Trial
from ...runtime.errors import RequestError, WorkError
from ...runtime.files import write_whole
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ...training.checkpoint import load_checkpoint, save_checkpoint
from ...training.stopping import Off
from ..running.driver import Driver
from ..running.evaluation_data import WHOLE, EvaluationData
from ..running.jobs import Done, Job
from ..running.run_jobs import as_trial
from ..running.study_clock import SearchPlan
from ..selection.committee_members import ANSWERS
from ..storage.budget import Budget
from .population_based_training import BestSeen, Evolution, PopulationBasedTraining, check_population
from .random_search import chosen_values

FOLDER = "population"
_INTERVALS = 40  # where the recipe leaves its end to early stopping


def plan_populations(
    strategy: PopulationBasedTraining, space: Space, budget: Budget, plan: SearchPlan, on: str | None
) -> SearchPlan:
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
    if on not in (None, "here", "cpu", "gpu"):
        raise RequestError(f"`{on}`: pbt trains in one process. Use here, cpu or gpu.")
    return dataclasses.replace(plan, folds=1)


def device_of_population(on: str | None) -> str:
    """Who trains a population: this process, on the device that was asked for."""
    if on == "cpu":
        jax.config.update("jax_platforms", "cpu")
    return "gpu" if on == "gpu" else "here"


def _with_length(strategy: PopulationBasedTraining, recipe: Recipe, data: EvaluationData) -> tuple[Recipe, int]:
    """How many intervals members train for; a recipe of fixed length gets it, so that its schedules end with it."""
    rows, judged = len(data.train), len(data.valid)
    each = recipe.stopping.interval_examples(rows, judged)
    if not isinstance(recipe.stopping, Off):
        return recipe, strategy.intervals or _INTERVALS
    intervals = strategy.intervals or max(1, math.ceil(recipe.stopping.limit_examples(rows) / each))
    stopping = dataclasses.replace(recipe.stopping, epochs=intervals * each / rows)
    return dataclasses.replace(recipe, stopping=stopping), intervals


class _PopulationRun:
    """One population of a study, from its first interval, or from where it was left, to its trials."""

    def __init__(self, driver: Driver, strategy: PopulationBasedTraining, size: int, first: int, folder: Path | None):
        self.driver, self.every, self.folder = driver, strategy.every, folder
        recipe, intervals = _with_length(strategy, driver.space.recipe, driver.data)
        space = dataclasses.replace(driver.space, recipe=recipe)
        check_population(space, size, strategy.every)
        self.evolution = Evolution(space, driver.data, size=size, intervals=intervals, first=first)
        self.mark = json.dumps([first, size, intervals, strategy.every, list(driver.data.words)])
        self.seconds, self.begun = 0.0, time.monotonic()
        saved = None if folder is None else load_checkpoint(folder, self.evolution.population.states, self.mark)
        if saved is not None:
            self.evolution.restore(saved)
            self.seconds = saved.seconds

    @property
    def spent(self) -> float:
        return self.seconds + time.monotonic() - self.begun

    def _save(self) -> None:
        if self.folder is not None:
            save_checkpoint(self.folder, self.evolution.to_saved(self.spent), self.mark)

    def _tell(self) -> None:
        evolution = self.evolution
        lost = sum(not math.isfinite(score) for score in evolution.history[-1].scores)
        self.driver.watch(
            {
                "phase": FOLDER,
                "done": len(evolution.history),
                "total": evolution.intervals,
                "running": evolution.size,
                "failed": lost,
                "best": min(held.score for held in evolution.held),
                "seconds": self.driver.seconds,
            }
        )

    def run(self, until: float) -> bool:
        """Intervals up to the last; whether it was reached. One is made whatever the time."""
        evolution, driver = self.evolution, self.driver
        while len(evolution.history) < evolution.intervals:
            if evolution.history and (driver.asked.is_set() or driver.seconds >= until):
                self._save()
                return False
            evolution.interval()
            number = len(evolution.history)
            if number % self.every == 0:
                if number < evolution.intervals:
                    evolution.exploit()
                self._save()
            self._tell()
            driver.spend()
        return True

    def _curve(self, slot: int) -> dict[str, list[float]]:
        """What was seen along the line of a slot's ancestors."""
        history = self.evolution.history
        line = list(enumerate(self.evolution.lineage(len(history) - 1, slot)))
        share = self.spent / self.evolution.size / len(history)
        return {
            "age_examples": [float(history[n].age_examples) for n, _ in line],
            "valid_score": [history[n].scores[place] for n, place in line],
            "valid_loss": [history[n].losses[place] for n, place in line],
            "train_loss": [history[n].train_losses[place] for n, place in line],
            "seconds": [share * (n + 1) for n, _ in line],
        }

    def _done(self, slot: int, held: BestSeen, outcome: str) -> Done:
        """A member as a training that ended."""
        evolution = self.evolution
        last = evolution.history[-1].age_examples
        about: dict[str, Any] = {"seconds": self.spent / evolution.size, "curve": self._curve(slot)}
        about |= {"age_examples": last, "parameters": self._parameters()}
        if held.interval < 0:
            return Done(evolution.first + slot, "diverged", **about)
        network, scores, outputs = evolution.population.best(slot)
        moment = evolution.history[held.interval]
        return Done(
            evolution.first + slot,
            outcome,
            score=held.score,
            loss=held.loss,
            train_loss=moment.train_losses[held.slot],
            best_age=moment.age_examples,
            scores=scores.astype("float32"),
            outputs=outputs.astype("float32"),
            network=network,
            **about,
        )

    def _parameters(self) -> int:
        leaves = jax.tree.leaves(self.evolution.population.state_of(0).parameters)
        return sum(leaf.size for leaf in leaves)

    def conclude(self, ended: bool) -> list[Trial]:
        """Every member as a trial; those of a population that has not ended serve for now and are not written down."""
        evolution, driver = self.evolution, self.driver
        trials: list[Trial] = []
        offered: set[BestSeen] = set()  # siblings may hold one and the same ancestor: it answers once
        for slot, held in enumerate(evolution.held):
            done = self._done(slot, held, "finished" if ended else "out_of_time")
            at = max(0, held.interval)
            knobs = evolution.history[at].knobs[held.slot if held.interval >= 0 else slot]
            recipe = evolution.space.recipe_of(knobs)
            if held not in offered:
                driver.contenders.offer(done, recipe, (WHOLE,))
            offered.add(held)
            job = Job(done.number, recipe, done.number)
            values = chosen_values(evolution.space, recipe)
            trials.append(as_trial(done, job, values, phase="search" if ended else "cut"))
        # After a kill some may have been written down already.
        driver.adopt([trial for trial in trials if trial.number not in driver.trials], write=ended)
        return trials

    def story(self) -> PopulationHistory:
        """What the report draws: at every generation each member's knobs, score and parent, and the winner's line."""
        evolution = self.evolution
        history = evolution.history
        shown = [n for n in range(len(history)) if (n + 1) % self.every == 0 or n == len(history) - 1]
        best = min(evolution.held, key=lambda held: held.rank)
        line = evolution.lineage(best.interval, best.slot) if best.interval >= 0 else ()
        paths = evolution.space.paths
        rounded = {
            path: tuple(tuple(float(f"{k[path]:.6g}") for k in history[n].knobs) for n in shown) for path in paths
        }
        return PopulationHistory(
            first=evolution.first,
            members=evolution.size,
            intervals=len(history),
            every=self.every,
            changing=tuple(evolution.changing),
            ages=tuple(history[n].age_examples for n in shown),
            scores=tuple(tuple(s if math.isfinite(s) else math.nan for s in history[n].scores) for n in shown),
            parents=tuple(tuple(history[n].parents) for n in shown),
            knobs=rounded,
            lineage=tuple(line[n] for n in shown if n < len(line)),
            best_score=best.score,
            copies=sum(place != own for one in history for own, place in enumerate(one.parents)),
        )


def _stories(folder: Path | None) -> list[PopulationHistory]:
    """Those of populations that have ended."""
    found = []
    for path in [] if folder is None else sorted(folder.glob("*.json")):
        try:
            found.append(from_values(PopulationHistory, json.loads(path.read_text())))
        except ValueError:
            raise WorkError(f"{path} is damaged. Delete it: the study can be resumed without that history.") from None
    return sorted(found, key=lambda story: story.first)


def _left(folder: Path | None) -> tuple[int, int] | None:
    """The first number and the size of a population that has not ended: its folder is called by them."""
    for path in [] if folder is None else folder.iterdir():
        if path.is_dir() and (found := re.fullmatch(r"(\d+)-(\d+)", path.name)):
            return int(found[1]), int(found[2])
    return None


def train_populations(
    driver: Driver, strategy: PopulationBasedTraining, *, trials: int | None, until: float, folder: Path | None
) -> None:
    """Populations until there are so many members, or the study is so old; the driver keeps their histories."""

    def late() -> bool:
        return driver.asked.is_set() or driver.seconds >= until

    place = None if folder is None else folder / FOLDER
    if place is not None:
        place.mkdir(exist_ok=True)
    stories = _stories(place)
    whole = True
    while whole:
        there = len(driver.of_phase("search"))
        left = _left(place)
        if left is None and (there >= (math.inf if trials is None else trials) or (there and late())):
            break
        size = strategy.members if trials is None else trials - there
        first, size = left or (there, size)
        own = None if place is None else place / f"{first}-{size}"
        run = _PopulationRun(driver, strategy, size, first, own)
        if own is not None:  # not before: one that is refused is not gone on with
            own.mkdir(exist_ok=True)
        whole = run.run(until)
        run.conclude(whole)
        stories = [*(story for story in stories if story.first != first), run.story()]
        if place is not None and own is not None and whole:
            write_whole(place / f"{first}.json", json.dumps(to_values(stories[-1])).encode())
            shutil.rmtree(own)
    driver.populations = tuple(stories)
