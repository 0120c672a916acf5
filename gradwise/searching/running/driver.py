"""The driver of a study: sends proposals out, and saves each trial as it comes in.

It holds the state of a running study. A study that was killed resumes from the saved trials: those that ended are never
run again, and proposals that did not finish are made again.
"""

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxtyping import Array, Key

from ...evaluation.trials.expected_best import noise_of, worth_going_on
from ...records.finding import Finding
from ...records.score_scale import ScoreScale
from ...records.study_analysis import PopulationHistory
from ...records.trial import Proposal, Trial, best_of
from ...runtime.progress import silent
from ...specs.adapters import as_criterion
from ...specs.recipe import Recipe
from ...specs.search_space import Space, label
from ..comparison.cheap_recipes import train_all_layers
from ..selection.racing import UNLIMITED, Race
from ..storage.job_checkpoints import EndedJobs, JobCheckpoints
from ..storage.network_store import Contenders
from ..storage.study_store import Store
from ..strategies.contract import AbstractStrategy, History
from ..strategies.range_borders import extend_ranges
from .evaluation_data import EvaluationData, Variant
from .executors import AbstractExecutor
from .jobs import Done, Job
from .run_jobs import as_trial, join_folds

Watch = Callable[[dict[str, Any]], None]
Fit = Callable[[Proposal], Proposal | None]
_CHECK_EVERY = 8  # trials between looks at the borders and at whether to go on


@dataclasses.dataclass
class _Running:
    """A trial under way: what was proposed, and those of its trainings that ended.

    One that `races` goes on only if its first fold was not behind; the jobs `held` back wait for that.
    """

    proposal: Proposal
    variants: tuple[Variant, ...]
    races: bool = False
    behind: bool = False
    held: list[Job] = dataclasses.field(default_factory=list)
    begun: float = dataclasses.field(default_factory=time.monotonic)
    done: dict[int, Done] = dataclasses.field(default_factory=dict)


def _is_run_of(entry: Recipe, recipe: Recipe) -> bool:
    """Whether the recipe is this one, perhaps for a shorter run."""
    return bool(dataclasses.replace(entry, stopping=recipe.stopping) == recipe)


