"""Executors: each hands jobs to runners and returns their results, behind one interface.

    with LocalExecutor(data) as executor:                  a runner in this process
    with WorkerProcesses(data, count=2) as executor:      runners in processes of their own, one core each
        executor.submit(jobs)
        for done in executor.wait(1.0): ...

If a worker dies, its jobs go to other workers. Results return to the one process that saves them.
"""

import abc
import inspect
import os
import pickle
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from multiprocessing import connection
from pathlib import Path
from typing import Any, Self

from ...runtime.errors import RequestError, WorkError
from ...runtime.worker_imports import python_command, safe_import_path
from .device_runner import DeviceRunner, Varied
from .evaluation_data import JobData
from .job_queue import JobQueue, depth
from .jobs import Done, Job
from .worker import pack

_START_SECONDS = 120.0
_CUT_SECONDS = 60.0
FOLDED_TOGETHER = 16  # trials on an accelerator: fewer leave it idle, and of more none ends for long
_DEEP = 60  # letters of a folder beyond which a socket's path would be too long


def one_core() -> dict[str, str]:
    """The environment of a process that keeps to one core."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    threads = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, **threads}


def import_path() -> str:
    """Where this process finds its modules, for another on the same machine."""
    return os.pathsep.join(os.path.abspath(path) for path in sys.path)


class AbstractExecutor(abc.ABC):
    """Jobs in, results out. `room` is how many more jobs it wants now; fewer where each proposal waits for results."""

    @abc.abstractmethod
    def room(self, *, looks_back: bool) -> int: ...

    @abc.abstractmethod
    def submit(self, jobs: Iterable[Job]) -> None: ...

    @abc.abstractmethod
    def wait(self, seconds: float) -> list[Done]:
        """What ended, after at most about this long; and where each population stands that made an interval."""

    @abc.abstractmethod
    def cut(self, outcome: str) -> list[Done]:
        """Ends everything that runs, as it stands."""

    def drop(self, numbers: Collection[int]) -> None:
        """Cancels these jobs; an executor that cannot cancel them lets them end."""
        return

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def use(self, data: JobData, *, varying: Varied = Varied()) -> None:
        """From now on jobs train on these data, and this varies. For an executor that has nothing to do."""

    @property
    @abc.abstractmethod
    def running(self) -> int: ...

    @property
    def hands(self) -> int:
        """About how many trainings go on side by side."""
        return 1

    @property
    def most_folded(self) -> int:
        """Trials of several folds that may be under way: such a trial is worth nothing until its last fold ends."""
        return 2 * self.hands

    @property
    def folds_together(self) -> bool:
        """Whether the folds of a trial train at the same time: nothing is saved then by waiting for the first."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class LocalExecutor(AbstractExecutor):
    """A device runner in this process."""

    def __init__(self, data: JobData, *, at_once: int = FOLDED_TOGETHER, **options: Any):
        """`options` are those of `DeviceRunner`."""
        self.runner = DeviceRunner(data, **options)
        self.at_once, self._options = at_once, options
        self._numbers: set[int] = set()

    @property
    def running(self) -> int:
        return len(self._numbers)

    @property
    def most_folded(self) -> int:
        return self.at_once if self.runner.accelerated else super().most_folded

    @property
    def folds_together(self) -> bool:
        return self.runner.slots.together

    def room(self, *, looks_back: bool) -> int:
        return max(0, depth(looks_back=looks_back, accelerated=self.runner.accelerated) - self.running)

    def submit(self, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        self._numbers |= {job.number for job in jobs}
        self.runner.submit(jobs)

    def _done(self, done: list[Done]) -> list[Done]:
        self._numbers -= {one.number for one in done if one.ended}
        return done

    def wait(self, seconds: float) -> list[Done]:
        end = time.monotonic() + seconds
        done: list[Done] = []
        while self.runner.busy and not done and time.monotonic() < end:
            done = self.runner.turn()
        return self._done(done)

    def cut(self, outcome: str) -> list[Done]:
        done = self._done(self.runner.cut(outcome))
        self._numbers.clear()
        return done

    def drop(self, numbers: Collection[int]) -> None:
        self.runner.drop(numbers)
        self._numbers -= set(numbers)

    def use(self, data: JobData, *, varying: Varied = Varied()) -> None:
        self.runner = DeviceRunner(data, **{**self._options, "varying": varying})

    def close(self) -> None:
        return None


def _short_folder() -> str | None:
    """Where sockets can be made: their paths may have a hundred letters, and some temporary folders lie deep."""
    deep = len(tempfile.gettempdir()) > _DEEP
    return "/tmp" if deep and os.access("/tmp", os.W_OK) else None


class _Worker:
    """A process with a runner, seen from here.

    It is not a spawn-context process of `multiprocessing`: such a process runs the user's script once more before
    anything else, so a script without `if __name__ == "__main__"` fails, and what the script imports (NumPy, JAX)
    starts before the process is told to keep to one core.
    """

    def __init__(self, number: int, setting: bytes, folder: Path):
        self.number = number
        self.jobs: dict[int, Job] = {}
        self.kinds: set[int] = set()
        self.accelerated = False
        address, key = str(folder / f"worker-{number}-{secrets.token_hex(4)}"), secrets.token_bytes(16)
        listener = connection.Listener(address, "AF_UNIX", authkey=key)
        environment = dict(os.environ, **one_core(), PYTHONPATH=safe_import_path())
        command = python_command("gradwise.searching.running.worker", address)
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self.process.stdin is not None
        self.process.stdin.write(key)
        self.process.stdin.close()
        self.link = self._accept(listener)
        self.link.send_bytes(setting)

    def _accept(self, listener: connection.Listener) -> Any:
        """The worker's connection; a process that dies first will never call."""
        end = time.monotonic() + _START_SECONDS
        sock = listener._listener._socket  # type: ignore[attr-defined]
        while not connection.wait([sock], 0.2):
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise WorkError("a worker process did not start. Train in this process instead: --on here.")
        link = listener.accept()
        listener.close()
        return link

    def stood(self, seconds: float, done: list[Done]) -> None:
        """Adds what comes until the worker says that it was cut."""
        end = time.monotonic() + seconds
        while self.link.poll(max(0.0, end - time.monotonic())):
            message = self.link.recv()
            if message == "cut":
                return
            done += message
        raise TimeoutError(f"worker {self.number} does not answer")

    def close(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.wait()


class WorkerProcesses(AbstractExecutor):
    """Device runners in processes of their own, each on one core: for networks too large to share one."""

    def __init__(self, data: JobData, *, count: int, **options: Any):
        """`options` are those of each `DeviceRunner`."""
        if count < 1:
            raise RequestError(f"the number of workers must be at least 1; got {count}.")
        inspect.signature(DeviceRunner).bind(data, **options)  # a wrong name is refused here, not by every worker
        self._options = options
        self._setting = pickle.dumps((data, options))
        self._folder = tempfile.TemporaryDirectory(prefix="gradwise-", dir=_short_folder())
        self._made = 0
        self._line = JobQueue()
        self._ended: list[Done] = []
        self.workers: list[_Worker] = []
        try:
            for _ in range(count):
                self.workers.append(self._worker())
        except BaseException:
            self.close()
            raise

    @property
    def hands(self) -> int:
        return len(self.workers)

    def _worker(self) -> _Worker:
        self._made += 1
        return _Worker(self._made, self._setting, Path(self._folder.name))

    @property
    def running(self) -> int:
        return len(self._line) + sum(len(worker.jobs) for worker in self.workers)

    def room(self, *, looks_back: bool) -> int:
        each = depth(looks_back=looks_back, accelerated=False)
        return max(0, sum(max(0, each - len(worker.jobs)) for worker in self.workers) - len(self._line))

    def submit(self, jobs: Iterable[Job]) -> None:
        """Puts jobs in line; `wait` hands them out together, since those that arrive together train together."""
        jobs = list(jobs)
        pack(jobs)  # refuses what cannot travel while somebody can still act on it
        self._line.waiting.extend(jobs)

    def _replace(self, place: int) -> None:
        """A new worker in the place of one that died; its jobs go back in line."""
        old = self.workers[place]
        old.close()
        self._ended += self._line.died(old.jobs.values())
        old.jobs = {}
        self.workers[place] = self._worker()

    def _hand(self) -> None:
        for place, worker in enumerate(self.workers):
            if worker.link.closed:  # it was ended when it did not answer
                self._replace(place)
        for place, jobs in self._line.hand(self.workers):
            try:
                self.workers[place].link.send(("jobs", pack(jobs)))
            except OSError:
                self._replace(place)

    def wait(self, seconds: float) -> list[Done]:
        self._hand()
        links = {worker.link: place for place, worker in enumerate(self.workers)}
        ready: list[Any] = connection.wait(list(links), 0.0 if self._ended or not self.running else seconds)
        for link in ready:
            place = links[link]
            try:
                done = link.recv()
            except (EOFError, OSError):
                self._replace(place)
                continue
            for one in done:
                if one.ended:
                    self.workers[place].jobs.pop(one.number, None)
            self._line.ended(done)
            self._ended += done
        ended, self._ended = self._ended, []
        return ended

    def cut(self, outcome: str) -> list[Done]:
        """A worker that is dead or does not answer is ended: what it was doing is lost."""
        self._line.clear()
        done, self._ended = self._ended, []
        asked = []
        for worker in self.workers:
            if not worker.jobs:
                continue
            try:
                worker.link.send(("cut", outcome))
                asked.append(worker)
            except OSError:
                worker.close()
            worker.jobs = {}
        end = time.monotonic() + _CUT_SECONDS
        for worker in asked:
            try:
                worker.stood(end - time.monotonic(), done)
            except (EOFError, OSError):
                worker.close()
        return done

    def use(self, data: JobData, *, varying: Varied = Varied()) -> None:
        """The workers live on, with what they have imported and compiled."""
        self._setting = pickle.dumps((data, {**self._options, "varying": varying}))
        for place, worker in enumerate(self.workers):
            worker.kinds.clear()
            try:
                worker.link.send(("use", self._setting))
            except OSError:
                self._replace(place)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._folder.cleanup()
