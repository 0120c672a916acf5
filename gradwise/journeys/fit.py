"""`gw.fit` and `gradwise fit`: read the data, choose the recipe, train, estimate, write, report.

    model = gw.fit("houses.csv", target="price", seed=3)
    model = gw.fit(X, y, model=my_module, optimiser=optax.adam(1e-3))

Everything is validated before anything is created: options, then the folder, the data, the recipe and the device. A dry
run stops before the device.
"""

import dataclasses
import importlib
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from jaxtyping import Array, Key

from ..checking.data.as_read import refuse_unlearnable
from ..checking.verdict.consequences import demote_consequences
from ..checking.verdict.diagnosis import diagnose
from ..checking.verdict.verdict import NOTHING_STANDS_OUT
from ..data.splits import Fold
from ..recipes import form_of_recipe, is_for_tables
from ..records.finding import Finding
from ..records.fit import Fit, read_fit
from ..records.readings import write_readings
from ..records.score_scale import ScoreScale
from ..records.study_files import is_study
from ..runtime import keys
from ..runtime.errors import RequestError
from ..runtime.memory import is_large
from ..specs.dataset import Dataset
from ..specs.paths import knobs
from ..specs.recipe import Recipe
from ..tracing.flow_monitor import FlowMonitor
from ..tracing.phase_clock import STARTING, PhaseClock, keeping_time, phase, running_clock
from ..tracking.callbacks import call_back
from ..tracking.tracker import describe_recipe
from ..training.cross_validation import cross_validate
from ..training.loop import RunOptions
from ..training.model_files import MODEL, load_predictor, load_used_rows
from ..training.prepare import CLASS_WEIGHTS
from ..training.train import train
from .data_and_recipe import Description, expected_sizes, find_in_data, read_data, resolve_for, start_device
from .dry_run import make_plan
from .folders import run_folder as folders
from .folders.profile_files import tracing_into, write_profile
from .model import Model, model_of_record
from .pretraining import train_pretrained
from .progress import SILENT, AbstractProgress
from .progress_bar import progress_here
from .requests.assignments import Resolved
from .requests.given import arguments_named, documented, python_request, refuse_recipe_first
from .requests.training_requests import FitRequest


def _with_diagnosis(result: Fit, in_data: tuple[Finding, ...] = ()) -> Fit:
    """The record with what was found in its data, its verdict and the findings that follow, without running anything.

    "Nothing stands out" is left out if something does.
    """
    if result.task == "inputs":  # features have no error that could be called too high
        return result
    result = dataclasses.replace(result, findings=(*in_data, *result.findings))
    said, found = diagnose(result)
    verdict = dataclasses.replace(said, findings=())
    findings = demote_consequences((*result.findings, *found))
    stands_out = any(one.level != "note" for one in findings)
    return dataclasses.replace(
        result,
        findings=tuple(one for one in findings if one.code != NOTHING_STANDS_OUT or not stands_out),
        evidence=dataclasses.replace(result.evidence, verdict=verdict),
    )


def _described(
    result: Fit, dataset: Dataset, key: Key[Array, ""], class_weight: CLASS_WEIGHTS, wanted: Description
) -> Fit:
    """The record with simple models beside the network and the importance of columns; not of a run that ended badly."""
    if result.outcome.failed or result.outcome.name == "interrupted":
        return result
    options: dict[str, Any] = {"key": key, "metric": result.metric, "class_weight": class_weight}
    evidence = wanted.of(result.predictor, result.evidence, result.recipe, dataset, **options)
    return dataclasses.replace(result, evidence=evidence)


def fit_recipe(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: CLASS_WEIGHTS = None,
    options: RunOptions = RunOptions(),
    warm: Fit | None = None,
    check_data: bool = True,
    describe: Description = Description(),
) -> Fit:
    """Trains one network by a recipe, as `gradwise.train` does, checks the data first, and diagnoses the record.

    `metric` is the metric to report (all metrics are measured); `options` control checkpoints, time and progress.
    `warm` is a warm start from an earlier result: its scaler, parameters and optimiser state. Resuming in the folder of
    `options`, and a warm start with the same key and test set, read the test set again, which the record counts.
    `describe` says whether simple models on the same rows and the importance of each column are measured too.
    """
    given: dict[str, Any] = {"metric": metric, "class_weight": class_weight, "options": options, "warm": warm}
    if warm is None:  # what goes on has learned from other rows
        refuse_unlearnable(dataset)
    in_data = find_in_data(recipe, dataset, key) if check_data else ()
    record = train(recipe, dataset, key=key, **given)
    if options.folder is not None:  # the caller sees the score now
        write_readings(record.data.test_readings, options.folder)
    return _with_diagnosis(_described(record, dataset, key, class_weight, describe), in_data)


