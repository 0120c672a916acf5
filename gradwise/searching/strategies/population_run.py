"""One population of a study, as a device runner trains it, wherever an executor sent its job (row J8).

    run = PopulationRun(job, data)
    while not (done := run.turn()).ended:       an interval of every member
        ...
    run.cut("out_of_time")                      or its members as they stand

Every generation is written to the job's folder, where that can be seen: whoever gets the job next goes on from there to
the same end.
"""

import contextlib
import json
import math
import time
from typing import Any

import jax

from ...records.study_analysis import PopulationHistory
from ...training.checkpoint import load_checkpoint, save_checkpoint
from ..running.evaluation_data import EvaluationData
from ..running.jobs import Done, Job, PopulationReport
from .population_based_training import BestSeen, Evolution


class PopulationRun:
    """The population of a job, from its first interval, or from where it was left, to its members."""

    def __init__(self, job: Job, data: EvaluationData):
        assert job.population is not None
        self.plan, self.number, self.begun, self.seconds = job.population, job.number, time.monotonic(), 0.0
        plan = self.plan
        self.evolution = Evolution(plan.space, data, size=plan.members, intervals=plan.intervals, first=job.number)
        self._mark = json.dumps([job.number, plan.members, plan.intervals, plan.every, list(data.words)])
        saved = None
        if plan.folder is not None:
            saved = load_checkpoint(plan.folder, self.evolution.population.states, self._mark)
        if saved is not None:
            self.evolution.restore(saved)
            self.seconds = saved.seconds

    @property
    def spent(self) -> float:
        return self.seconds + time.monotonic() - self.begun

    @property
    def _complete(self) -> bool:
        return len(self.evolution.history) >= self.plan.intervals

    def _save(self) -> None:
        folder = self.plan.folder
        if folder is None or not folder.parent.is_dir():
            return  # a machine of a cluster that does not share the study's folder
        # A population does not end because it cannot be written; where the disk is full, the trials' store says so.
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            save_checkpoint(folder, self.evolution.to_saved(self.spent), self._mark)

    def turn(self) -> Done:
        """One interval; where none is left, the end."""
        if self._complete:
            return self._end("finished")
        evolution = self.evolution
        evolution.interval()
        if len(evolution.history) % self.plan.every == 0:
            if not self._complete:
                evolution.exploit()
            self._save()
        return Done(self.number, "running", report=self._report())

    def cut(self, outcome: str) -> list[Done]:
        """Its members as they stand; none before the first interval."""
        if not self.evolution.history:
            return []
        self._save()
        return [self._end("finished" if self._complete else outcome)]

    def _report(self, **about: Any) -> PopulationReport:
        history, held = self.evolution.history, self.evolution.held
        lost = sum(not math.isfinite(score) for score in history[-1].scores)
        return PopulationReport(len(history), lost, min(one.score for one in held), **about)

    def _end(self, outcome: str) -> Done:
        members, seen = [], set[BestSeen]()
        spent = self.spent / self.plan.members
        for slot, held in enumerate(self.evolution.held):
            at = max(0, held.interval)
            knobs = self.evolution.history[at].knobs[held.slot if held.interval >= 0 else slot]
            members.append((self._member(slot, held, outcome, spent, repeated=held in seen), knobs))
            seen.add(held)
        return Done(self.number, outcome, report=self._report(members=tuple(members), story=self._story()))

    def _curve(self, slot: int, seconds: float) -> dict[str, list[float]]:
        """What was seen along the line of a slot's ancestors."""
        history = self.evolution.history
        line = list(enumerate(self.evolution.lineage(len(history) - 1, slot)))
        return {
            "age_examples": [float(history[n].age_examples) for n, _ in line],
            "valid_score": [history[n].scores[place] for n, place in line],
            "valid_loss": [history[n].losses[place] for n, place in line],
            "train_loss": [history[n].train_losses[place] for n, place in line],
            "seconds": [seconds * (n + 1) / len(history) for n, _ in line],
        }

    def _member(self, slot: int, held: BestSeen, outcome: str, seconds: float, *, repeated: bool) -> Done:
        """A member as a training that ended."""
        evolution, number = self.evolution, self.number + slot
        arrays = jax.tree.leaves(evolution.population.states.parameters)
        parameters = sum(leaf.size for leaf in arrays) // evolution.size
        about: dict[str, Any] = {"seconds": seconds, "curve": self._curve(slot, seconds), "parameters": parameters}
        about["age_examples"] = evolution.history[-1].age_examples
        if held.interval < 0:
            return Done(number, "diverged", **about)
        moment = evolution.history[held.interval]
        about |= {"score": held.score, "loss": held.loss, "best_age": moment.age_examples}
        about["train_loss"] = moment.train_losses[held.slot]
        if not repeated:
            network, scores, outputs = evolution.population.best(slot)
            about |= {"network": network, "scores": scores.astype("float32"), "outputs": outputs.astype("float32")}
        return Done(number, outcome, **about)

    def _story(self) -> PopulationHistory:
        """What the report draws: at every generation each member's knobs, score and parent, and the winner's line."""
        evolution, every = self.evolution, self.plan.every
        history = evolution.history
        shown = [n for n in range(len(history)) if (n + 1) % every == 0 or n == len(history) - 1]
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
            every=every,
            changing=tuple(evolution.changing),
            ages=tuple(history[n].age_examples for n in shown),
            scores=tuple(tuple(s if math.isfinite(s) else math.nan for s in history[n].scores) for n in shown),
            parents=tuple(tuple(history[n].parents) for n in shown),
            knobs=rounded,
            lineage=tuple(line[n] for n in shown if n < len(line)),
            best_score=best.score,
            copies=sum(place != own for one in history for own, place in enumerate(one.parents)),
        )
