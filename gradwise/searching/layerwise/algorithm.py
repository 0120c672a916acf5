"""Algorithm 1 of the chapter: the hyper-parameters of a deep architecture, chosen greedily, layer by layer (row E8).

    levels = [drawn(space_of(learner("denoising", 500)), 8, key=key)] * 3
    found = layerwise(levels, fine_tuning, dataset, keep=4, key=key)
    found.best.score, found.best.settings, found.best.probes
    record_of(found, dataset, key=key).test            # measured once, when all is chosen

For each level and each of its settings, and for each of the K best configurations of the level below, the level is
pre-trained on that configuration's codes and judged by a linear probe. The K best of the level go on. Then each of them
is fine-tuned with each of the fine-tuning settings, and the K best of those are the result.

Two things differ from the printed pseudo-code, which changes the set it is reading. A level reads a snapshot of the
last level's K best; and fine-tuning fills a set of its own, since a probe's score and a fine-tuned network's are not
the same measure. With `shallower` the configurations of lower levels stay in the running for fine-tuning.

Lower layers are never trained again: the codes of a kept configuration are computed once and stay on the device, where
the trainings of the next level, as populations, share them. A training's number counts in the algorithm's order, and
its randomness comes from that number and the study's key alone.
"""

import dataclasses
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

from ...criteria.linear_probe import AbstractProbe, Probed, Ridge, probe_scores
from ...curvature.objective import Examples
from ...data.scaling import NoScaling
from ...evaluation.metrics import check_metric
from ...models.mlp import Layer, Mlp
from ...pretraining.stack import encode_inputs, hidden_layers, with_output
from ...runtime import compilation, keys
from ...runtime.errors import RequestError
from ...runtime.progress import silent
from ...specs.adapters import as_criterion
from ...specs.contracts import AbstractUnsupervised, FittedScaler
from ...specs.dataset import Dataset
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ...training.prepare import is_trained_on, place_examples, split_labelled, target_units
from ..running.jobs import Done, Job
from ..running.population_size import AbstractSlots
from ..running.shared_data_training import train_together
from ..selection.knob_kinds import refuse_capacity
from ..storage.network_store import NetworkStore
from ..strategies.random_search import random_points


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What was chosen at each level, bottom up, and what it learned.

    `numbers` say which setting of each level, then which of the fine-tuning; `probes` are the probe's scores at each
    depth; `score` is that of the last step on the validation part.
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
class Training:
    """One training of the algorithm: where it stood, how it ended, what it scored."""

    number: int
    level: int  # 1 for the lowest; one more than the highest for fine-tuning
    numbers: tuple[int, ...]
    score: float
    outcome: str
    seconds: float
    age_examples: int
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Layerwise:
    """The K best, best first, every training, and the parts they were judged by.

    `tuned_scores` has a row for each fine-tuning that left a network: its scores of the validation examples, of which
    the best was chosen.
    """

    kept: tuple[Configuration, ...]
    by_level: tuple[tuple[Configuration, ...], ...]
    trainings: tuple[Training, ...]
    scaler: FittedScaler
    parts: dict[str, Dataset | None]
    metric: str
    seconds: float
    tuned_scores: np.ndarray

    @property
    def best(self) -> Configuration:
        return self.kept[0]


Watch = Callable[[Training, int], None]


def draw_settings(space: Space, count: int, *, key: Key[Array, ""]) -> list[Recipe]:
    """A list of settings from priors: independent draws (row E9)."""
    return [space.recipe_at(point) for point in random_points(space, range(count), key)]


def best_configurations(configurations: Sequence[Configuration], keep: int) -> tuple[Configuration, ...]:
    """The K best; ties go to the one that came first. A score that is no number is never among them."""
    sound = [one for one in configurations if math.isfinite(one.score)]
    return tuple(sorted(sound, key=lambda one: one.score)[:keep])


@dataclasses.dataclass(frozen=True)
class _LayerData:
    """The parts on the device, labelled rows first."""

    train: Examples
    valid: Examples
    labelled: int
    outputs: int
    classes: int


