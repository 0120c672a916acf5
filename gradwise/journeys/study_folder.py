"""The folder of a study: locked while the study runs, and written when it ends.

While a search runs the folder holds `study.toml` (the request), `study.journal` (every trial) and `contenders` (the
best networks); the rest is written when it ends, all or nothing.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..records.study import Study
from ..records.study_files import write_study
from ..runtime.files import write_whole
from ..searching.storage.backend import FileOwner, without_password
from ..specs.serialisation import to_json
from ..training.model_files import MODEL, save_predictor
from . import run_folder as folders
from .data_and_recipe import start_device
from .progress import AbstractProgress
from .requests.search_options import STUDY_FILE, SearchOptions


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Locks the folder, so that no other process works in it."""
    owner = FileOwner(folder / "study")
    try:
        yield
    finally:
        owner.release()


@contextlib.contextmanager
def workplace(folder: Path, options: SearchOptions) -> Iterator[Path]:
    """Where the study is stored while it runs, locked against other processes."""
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


def store_note(options: SearchOptions) -> str:
    return f"# Its trials are in {without_password(options.store)}\n" if options.store else ""


def write_files(study: Study, staging: Path, *, note: str = "", report: bool) -> None:
    """Writes all files of a finished study, including `result.json`."""
    write_study(study, staging)
    by_number = {trial.number: trial for trial in study.trials}
    winner = by_number.get(study.winner.get("number", -1)) or study.best
    if winner is not None:
        write_whole(staging / "recipe.json", to_json(winner.recipe).encode())
    if study.predictor is not None:
        # Neither times nor paths: equal studies give equal model files.
        about = {"metric": study.metric, "version": study.version}
        save_predictor(study.predictor, staging / MODEL, about=about, used=study.used)
    if study.settings.get("study_file"):
        write_whole(staging / STUDY_FILE, (note + study.settings["study_file"]).encode())
    if report:
        from ..reporting.report import write_report

        write_report(staging, study)


def publish_study(study: Study, folder: Path, work: Path, options: SearchOptions, progress: AbstractProgress) -> None:
    progress.phase("writing" if options.no_report else "writing the report")
    folders.publish_files(
        folder,
        work,
        lambda staging: write_files(study, staging, note=store_note(options), report=not options.no_report),
    )