class Driver:
    """One study under way."""

    def __init__(
        self,
        space: Space,
        data: EvaluationData,
        executor: AbstractExecutor,
        *,
        key: Key[Array, ""],
        store: Store | None = None,
        contenders: Contenders | None = None,
        watch: Watch = silent,
        trial_ended: Callable[[Trial], Any] = silent,
        asked: threading.Event | None = None,
        after: Callable[[dict[int, Trial], Contenders], Any] = lambda trials, contenders: None,
        begun: float | None = None,
        checkpoints: JobCheckpoints = JobCheckpoints(),
    ):
        self.space, self.data, self.executor, self.key, self.store = space, data, executor, key, store
        self.contenders = Contenders(None) if contenders is None else contenders  # an empty one is false
        self.watch, self.trial_ended, self.after = watch, trial_ended, after
        self.asked = asked or threading.Event()  # somebody wants it to end
        self.trials: dict[int, Trial] = {trial.number: trial for trial in (store.trials() if store else ())}
        self.contenders.forget_all_but(self.trials)
        self.next = max(self.trials, default=-1) + 1
        self.findings: list[Finding] = [*store.findings] if store is not None else []
        self.populations: tuple[PopulationHistory, ...] = ()  # what population-based training leaves for the record
        self.moved = False  # whether a border moved among the trials of one phase: they are no draws of one prior then
        self.first_ended = 0.0  # when, by the study's own clock
        self.waits: list[float] = []  # seconds between the start and the end of each whole trial of this run
        self.earlier = store.seconds if store else 0.0
        self.begun = self._told = time.monotonic() if begun is None else begun
        self._running: dict[int, _Running] = {}
        self.checkpoints, self._ended_jobs = checkpoints, EndedJobs(checkpoints)
        self._found: list[Done] = []  # jobs that had ended when the study was killed
        self._each = len(data.variants)
        self.features = as_criterion(space.recipe.criterion).learns_from == "inputs"
        # Codes of several networks mean different things: only predictions are put together.
        self._width = 0 if self.features else data.train.task.outputs
        self._budget: int | None = None  # trials of the phase that is explored

    @property
    def seconds(self) -> float:
        """Time spent on the study, in this run and in earlier ones."""
        return self.earlier + time.monotonic() - self.begun

    @property
    def best(self) -> Trial | None:
        return best_of(self.trials.values())

    @property
    def scale(self) -> ScoreScale:
        """How the scores of this study are read."""
        return self.data.scale(self.space.recipe)

    @property
    def noise(self) -> float:
        """The standard error of the best score."""
        best = self.best
        return math.nan if best is None else noise_of(best.score, len(self.data.judged), self.scale.kind)

    @property
    def trainings(self) -> int:
        """Trainings of the trials under way that have not ended."""
        return sum(len(one.variants) - len(one.done) for one in self._running.values())

    def of_phase(self, *phases: str) -> list[Trial]:
        return sorted((t for t in self.trials.values() if t.phase in phases), key=lambda trial: trial.number)

    # One trial.

    def _jobs(self, number: int, proposal: Proposal, variants: tuple[Variant, ...]) -> list[Job]:
        randomness = number if proposal.continues is None else proposal.continues
        recipe = self.data.as_judged(proposal.recipe)
        return [
            Job(number * 64 + place, recipe, randomness, proposal.examples, variant)
            for place, variant in enumerate(variants)
        ]

    def start(self, number: int, proposal: Proposal, variants: tuple[Variant, ...] = (), *, race: bool = False) -> None:
        """Gives a trial to the executor; of one that races the first fold, unless the others train beside it."""
        variants = variants or self.data.variants
        jobs = self._jobs(number, proposal, variants)
        races = race and number > 0 and len(jobs) > 1
        if races and number >= self._unlimited and 0 not in self._running and self.race is not None:
            jobs[0] = dataclasses.replace(jobs[0], limits=self.race.limits(proposal.recipe))
        now = 1 if races and not self.executor.folds_together else len(jobs)
        self._running[number] = _Running(proposal, variants, races, held=jobs[now:])
        self._submit(jobs[:now])
        self.next = max(self.next, number + 1)

    def _submit(self, jobs: list[Job]) -> None:
        """Gives jobs to the executor, but for those that had ended when the study was killed."""
        found = {job.number: done for job in jobs if (done := self._ended_jobs.find(job)) is not None}
        self._found += found.values()
        self.executor.submit([job for job in jobs if job.number not in found])

    @property
    def _unlimited(self) -> int:
        """Trials that may begin while the first one is under way."""
        return max(UNLIMITED, self.executor.most_folded) if self.executor.folds_together else UNLIMITED

    @functools.cached_property
    def race(self) -> Race | None:
        """What later trials are compared with, once the first one has ended; nothing if it left no model."""
        kept = self.contenders.find(0)
        return None if kept is None else Race(self.data, kept, self.trials[0].curve)

    def _decide(self, number: int, running: _Running) -> None:
        """Whether a trial that races goes on, if its first fold and the first trial have ended."""
        first = running.done.get(0)
        if not running.races or first is None or 0 in self._running or first.outcome == "out_of_time":
            return
        running.races = False
        bad = first.outcome in {"failed", "diverged"}
        running.behind = not bad and self.race is not None and self.race.is_behind(first)
        if bad or running.behind:
            self.executor.drop(range(number * 64 + 1, number * 64 + len(running.variants)))
            running.variants = running.variants[:1]
        elif running.held:
            self._submit(running.held)
            running.held = []

    def _take(self, ended: Iterable[Done], *, write: bool = True) -> list[Trial]:
        """Trials whose last training has ended, written down."""
        finished = []
        found, self._found = self._found, []
        for done in [*found, *ended]:
            number, place = divmod(done.number, 64)
            running = self._running.get(number)
            if running is None:
                continue
            running.done[place] = done
        for number, running in list(self._running.items()):  # the first trial before those that race against it
            self._decide(number, running)
            if not running.races and len(running.done) >= len(running.variants):
                del self._running[number]
                finished.append(self._finish(number, running, write))
                if not running.behind:
                    self.waits.append(time.monotonic() - running.begun)
        self._ended_jobs.keep(done for running in self._running.values() for done in running.done.values())
        self.spend()
        for trial in finished if write else ():  # after all were noted: whoever takes them may fail
            self.trial_ended(trial)
        return finished

    def _cut(self) -> list[Trial]:
        """Ends everything that runs. Where somebody asked for it the trials serve for now and are not written down: the
        study goes on with them as if it had not been stopped."""
        finished = self._take(self.executor.cut("out_of_time"), write=not self.asked.is_set())
        self._running.clear()
        return finished

    def _finish(self, number: int, running: _Running, write: bool) -> Trial:
        several = [running.done[place] for place in range(len(running.variants))]
        whole = dataclasses.replace(join_folds(self.data, several, running.variants, self._width), number=number)
        proposal = running.proposal
        if running.behind and self.race is not None:
            whole = self.race.estimate(whole)
        # What a cheap run chose is read off the full run that it stands for.
        chosen = self.space.values(proposal.recipe) | self.space.values(train_all_layers(proposal.recipe))
        if any(_is_run_of(one, proposal.recipe) for one in self.space.portfolio):
            chosen |= self.space.beyond(proposal.recipe)
        values = {path: label(value) for path, value in chosen.items()}
        job = Job(number, proposal.recipe, number, proposal.examples)
        phase = "cut" if whole.outcome == "out_of_time" and proposal.phase == "search" else proposal.phase
        trial = as_trial(whole, job, values, phase=phase, continues=proposal.continues)
        # The networks first: a kill between the two costs a training again, never a trial without its network.
        final = proposal.phase == "finalist"
        if trial.ok and (final or running.variants == self.data.variants):
            self.contenders.offer(whole, proposal.recipe, running.variants, always=final or number == 0)
        self._note(trial, write)
        if write:
            self._ended_jobs.forget(range(number * 64, (number + 1) * 64))  # those that were dropped too
        return trial

    def _note(self, trial: Trial, write: bool = True) -> None:
        if self.store is not None and write:
            self.store.add(trial)
        self.first_ended = self.first_ended if self.trials else self.seconds
        self.trials[trial.number] = trial
        self.next = max(self.next, trial.number + 1)

    def adopt(self, trials: Sequence[Trial], *, write: bool = True) -> None:
        """Takes in trials that were run beside; those not written down are run again when the study goes on."""
        for trial in trials:
            self._note(trial, write)
        self.spend()
        for trial in trials if write else ():
            self.trial_ended(trial)

    def spend(self) -> None:
        """Counts the time since it was last counted."""
        now = time.monotonic()
        if self.store is not None:
            self.store.spend(now - self._told)
            self.store.renew()
        self._told = now

    # Many trials.

    def _history(self, number: int) -> History:
        running = tuple((n, one.proposal) for n, one in sorted(self._running.items()))
        return History(tuple(self.trials[n] for n in sorted(self.trials)), running, number, self._budget)

    def _holes(self, strategy: AbstractStrategy) -> list[int]:
        """Numbers that were asked for and never finished, where asking again gives the same proposal."""
        if strategy.looks_back:
            return []
        return [n for n in range(self.next) if n not in self.trials and n not in self._running]

    def _ask(self, strategy: AbstractStrategy, count: int, phase: str, race: bool, fit: Fit) -> int:
        """Starts at most so many trials; how many there were."""
        numbers = [(number, 1) for number in self._holes(strategy)[:count]]
        started = 0
        for number, many in [*numbers, (self.next, count - len(numbers))]:
            asked = strategy.ask(self.space, self._history(number), many, key=self.key) if many else []
            for place, proposal in enumerate(asked, number):
                fitting = fit(dataclasses.replace(proposal, phase=phase))
                if fitting is None:
                    return started
                self.start(place, fitting, race=race and fitting.recipe is proposal.recipe)
                started += 1
        return started

    def tell(self, phase: str, total: float, done: int | None = None) -> None:
        """Says how far a phase has come, to whoever watches; `after` sees the trials that have ended."""
        self.after(self.trials, self.contenders)
        self.watch(
            {
                "phase": phase,
                "done": len(self.of_phase(phase)) if done is None else done,
                "total": total,
                "running": len(self._running),
                "failed": sum(not trial.ok for trial in self.trials.values()),
                "best": math.nan if (best := self.best) is None else best.score,
                "seconds": self.seconds,
            }
        )

    def explore(
        self,
        strategy: AbstractStrategy,
        *,
        trials: int | None = None,
        until: float = math.inf,
        phase: str = "search",
        borders: bool = False,
        stop_early: bool = False,
        few: bool = False,
        race: bool = False,
        fit: Fit = lambda proposal: proposal,
    ) -> str:
        """Trials by a strategy until there are `trials` of them, the study is `until` seconds old, or it has no more.

        With `borders`, ends of intervals that hold the best value are moved out on the way; with `stop_early` it ends
        when more trials are no longer worth it; `few` run at a time where it is better that some end than that all have
        begun. Trials that `race` have all their folds only if the first was not behind (see `racing.py`). `fit` makes a
        proposal one that ends in time, or none. Returns how it ended.
        """
        self._budget = trials
        looked = 0
        enough = False
        while True:
            left = math.inf if trials is None else trials - len(self.of_phase(phase)) - len(self._running)
            late = self.seconds >= until
            if self.asked.is_set() or late:
                first = not self.trials and late and not self.asked.is_set()  # one trial runs, whatever the budget
                if not first:
                    self._cut()
                    return "interrupted" if self.asked.is_set() else "out_of_time"
            room = 0 if late else self._room(looks_back=few or strategy.looks_back, race=race)
            wanted = int(min(left, max(room, 0 if self._running else 1)))
            started = self._ask(strategy, wanted, phase, race, fit) if wanted > 0 and not enough else 0
            if not self._running and not started:
                return "enough" if enough else "finished"
            self._take(self.executor.wait(0.25))
            self.tell(phase, math.inf if trials is None else trials)
            count = len(self.of_phase(phase))
            if count >= looked + _CHECK_EVERY:
                looked = count
                if borders:
                    self.moved = self.follow_borders() or self.moved
                enough = stop_early and not self._worth_going_on(strategy)

    def _room(self, *, looks_back: bool, race: bool = False) -> int:
        """Trials that may start now; with folds few at a time."""
        jobs = self.executor.room(looks_back=looks_back)
        if self._each == 1:
            return jobs
        most = self.executor.most_folded - len(self._running)
        if not race:
            return min(jobs // self._each, max(0, most))
        if 0 in self._running:
            most = min(most, self._unlimited - self.next)
        if self.executor.folds_together:
            return min(jobs // self._each, max(0, most))
        undecided = sum(bool(one.held) for one in self._running.values())
        return min(jobs, max(0, most), max(0, self.executor.hands - undecided))

    def _worth_going_on(self, strategy: AbstractStrategy) -> bool:
        trials = list(self.trials.values())
        worst = self.data.chance(self.scale.kind)
        return worth_going_on(trials, worst=worst, noise=self.noise, independent=strategy.independent)

    def follow_borders(self, trials: Iterable[Trial] | None = None) -> bool:
        """Moves out the ends that hold the best value, of these trials or of all (row E4); whether any moved."""
        looked = self.trials.values() if trials is None else trials
        wider, said = extend_ranges(self.space, [t for t in looked if t.phase != "cut"])
        moved = wider != self.space
        self.space = wider
        if moved:
            self.findings += said
        return moved

    def run(
        self,
        proposals: Sequence[tuple[Proposal, tuple[Variant, ...]]],
        *,
        first: int | None = None,
        until: float = math.inf,
    ) -> list[Trial]:
        """These trials, numbered from `first` on; those not finished in time are left out, those there are not run."""
        start = self.next if first is None else first
        waiting = [(n, *one) for n, one in enumerate(proposals, start) if n not in self.trials]
        phase = proposals[0][0].phase if proposals else ""
        finished: list[Trial] = []
        while waiting or self._running:
            if self.asked.is_set() or self.seconds >= until:
                finished += self._cut()
                break
            while waiting and (not self._running or self._room(looks_back=False) > 0):
                self.start(*waiting.pop(0))
            finished += self._take(self.executor.wait(0.25))
            self.tell(phase, len(proposals))
        return [trial for trial in finished if trial.ok]
