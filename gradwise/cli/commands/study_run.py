"""Runs a prepared study: search, diagnose, estimate by nested cross-validation, write."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ...checking.verdict.diagnosis import diagnose_study
from ...records.finding import Finding
from ...records.study import Study
from ...runtime import keys
from ...runtime.errors import RequestError, WorkError
from ...runtime.files import write_whole
from ...searching.search import StudyOptions, search
from ...searching.selection.nested_cv import FOLDS, Interrupted, nested_search
from ...searching.storage.study_definition import Budget
from ...searching.strategies.contract import History
from ...searching.strategies.population_based_training import PopulationBasedTraining
from .. import run_folder as folders
from ..options.search_options import STUDY_FILE, SearchOptions
from ..terminal.output import Progress
from .search_request import PreparedSearch
from .study_folder import begin, publish_study, store_note, workplace

NESTED = "nested.json"


def _check_strategy(prepared: PreparedSearch) -> None:
    """Raises if the strategy cannot start in this space, such as a grid of a million cells."""
    if isinstance(prepared.strategy, PopulationBasedTraining):
        return  # what it cannot do was refused with its plan
    key = keys.from_seed(prepared.options.seed)
    if not prepared.strategy.ask(prepared.space, History(budget=prepared.budget.trials), 1, key=key):
        raise RequestError(
            "no trial is possible: the strategy has nothing to try in this space. Choose another with --strategy."
        )


def _check_store(folder: Path, options: SearchOptions) -> None:
    """Raises if a resumed study's trials are in a store that was not given."""
    work = folders.working(folder)
    file = work / STUDY_FILE
    if not options.resume or options.store or (work / folders.JOURNAL).exists() or not file.is_file():
        return
    first = file.read_text(encoding="utf-8").splitlines()[0:1]
    if first and first[0].startswith("# Its trials are in "):
        where = first[0].removeprefix("# Its trials are in ")
        raise RequestError(f"--resume: the trials of {folder} are in {where}. Add --store {where}.")


def _study_options(prepared: PreparedSearch, work: Path, progress: Progress) -> StudyOptions:
    options = prepared.options
    watch = progress.searching(prepared.budget, prepared.space, prepared.dataset, metric=prepared.metric)
    return StudyOptions(
        folder=work,
        store=options.store,
        name=options.name,
        resume=options.resume,
        on=options.on,
        checkpoint_seconds=options.checkpoint,
        watch=watch,
        say=lambda plan: progress.tell(f"plan     {plan}"),
        settings=prepared.settings,
    )


def _search(prepared: PreparedSearch, work: Path, progress: Progress, begun: float | None) -> Study:
    """Runs the study; if it cannot start, leaves no files behind."""
    options = prepared.options
    file = work / STUDY_FILE
    before = file.read_bytes() if file.is_file() else None
    write_whole(file, (store_note(options) + prepared.study_file).encode())
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
            options=dataclasses.replace(_study_options(prepared, work, progress), begun=begun),
        )
    except BaseException as problem:
        if isinstance(problem, RequestError) or not (work / folders.JOURNAL).exists():
            file.unlink()
            if before is not None:
                write_whole(file, before)
        raise


def _known_folds(work: Path, budget: Budget) -> dict[int, float]:
    """Outer folds already measured by an earlier run with the same budget."""
    try:
        plain = json.loads((work / NESTED).read_text())
        return {int(n): float(v) for n, v in plain["folds"].items()} if plain["budget"] == str(budget) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _estimate(prepared: PreparedSearch, study: Study, work: Path, progress: Progress) -> Study:
    """The study with its nested cross-validation, or with a finding if a fold produced no model."""
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
        found = nested_search(
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


def search_and_write(prepared: PreparedSearch, folder: Path, progress: Progress, begun: float | None = None) -> Study:
    """Searches, estimates and writes; returns the study as written."""
    options = prepared.options
    begin(options.on)
    _check_strategy(prepared)
    _check_store(folder, options)
    with workplace(folder, options) as work:
        study = _search(prepared, work, progress, begun)
        study = dataclasses.replace(study, findings=(*study.findings, *diagnose_study(study)))
        if prepared.fold_budget is not None and study.outcome != "interrupted" and study.predictor is not None:
            # Both are long; the first is not to be lost by what happens in the second.
            half = dataclasses.replace(study, outcome="interrupted")
            publish_study(half, folder, work, dataclasses.replace(options, no_report=True), progress)
            study, work = _estimate(prepared, study, folder, progress), folder
        publish_study(study, folder, work, options, progress)
        return study
