"""`gradwise fit`: read the data, choose the recipe, train, write, report. The library does all the work.

Everything is validated before anything is created: options, then the folder, the data, the recipe and the device. A dry
run stops before the device.
"""

import dataclasses
import importlib
import json
import math
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax

from ... import defaults
from ...data.reading.read import ReadRequest, read
from ...data.scaling import kind_of_inputs
from ...data.splits import Fold, GroupHoldOut, TimeHoldOut
from ...evaluation.metrics import check_metric
from ...optimisers.wrappers.watched import Watched
from ...records.fit import Fit, read_fit, write_fit
from ...records.study_files import is_study
from ...runtime import keys
from ...runtime.errors import RequestError, WorkError
from ...specs.adapters import as_criterion
from ...specs.contracts import AbstractUnsupervised
from ...specs.dataset import Dataset
from ...specs.recipe import Recipe
from ...training.cross_validation import cross_validate
from ...training.fit import fit
from ...training.loop import RunOptions
from ...training.model_files import MODEL, load_predictor, load_used_rows, save_predictor
from .. import run_folder as folders
from ..options.assignments import Assignment, Resolved, flatten, parse_assignment, resolve
from ..options.fit_options import DataOptions, FitOptions, merge_options, read_config
from ..terminal.output import Progress, one_line, say, show_plan, show_result
from .fit_plan import check_network, expected_sizes, make_plan
from .pretraining import (
    check_layers,
    check_varied,
    expanded,
    features_recipe,
    pretrained_recipe,
    takes_probabilities,
    train_pretrained,
)


def _read_options(given: dict[str, Any], config: str | None, sets: list[str]) -> tuple[FitOptions, list[Assignment]]:
    """The options and the knob assignments; those of the command line come last, so they override the file's."""
    table, tables = read_config(config) if config else ({}, {})
    assignments = [*flatten(tables, str(config)), *(parse_assignment(text) for text in sets)]
    return merge_options(given, table, str(config)), assignments


def _recommended(options: DataOptions, kind: str, unit: bool, table_rows: int | None, parts: dict[str, Any]) -> Recipe:
    """The initial recipe; `unit`: the scaled inputs lie in [0, 1]; `table_rows`: the rows of a table, or None."""
    layers = getattr(options, "pretrain", None)
    if layers is not None:
        return pretrained_recipe(kind, layers, unit, **parts)
    if kind == "inputs":
        return features_recipe(getattr(options, "learner", None), unit, **parts)
    if table_rows is not None:
        return defaults.table(kind, table_rows, **parts)
    recommended = {"classes": defaults.classification, "labels": defaults.multilabel, "numbers": defaults.regression}
    return recommended[kind](**parts)


def resolve_for(
    options: DataOptions,
    assignments: Iterable[Assignment],
    kind: str,
    dataset: Dataset | None = None,
    *,
    table_rows: int | None = None,
    **parts: Any,
) -> Resolved:
    """The recommended recipe for this kind of task, changed by the options and assignments.

    Feature learners also depend on the scaled inputs, if the data set is given. A table has its own recipe, unless a
    part that the rest depends on is replaced; `parts` are those of any other recipe.
    """
    assignments = list(assignments)
    layers = getattr(options, "pretrain", None)
    unit = takes_probabilities(assignments, dataset) if layers or kind == "inputs" else True
    exchanged = any(one.path in ("model", "optimiser", "stopping") for one in assignments)
    is_table = table_rows is not None and not exchanged
    recipe = _recommended(options, kind, unit, table_rows if is_table else None, {} if is_table else parts)
    if layers is not None:
        assignments = expanded(assignments, len(recipe.model.layers))
    if options.metric and kind != "inputs":
        recipe = defaults.following(recipe, check_metric(options.metric, kind))
    if options.group:
        recipe = dataclasses.replace(recipe, split=GroupHoldOut())
    if options.time:
        recipe = dataclasses.replace(recipe, split=TimeHoldOut())
    resolved = resolve(recipe, assignments)
    every = getattr(options, "watch", 0)
    if every:
        watched = Watched(optimiser=resolved.recipe.optimiser, every=every)
        resolved = dataclasses.replace(resolved, recipe=dataclasses.replace(resolved.recipe, optimiser=watched))
    return resolved


def rows_of_table(dataset: Dataset) -> int | None:
    """The number of rows of a table; None for other kinds of inputs."""
    return len(dataset) if kind_of_inputs(dataset.inputs, dataset.columns) == "table" else None


