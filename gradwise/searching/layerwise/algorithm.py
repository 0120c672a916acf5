"""Algorithm 1 of the chapter: the hyper-parameters of a deep architecture, chosen greedily, layer by layer (row E8).

    space = gw.defaults.search_space(gw.learner("denoising", 500))
    levels = [draw_settings(space, 8, key=key)] * 3
    found = layerwise(levels, fine_tuning, dataset, keep=4, key=key)
    found.best.score, found.best.settings, found.best.probes
    record_of(found, dataset, key=key).test            # measured once, when all is chosen

For each level and each of its settings, and for each of the K best configurations of the level below, the level is
pre-trained on that configuration's codes and judged by a linear probe. The K best of the level go on. Then each of them
is fine-tuned with each of the fine-tuning settings, and the K best of those are the result.

Two things differ from the printed pseudo-code, which changes the set it is reading. A level reads a snapshot of the
last level's K best; and fine-tuning fills a set of its own, since a probe's score and a fine-tuned network's are not
the same measure. With `shallower` the configurations of lower levels stay in the running for fine-tuning.

Lower layers are never retrained: the codes of each kept configuration are computed once per process, and all trainings
of a level share them. A training's number follows the algorithm's order, and its randomness comes from that number and
the study's key alone, so its result is the same wherever it ran.
"""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ... import __version__
from ...criteria.linear_probe import AbstractProbe, Probed, Ridge, probe_scores
from ...data.scaling import NoScaling
from ...evaluation.metrics import check_metric
from ...models.mlp import Layer, Mlp
from ...pretraining.stack import encode_inputs, hidden_layers, with_output
from ...records.evidence.fit_evidence import LayerTraining
from ...runtime import compilation, keys
from ...runtime.errors import RequestError
from ...runtime.progress import silent
from ...specs.adapters import as_criterion
from ...specs.dataset import Dataset
from ...specs.fitted_scaler import FittedScaler
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ...training.checkpoint import digest
from ...training.prepare import is_trained_on
from ..running.device_runner import Varied, off_knobs
from ..running.executor_choice import choose_executor
from ..running.executors import AbstractExecutor
from ..running.jobs import Done, Job
from ..running.population_size import AbstractSlots
from ..running.run_jobs import run_jobs
from ..selection.knob_kinds import refuse_capacity
from ..storage.job_checkpoints import RUNNING, JobCheckpoints
from ..storage.network_store import NetworkStore
from ..strategies.random_search import random_points
from .layer_data import LayerData, split_for_layers


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What was chosen at each level, bottom up, and what it learned.

    `numbers` say which setting of each level, then which of the fine-tuning; `probes` are the probe's scores at each
    depth; `score` is that of the last step on the validation set.
    """

    numbers: tuple[int, ...]
    settings: tuple[Recipe, ...]
    layers: tuple[Layer, ...]
    probes: tuple[float, ...]
    score: float
    network: Any = None
    fine_tuning: Recipe | None = None
    scores: np.ndarray | None = None
    ended: Done | None = None

    @property
    def depth(self) -> int:
        return len(self.settings)


@dataclasses.dataclass(frozen=True)
class Layerwise:
    """The K best, best first, every training, and the parts they were judged by.

    `tuned_scores` has a row for each fine-tuning that left a network: its scores of the validation examples, of which
    the best was chosen.
    """

    kept: tuple[Configuration, ...]
    by_level: tuple[tuple[Configuration, ...], ...]
    trainings: tuple[LayerTraining, ...]
    scaler: FittedScaler
    parts: dict[str, Dataset | None]
    metric: str
    seconds: float
    tuned_scores: np.ndarray

    @property
    def best(self) -> Configuration:
        return self.kept[0]


Watch = Callable[[LayerTraining, int], None]
_NOTHING = Configuration((), (), (), (), math.inf)  # below the lowest level


def draw_settings(space: Space, count: int, *, key: Key[Array, ""]) -> list[Recipe]:
    """A list of settings from priors: independent draws (row E9)."""
    return [space.recipe_at(point) for point in random_points(space, range(count), key)]


def best_configurations(configurations: Sequence[Configuration], keep: int) -> tuple[Configuration, ...]:
    """The K best; ties go to the one that came first. A score that is no number is never among them."""
    sound = [one for one in configurations if math.isfinite(one.score)]
    return tuple(sorted(sound, key=lambda one: one.score)[:keep])


@eqx.filter_jit
def _probed(probe: AbstractProbe, codes: Any, targets: Any, classes: int) -> tuple[Array, Array]:
    return probe_scores(probe, codes, targets, classes)


class _Run:
    """The state of the algorithm while it runs: numbers, the record so far, and what an earlier run had done."""

    def __init__(
        self,
        data: LayerData,
        probe: AbstractProbe,
        executor: AbstractExecutor,
        store: NetworkStore,
        checkpoints: JobCheckpoints,
        watch: Callable[[LayerTraining], None],
    ):
        self.data, self.probe, self.executor, self.store, self.watch = data, probe, executor, store, watch
        self.checkpoints = checkpoints
        self.next = 0
        self.trainings: list[LayerTraining] = []

    def probe_of(self, codes: tuple[Any, Any]) -> float:
        """The error of the linear probe on these codes; (training, validation)."""
        data = self.data
        train = (codes[0][: data.labelled], codes[1])
        scores, _ = _probed(
            self.probe,
            train,
            (data.train.targets[: data.labelled], data.valid.targets),
            data.classes,
        )
        return float(jnp.mean(scores))

    def train(self, jobs: list[Job], data: LayerData, each: Callable[[Done], LayerTraining]) -> None:
        """Hands every job's result to `each`, which says what became of it; from the store where a run left it."""

        def ended(done: Done) -> None:
            self.trainings.append(each(done))
            self.watch(self.trainings[-1])

        def keep(done: Done) -> None:
            self.store.put(done)
            self.checkpoints.remove(done.number)
            ended(done)

        there = {job.number: self.store.find(job.number) for job in jobs}
        waiting = [job for job in jobs if there[job.number] is None]
        if waiting:  # before any codes are computed here, which then need not travel
            self.executor.use(data, varying=Varied(tuple(off_knobs(job.recipe for job in jobs))))
        for done in filter(None, there.values()):
            ended(done)
        run_jobs(self.executor, waiting, each=keep)


