"""`gradwise search DATA --strategy layerwise`: Algorithm 1 of the chapter, from the command line (row E8).

    --strategy layerwise                                                     three denoising layers of 128 to 512 units
    --strategy "layerwise(layers=rbm:250-1000x2, keep=4, settings=8)"        K = 4, eight settings per level
    --strategy "layerwise(layers=rbm:500,denoising:100-300)"                 the first has 500 units in every setting

The settings of each level (with its width, if it has a range) and of the fine-tuning are drawn from priors around the
recommended values. `--set layers.stopping.epochs=10` sets a knob of every layer, any other `--set` one of the
fine-tuning. The folder is that of a fit, since the result is one network; its report shows how it was chosen. Every
training is saved when it ends, and every --checkpoint seconds before, so --resume continues a run that was killed.
"""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

from .. import defaults
from ..records.evidence.fit_evidence import LayerTraining
from ..records.fit import Fit, read_fit
from ..records.score_scale import ScoreScale
from ..runtime import keys
from ..runtime.errors import RequestError
from ..runtime.files import write_whole
from ..searching.layerwise.algorithm import draw_settings, layerwise, trainings_of
from ..searching.layerwise.record import record_of
from ..specs.dataset import Dataset, refuse_several
from ..training.checkpoint import digest
from .data_and_recipe import follow_request, read_requested, start_device
from .fit import publish_run
from .folders import run_folder as folders
from .pretraining import check_layers, expanded, pretrained_recipe, takes_probabilities
from .progress import SILENT, AbstractProgress
from .requests.assignments import assignments_of, resolve
from .requests.options import flag_of
from .requests.strategies import LayerwisePlan, parse_layerwise, parse_ranges
from .requests.study_requests import SearchRequest

SHELF = "layerwise"
_ABOUT = "about.json"


def _refuse_others(options: SearchRequest) -> None:
    """Raises on options of other strategies, which have no effect here."""
    alike = ("budget", "folds", "finalists", "seeds", "committee", "nested", "batch_size", "store", "name")
    odd = next((name for name in alike if getattr(options, name) != options.default(name)), None)
    if odd is not None:
        words = "--trials or --budget" if odd == "budget" else flag_of(odd)
        raise RequestError(
            f"{words}: layerwise has its own settings, as in --strategy 'layerwise(keep=3, settings=6)'. Leave it out."
        )


def _recipes(options: SearchRequest, plan: LayerwisePlan, dataset: Dataset) -> tuple[list[list[Any]], list[Any]]:
    """The settings of every level, and those of the fine-tuning."""
    assignments = assignments_of(options)
    unit = takes_probabilities(assignments, dataset)
    widest, ranges = parse_ranges(plan.layers)
    recipe = pretrained_recipe(dataset.task.kind, widest, unit)
    check_layers(recipe, dataset)
    recipe = follow_request(recipe, options, dataset.task.kind)
    for item in assignments:
        if item.path.endswith((".model.widths", ".model.units")):
            raise item.refuse("widths are given by layers=..., as in denoising:128-512x3. Leave it out.")
    recipe = resolve(recipe, expanded(assignments, len(ranges))).recipe
    model: Any = recipe.model
    key = keys.from_seed(options.seed)
    levels = [
        draw_settings(defaults.level_space(layer, widths), plan.settings, key=keys.named(key, f"level {number}"))
        for number, (layer, widths) in enumerate(zip(model.layers, ranges, strict=True))
    ]
    whole = dataclasses.replace(recipe, model=model.mlp)
    return levels, draw_settings(defaults.fine_tuning_space(whole), plan.tunings, key=keys.named(key, "fine-tuning"))


def _check_shelf(shelf: Path, about: dict[str, Any]) -> None:
    """Raises unless trainings of the earlier run can be reused for this request."""
    file = shelf / _ABOUT
    text = json.dumps(about, sort_keys=True)
    if file.is_file() and file.read_text() != text:
        raise RequestError(
            f"--resume: {shelf.parent} was started with other data, settings or another seed. Use another --out, or "
            "--overwrite."
        )
    shelf.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


