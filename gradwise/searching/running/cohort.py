"""Cohorts: trials that share one compiled program, trained in the slots of one population.

Recipes that differ only in knobs share a program. So do recipes that differ in widths, once their arrays are padded to
the same buckets, and recipes of which some have a knob at its `off` value, once that value is written as a number like
any other. What matters is the program: two recipes whose networks start differently train in one population.

A cohort is a queue and a population. One interval at a time, those that ended leave and the queue refills their slots.
"""

import collections
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Container, Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ...curvature.objective import Examples
from ...models.mlp import MlpNetwork
from ...models.padded_mlp import trimmed
from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.knobs import declarations
from ...specs.paths import get, knobs
from ...specs.recipe import Recipe
from ...specs.search_space import exists
from ...training.checkpoint import Saved
from ...training.interval import AT_ONCE, Row
from ...training.loop import CALL_SECONDS
from ...training.population import (
    Member,
    Population,
    enter,
    enter_together,
    fold_of,
    free_bytes,
    program_signature,
    slot_bytes,
)
from ...training.state import State
from ..storage.job_checkpoints import JobCheckpoints, RunningJobs
from .jobs import Done, Job
from .population_size import AbstractSlots

_COLUMNS = ("age_examples", "valid_score", "valid_loss", "train_loss")
_LONGEST_CURVE = 200  # points of a trial's curve that are kept
_TOGETHER = 32  # jobs from which on one call for all of them is worth its program