def _level_recipe(recipe: Recipe, probe: AbstractProbe, classes: int, rows: int) -> Recipe:
    """The level's recipe, judged at every validation by the probe; scaled once, below."""
    criterion = as_criterion(recipe.criterion)
    if criterion.learns_from != "inputs":
        raise RequestError(
            f"levels are learned without the target, but the criterion {type(criterion).__name__} needs one."
        )
    judged = Probed(criterion, probe, classes=classes, rows=min(10_000, rows))
    return dataclasses.replace(recipe, criterion=judged, scaler=NoScaling())


def _as_training(done: Done, level: int, numbers: tuple[int, ...], score: float) -> LayerTraining:
    return LayerTraining(done.number, level, numbers, score, done.outcome, done.seconds, done.age_examples, done.reason)


def _train_level(
    run: _Run, level: int, settings: Sequence[Recipe], below: Sequence[Configuration]
) -> list[Configuration]:
    """Pre-trains every setting on every configuration below, judged by the probe."""
    data = dataclasses.replace(run.data, stacks=tuple(lower.layers for lower in below))
    judged = [_level_recipe(recipe, run.probe, data.classes, data.labelled) for recipe in settings]
    which = {
        run.next + c * len(below) + h: (c, h) for h in range(len(below)) for c in range(len(settings))
    }  # those of one configuration follow one another, and share their codes
    run.next += len(which)
    jobs = [Job(number, judged[c], randomness=number, variant=("codes", h)) for number, (c, h) in which.items()]
    found: dict[int, Configuration] = {}

    def probed(done: Done) -> LayerTraining:
        c, h = which[done.number]
        lower, codes = below[h], data.codes(h)
        score = math.inf
        upper: tuple[Layer, ...] = ()
        if done.network is not None:
            upper = jax.tree.map(jnp.asarray, hidden_layers(done.network, level - 1))
            score = run.probe_of((encode_inputs(upper, codes[0][: data.labelled]), encode_inputs(upper, codes[1])))
        found[done.number] = Configuration(
            numbers=(*lower.numbers, c),
            settings=(*lower.settings, settings[c]),
            layers=(*lower.layers, *upper),
            probes=(*lower.probes, score),
            score=score,
        )
        return _as_training(done, level, (*lower.numbers, c), score)

    run.train(jobs, data, probed)
    return [found[number] for number in sorted(found)]


def _fine_tune(
    run: _Run, level: int, settings: Sequence[Recipe], below: Sequence[Configuration]
) -> list[Configuration]:
    """Fine-tunes every kept configuration with every setting; all of them read the same inputs."""
    data = run.data
    jobs, which = [], {}
    for c, recipe in enumerate(settings):
        for h, lower in enumerate(below):
            number = run.next
            run.next += 1
            if not isinstance(recipe.model, Mlp):
                raise RequestError(
                    f"fine-tuning adds an output to learned layers: its model must be an Mlp, not a "
                    f"{type(recipe.model).__name__}."
                )
            output = keys.named(keys.of_trial(data.key, number), "output")
            network = with_output(lower.layers, data.task.outputs, recipe.model, key=output)
            jobs.append(Job(number, dataclasses.replace(recipe, model=network, scaler=NoScaling()), randomness=number))
            which[number] = (c, h)
    found: dict[int, Configuration] = {}

    def tuned(done: Done) -> LayerTraining:
        c, h = which[done.number]
        numbers = (*below[h].numbers, c)
        score = done.score if done.network is not None else math.inf
        found[done.number] = dataclasses.replace(
            below[h],
            numbers=numbers,
            score=score,
            network=done.network,
            fine_tuning=settings[c],
            scores=done.scores,
            ended=done,
        )
        return _as_training(done, level, numbers, score)

    run.train(jobs, data, tuned)
    return [found[number] for number in sorted(found)]


