"""A run's folder: when it may be written, and how one complete set of files replaces another.

| `--out` is       | neither      | `--resume`                                  | `--overwrite` |
|------------------|--------------|---------------------------------------------|---------------|
| missing          | created      | error                                       | created       |
| a folder         | error        | resumed; returns at once if it has finished | replaced      |
| something else   | error        | error                                       | error         |

Results are written beside the old ones and then moved over them, `result.json` last, so a full disk leaves the old
ones intact. Until then, a run that replaces another keeps its checkpoints in a folder `.next` inside it; if it is
interrupted, `--resume` continues from there.
"""

import dataclasses
import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from ...records.evidence.example_record import EXAMPLES
from ...records.fit import Fit, write_fit
from ...records.readings import READINGS
from ...records.study import Study
from ...records.study_files import write_study
from ...runtime.errors import RequestError
from ...runtime.files import remove_torn, write_whole
from ...specs.serialisation import to_json
from ...training.model_files import MODEL, save_predictor

RESULT = "result.json"  # written last: a folder that has it holds a whole run
CHECKPOINT = "checkpoint.safetensors"
JOURNAL = "study.journal"
LAYER = "layer-*"  # the folders of layers that were pre-trained
# What is kept while the work goes on, to go on from.
KEPT = (CHECKPOINT, JOURNAL, "contenders", "nested.json", "batch_size.json", "effort.json", "population", "running")
_RESULTS = {
    *("recipe.json", "history.parquet", EXAMPLES, "model.safetensors", "report.html"),
    *("study.json", "study.toml", "trials.parquet", READINGS),
    *("check.json", "check.partial.json", "profile.json"),
}
_NEXT, _STAGING = ".next", ".writing-"
Record = TypeVar("Record")


@dataclasses.dataclass(frozen=True)
class Written(Generic[Record]):
    """A record and the folder it was written to."""

    record: Record
    folder: Path

    @property
    def report(self) -> Path | None:
        """The page of the record, if it was written."""
        page = self.folder / "report.html"
        return page if page.is_file() else None


def choose_folder(out: str | None, name: str, resume: bool = False, overwrite: bool = False) -> Path:
    """The requested folder, or a new one named after the data and the time; raises if it may not be used."""
    if out is not None:
        check_folder(Path(out), resume=resume, overwrite=overwrite)
        return Path(out)
    start = Path("runs") / f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    folder, number = start, 1
    while folder.exists():
        number += 1
        folder = start.with_name(f"{start.name}-{number}")
    return folder


def kept(folder: Path) -> list[str]:
    """Whether there is a run to resume."""
    return [name for name in KEPT if (folder / name).exists()] + sorted(path.name for path in folder.glob(LAYER))


def working(folder: Path) -> Path:
    """Where an earlier command worked: in `.next` if it was replacing a run and was interrupted."""
    return folder / _NEXT if kept(folder / _NEXT) else folder


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raises if the request may not use this folder; changes nothing."""
    try:
        exists = folder.exists() or folder.is_symlink()
        if resume and not exists:
            raise RequestError(f"--resume: no run at {folder}. To start one, leave out --resume.")
        if exists and not folder.is_dir():
            raise RequestError(f"--out {folder} is a file, not a folder. Choose another folder.")
    except OSError as problem:
        raise RequestError(f"--out {folder} cannot be used: {problem.strerror}. Choose another folder.") from None
    if exists and not (resume or overwrite):
        raise RequestError(
            f"--out {folder} already exists. Continue it with --resume, replace it with --overwrite, or choose another."
        )


def make(folder: Path) -> list[Path]:
    """Creates the folder and checks that it is writable; returns the folders that are new."""
    new = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        remove_empty(new)
        raise RequestError(f"--out {folder} cannot be written: {problem.strerror}. Choose another folder.") from None
    return new


def remove_empty(folders: list[Path]) -> None:
    """Removes the folders that `make` created, if they are still empty."""
    for folder in folders:
        if os.path.isdir(folder) and not any(folder.iterdir()):  # false, not an error, for a name that is too long
            folder.rmdir()


@contextmanager
def claim(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Where a run keeps its checkpoints: the folder, or `.next` inside it while it replaces an older run.

    A failure leaves existing files unchanged and no empty folders behind.
    """
    check_folder(folder, resume=resume, overwrite=overwrite)
    next_ = folder / _NEXT
    if overwrite:
        shutil.rmtree(next_, ignore_errors=True)  # a replacement that was never finished
    occupied = overwrite and folder.exists() and any(folder.iterdir())
    work = next_ if occupied else working(folder) if resume else folder
    new = make(work)
    for left_over in work.glob(_STAGING + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    remove_torn(work)
    try:
        yield work
    finally:
        remove_empty([*work.glob(LAYER), next_, *new])


def _move(work: Path, folder: Path) -> None:
    """Replaces the checkpoints of an earlier run with those of this one."""
    for old in [folder / name for name in KEPT] + list(folder.glob(LAYER)):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
    for name in kept(work):
        os.replace(work / name, folder / name)


def publish_files(folder: Path, work: Path, write: Callable[[Path], None]) -> None:
    """Writes all files to a temporary folder, then moves them into place, `result.json` last."""
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=work))
    try:
        write(staging)
        (folder / RESULT).unlink(missing_ok=True)
        written = {entry.name for entry in staging.iterdir()}
        for name in sorted(written - {RESULT}):
            os.replace(staging / name, folder / name)
        for name in _RESULTS - written:  # a report of what was here before
            (folder / name).unlink(missing_ok=True)
        if work != folder:
            _move(work, folder)
        os.replace(staging / RESULT, folder / RESULT)
        if work != folder:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_run(record: Fit | Study, staging: Path, *, report: bool = True) -> None:
    """Writes all files of a finished run or study, including `result.json`."""
    if isinstance(record, Fit):
        write_fit(record, staging)
    else:
        write_study(record, staging)
        if record.winning_trial is not None:
            write_whole(staging / "recipe.json", to_json(record.winning_trial.recipe, incomplete=True).encode())
    if record.predictor is not None:
        # Neither times nor paths: equal runs give equal model files.
        about = {"metric": record.metric, "version": record.version}
        save_predictor(record.predictor, staging / MODEL, about=about, used=record.used)
    if report:
        from ...reporting.report import write_report

        write_report(staging, record)