def read_data(options: FitOptions, assignments: list[Assignment]) -> tuple[Dataset, Resolved]:
    """The data to train on and their recipe; raises if they cannot be learned from."""
    dataset = read(options.data, data_request(options))
    resolved = resolve_for(options, assignments, dataset.task.kind, dataset, table_rows=rows_of_table(dataset))
    criterion = as_criterion(resolved.recipe.criterion)
    if isinstance(criterion, AbstractUnsupervised) or options.pretrain is not None:
        check_varied(dataset)
    if isinstance(criterion, AbstractUnsupervised):
        dataset = dataset.without_targets()
        check_metric(options.metric, dataset.task.kind, criterion.measured())
    elif dataset.task.kind == "inputs":
        raise RequestError(
            f"`{type(criterion).__name__}` needs a target, but the data have none: name it with --target, or leave "
            "out --set criterion to learn features."
        )
    criterion.check_task(dataset.task)
    check_network(resolved.recipe, dataset)
    check_layers(resolved.recipe, dataset)
    return dataset, resolved


def data_request(options: DataOptions) -> ReadRequest:
    """How to read the data."""
    return ReadRequest(
        targets=options.target,
        drop=options.drop,
        kinds=options.kind,
        task=options.task,
        group=options.group,
        time=options.time,
        weight=options.weight,
        test=options.test,
        unsupervised=getattr(options, "learns_inputs", False),
    )


def start_device(on: str | None) -> None:
    """Starts the requested device, or raises and lists those available."""
    if on == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        devices = jax.devices()
    except RuntimeError as problem:
        reason = str(problem).splitlines()[0]
        raise RequestError(f"JAX could not start a device ({reason}). Try --on cpu, or unset JAX_PLATFORMS.") from None
    if on == "gpu" and devices[0].platform != "gpu":
        names = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in devices}))
        raise RequestError(f"--on gpu: JAX found no GPU, only {names}. Leave out --on to use that.")


def _finished(folder: Path, options: FitOptions, assignments: list[Assignment]) -> Fit | None:
    """The record in the folder, if it already answers this request."""
    if not (folder / folders.RESULT).is_file():
        return None
    if is_study(folder):
        raise RequestError(
            f"--resume: {folder} holds a study. Continue it with gradwise search, or choose another folder."
        )
    found = read_fit(folder)
    recipe = found.recipe
    is_table = defaults.is_for_tables(model=recipe.model, optimiser=recipe.optimiser, stopping=recipe.stopping)
    rows = sum(found.data["rows"].values()) if is_table else None
    asked = resolve_for(options, assignments, found.task, table_rows=rows)
    same = found.data.get("command") == options.command(asked.changes)
    if not same and not (folder / folders.CHECKPOINT).is_file():
        raise RequestError(
            f"--resume: {folder} holds another run, started with: {found.data.get('command')}. Repeat that command, or "
            "replace the run with --overwrite."
        )
    used_up = options.max_time is not None and found.seconds >= options.max_time
    more = found.outcome.name == "interrupted" or (found.outcome.name == "out_of_time" and not used_up)
    return found if same and not more else None


def _train(options: FitOptions, dataset: Dataset, resolved: Resolved, work: Path, progress: Progress) -> Fit:
    """The network of the hold-out split, trained in the folder for checkpoints."""
    recipe = resolved.recipe
    percent = getattr(getattr(recipe.criterion, "loss", None), "score_by", "") == "error"
    run_options = RunOptions(
        folder=work,
        resume=options.resume,
        checkpoint_seconds=options.checkpoint,
        max_seconds=_share_of_time(options),
        watch=progress.watch,
    )
    given: dict[str, Any] = {
        "key": keys.from_seed(options.seed),
        "metric": options.metric,
        "class_weight": options.class_weight,
        "options": run_options,
    }
    if options.pretrain is not None:
        result = train_pretrained(recipe, dataset, options.pretrain, progress=progress, percent=percent, **given)
    else:
        length = recipe.stopping.limit_examples(expected_sizes(recipe, dataset)[0])
        progress.training("training", length=length, percent=percent)
        threading.Thread(target=_load_what_reports).start()
        result = fit(recipe, dataset, **given)
    return dataclasses.replace(result, data={**result.data, "command": options.command(resolved.changes)})


def _load_what_reports() -> None:
    """Imports the modules needed after training, which take a second, while the device is busy."""
    for name in ("matplotlib.figure", "pandas", "gradwise.reporting.report"):
        importlib.import_module(name)


def _share_of_time(options: FitOptions) -> float:
    """With folds, `--max-time` is split evenly between them and the final network."""
    return math.inf if options.max_time is None else options.max_time / (options.folds + 1)


def _folds(options: FitOptions, recipe: Any) -> list[Fold]:
    return [Fold(number, options.folds, getattr(recipe.split, "valid", 0.2)) for number in range(options.folds)]


