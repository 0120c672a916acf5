"""A device runner trains its jobs on one device of one process: in cohorts, one interval at a time.

    runner = DeviceRunner(data, slots=BySize())
    runner.submit([Job(0, recipe, 0), Job(1, other, 1)])
    while runner.busy:
        for done in runner.turn():
            ...

Executors use runners in this process, in other processes, or on other machines. A job's result is the same wherever it
ran and whatever trained beside it.
"""

import concurrent.futures
import dataclasses
import functools
import os
import time
from collections.abc import Container, Iterable
from typing import Any

import equinox as eqx
import jax

from ...criteria.penalties import L1, L2, AbstractRegulariser
from ...criteria.supervised import Supervised
from ...curvature.objective import Examples
from ...models.activations import AbstractActivation
from ...models.mlp import Mlp
from ...models.padded_mlp import bucket, pad
from ...optimisers.adaptive.adam import Adagrad, Adam, AdamW, RmsProp
from ...optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from ...optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
from ...runtime import compilation
from ...runtime.errors import RequestError
from ...specs.adapters import as_criterion
from ...specs.paths import knobs, parts, replace
from ...specs.recipe import Recipe
from ...specs.schedules import AbstractSchedule
from ...training.population import enter, fold_of, program_signature, stack_folds
from ...training.state import for_building
from ..storage.job_checkpoints import JobCheckpoints
from ..strategies.population_run import PopulationRun
from .cohort import Cohort, describe_error, written_out
from .evaluation_data import EvaluationData, JobData
from .jobs import Done, Job
from .population_size import AbstractSlots, BySize

_MOST_PROGRAMS = 24  # a compiled one takes some 20 MB and 150 memory maps, of which Linux gives a process 65,530
# Rules that move each number by its own gradient and penalties of each number: to them a layer of zeros is nothing.
# Others look at a whole layer, or count them.
_BY_NUMBER = (Sgd, HeavyBall, Nesterov, Adagrad, RmsProp, Adam, AdamW, MovingAverage, PolyakAverage, AbstractSchedule)


@dataclasses.dataclass(frozen=True)
class Varied:
    """What a study varies and one compiled program can serve.

    `knobs` have an `off` value that is then a number like any other. Networks reach `deepest` layers (0: all have one
    depth) of `widest` units, and have one of `activations`; an accelerator trains all of them in few programs.
    """

    knobs: tuple[str, ...] = ()
    deepest: int = 0
    widest: int = 0
    activations: tuple[AbstractActivation, ...] = ()


def off_knobs(recipes: Iterable[Recipe]) -> frozenset[str]:
    """Paths of knobs that are off in some of the recipes and on in others."""
    seen: dict[str, set[bool]] = {}
    for recipe in recipes:
        for path, declaration, value in knobs(recipe):
            if declaration.off is not None:
                seen.setdefault(path, set()).add(type(value) is float)
    return frozenset(path for path, kinds in seen.items() if len(kinds) == 2)


def _may_be_padded(recipe: Recipe) -> bool:
    """Whether units that are not there would change nothing: a penalty on activations would count them."""
    penalties = (part for _, part in parts(recipe.criterion) if isinstance(part, AbstractRegulariser))
    return type(recipe.model) is Mlp and not any(penalty.reads_units for penalty in penalties)


def _may_be_deeper(recipe: Recipe) -> bool:
    """Whether a layer that is not there would change nothing in the training of the others."""
    optimiser = (recipe.optimiser, *(part for _, part in parts(recipe.optimiser)))
    criterion = recipe.criterion
    return (
        all(isinstance(part, _BY_NUMBER) for part in optimiser)
        and isinstance(criterion, Supervised)
        and all(isinstance(penalty, L1 | L2) for penalty in criterion.penalties)
    )