def _finished(folder: Path, options: FitRequest) -> Fit | None:
    """The record in the folder, if it already answers this request."""
    if not (folder / folders.RESULT).is_file():
        return None
    if is_study(folder):
        raise RequestError(
            f"--resume: {folder} holds a study. Continue it with gradwise search, or choose another folder."
        )
    if options.given.objects:
        return None  # whether these are the same data and parts, the fingerprint of the checkpoint must tell
    found = read_fit(folder)
    recipe = found.recipe
    is_table = is_for_tables(model=recipe.model, optimiser=recipe.optimiser, stopping=recipe.stopping)
    form = form_of_recipe(recipe, found.data.rows.total, found.data.shape, is_table=is_table)
    asked = resolve_for(options, found.task, form=form)
    same = found.data.command == options.command(asked.changes)
    if not same and not (folder / folders.CHECKPOINT).is_file():
        raise RequestError(
            f"--resume: {folder} holds another run, started with: {found.data.command}. Repeat that command, or "
            "replace the run with --overwrite."
        )
    used_up = options.max_time is not None and found.seconds >= options.max_time
    more = found.outcome.name == "interrupted" or (found.outcome.name == "out_of_time" and not used_up)
    return found if same and not more else None


def _is_estimated(result: Fit) -> bool:
    return result.evidence.estimate is not None or result.outcome.failed


def _train(
    options: FitRequest, dataset: Dataset, resolved: Resolved, work: Path | None, progress: AbstractProgress
) -> Fit:
    """The network of the hold-out split, trained in the folder for checkpoints, if there is one."""
    recipe = resolved.recipe
    scale = ScoreScale.of_run(recipe, dataset.task.kind)
    given: dict[str, Any] = {
        "key": keys.from_seed(options.seed),
        "metric": options.metric,
        "class_weight": options.class_weight,
    }
    progress.phase("checking the data")
    with phase("checking the data"):
        in_data = find_in_data(recipe, dataset, given["key"])
    with call_back(options.given.callbacks, describe_recipe(recipe)) as calls:

        def watch(row: dict[str, Any]) -> None:
            progress.watch(row)
            calls.watch(row)

        given["options"] = RunOptions(
            folder=work,
            resume=options.resume,
            checkpoint_seconds=options.checkpoint,
            max_seconds=_share_of_time(options),
            watch=watch,
            monitor=FlowMonitor(every=options.watch) if options.watch else None,
            examples=not options.no_examples,
        )
        if options.pretrain is not None:
            result = train_pretrained(recipe, dataset, progress=progress, scale=scale, **given)
        else:
            length = recipe.stopping.limit_examples(expected_sizes(recipe, dataset)[0])
            progress.training("training", length=length, scale=scale)
            # Large data want the room now.
            with nullcontext() if is_large(dataset.inputs) else _reporting_loaded():
                result = train(recipe, dataset, **given)
        progress.phase("measuring columns and simpler models")
        wanted = Description(baselines=not options.no_baselines)
        with phase("simpler models and columns"):
            result = _described(result, dataset, given["key"], options.class_weight, wanted)
        result = _with_diagnosis(result.with_command(options.command(resolved.changes)), in_data)
        calls.end(result)
    return result


def _load_what_reports() -> None:
    for name in (
        "matplotlib.figure",
        "pandas",
        "sklearn.linear_model",
        "sklearn.ensemble",
        "gradwise.reporting.report",
    ):
        importlib.import_module(name)


@contextmanager
def _reporting_loaded() -> Iterator[None]:
    """Meanwhile, imports the modules needed after training, which take a second, while the device is busy."""
    loading = threading.Thread(target=_load_what_reports)
    loading.start()
    try:
        yield
    finally:  # a program that ends in the middle of an import prints a traceback
        loading.join()


def _share_of_time(options: FitRequest) -> float:
    """With folds, `--max-time` is split evenly between them and the final network."""
    return math.inf if options.max_time is None else options.max_time / (options.folds + 1)


def _folds(options: FitRequest, recipe: Any) -> list[Fold]:
    valid = {path: value for path, _, value in knobs(recipe)}.get("split.valid", 0.2)
    return [Fold(number, options.folds, valid) for number in range(options.folds)]


def _estimate(options: FitRequest, dataset: Dataset, result: Fit, progress: AbstractProgress) -> Fit:
    """The record with the k-fold estimate."""
    recipe = result.recipe

    def begin(number: int) -> None:
        length = recipe.stopping.limit_examples(len(dataset))
        scale = ScoreScale.of_run(recipe, result.task)
        progress.training(f"fold {number + 1} of {options.folds}", length=length, scale=scale)

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
        options=RunOptions(max_seconds=_share_of_time(options), watch=progress.watch, examples=False),
    )
    return dataclasses.replace(result, evidence=dataclasses.replace(result.evidence, estimate=estimate))


def publish_run(result: Fit, folder: Path, work: Path, *, report: bool) -> None:
    """Writes the run's files, all or none."""
    folders.publish_files(folder, work, lambda staging: folders.write_run(result, staging, report=report))


