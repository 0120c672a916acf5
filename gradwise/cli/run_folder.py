"""The folder of a run: who may write where, and how a whole set of files takes the place of another.

| `--out` is       | nothing said | `--resume`                                     | `--overwrite` |
|------------------|--------------|------------------------------------------------|---------------|
| missing          | made         | refused                                        | made          |
| a folder         | refused      | goes on; returns at once if the run is finished | replaced      |
| something else   | refused      | refused                                        | refused       |

Results are written beside the old ones and then moved over them, `result.json` last; so a full disk leaves what was
there. A run that is to replace another keeps its checkpoints in a folder `.next` within it until then; cut short, it
goes on from there with `--resume`.
"""

import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..records.readings import READINGS
from ..runtime.errors import RequestError

RESULT = "result.json"  # written last: a folder that has it holds a whole run
CHECKPOINT = "checkpoint.safetensors"
JOURNAL = "study.journal"
LAYER = "layer-*"  # the folders of layers that were pre-trained
# What is kept while the work goes on, to go on from.
KEPT = (CHECKPOINT, JOURNAL, "contenders", "nested.json", "batch_size.json", "effort.json", "population", "running")
_RESULTS = {
    *("recipe.json", "history.parquet", "model.safetensors", "report.html"),
    *("study.json", "study.toml", "trials.parquet", READINGS),
    *("check.json", "check.partial.json"),
}
_NEXT, _STAGING = ".next", ".writing-"


def choose_folder(out: str | None, name: str) -> Path:
    """The folder that was asked for, or a new one by the data's name and the time."""
    if out is not None:
        return Path(out)
    start = Path("runs") / f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    folder, number = start, 1
    while folder.exists():
        number += 1
        folder = start.with_name(f"{start.name}-{number}")
    return folder


def kept(folder: Path) -> list[str]:
    """What there is to go on from."""
    return [name for name in KEPT if (folder / name).exists()] + sorted(path.name for path in folder.glob(LAYER))


def working(folder: Path) -> Path:
    """Where an earlier command worked: in `.next` if it was to replace what is there and was cut short."""
    return folder / _NEXT if kept(folder / _NEXT) else folder


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuses a folder that the request may not use; touches nothing."""
    try:
        exists = folder.exists() or folder.is_symlink()
        if resume and not exists:
            raise RequestError(f"--resume: there is no run at {folder}. Leave --resume out to begin one.")
        if exists and not folder.is_dir():
            raise RequestError(f"--out {folder} is a file, not a folder. Choose another.")
    except OSError as problem:
        raise RequestError(f"--out {folder} cannot be used: {problem.strerror}. Choose another.") from None
    if exists and not (resume or overwrite):
        raise RequestError(
            f"--out {folder} exists already. Go on with --resume, replace it with --overwrite, or choose another."
        )


def make(folder: Path) -> list[Path]:
    """Makes the folder, with a trial file to see that it can be written; returns the folders that are new."""
    new = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        remove_empty(new)
        raise RequestError(f"--out {folder} cannot be written: {problem.strerror}. Choose another.") from None
    return new


def remove_empty(folders: list[Path]) -> None:
    """Takes back the folders that `make` made and nothing was written to."""
    for folder in folders:
        if os.path.isdir(folder) and not any(folder.iterdir()):  # false, not an error, for a name that is too long
            folder.rmdir()


@contextmanager
def claim(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Where a run may keep its checkpoints: the folder, or `.next` in it while there is something to be replaced.

    After a failure what existed is as before, and nothing empty is left behind.
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
    try:
        yield work
    finally:
        remove_empty([*work.glob(LAYER), next_, *new])


def _move(work: Path, folder: Path) -> None:
    """What was kept for going on takes the place of what an earlier run kept."""
    for name in kept(folder):
        old = folder / name
        if old.is_dir():
            shutil.rmtree(old)
        old.unlink(missing_ok=True)
    for name in kept(work):
        os.replace(work / name, folder / name)


def publish_files(folder: Path, work: Path, write: Callable[[Path], None]) -> None:
    """Has all files written into a folder of their own, then moves them where they belong, `result.json` last."""
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