def _estimate(options: FitOptions, dataset: Dataset, result: Fit, progress: Progress) -> Fit:
    """The record with the k-fold estimate."""
    recipe = result.recipe

    def begin(number: int) -> None:
        length = recipe.stopping.limit_examples(len(dataset))
        progress.training(f"fold {number + 1} of {options.folds}", length=length, percent=result.task == "classes")

    def watch(number: int, fold: Fit) -> None:
        if fold.outcome.name == "interrupted":
            raise KeyboardInterrupt
        if number + 1 < options.folds:
            begin(number + 1)

    begin(0)
    estimate = cross_validate(
        recipe,
        dataset,
        _folds(options, recipe),
        key=keys.from_seed(options.seed),
        watch=watch,
        metric=options.metric,
        class_weight=options.class_weight,
        options=RunOptions(max_seconds=_share_of_time(options), watch=progress.watch),
    )
    return dataclasses.replace(result, evidence={**result.evidence, "estimate": estimate.plain()})


def diagnosed(result: Fit) -> Fit:
    """The record with its verdict and the findings that follow from it, without running anything."""
    from ...checking.verdict.consequences import demote_consequences
    from ...checking.verdict.diagnosis import diagnose

    if result.task == "inputs":  # features have no error that could be called too high
        return result
    said, found = diagnose(result)
    verdict = {"sentence": said.sentence, "kind": said.kind, "remedies": list(said.remedies), **said.evidence}
    return dataclasses.replace(
        result,
        findings=demote_consequences((*result.findings, *found)),
        evidence={**result.evidence, "verdict": verdict},
    )


def publish_run(result: Fit, folder: Path, work: Path, *, report: bool) -> None:
    """Writes the run's files, all or none."""

    def write(staging: Path) -> None:
        write_fit(result, staging)
        # Neither times nor paths: equal runs give equal model files.
        about = {"metric": result.metric, "version": result.version}
        save_predictor(result.predictor, staging / MODEL, about=about, used=result.used)
        if report:
            from ...reporting.report import write_report

            write_report(staging, result)

    folders.publish_files(folder, work, write)


def announce_run(result: Fit, folder: Path, options: Any) -> int:
    """Prints the result and returns the exit code."""
    report = folder / "report.html" if (folder / "report.html").is_file() else None
    if options.json:
        print(json.dumps({**result.summary(), "out": str(folder), "report": None if report is None else str(report)}))
    elif options.quiet:
        print(one_line(result))
    else:
        show_result(result, folder, report)
    if result.outcome.failed:
        raise WorkError(f"the run {result.outcome}; {folder} holds the state before that. Lower the learning rate.")
    if result.outcome.name == "interrupted":
        say(f"error: {result.outcome}; the best model so far is in {folder}. Continue with --out {folder} --resume.")
        return 130
    return 0


def _work(
    options: FitOptions, dataset: Dataset, resolved: Resolved, folder: Path, result: Fit | None, progress: Progress
) -> Fit:
    """Trains and estimates what is not done yet, and writes both."""
    for fold in _folds(options, resolved.recipe)[:1]:
        fold(dataset, key=keys.from_seed(options.seed))  # refused now rather than after the training
    report = not options.no_report

    def write(result: Fit, work: Path, *, last: bool = True) -> None:
        progress.phase("writing the report" if report and last else "writing")
        publish_run(result, folder, work, report=report and last)

    with folders.claim(folder, resume=options.resume, overwrite=options.overwrite) as work:
        if result is None:
            result = diagnosed(_train(options, dataset, resolved, work, progress))
            estimated = bool(options.folds) and result.outcome.name not in {"interrupted", "diverged"}
            write(result, work, last=not estimated)
        else:
            kept = {"predictor": load_predictor(folder / MODEL)[0], "used": load_used_rows(folder / MODEL)}
            result = dataclasses.replace(result, **kept)
            estimated = True
        if estimated:
            try:
                result = _estimate(options, dataset, result, progress)
            except KeyboardInterrupt:
                write(result, folder)  # the folds are lost, the network is not
                raise
            write(result, folder)
        return result


def run_fit(given: dict[str, Any], config: str | None, sets: list[str]) -> int:
    """The command; returns its exit code."""
    options, assignments = _read_options(given, config, sets)
    folder = folders.choose_folder(options.out, options.name_of_data)
    folders.check_folder(folder, resume=options.resume, overwrite=options.overwrite)
    with Progress(not options.quiet) as progress:
        result = _finished(folder, options, assignments) if options.resume else None
        estimated = result is not None and ("estimate" in result.evidence or result.outcome.failed)
        complete = result is not None and (estimated or not options.folds)
        if options.dry_run or not complete:
            progress.phase(f"reading {options.data}")
            dataset, resolved = read_data(options, assignments)
        if options.dry_run:
            progress.phase("planning")
            plan = make_plan(options, dataset, resolved, folder)
        elif not complete:
            start_device(options.on)
            result = _work(options, dataset, resolved, folder, result, progress)
    if options.dry_run and options.json:
        print(json.dumps(plan, default=str))
    elif options.dry_run:
        show_plan(plan)
    if options.dry_run:
        return 0
    assert result is not None
    return announce_run(result, folder, options)