def _refuse_folds(options: FitRequest, dataset: Dataset, resolved: Resolved) -> None:
    """Raises now, rather than after the training, if the data cannot be split into the folds."""
    for fold in _folds(options, resolved.recipe)[:1]:
        fold(dataset, key=keys.from_seed(options.seed))


def _to_be_estimated(options: FitRequest, result: Fit) -> bool:
    return bool(options.folds) and result.outcome.name not in {"interrupted", "diverged"}


def _work(
    options: FitRequest,
    dataset: Dataset,
    resolved: Resolved,
    folder: Path,
    result: Fit | None,
    progress: AbstractProgress,
) -> Fit:
    """Trains and estimates what is not done yet, and writes both."""
    _refuse_folds(options, dataset, resolved)
    report = not options.no_report

    def write(result: Fit, work: Path, *, last: bool = True) -> None:
        progress.phase("writing the report" if report and last else "writing")
        result = _with_profile(result, running_clock())
        with phase("report" if report and last else "writing"):
            publish_run(result, folder, work, report=report and last)

    with folders.claim(folder, resume=options.resume, overwrite=options.overwrite) as work:
        if result is None:
            result = _train(options, dataset, resolved, work, progress)
            estimated = _to_be_estimated(options, result)
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


@contextmanager
def _profiled(options: FitRequest, begun: float | None) -> Iterator[PhaseClock | None]:
    """Meanwhile a clock runs, if a profile is to be made."""
    if not options.profile:
        yield None
        return
    with keeping_time(begun) as clock:
        yield clock


def _with_profile(result: Fit, clock: PhaseClock | None) -> Fit:
    """The record with where the time went so far."""
    if clock is None:
        return result
    return dataclasses.replace(result, evidence=dataclasses.replace(result.evidence, profile=clock.profile()))


def plan_fit(options: FitRequest, progress: AbstractProgress) -> dict[str, Any]:
    """What the fit would do, as plain values; nothing is trained or written."""
    folder = folders.choose_folder(options.out, options.name_of_data, options.resume, options.overwrite)
    if options.resume:
        _finished(folder, options)  # refuses the folder of something else
    progress.phase(f"reading {options.data}")
    dataset, resolved = read_data(options)
    progress.phase("planning")
    return make_plan(options, dataset, resolved, folder)


def run_fit(
    options: FitRequest, progress: AbstractProgress = SILENT, begun: float | None = None
) -> folders.Written[Fit]:
    """Reads the data, trains, estimates and writes; or returns the finished run that already answers the request.

    `begun` is when the command began, by `time.monotonic`.
    """
    folder = folders.choose_folder(options.out, options.name_of_data, options.resume, options.overwrite)
    result = _finished(folder, options) if options.resume else None
    if result is None or not (_is_estimated(result) or not options.folds):
        with _profiled(options, begun) as clock, tracing_into(folder) if options.trace else nullcontext():
            progress.phase(f"reading {options.data}")
            with phase("reading"):
                dataset, resolved = read_data(options)
            with phase(STARTING):
                start_device(options.on)
            result = _with_profile(_work(options, dataset, resolved, folder, result, progress), clock)
        if result.evidence.profile is not None:
            write_profile(result.evidence.profile, folder)
    return folders.Written(result, folder)


def _fit_in_memory(options: FitRequest, progress: AbstractProgress) -> Fit:
    """The same journey without a folder."""
    with _profiled(options, None) as clock:
        progress.phase(f"reading {options.data}")
        with phase("reading"):
            dataset, resolved = read_data(options)
        with phase(STARTING):
            start_device(options.on)
        _refuse_folds(options, dataset, resolved)
        result = _train(options, dataset, resolved, None, progress)
        result = _estimate(options, dataset, result, progress) if _to_be_estimated(options, result) else result
        return _with_profile(result, clock)


@documented(FitRequest)
def fit(
    data: Any,
    targets: Any = None,
    *,
    recipe: Recipe | None = None,
    set: Mapping[str, Any] | None = None,
    callbacks: Any = (),
    progress: bool | None = None,
    **options: Any,
) -> Model:
    """Trains one network, estimates its error on held-out data, and returns it with the record of its training.

    `data` is a path, a named set, a data frame, arrays `X, y` or a `Dataset`; the target is a column (`target=`) or
    `targets`. `model`, `optimiser` and the other parts of the recipe are names, specs, modules of Equinox or Flax,
    Optax transformations or functions; `set` holds knobs by path: `{"optimiser.learning_rate": 0.01}`. `recipe` is a
    whole recipe instead of the recommended one. Each of `callbacks` gets every row of the history. With `out` the run
    is written to that folder as well, with checkpoints. `progress` shows a bar, by default where it can be seen.
    """
    refuse_recipe_first("fit", data)
    with arguments_named(), progress_here(progress) as shown:
        asked = {**options, "set": set}
        request = python_request(FitRequest, data, targets, asked, recipe=recipe, callbacks=callbacks)
        result = _fit_in_memory(request, shown) if request.out is None else run_fit(request, shown).record
        return model_of_record(result, None if request.out is None else Path(request.out))
