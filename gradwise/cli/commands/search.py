"""`gradwise search`: read, decide, search, estimate, write, tell. All work is done by the verbs of the library.

What can be refused is refused first, before anything is made: options, then the folder, then the data, then the space,
then the device. While the search runs the folder holds `study.toml` (what was asked), `study.journal` (every trial) and
`contenders` (the best networks); the rest is written when it ends, all or nothing.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...checking.verdict.diagnosis import diagnose_study
from ...records.finding import Finding
from ...records.fit import write_whole
from ...records.study import Study
from ...records.study_files import is_study, read_study, write_study
from ...runtime import keys
from ...runtime.errors import RequestError, WorkError
from ...searching.search import StudyOptions, search
from ...searching.selection.doubly import FOLDS, Interrupted, estimate_doubly
from ...searching.storage.backend import FileOwner, without_password
from ...searching.storage.study_file import Budget
from ...searching.strategies.contract import History
from ...specs.serialisation import to_json
from ...training.predictor import save_predictor
from .. import run_folder as folders
from ..options.search_options import STUDY_FILE, Asked, SearchOptions, is_layerwise, read_request
from ..terminal.output import Progress, one_line, say, show_plan
from ..terminal.study import answers, show_study
from .fit import MODEL, start_device
from .search_plan import make_search_plan
from .search_request import PreparedSearch, prepare_search

NESTED = "nested.json"


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """While it lasts no other process works in this folder."""
    owner = FileOwner(folder / "study")
    try:
        yield
    finally:
        owner.release()


@contextlib.contextmanager
def workplace(folder: Path, options: SearchOptions) -> Iterator[Path]:
    """Where the study may be kept while it grows, held against other processes."""
    with contextlib.ExitStack() as stack:
        there = folder.is_dir()
        if there:
            stack.enter_context(hold(folder))
        work = stack.enter_context(folders.claim(folder, resume=options.resume, overwrite=options.overwrite))
        if not there:
            stack.enter_context(hold(folder))
        yield work


def begin(on: str | None) -> None:
    """Starts the device of this process."""
    start_device(on if on in {"cpu", "gpu"} else None)


def _check_strategy(prepared: PreparedSearch) -> None:
    """Refuses a strategy that cannot begin in this space, such as a grid of a million cells."""
    key = keys.from_seed(prepared.options.seed)
    if not prepared.strategy.ask(prepared.space, History(), 1, key=key):
        raise RequestError("no trial is possible: the strategy has nothing to try in this space. Use another.")


def _note_of(options: SearchOptions) -> str:
    return f"# Its trials are in {without_password(options.store)}\n" if options.store else ""


def _check_store(folder: Path, options: SearchOptions) -> None:
    """A study that goes on must be told where its trials are, if not in its folder."""
    work = folders.working(folder)
    file = work / STUDY_FILE
    if not options.resume or options.store or (work / folders.JOURNAL).exists() or not file.is_file():
        return
    first = file.read_text(encoding="utf-8").splitlines()[0:1]
    if first and first[0].startswith("# Its trials are in "):
        where = first[0].removeprefix("# Its trials are in ")
        raise RequestError(f"--resume: the trials of {folder} are in {where}. Give that as --store.")


def _conduct(prepared: PreparedSearch, work: Path, watch: Any) -> StudyOptions:
    options = prepared.options
    return StudyOptions(
        folder=work,
        store=options.store,
        name=options.name,
        resume=options.resume,
        on=options.on,
        watch=watch,
        settings=prepared.settings,
    )


def _search(prepared: PreparedSearch, work: Path, progress: Progress) -> Study:
    """The study itself; where it could not begin, nothing of it is left."""
    options = prepared.options
    file = work / STUDY_FILE
    before = file.read_bytes() if file.is_file() else None
    write_whole(file, (_note_of(options) + prepared.study_file).encode())
    progress.phase("starting")
    try:
        return search(
            prepared.space,
            prepared.dataset,
            strategy=prepared.strategy,
            budget=prepared.budget,
            key=keys.from_seed(options.seed),
            metric=prepared.metric,
            class_weight=options.class_weight,
            plan=prepared.plan,
            conduct=_conduct(prepared, work, progress.searching(prepared.budget, prepared.space, prepared.dataset)),
        )
    except BaseException as problem:
        if isinstance(problem, RequestError) or not (work / folders.JOURNAL).exists():
            file.unlink()
            if before is not None:
                write_whole(file, before)
        raise


def _known_folds(work: Path, budget: Budget) -> dict[int, float]:
    """Outer folds that an earlier run measured with the same budget."""
    try:
        plain = json.loads((work / NESTED).read_text())
        return {int(n): float(v) for n, v in plain["folds"].items()} if plain["budget"] == str(budget) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _estimate(prepared: PreparedSearch, study: Study, work: Path, progress: Progress) -> Study:
    """The study with its double cross-validation; without it, and a finding, where a fold left no model."""
    assert prepared.fold_budget is not None
    options, budget = prepared.options, prepared.fold_budget
    known = _known_folds(work, budget)

    def watch(number: int, value: float) -> None:
        known[number] = value
        plain = {"budget": str(budget), "folds": known}
        write_whole(work / NESTED, json.dumps(plain).encode())

    def watch_trials(number: int) -> Any:
        prefix = f"fold {number + 1} of {FOLDS}: "
        return progress.searching(budget, prepared.space, prepared.dataset, prefix)

    try:
        found = estimate_doubly(
            prepared.space,
            prepared.dataset,
            strategy=prepared.strategy,
            budget=budget,
            key=keys.from_seed(options.seed),
            metric=prepared.metric,
            class_weight=options.class_weight,
            plan=prepared.plan,
            on=options.on,
            known=dict(known),
            watch=watch,
            watch_trials=watch_trials,
        )
    except Interrupted:
        return dataclasses.replace(study, outcome="interrupted")
    except WorkError as problem:
        return dataclasses.replace(study, findings=(*study.findings, Finding("warning", str(problem), "E2")))
    return dataclasses.replace(study, estimates={**study.estimates, "nested": found})


def write_files(study: Study, staging: Path, *, note: str = "", report: bool) -> None:
    """All files that a finished study leaves, `result.json` among them."""
    write_study(study, staging)
    by_number = {trial.number: trial for trial in study.trials}
    winner = by_number.get(study.winner.get("number", -1)) or study.best
    if winner is not None:
        write_whole(staging / "recipe.json", to_json(winner.recipe).encode())
    if study.predictor is not None:
        # Neither times nor paths: equal studies give equal model files.
        about = {"metric": study.metric, "version": study.version}
        save_predictor(study.predictor, staging / MODEL, about=about)
    if study.settings.get("study_file"):
        write_whole(staging / STUDY_FILE, (note + study.settings["study_file"]).encode())
    if report:
        from ...reporting.report import write_report

        write_report(staging, study)


def publish_study(study: Study, folder: Path, work: Path, options: SearchOptions, progress: Progress) -> None:
    progress.phase("writing" if options.no_report else "writing the report")
    folders.publish_files(
        folder, work, lambda staging: write_files(study, staging, note=_note_of(options), report=not options.no_report)
    )


def announce_study(study: Study, folder: Path, options: SearchOptions, *, needs_model: bool = True) -> int:
    """Says what came out: the exit code."""
    report = folder / "report.html" if (folder / "report.html").is_file() else None
    if options.json:
        print(json.dumps({**study.summary(), "out": str(folder), "report": None if report is None else str(report)}))
    elif options.quiet:
        print(one_line(study) if study.winner else " ".join(answers(study)) or one_line(study))
    else:
        show_study(study, folder, report)
    if study.outcome == "interrupted":
        again = "" if options.aside else f" Go on with: gradwise search --out {folder} --resume."
        say(f"error: interrupted after {len(study.trials)} trials; what there was is in {folder}.{again}")
        return 130
    if needs_model and study.best is None:
        why = next((finding.what for finding in study.findings if finding.level == "error"), "no trial left a model.")
        raise WorkError(f"{why.rstrip('.')}. {folder} holds every trial.")
    return 0


def _finished(folder: Path, asked: Asked) -> Study | None:
    """The study in the folder, if this very request has nothing left to do there."""
    work = folders.working(folder)
    if work != folder or not (folder / folders.RESULT).is_file():
        return None
    if not is_study(folder):
        raise RequestError(f"--resume: {folder} holds no study. Choose another folder, or replace it by --overwrite.")
    if asked.sets or asked.more_ranges or asked.options.budget.more:
        return None  # whether that is the same study, the study's own record must tell
    found = read_study(folder)
    same = all(found.settings.get(name) == value for name, value in asked.options.settings().items())
    return found if same and found.outcome == "finished" else None


def work_on(prepared: PreparedSearch, folder: Path, progress: Progress) -> Study:
    """Searches, estimates and writes; the study as it then stands in the folder."""
    options = prepared.options
    begin(options.on)
    _check_strategy(prepared)
    _check_store(folder, options)
    with workplace(folder, options) as work:
        study = _search(prepared, work, progress)
        study = dataclasses.replace(study, findings=(*study.findings, *diagnose_study(study)))
        if prepared.fold_budget is not None and study.outcome != "interrupted" and study.predictor is not None:
            # Both are long; the first is not to be lost by what happens in the second.
            half = dataclasses.replace(study, outcome="interrupted")
            publish_study(half, folder, work, dataclasses.replace(options, no_report=True), progress)
            study, work = _estimate(prepared, study, folder, progress), folder
        publish_study(study, folder, work, options, progress)
        return study


def run_search(given: dict[str, Any], study: str | None, sets: list[str], ranges: list[str]) -> int:
    """The command; returns its exit code."""
    asked = read_request(given, study, sets, ranges)
    options = asked.options
    if is_layerwise(options.strategy):
        from .layerwise import run_layerwise

        return run_layerwise(asked)
    if options.aside and not options.dry_run:
        from .asides import run_aside

        return run_aside(asked)
    folder = folders.choose_folder(options.out, options.name_of_data)
    folders.check_folder(folder, resume=options.resume, overwrite=options.overwrite)
    plan: dict[str, Any] = {}
    with Progress(not options.quiet) as progress:
        found = _finished(folder, asked) if options.resume and not options.dry_run else None
        if found is None:
            progress.phase(f"reading {options.data}")
            prepared = prepare_search(asked)
            if options.dry_run:
                progress.phase("planning")
                plan = make_search_plan(prepared, folder)
            else:
                found = work_on(prepared, folder, progress)
    if options.dry_run and options.json:
        print(json.dumps(plan, default=str))
    elif options.dry_run:
        show_plan(plan)
    if options.dry_run:
        return 0
    assert found is not None
    return announce_study(found, folder, options)