class DeviceRunner:
    """Cohorts by program, each with its queue. `varying` says what they have to serve together.

    A job that is a population has its networks to itself; it trains before all others.
    """

    def __init__(
        self,
        data: JobData,
        *,
        slots: AbstractSlots | None = None,
        varying: Varied = Varied(),
        checkpoints: JobCheckpoints = JobCheckpoints(),
    ):
        compilation.use_compilation_cache()
        self.data = data
        self.slots = slots or BySize()
        self.checkpoints = checkpoints
        self.accelerated = jax.default_backend() != "cpu"
        self.varying = varying
        self.bucket = functools.partial(bucket, coarse=self.accelerated, widest=varying.widest)
        self.cohorts: dict[Any, Cohort] = {}
        self.populations: dict[int, PopulationRun] = {}
        self._programs: dict[Any, Any] = {}  # from a recipe's signature to its program's
        self._examples: dict[Any, tuple[Examples, Examples]] = {}
        self._failed: list[Done] = []
        self._begun: Cohort | None = None
        self._turns = 0
        self._since = 0.0  # when the last interval was read
        workers = max(1, (os.cpu_count() or 2) - 1)
        self._compilers = concurrent.futures.ThreadPoolExecutor(workers) if self.accelerated else None
        self._compiling: dict[Any, list[concurrent.futures.Future]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._failed or self.populations) or any(cohort.busy for cohort in self.cohorts.values())

    @property
    def waiting(self) -> int:
        return sum(len(cohort.queue) for cohort in self.cohorts.values())

    @property
    def live(self) -> int:
        return sum(cohort.live for cohort in self.cohorts.values())

    def _placed(self, job: Job) -> tuple[Any, tuple[Examples, Examples]]:
        """The examples of a job, and what tells them from others; those of all folds where they train together."""
        spec, slots = job.recipe.scaler, self.data.slots(job.recipe)
        mark = (program_signature(spec), _static(spec), slots, job.variant)
        whole = (*mark[:3], ("folds", self.data.dealt))
        if self.slots.together and job.variant[0] == "fold" and whole not in self._examples:
            folds = [self.data.place(spec, ("fold", number), slots) for number in range(self.data.dealt)]
            stacked = stack_folds(folds)
            if stacked is not None:
                self._examples[whole] = stacked
        if whole in self._examples:
            return whole, self._examples[whole]
        if mark not in self._examples:
            self._examples[mark] = self.data.place(spec, job.variant, slots)
        return mark, self._examples[mark]

    def _prepared(self, job: Job, train: Examples) -> Recipe:
        """The recipe as its program takes it: widths padded, varying knobs written out."""
        recipe = for_building(job.recipe, train)
        paths = self.varying.knobs
        if _may_be_padded(recipe):
            deepest = self.varying.deepest if self.accelerated and _may_be_deeper(recipe) else 0
            activations = self.varying.activations if self.accelerated else ()
            shape = tuple(train.inputs.shape[1:])
            model = pad(recipe.model, shape, self.bucket, deepest=deepest, activations=activations)
            if model is not recipe.model:
                paths = tuple(path.replace("model.", "model.mlp.", 1) for path in paths)
            recipe = eqx.tree_at(lambda r: r.model, recipe, model, is_leaf=lambda node: node is recipe.model)
        return written_out(recipe, paths)

    def _cohort(self, job: Job) -> tuple[Cohort, Recipe]:
        as_criterion(job.recipe.criterion).check_task(self.data.task)
        place, examples = self._placed(job)
        folded = place[-1][0] == "folds"
        train, valid = fold_of(examples, job.variant[1]) if folded else examples
        recipe = self._prepared(job, train)
        own = (place, program_signature(recipe))
        outputs = self.data.task.outputs
        if own not in self._programs:
            shapes = eqx.filter_eval_shape(
                lambda r, t, v, k: enter(r, t, v, outputs=outputs, key=k),
                recipe,
                train,
                valid,
                self.data.key,
            )
            self._programs[own] = (place, program_signature(shapes))
        program = self._programs[own]
        if program not in self.cohorts:
            self._make_room()
            options: dict[str, Any] = {"folded": folded, "checkpoints": self.checkpoints}
            self.cohorts[program] = Cohort(*examples, outputs, self.data.key, self.slots, **options)
        return self.cohorts[program], recipe

    def _make_room(self) -> None:
        """Drops unused programs, once there are many, to bound the memory of a long search.

        JAX forgets all of them or none; those that are needed again come from the cache on disk.
        """
        idle = [mark for mark, cohort in self.cohorts.items() if not cohort.busy]
        if len(self.cohorts) < _MOST_PROGRAMS or 2 * len(idle) < _MOST_PROGRAMS:
            return
        for mark in idle:
            population = self.cohorts.pop(mark).population
            if population is not None:
                self._compiling.pop(population.signature, None)
        compilation.forget_programs()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Puts jobs into the queues of their cohorts."""
        known: dict[Any, tuple[Cohort, Recipe]] = {}  # the folds of a trial that train together have all in common
        for job in jobs:
            if job.population is not None:
                self._submit_population(job)
                continue
            mark = (id(job.recipe), job.variant)
            try:
                if mark not in known:
                    known[mark] = self._cohort(job)
                    if known[mark][0].folded:
                        known |= dict.fromkeys(((mark[0], one) for one in self.data.final_variants), known[mark])
                cohort, recipe = known[mark]
            except Exception as problem:  # a failed job costs one trial, never the study (row E16)
                self._failed.append(Done(job.number, "failed", reason=describe_error(problem)))
                continue
            cohort.queue.append((job, recipe))

    def _submit_population(self, job: Job) -> None:
        assert isinstance(self.data, EvaluationData)
        try:
            self.populations[job.number] = PopulationRun(job, self.data)
        except RequestError as problem:
            self._failed.append(Done(job.number, "refused", reason=str(problem)))
        except Exception as problem:  # what is lost by it is for the one who asked to say
            self._failed.append(Done(job.number, "failed", reason=describe_error(problem)))

    def _evolve(self, number: int) -> list[Done]:
        """One interval of a population."""
        try:
            done = self.populations[number].turn()
        except Exception as problem:  # out of memory, or a mistake in a part
            done = Done(number, "failed", reason=describe_error(problem))
        if done.ended:
            del self.populations[number]
        return [done]

    def _next(self) -> Cohort | None:
        """The cohort whose turn it is: on a CPU the one that has begun, elsewhere one after another."""
        ready = [c for c in self.cohorts.values() if c.busy and c is not self._begun and self._is_ready(c)]
        if not ready:
            return None
        if not self.accelerated:
            begun = [cohort for cohort in ready if cohort.live]
            return min(begun or ready, key=lambda c: min(_numbers(c), default=0))
        self._turns += 1
        return ready[self._turns % len(ready)]

    def _is_ready(self, cohort: Cohort) -> bool:
        """Whether its program is compiled; on an accelerator several are compiled side by side."""
        if self._compilers is None:
            return True
        self._failed.extend(cohort.prepare())
        if cohort.population is None:
            return False
        mark = cohort.population.signature
        if mark not in self._compiling:
            self._compiling[mark] = [self._compilers.submit(one) for one in cohort.compilations()]
        ready, program = all(one.done() for one in self._compiling[mark]), self._compiling[mark][0]
        if ready and cohort.population.compiled is None and program.exception() is None:
            cohort.population.compiled = program.result()
        return ready

    def turn(self) -> list[Done]:
        """One interval of one cohort; on an accelerator the next one is already under way while it is read."""
        done, self._failed = self._failed, []
        if self.populations:
            return done + self._evolve(min(self.populations))
        cohort = self._next()
        compiling = [one for several in self._compiling.values() for one in several if not one.done()]
        if cohort is None and self._begun is None and compiling:
            # A program that cannot be compiled is ready too: to begin it says why, where that costs its trials alone.
            concurrent.futures.wait(compiling, return_when=concurrent.futures.FIRST_COMPLETED, timeout=5)
            return done
        last, self._begun = self._begun, None
        if cohort is not None:
            done += cohort.refill()
            if cohort.places:
                done += self._guarded(cohort, cohort.begin)
                self._begun = cohort if cohort.pending is not None else None
        if last is not None:
            done += self._ended(last)
        if self._begun is not None and not self.accelerated:
            last, self._begun = self._begun, None
            done += self._ended(last)
        elif self._begun is None and last is not None and last.places:  # alone: it goes on while its results are read
            done += self._guarded(last, last.begin)
            self._begun = last if last.pending is not None else None
        return done

    def _ended(self, cohort: Cohort) -> list[Done]:
        done = self._guarded(cohort, lambda: cohort.end(self._since))
        self._since = time.monotonic()
        return done

    def _guarded(self, cohort: Cohort, work: Any) -> list[Done]:
        try:
            return work() or []
        except Exception as problem:  # out of memory, or a mistake in a part: it costs trials, never the study
            return cohort.lost(problem)

    def drop(self, numbers: Container[int]) -> None:
        """Cancels these jobs."""
        for cohort in self.cohorts.values():
            cohort.drop(numbers)
        self.populations = {number: run for number, run in self.populations.items() if number not in numbers}

    def cut(self, outcome: str = "out_of_time") -> list[Done]:
        """Ends everything as it stands."""
        self._begun = None
        done, self._failed = self._failed, []
        for cohort in self.cohorts.values():
            done += self._guarded(cohort, functools.partial(cohort.cut, outcome))
            cohort.queue.clear()
        done += [one for run in self.populations.values() for one in run.cut(outcome)]
        self.populations.clear()
        return done


def _static(tree: Any) -> Any:
    """The values of a spec's leaves: a scaler with other numbers makes other examples."""
    return tuple(float(leaf) if hasattr(leaf, "dtype") else leaf for leaf in jax.tree.leaves(tree))


def _numbers(cohort: Cohort) -> list[int]:
    return [job.number for job, _ in cohort.queue] + [place.job.number for place in cohort.places.values()]


def program_group(recipe: Recipe) -> int:
    """A number that recipes which share a program mostly share: such jobs had better go to one runner."""
    widths = {path: value for path, _, value in knobs(recipe)}.get("model.widths", ())
    padded = tuple(bucket(width) for width in widths)
    if padded:
        recipe = replace(recipe, "model.widths", padded)
    structure, marks = program_signature(recipe)
    return hash((str(structure), marks))


def train_alone(data: JobData, jobs: Iterable[Job], **options: Any) -> list[Done]:
    """Trains these jobs here and now; their results in the order of their numbers."""
    runner = DeviceRunner(data, **options)
    runner.submit(jobs)
    done = []
    while runner.busy:
        done += runner.turn()
    return sorted(done, key=lambda one: one.number)
