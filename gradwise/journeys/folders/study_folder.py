"""The folder of a study: locked while the study runs, and written when it ends.

While a search runs the folder holds `study.toml` (the request), `study.journal` (every trial) and `contenders` (the
best networks); the rest is written when it ends, all or nothing.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...records.study import Study
from ...runtime.errors import RequestError
from ...runtime.files import write_whole
from ...searching.storage.backend import HIDDEN, FileOwner, without_password
from ...searching.storage.study_definition import read_store, write_study_file
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


def write_files(study: Study, staging: Path, options: SearchRequest) -> None:
    """Writes all files of a finished study, including `result.json`."""
    if study.settings.get("study_file"):
        write_whole(staging / STUDY_FILE, study_file(study.settings, options))
    folders.write_run(study, staging, report=not options.no_report)


def publish_study(study: Study, folder: Path, work: Path, options: SearchRequest, progress: AbstractProgress) -> None:
    progress.phase("writing" if options.no_report else "writing the report")
    folders.publish_files(folder, work, lambda staging: write_files(study, staging, options))
