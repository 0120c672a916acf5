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
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...curvature.objective import Examples
from ...models.mlp import MlpNetwork
from ...models.padded_mlp import trimmed
from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.knobs import declarations
from ...specs.paths import get
from ...specs.recipe import Recipe
from ...specs.search_space import exists
from ...training.checkpoint import Saved
from ...training.interval import AT_ONCE, Row
from ...training.loop import CALL_SECONDS
from ...training.population import Member, Population, enter, enter_together, fold_of, program_signature
from ...training.state import State
from ..storage.job_checkpoints import JobCheckpoints, RunningJobs
from .jobs import Done, Job
from .population_size import AbstractSlots, free_bytes, slot_bytes

_COLUMNS = ("age_examples", "valid_score", "valid_loss", "train_loss")
_LONGEST_CURVE = 200  # points of a trial's curve that are kept
_TOGETHER = 32  # jobs from which on, on a CPU, one call for all of them is worth its program


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
        self._together = _TOGETHER if jax.default_backend() == "cpu" else 1
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

    def _prototype(self, job: Job, recipe: Recipe) -> tuple[Member, State]:
        """A network of the shape of this job's. On an accelerator of zeros: to compile a start takes seconds."""
        if jax.default_backend() == "cpu":
            return self._enter(job, recipe)
        shapes = eqx.filter_eval_shape(lambda one: self._enter(job, one), recipe)
        member, state = jax.tree.map(_zeros, shapes)
        return eqx.tree_at(lambda m: m.key, member, self.key), state

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
                self._make(*self._prototype(*self.queue[0]))
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
        while self.queue and free:
            taken = 0 if failed else self._enter_alike(free)
            if taken:
                free = free[taken:]
                continue
            job, recipe = self.queue.popleft()
            try:
                member, state = self._enter(job, recipe)
                self.population.fill(free[0], member, state)
            except Exception as problem:  # a failed job costs one trial, never the study (row E16)
                failed.append(Done(job.number, "failed", reason=describe_error(problem)))
                continue
            self._take_place(free.pop(0), job, recipe, int(member.last))
        return failed

    def _alike(self, most: int) -> list[tuple[Job, Recipe]]:
        """The first jobs of the queue, if they may enter in one call: they differ in numbers alone, and are enough."""
        if min(most, len(self.queue)) < self._together:
            return []
        marks = (program_signature(recipe) for _, recipe in self.queue)
        first = next(marks)
        count = 1 + sum(1 for _ in itertools.takewhile(first.__eq__, itertools.islice(marks, most - 1)))
        return [self.queue[n] for n in range(count)] if count >= self._together else []

    def _entered(self, jobs: list[tuple[Job, Recipe]], slots: int) -> tuple[Member, State]:
        """These jobs, ready to enter. Always as many as there are slots, the last one repeated: one program."""
        padded = jobs + jobs[-1:] * (slots - len(jobs))
        return enter_together(
            [recipe for _, recipe in padded],
            self.train,
            self.valid,
            outputs=self.outputs,
            examples=[job.examples for job, _ in padded],
            folds=[job.variant[1] for job, _ in padded] if self.folded else None,
            key=keys.of_trials(self.key, [job.randomness for job, _ in padded]),
        )

    def compilations(self) -> list[Callable[[], Any]]:
        """What other threads may do, side by side, so that this cohort can begin; the first gives its program."""
        assert self.population is not None
        slots = self.population.slots
        alike = self._alike(slots)

        def rehearse() -> None:  # what comes of it is not kept: it would take the population's memory once more
            self._entered(alike, slots)

        return [self.population.compile, *([rehearse] if alike else [])]

    def _enter_alike(self, free: list[int]) -> int:
        """Puts the first jobs of the queue into slots in one call, if they are alike; how many."""
        assert self.population is not None
        jobs = self._alike(len(free))
        if not jobs:
            return 0
        try:
            members, states = self._entered(jobs, self.population.slots)
        except Exception:  # one of them cannot start: each is tried alone, and that one says why
            return 0
        beyond = [self.population.slots] * (self.population.slots - len(jobs))
        self.population.fill_several(free[: len(jobs)] + beyond, members, states)
        for slot, (job, recipe), last in zip(free, jobs, np.asarray(members.last), strict=False):
            self._take_place(slot, job, recipe, int(last))
            self.queue.popleft()
        return len(jobs)

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
        gone: dict[int, tuple[str, int]] = {}
        for slot, place in self.places.items():
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
                gone[slot] = outcome, age
        return self._left(gone)

    def _left(self, gone: dict[int, tuple[str, int]]) -> list[Done]:
        """The records of these slots, which are then free; where a record cannot be made, that it failed."""
        answers = self._answers([slot for slot in gone if self.places[slot].best >= 0])
        return [self._leave(self.places.pop(slot), *gone[slot], answers.get(slot)) for slot in gone]

    def _answers(self, slots: Sequence[int]) -> dict[int, Any]:
        """The best model of each slot, its scores and outputs; or why there are none."""
        assert self.population is not None
        try:
            return dict(zip(slots, self.population.best_of(slots), strict=True))
        except Exception as problem:  # a failed job costs one trial, never the study (row E16)
            return {slots[0]: problem} if len(slots) == 1 else {n: self._answers([n])[n] for n in slots}

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

    def _leave(self, place: _Place, outcome: str, age: int, answer: Any) -> Done:
        """A slot's record; `answer` is what `_answers` found."""
        lines, best = place.lines, place.best
        about: dict[str, Any] = {
            "age_examples": age,
            "seconds": place.seconds,
            "parameters": self.parameters,
            "curve": _thinned(lines),
            "train_loss": lines["train_loss"][best],
        }
        if answer is None:
            return Done(place.job.number, outcome, **about)
        if isinstance(answer, Exception):
            return Done(place.job.number, "failed", reason=describe_error(answer))
        network, scores, outputs = answer
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
        self.places = {slot: place for slot, place in self.places.items() if place.best >= 0}
        ages = {slot: int(place.lines["age_examples"][-1]) for slot, place in self.places.items()}
        return ended + self._left({slot: (outcome, age) for slot, age in ages.items()})

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


def _zeros(leaf: Any) -> Any:
    """Zeros of a leaf's shape; of keys none are needed."""
    if not isinstance(leaf, jax.ShapeDtypeStruct) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.device_put(np.zeros(leaf.shape, leaf.dtype))


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