def _grounded(
    recipe: Recipe, dataset: Dataset, key: Key[Array, ""]
) -> tuple[_LayerData, FittedScaler, dict[str, Dataset | None]]:
    known = dataset.labelled
    some = dataset if known.all() else dataclasses.replace(dataset.take(np.flatnonzero(known)), test=dataset.test)
    train, valid, test = split_labelled(
        recipe.split, as_criterion(recipe.criterion), some, key=keys.named(key, "split")
    )
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    units = target_units(train)
    placed = place_examples(train, scaler, units, None)
    if not known.all():
        spare = jnp.asarray(scaler.apply(dataset.inputs[~known]))
        fill = -1 if dataset.task.kind == "classes" else jnp.nan
        rest = jnp.full((spare.shape[0], *placed.targets.shape[1:]), fill, placed.targets.dtype)
        placed = dataclasses.replace(
            placed,
            inputs=jnp.concatenate([placed.inputs, spare]),
            targets=jnp.concatenate([placed.targets, rest]),
            weights=None,
        )
    classes = dataset.task.outputs if dataset.task.kind == "classes" else 0
    data = _LayerData(placed, place_examples(valid, scaler, units, None), len(train), dataset.task.outputs, classes)
    return data, scaler, {"train": train, "valid": valid, "test": test}


@eqx.filter_jit
def _probed(probe: AbstractProbe, codes: Any, targets: Any, classes: int) -> tuple[Array, Array]:
    return probe_scores(probe, codes, targets, classes)


class _Run:
    """The state of the algorithm while it runs: numbers, the record so far, and what an earlier run had done."""

    def __init__(
        self, data: _LayerData, probe: AbstractProbe, key: Any, slots: AbstractSlots | None, store: NetworkStore
    ):
        self.data, self.probe, self.key, self.slots, self.store = data, probe, key, slots, store
        self.next = 0
        self.trainings: list[Training] = []

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

    def results(self, jobs: list[Job], train: Examples, valid: Examples, outputs: int) -> Any:
        """Each job's result, from the store where an earlier run left it."""
        waiting = []
        for job in jobs:
            found = self.store.find(job.number)
            if found is None:
                waiting.append(job)
            else:
                yield found
        for done in train_together(waiting, train, valid, outputs=outputs, key=self.key, slots=self.slots):
            self.store.put(done)
            yield done


def _level_recipe(recipe: Recipe, probe: AbstractProbe, classes: int, rows: int) -> Recipe:
    """The level's recipe, judged at every validation by the probe; scaled once, below."""
    criterion = as_criterion(recipe.criterion)
    if not isinstance(criterion, AbstractUnsupervised):
        raise RequestError(
            f"a level is learned without the target, but the criterion {type(criterion).__name__} needs one."
        )
    judged = Probed(criterion, probe, classes=classes, rows=min(10_000, rows))
    return dataclasses.replace(recipe, criterion=judged, scaler=NoScaling())


def _train_level(
    run: _Run, level: int, settings: Sequence[Recipe], below: Sequence[Configuration | None], total: int, watch: Watch
) -> list[Configuration]:
    """Pre-trains every setting on every configuration below, judged by the probe."""
    data = run.data
    judged = [_level_recipe(recipe, run.probe, data.classes, data.labelled) for recipe in settings]
    numbers = {(c, h): run.next + c * len(below) + h for c in range(len(settings)) for h in range(len(below))}
    run.next += len(numbers)
    found: dict[int, Configuration] = {}
    for h, lower in enumerate(below):
        layers = () if lower is None else lower.layers
        # Once for all settings of the level, and on the device.
        codes = [encode_inputs(layers, part.inputs) if layers else part.inputs for part in (data.train, data.valid)]
        train = Examples(codes[0], data.train.targets)
        valid = Examples(codes[1], data.valid.targets)
        jobs = [Job(numbers[c, h], judged[c], randomness=numbers[c, h]) for c in range(len(settings))]
        which = {numbers[c, h]: c for c in range(len(settings))}
        for done in run.results(jobs, train, valid, data.outputs):
            c = which[done.number]
            score = math.inf
            upper: tuple[Layer, ...] = ()
            if done.network is not None:
                upper = jax.tree.map(jnp.asarray, hidden_layers(done.network, level - 1))
                score = run.probe_of((encode_inputs(upper, codes[0][: data.labelled]), encode_inputs(upper, codes[1])))
            before = () if lower is None else lower.numbers
            training = Training(
                done.number, level, (*before, c), score, done.outcome, done.seconds, done.age_examples, done.reason
            )
            run.trainings.append(training)
            watch(training, total)
            found[done.number] = Configuration(
                numbers=(*before, c),
                settings=(*(() if lower is None else lower.settings), settings[c]),
                layers=(*layers, *upper),
                probes=(*(() if lower is None else lower.probes), score),
                score=score,
            )
    return [found[number] for number in sorted(found)]