def _refuse_capacity(
    levels: Sequence[Sequence[Recipe]], fine_tuning: Sequence[Recipe], parts: dict[str, Dataset | None]
) -> None:
    """Settings of one step are compared by the validation set: not by capacity, where that was trained on."""
    train, valid = parts["train"], parts["valid"]
    assert train is not None
    assert valid is not None
    for settings in (*levels, fine_tuning):
        refuse_capacity("train" if is_trained_on(valid, train) else "valid", settings)


def trainings_of(levels: Sequence[Sequence[Recipe]], fine_tuning: int, keep: int, *, shallower: bool = False) -> int:
    """How many trainings the algorithm takes."""
    count, kept, all_kept = 0, 1, 0
    for settings in levels:
        count += kept * len(settings)
        kept = min(keep, kept * len(settings))
        all_kept += kept
    return count + (all_kept if shallower else kept) * fine_tuning


def _checkpoints(folder: Path | None, seconds: float, dataset: Dataset, key: Key[Array, ""]) -> JobCheckpoints:
    """Where trainings under way are written: the layers below one are told by the seed and by its number."""
    if folder is None:
        return JobCheckpoints()
    study = json.dumps([__version__, digest(dataset), np.ravel(jax.random.key_data(key)).tolist()])
    return JobCheckpoints(folder.resolve() / RUNNING, seconds, study)


def layerwise(
    levels: Sequence[Sequence[Recipe]],
    fine_tuning: Sequence[Recipe],
    dataset: Dataset,
    *,
    keep: int,
    key: Key[Array, ""],
    probe: AbstractProbe = Ridge(),
    shallower: bool = False,
    metric: str | None = None,
    on: str | None = "here",
    slots: AbstractSlots | None = None,
    folder: Path | None = None,
    checkpoint_seconds: float = 10.0,
    watch: Watch = silent,
) -> Layerwise:
    """The K best configurations, with their settings and validation scores.

    `levels` lists the settings of each level, bottom up, and `fine_tuning` those of the end; split and scaler are those
    of the first fine-tuning setting. With a `folder` every training is saved there when it ends, and every
    `checkpoint_seconds` before, so a run that was killed can be resumed. `on` chooses where to train: see
    `executor_choice.py`.
    """
    if not levels or not all(levels) or not fine_tuning:
        raise RequestError("every level and the fine-tuning need at least one setting.")
    if keep < 1:
        raise RequestError(f"`keep` must be at least 1; got {keep}.")
    compilation.use_compilation_cache()
    begun = time.monotonic()
    as_criterion(fine_tuning[0].criterion).check_task(dataset.task)
    metric = check_metric(metric, dataset.task.kind)
    data, scaler, parts = split_for_layers(fine_tuning[0], dataset, key)
    _refuse_capacity(levels, fine_tuning, parts)
    total = trainings_of(levels, len(fine_tuning), keep, shallower=shallower)
    checkpoints = _checkpoints(folder, checkpoint_seconds, dataset, key)
    with choose_executor(on, data, Space(fine_tuning[0], ()), slots=slots, checkpoints=checkpoints) as executor:
        run = _Run(data, probe, executor, NetworkStore(folder), checkpoints, lambda training: watch(training, total))
        below: tuple[Configuration, ...] = (_NOTHING,)
        by_level: list[tuple[Configuration, ...]] = []
        for level, settings in enumerate(levels, start=1):
            tried = _train_level(run, level, settings, below)
            below = best_configurations(tried, keep)  # a snapshot: the next level reads this one and fills its own
            if not below:
                reasons = {one.reason or one.outcome for one in run.trainings if one.level == level}
                raise RequestError(f"every setting of level {level} failed: {'; '.join(sorted(reasons))}.")
            by_level.append(below)
        candidates = tuple(one for level in by_level for one in level) if shallower else below
        tuned = _fine_tune(run, len(levels) + 1, fine_tuning, candidates)
    checkpoints.clear()
    kept = best_configurations(tuned, keep)
    if not kept:
        raise RequestError("every fine-tuning diverged or failed.")
    scores = np.stack([one.scores for one in tuned if math.isfinite(one.score) and one.scores is not None])
    seconds = time.monotonic() - begun
    trainings = tuple(sorted(run.trainings, key=lambda one: one.number))
    return Layerwise(kept, tuple(by_level), trainings, scaler, parts, metric, seconds, scores)
