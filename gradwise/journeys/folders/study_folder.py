"""The folder of a study: locked while the study runs, and written when it ends.

While a search runs the folder holds `study.toml` (the request), `study.journal` (every trial) and `contenders` (the
best networks); the rest is written when it ends, all or nothing.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...records.finding import Finding
from ...records.study import Study
from ...records.study_files import is_study, read_study
from ...runtime.errors import RequestError
from ...runtime.files import write_whole
from ...searching.storage.backend import HIDDEN, FileOwner, without_password
from ...searching.storage.journal import describe_damage, inspect_journal
from ...searching.storage.study_definition import read_store, write_study_file
from ...searching.storage.study_store import Store
from ..progress import AbstractProgress
from ..requests.study_requests import STUDY_FILE, SearchRequest
from . import run_folder as folders


@contextlib.contextmanager
def workplace(folder: Path, options: SearchRequest) -> Iterator[Path]:
    """Where the study is stored while it runs, locked against other processes."""
    with contextlib.ExitStack() as stack:
        there = folder.is_dir()
        if there:
            stack.callback(FileOwner(folder / "study").release)
        work = stack.enter_context(folders.claim(folder, resume=options.resume, overwrite=options.overwrite))
        if not there:
            stack.callback(FileOwner(folder / "study").release)
        yield work


def study_file(settings: Mapping[str, Any], options: SearchRequest) -> bytes:
    """The study file of a folder: the settings of the study, and where its trials are, without a password."""
    plain = {name: value for name, value in settings.items() if name not in {"command", "study_file"}}
    trials = {"store": without_password(options.store), "name": options.name} if options.store else {}
    return write_study_file({**plain, "trials": trials}).encode()


def with_store(options: SearchRequest, folder: Path) -> SearchRequest:
    """The options of a resumed study, with the database that its study file names unless another was given."""
    file = folders.working(folder) / STUDY_FILE
    if not options.resume or options.store or not file.is_file():
        return options
    store, name = read_store(file)
    if store is not None and HIDDEN in store:
        raise RequestError(f"--resume: the trials of {folder} are in {store}. Add --store, with the password.")
    return dataclasses.replace(options, store=store, name=options.name or name)


def find_record(folder: Path) -> Study | None:
    """The record of the study in a folder, if the study came to its end there."""
    at_work = folders.working(folder) != folder
    return None if at_work or not (folder / folders.RESULT).is_file() or not is_study(folder) else read_study(folder)


def _find_missing(journal: Path, found: Study) -> str:
    """The trials of a finished study that its journal, whose lines are sound, does not hold, in words."""
    with Store.open(journal, write=False) as store:
        there = {trial.number for trial in store.trials()}
    lost = sorted({trial.number for trial in found.trials} - there)
    if not lost:
        return ""
    named = ", ".join(map(str, lost[:8])) + (", ..." if len(lost) > 8 else "")
    return f"{journal} is damaged: {len(lost)} of {len(found.trials)} trials are missing ({named})"


def find_loss(folder: Path, found: Study) -> str:
    """What is wrong with the journal of a finished study, in words; empty if nothing, or if there is no journal."""
    journal = folder / folders.JOURNAL
    if not journal.is_file():
        return ""  # the trials are in a database
    damage = inspect_journal(journal)[0]
    return f"{journal} is damaged: {describe_damage(damage)}" if damage else _find_missing(journal, found)


def find_missing(folder: Path) -> tuple[Finding, ...]:
    """What to tell of trials that the journal lost; the store itself tells of damaged lines."""
    found, journal = find_record(folder), folder / folders.JOURNAL
    if found is None or not journal.is_file() or inspect_journal(journal)[0]:
        return ()
    lost = _find_missing(journal, found)
    return (Finding("warning", f"{lost}. What is missing is run again within the budget.", "E9"),) if lost else ()


def write_files(study: Study, staging: Path, options: SearchRequest) -> None:
    """Writes all files of a finished study, including `result.json`."""
    if study.settings.get("study_file"):
        write_whole(staging / STUDY_FILE, study_file(study.settings, options))
    folders.write_run(study, staging, report=not options.no_report)


def publish_study(study: Study, folder: Path, work: Path, options: SearchRequest, progress: AbstractProgress) -> None:
    progress.phase("writing" if options.no_report else "writing the report")
    folders.publish_files(folder, work, lambda staging: write_files(study, staging, options))