def _fine_tune(
    run: _Run, level: int, settings: Sequence[Recipe], below: Sequence[Configuration], total: int, watch: Watch
) -> list[Configuration]:
    """Fine-tunes every kept configuration with every setting; all of them read the same inputs."""
    data = run.data
    labelled = dataclasses.replace(
        data.train,
        inputs=data.train.inputs[: data.labelled],
        targets=data.train.targets[: data.labelled],
        weights=None,
    )
    jobs, which = [], {}
    for c, recipe in enumerate(settings):
        for h, lower in enumerate(below):
            number = run.next
            run.next += 1
            if not isinstance(recipe.model, Mlp):
                raise RequestError(
                    f"fine-tuning puts an output on learned layers: its model must be an Mlp, not a "
                    f"{type(recipe.model).__name__}."
                )
            output = keys.named(keys.of_trial(run.key, number), "output")
            network = with_output(lower.layers, data.outputs, recipe.model, key=output)
            jobs.append(Job(number, dataclasses.replace(recipe, model=network, scaler=NoScaling()), randomness=number))
            which[number] = (c, h)
    found: dict[int, Configuration] = {}
    for done in run.results(jobs, labelled, data.valid, data.outputs):
        c, h = which[done.number]
        lower = below[h]
        score = done.score if done.network is not None else math.inf
        numbers = (*lower.numbers, c)
        training = Training(
            done.number, level, numbers, score, done.outcome, done.seconds, done.age_examples, done.reason
        )
        run.trainings.append(training)
        watch(training, total)
        found[done.number] = dataclasses.replace(
            lower,
            numbers=numbers,
            score=score,
            network=done.network,
            fine_tuning=settings[c],
            scores=done.scores,
            ended=done,
        )
    return [found[number] for number in sorted(found)]


def _refuse_capacity(
    levels: Sequence[Sequence[Recipe]], fine_tuning: Sequence[Recipe], parts: dict[str, Dataset | None]
) -> None:
    """Settings of one step are compared by the validation part: not by capacity, where that was trained on."""
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
    slots: AbstractSlots | None = None,
    folder: Path | None = None,
    watch: Watch = silent,
) -> Layerwise:
    """The K best configurations, with their settings and validation scores.

    `levels` lists the settings of each level, bottom up, and `fine_tuning` those of the end; split and scaler are those
    of the first fine-tuning setting. With a `folder` every training is written there when it ends, and a run that was
    killed goes on from them.
    """
    if not levels or not all(levels) or not fine_tuning:
        raise RequestError("every level, and the fine-tuning, needs at least one setting.")
    if keep < 1:
        raise RequestError(f"`keep` must be at least 1; got {keep}.")
    compilation.use_compilation_cache()
    begun = time.monotonic()
    as_criterion(fine_tuning[0].criterion).check_task(dataset.task)
    metric = check_metric(metric, dataset.task.kind)
    data, scaler, parts = _grounded(fine_tuning[0], dataset, key)
    _refuse_capacity(levels, fine_tuning, parts)
    run = _Run(data, probe, key, slots, NetworkStore(folder))
    total = trainings_of(levels, len(fine_tuning), keep, shallower=shallower)
    below: tuple[Any, ...] = (None,)
    by_level: list[tuple[Configuration, ...]] = []
    for level, settings in enumerate(levels, start=1):
        tried = _train_level(run, level, settings, below, total, watch)
        below = best_configurations(tried, keep)  # a snapshot: the next level reads this one and fills its own
        if not below:
            reasons = {one.reason or one.outcome for one in run.trainings if one.level == level}
            raise RequestError(f"no setting of level {level} could be learned: {'; '.join(sorted(reasons))}.")
        by_level.append(below)
    candidates = tuple(one for level in by_level for one in level) if shallower else below
    tuned = _fine_tune(run, len(levels) + 1, fine_tuning, candidates, total, watch)
    kept = best_configurations(tuned, keep)
    if not kept:
        raise RequestError("no fine-tuning could be done: every one diverged or failed.")
    scores = np.stack([one.scores for one in tuned if math.isfinite(one.score) and one.scores is not None])
    seconds = time.monotonic() - begun
    return Layerwise(kept, tuple(by_level), tuple(run.trainings), scaler, parts, metric, seconds, scores)