def bucket(width: int, *, coarse: bool = False, widest: int = 0) -> int:
    """The size of array for a layer of this width: few sizes for many widths, little of each unused.

    16, 64, then multiples of 64. With `coarse` 64, 256, then powers of two: on an accelerator size costs less. Where
    networks reach `widest` units, none is smaller than 256 there, and none larger than the widest.
    """
    if not coarse:
        return 16 if width <= 16 else -(-width // 64) * 64
    size = 64
    while size < width:
        size *= 4 if size == 64 else 2
    most = -(-widest // 64) * 64
    return min(max(size, 256), most) if width <= most else size


def _at(path: str) -> Callable[[Any], Any]:
    return lambda node: get(node, path)


def written_out(recipe: Recipe, paths: Iterable[str]) -> Recipe:
    """The recipe with these knobs as numbers that the program reads, also where they stand at their `off` value."""
    for path in paths:
        head, _, name = path.rpartition(".")
        if not exists(recipe, head):
            continue
        spec = get(recipe, head)
        if name in dict(declarations(spec)) and type(getattr(spec, name)) is float:
            recipe = eqx.tree_at(_at(path), recipe, np.float64(getattr(spec, name)))
    return recipe


def off_knobs(recipes: Iterable[Recipe]) -> frozenset[str]:
    """Paths of knobs that are off in some of the recipes and on in others."""
    seen: dict[str, set[bool]] = {}
    for recipe in recipes:
        for path, declaration, value in knobs(recipe):
            if declaration.off is not None:
                seen.setdefault(path, set()).add(type(value) is float)
    return frozenset(path for path, kinds in seen.items() if len(kinds) == 2)


@dataclasses.dataclass
class _Place:
    """One slot in use."""

    job: Job
    recipe: Recipe
    lines: dict[str, list[float]]
    last: int
    seconds: float = 0.0
    best: int = -1  # the line of the best model
    updates: int = 0


class Cohort:
    """A queue of jobs and the population that trains them; with `folded` examples, each on its own fold of them."""

    def __init__(
        self,
        train: Examples,
        valid: Examples,
        outputs: int,
        key: Any,
        slots: AbstractSlots,
        *,
        folded: bool = False,
        checkpoints: JobCheckpoints = JobCheckpoints(),
    ):
        self.folded, self.running = folded, RunningJobs(checkpoints)
        self.train, self.valid, self.outputs, self.key = train, valid, outputs, key
        self.queue: collections.deque[tuple[Job, Recipe]] = collections.deque()
        self.places: dict[int, _Place] = {}
        self.population: Population | None = None
        self.pending: tuple[Row, float, int] | None = None
        self.policy = slots
        self.most = 10**9  # slots that fit, learned when memory runs out
        self.parameters = 0
        self._each = math.inf  # seconds of an interval in the last call; the first one compiles

    @property
    def live(self) -> int:
        return len(self.places)

    @property
    def busy(self) -> bool:
        return bool(self.queue or self.places)

    def _enter(self, job: Job, recipe: Recipe) -> tuple[Member, State]:
        fold = job.variant[1] if self.folded else None
        own = (self.train, self.valid) if fold is None else fold_of((self.train, self.valid), fold)
        key = keys.of_trial(self.key, job.randomness)
        return enter(recipe, *own, outputs=self.outputs, examples=job.examples, fold=fold, key=key)

    def _make(self, member: Member, state: State) -> None:
        """A population for the jobs at hand, as large as pays and fits."""
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
        room = int(free_bytes() / max(1, slot_bytes(member, state, self.train, self.valid)))
        wanted = self.policy.choose(member, state, self.train, self.valid, len(self.queue))
        slots = max(1, min(wanted, room, self.most))
        devices = tuple(jax.devices()) if slots > 1 else ()
        self.population = Population(member, state, self.train, self.valid, slots=slots, devices=devices)

    def prepare(self) -> list[Done]:
        """Makes the population if there is none; jobs that cannot even start come back as failed."""
        failed = []
        while self.population is None and self.queue:
            try:
                self._make(*self._enter(*self.queue[0]))
            except Exception as problem:  # a failed job costs one trial, never the study (row E16)
                job, _ = self.queue.popleft()
                failed.append(Done(job.number, "failed", reason=describe_error(problem)))
        return failed

    def _take_place(self, slot: int, job: Job, recipe: Recipe, last: int) -> None:
        lines: dict[str, list[float]] = {name: [] for name in (*_COLUMNS, "seconds")}
        self.places[slot] = place = _Place(job, recipe, lines, last)
        assert self.population is not None
        saved = self.running.find(job, functools.partial(self.population.state_of, slot))
        if saved is not None:
            self.population.restore(slot, saved.state)
            (place.best,) = saved.history.pop("best")
            place.lines, place.seconds, place.updates = saved.history, saved.seconds, int(saved.state.update)

    def _saved(self, slot: int) -> Saved:
        """A slot between two intervals: what `_take_place` goes on from."""
        assert self.population is not None
        place = self.places[slot]
        return Saved(self.population.state_of(slot), {**place.lines, "best": [place.best]}, place.seconds)

    def refill(self) -> list[Done]:
        """Puts waiting jobs into free slots; those that cannot even start come back as failed."""
        failed = self.prepare()
        if self.population is None:
            return failed
        free = [slot for slot in range(self.population.slots) if slot not in self.places]
        if min(len(free), len(self.queue)) >= _TOGETHER:
            free = self._enter_alike(free)
        while self.queue and free:
            job, recipe = self.queue.popleft()
            try:
                member, state = self._enter(job, recipe)
                self.population.fill(free[0], member, state)
            except Exception as problem:  # a failed job costs one trial, never the study (row E16)
                failed.append(Done(job.number, "failed", reason=describe_error(problem)))
                continue
            self._take_place(free.pop(0), job, recipe, int(member.last))
        return failed

    def _enter_alike(self, free: list[int]) -> list[int]:
        """Puts the first jobs of the queue that differ in numbers alone into slots in one call; what is left of them.

        Always as many as there are slots, the last one repeated, so that it is compiled once.
        """
        assert self.population is not None
        marks = [program_signature(recipe) for _, recipe in self.queue]
        alike = list(itertools.takewhile(lambda n: marks[n] == marks[0], range(min(len(free), len(marks)))))
        if len(alike) < _TOGETHER:
            return free
        jobs = [self.queue[n] for n in alike]
        padded = jobs + jobs[-1:] * (self.population.slots - len(jobs))
        try:
            members, states = enter_together(
                [recipe for _, recipe in padded],
                self.train,
                self.valid,
                outputs=self.outputs,
                examples=[job.examples for job, _ in padded],
                folds=[job.variant[1] for job, _ in padded] if self.folded else None,
                key=[keys.of_trial(self.key, job.randomness) for job, _ in padded],
            )
        except Exception:  # one of them cannot start: each is tried alone, and that one says why
            return free
        beyond = [self.population.slots] * (self.population.slots - len(jobs))
        self.population.fill_several(free[: len(jobs)] + beyond, members, states)
        for slot, (job, recipe), last in zip(free, jobs, np.asarray(members.last), strict=False):
            self._take_place(slot, job, recipe, int(last))
            self.queue.popleft()
        return free[len(jobs) :]

    def begin(self) -> None:
        """Starts one interval; on an accelerator this returns at once."""
        assert self.population is not None
        begun = time.monotonic()
        count = self._turns()
        rows = self.population.turns(count) if count else self.population.interval()
        self.pending = (rows, begun, count)

    def _turns(self) -> int:
        """How many intervals to make in one call; 0: one, in the usual way.

        As many as fill a moment and end no later than the first slot: between small intervals the way to the device and
        back would take most of the time.
        """
        assert self.population is not None
        alone, each = self.population.slots == 1, self.population.updates
        if not alone and jax.default_backend() == "cpu":
            return 0
        fewest = min(place.last - place.updates for place in self.places.values())
        if alone and (fewest % each or fewest < each):  # only among others may a slot end within an interval
            return 0
        return max(1, min(-(-fewest // each), AT_ONCE, int(CALL_SECONDS / self._each)))

    def end(self, since: float = 0.0) -> list[Done]:
        """Reads the interval that was begun; those that ended leave. Before `since` the device was at other work."""
        assert self.pending is not None
        assert self.population is not None
        rows, begun, count = self.pending
        self.pending = None
        host = jax.device_get(rows)
        passed = time.monotonic() - max(begun, since)
        if not count:
            ended = self._read(host, passed / max(1, self.live))
        else:
            numbers = [n for n in range(count) if np.any(host.updates[n] > 0)]
            at = [slice(n, n + 1) if self.population.slots == 1 else n for n in numbers]
            made = [jax.tree.map(lambda leaf, n=n: leaf[n], host) for n in at]
            self._each = max(1e-6, passed / len(made))
            ended = [done for row in made if self.places for done in self._read(row, self._each / max(1, self.live))]
        self.running.keep([(place.job, functools.partial(self._saved, slot)) for slot, place in self.places.items()])
        return ended

    def _read(self, host: Any, share: float) -> list[Done]:
        """One line more for each slot in use, of rows on the host; those that ended leave."""
        gone = []
        for slot, place in list(self.places.items()):
            place.seconds += share
            for name in _COLUMNS:
                place.lines[name].append(float(getattr(host, name)[slot]))
            place.lines["seconds"].append(place.seconds)
            place.updates = int(host.updates[slot])
            if host.best[slot]:
                place.best = len(place.lines["seconds"]) - 1
            outcome = self._outcome(host, slot, place)
            if outcome:
                age = int(host.diverged_examples[slot] if outcome == "diverged" else host.age_examples[slot])
                gone.append(self._left(slot, place, outcome, age))
        return gone

    def _left(self, slot: int, place: _Place, outcome: str, age: int) -> Done:
        """The slot's record, and the slot is free; where the record cannot be made, that it failed."""
        try:
            return self._leave(slot, place, outcome, age)
        except Exception as problem:  # a failed job costs one trial, never the study (row E16)
            return Done(place.job.number, "failed", reason=describe_error(problem))
        finally:
            del self.places[slot]

    @staticmethod
    def _outcome(host: Any, slot: int, place: _Place) -> str:
        if host.diverged_examples[slot] >= 0:
            return "diverged"
        if host.stop[slot]:
            return "patience"
        if host.stalled[slot]:
            return "stalled"
        if host.updates[slot] >= place.last:
            return "finished"
        best = place.lines["valid_score"][place.best] if place.best >= 0 else math.nan
        return "behind" if place.job.is_behind(float(host.age_examples[slot]), best) else ""

    def _leave(self, slot: int, place: _Place, outcome: str, age: int) -> Done:
        """The slot's record."""
        lines, best = place.lines, place.best
        about: dict[str, Any] = {
            "age_examples": age,
            "seconds": place.seconds,
            "parameters": self.parameters,
            "curve": _thinned(lines),
            "train_loss": lines["train_loss"][best],
        }
        if best < 0:
            return Done(place.job.number, outcome, **about)
        assert self.population is not None
        network, scores, outputs = self.population.best(slot)
        if isinstance(network, MlpNetwork):
            network = trimmed(network)
            about["parameters"] = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))
        return Done(
            place.job.number,
            outcome,
            score=lines["valid_score"][best],
            loss=lines["valid_loss"][best],
            best_age=int(lines["age_examples"][best]),
            scores=scores.astype(np.float32),
            outputs=outputs.astype(np.float32),
            network=network,
            **about,
        )

    def cut(self, outcome: str) -> list[Done]:
        """Ends everything that runs, as it stands; what waits is forgotten."""
        self.queue.clear()
        ended = self.end() if self.pending is not None else []
        for slot, place in list(self.places.items()):
            age = int(place.lines["age_examples"][-1]) if place.lines["age_examples"] else 0
            if place.best >= 0:
                ended.append(self._left(slot, place, outcome, age))
            else:
                del self.places[slot]
        return ended

    def drop(self, numbers: Container[int]) -> None:
        """Forgets these jobs, under way or waiting."""
        self.queue = collections.deque(one for one in self.queue if one[0].number not in numbers)
        for slot in [slot for slot, place in self.places.items() if place.job.number in numbers]:
            del self.places[slot]

    def lost(self, problem: Exception) -> list[Done]:
        """After an interval that failed: out of memory halves the slots; otherwise one member at a time is tried."""
        places = list(self.places.values())
        slots = self.population.slots if self.population else 1
        self.places.clear()
        self.population, self.pending = None, None
        if slots == 1:
            return [Done(place.job.number, "failed", reason=describe_error(problem)) for place in places]
        self.most = slots // 2 if "RESOURCE_EXHAUSTED" in str(problem) else 1
        self.queue.extendleft((place.job, place.recipe) for place in reversed(places))
        return []


def describe_error(problem: Exception) -> str:
    """An error in a line."""
    first = str(problem).strip().partition("\n")[0][:300]
    return first if isinstance(problem, RequestError) else f"{type(problem).__name__}: {first}"


def _thinned(lines: dict[str, list[float]]) -> dict[str, list[float]]:
    """Columns of at most so many points, the last one among them."""
    count = len(lines["seconds"])
    step = -(-count // _LONGEST_CURVE)
    keep = sorted({*range(0, count, max(1, step)), count - 1}) if count else []
    return {name: [column[n] for n in keep] for name, column in lines.items()}
