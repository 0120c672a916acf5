"""Checkpoints of the trainings of a search, to resume it after a kill (row E16).

    checkpoints = JobCheckpoints(folder / "running", seconds=10.0, study="...")
    checkpoints.save(job, saved)        a training between two intervals; the process that trains it writes it
    checkpoints.load(job, state)        None where there is no file, or one of another training, or a damaged one

    RunningJobs(checkpoints)            those of a population: each is written when it is time
    EndedJobs(checkpoints)              trainings that ended, of trials that have not; the driver writes them

A training has one file, named by its job's number, in the format of `training/checkpoint.py`. It carries a fingerprint
of everything the training depends on, so that a file of another training is never resumed.
"""

import contextlib
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import RequestError
from ...training.checkpoint import Saved, load_checkpoint, save_checkpoint, written_recipe
from ...training.state import State
from ..running.jobs import Done, Job
from .network_store import NetworkStore

RUNNING = "running"  # in the folder of a study
_SHARE = 0.03  # of the time, at most, to write the trainings of one population


@dataclass(frozen=True)
class JobCheckpoints:
    """Where running trainings are saved, and how often; without a folder they are not.

    `study` names what the jobs of a study have in common: its data, its seed, the version of gradwise.
    """

    folder: Path | None = None
    seconds: float = math.inf
    study: str = ""

    def is_due(self, since: float) -> bool:
        """Whether what was last written then is to be written again."""
        return self.folder is not None and time.monotonic() - since >= self.seconds

    def mark(self, job: Job) -> str:
        """What must be equal for a training to go on, in short."""
        whole = [self.study, written_recipe(job.recipe), job.randomness, job.examples, job.variant]
        return hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=16).hexdigest()

    def has(self, job: Job) -> bool:
        return self.folder is not None and (self.folder / _name(job.number)).is_file()

    def save(self, job: Job, saved: Saved) -> None:
        """Writes a training over what was written of it before."""
        if self.folder is None or not self.folder.parent.is_dir():
            return  # a machine of a cluster that does not share the study's folder
        # A training does not end because it cannot be written; where the disk is full, the trials' store says so.
        with contextlib.suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            save_checkpoint(self.folder, saved, self.mark(job), name=_name(job.number))

    def load(self, job: Job, like: State) -> Saved | None:
        """The training as last saved, if its file matches; otherwise it starts again."""
        assert self.folder is not None
        try:
            return load_checkpoint(self.folder, like, self.mark(job), name=_name(job.number))
        except RequestError:
            return None

    def remove(self, number: int) -> None:
        """Removes the file of a job whose end is written down."""
        if self.folder is not None:
            (self.folder / _name(number)).unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes all of them, when the study has ended."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _name(number: int) -> str:
    return f"{number}.safetensors"


class RunningJobs:
    """Trainings under way in one population. Each is written by itself, `checkpoints.seconds` after the last time.

    Hundreds of them take seconds to write. So they are written one by one, with pauses that bound the share of the time
    that it takes: each less often than a single one would be.
    """

    def __init__(self, checkpoints: JobCheckpoints):
        self.checkpoints = checkpoints
        self._since: dict[int, float] = {}
        self._next = 0.0

    def find(self, job: Job, like: Callable[[], State]) -> Saved | None:
        """The training as it was last written; None where it begins."""
        return self.checkpoints.load(job, like()) if self.checkpoints.has(job) else None

    def keep(self, several: Sequence[tuple[Job, Callable[[], Saved]]]) -> None:
        """Writes those of which it is time, the one that has waited longest first.

        A training waits from its first call on: the first interval may have compiled, and does not count.
        """
        if self.checkpoints.folder is None:
            return
        now = time.monotonic()
        self._since = {job.number: self._since.get(job.number, now) for job, _ in several}
        for job, saved in sorted(several, key=lambda one: self._since[one[0].number]):
            begun = time.monotonic()
            if begun < self._next or not self.checkpoints.is_due(self._since[job.number]):
                break
            self.checkpoints.save(job, saved())
            self._since[job.number] = now = time.monotonic()
            if self.checkpoints.seconds > 0:  # 0 means after every interval, whatever that takes
                self._next = now + (now - begun) / _SHARE


class EndedJobs:
    """Trainings that ended while others of their trial go on: the trial is written down when the last one ends."""

    def __init__(self, checkpoints: JobCheckpoints):
        self.checkpoints = checkpoints
        self._jobs: dict[int, Job] = {}
        self._written: set[int] = set()
        self._last = time.monotonic()

    def _store(self) -> NetworkStore:
        assert self.checkpoints.folder is not None
        return NetworkStore(self.checkpoints.folder / "ended")

    def find(self, job: Job) -> Done | None:
        """How it ended, if that was written before the study was killed."""
        folder = self.checkpoints.folder
        self._jobs[job.number] = job
        if folder is None or not (folder / "ended" / _name(job.number)).is_file():
            return None
        try:
            found = self._store().find(job.number, self.checkpoints.mark(job))
        except Exception:  # what a damaged file can do to the code that reads it has no list: the job is run again
            return None
        self._written |= set() if found is None else {job.number}
        return found

    def keep(self, several: Iterable[Done]) -> None:
        """Writes those that are not written yet, where the last time is long ago."""
        if not self.checkpoints.is_due(self._last):
            return
        for done in several:
            # What failed may go well another time, and what was cut short goes on.
            if done.number in self._written or done.outcome in {"failed", "out_of_time"}:
                continue
            with contextlib.suppress(RequestError):  # a network of the user's own has no written form
                self._store().put(done, self.checkpoints.mark(self._jobs[done.number]))
            self._written.add(done.number)
        self._last = time.monotonic()

    def forget(self, numbers: Iterable[int]) -> None:
        """Removes the files of those of these jobs that were looked for: their trial is written down."""
        for number in [number for number in numbers if number in self._jobs]:
            del self._jobs[number]
            self._written.discard(number)
            self.checkpoints.remove(number)
            if self.checkpoints.folder is not None:
                (self.checkpoints.folder / "ended" / _name(number)).unlink(missing_ok=True)