def _watch(progress: AbstractProgress, scale: ScoreScale) -> Any:
    best: dict[int, float] = {}
    ended = itertools.count(1)

    def watch(training: LayerTraining, total: int) -> None:
        best[training.level] = min(best.get(training.level, math.inf), training.score)
        score = scale.precise(best[training.level])
        progress.phase(f"level {training.level}: {next(ended)} of {total} trainings done, best {score}")

    return watch


def _work(
    options: SearchRequest, plan: LayerwisePlan, dataset: Dataset, folder: Path, progress: AbstractProgress
) -> Fit:
    levels, tunings = _recipes(options, plan, dataset)
    start_device(options.on)
    key = keys.from_seed(options.seed)
    with folders.claim(folder, resume=options.resume, overwrite=options.overwrite) as work:
        _check_shelf(work / SHELF, _about(options, plan, dataset))
        found = layerwise(
            levels,
            tunings,
            dataset,
            keep=plan.keep,
            key=key,
            shallower=plan.shallower,
            metric=options.metric,
            on=options.on,
            folder=work / SHELF,
            checkpoint_seconds=options.checkpoint,
            watch=_watch(progress, ScoreScale.of_run(tunings[0], dataset.task.kind)),
        )
        result = record_of(found, dataset, key=key).with_command(options.command(tuple(_words(options))))
        progress.phase("writing the report" if not options.no_report else "writing")
        publish_run(result, folder, work, report=not options.no_report)
    return result


def _about(options: SearchRequest, plan: LayerwisePlan, dataset: Dataset) -> dict[str, Any]:
    """What must match for trainings of an earlier run to be reused."""
    return {"plan": dataclasses.asdict(plan), "seed": options.seed, "data": digest(dataset), "sets": _words(options)}


def _words(options: SearchRequest) -> list[str]:
    return [f"{item.path}={item.value}" for item in assignments_of(options)]


def _read(options: SearchRequest, progress: AbstractProgress) -> tuple[LayerwisePlan, Path, Dataset]:
    """The plan, the folder and the data of a request; raises on options that layerwise does not have."""
    plan = parse_layerwise(options.strategy)
    _refuse_others(options)
    if options.ranges or options.range:
        raise RequestError(
            "--range: layerwise has its own ranges. Fix knobs with --set; give widths a range with "
            "layerwise(layers=denoising:128-512x3)."
        )
    folder = folders.choose_folder(options.out, options.name_of_data, options.resume, options.overwrite)
    progress.phase(f"reading {options.data}")
    dataset = read_requested(options)
    if dataset.task.kind == "inputs":
        raise RequestError("layerwise scores layers by a target, but the data have none: name it with --target.")
    refuse_several(dataset.task, "a search")
    return plan, folder, dataset


def plan_layerwise(options: SearchRequest, progress: AbstractProgress) -> dict[str, Any]:
    """The settings of the search and the number of its trainings; nothing is trained or written."""
    plan, _, dataset = _read(options, progress)
    levels, tunings = _recipes(options, plan, dataset)
    count = trainings_of(levels, len(tunings), plan.keep, shallower=plan.shallower)
    return {**dataclasses.asdict(plan), "levels": len(levels), "trainings": count}


def run_layerwise(options: SearchRequest, progress: AbstractProgress = SILENT) -> folders.Written[Fit]:
    """Trains level by level and writes the best network; or returns the finished run of the same request."""
    plan, folder, dataset = _read(options, progress)
    if options.resume and (folder / folders.RESULT).is_file():
        _check_shelf(folder / SHELF, _about(options, plan, dataset))
        return folders.Written(read_fit(folder), folder)
    return folders.Written(_work(options, plan, dataset, folder, progress), folder)
