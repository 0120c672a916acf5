"""Who trains: executors behind one interface. Each gives jobs to crews and brings back what they did.

    with Here(ground) as executor:                  a crew in this process
    with Workers(ground, count=2) as executor:      crews in processes of their own, one core each
        executor.submit(jobs)
        for done in executor.wait(1.0): ...

A worker that dies costs nothing but time: its jobs go to another. A job whose worker died twice is called failed, since
it is likely the cause. Results come back to the one process that writes them down.
"""

import abc
import os
import pickle
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from multiprocessing import connection
from pathlib import Path
from typing import Any, Self

from ..core.errors import WorkError
from .cohort import Done, Job
from .crew import Crew, kind_of
from .ground import Ground
from .slots import AbstractSlots, BySize

_DEPTH = 24  # jobs a crew may hold where the strategy does not wait for results
_START_SECONDS = 120.0


class AbstractExecutor(abc.ABC):
    """Jobs in, results out. `room` is how many more jobs it wants now; fewer where each proposal waits for results."""

    @abc.abstractmethod
    def room(self, *, looks_back: bool) -> int: ...

    @abc.abstractmethod
    def submit(self, jobs: Iterable[Job]) -> None: ...

    @abc.abstractmethod
    def wait(self, seconds: float) -> list[Done]:
        """What ended, after at most about this long."""

    @abc.abstractmethod
    def cut(self, outcome: str) -> list[Done]:
        """Ends everything that runs, as it stands."""

    @abc.abstractmethod
    def close(self) -> None: ...

    @property
    @abc.abstractmethod
    def running(self) -> int: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Here(AbstractExecutor):
    """A crew in this process."""

    def __init__(self, ground: Ground, *, slots: AbstractSlots | None = None, varying: Iterable[str] = ()):
        self.crew = Crew(ground, slots=slots or BySize(), varying=varying)
        self._numbers: set[int] = set()

    @property
    def running(self) -> int:
        return len(self._numbers)

    def room(self, *, looks_back: bool) -> int:
        most = (16 if looks_back else 512) if self.crew.accelerated else (1 if looks_back else _DEPTH)
        return max(0, most - self.running)

    def submit(self, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        self._numbers |= {job.number for job in jobs}
        self.crew.submit(jobs)

    def _done(self, done: list[Done]) -> list[Done]:
        self._numbers -= {one.number for one in done}
        return done

    def wait(self, seconds: float) -> list[Done]:
        end = time.monotonic() + seconds
        done: list[Done] = []
        while self.crew.busy and not done and time.monotonic() < end:
            done = self.crew.turn()
        return self._done(done)

    def cut(self, outcome: str) -> list[Done]:
        done = self._done(self.crew.cut(outcome))
        self._numbers.clear()
        return done

    def close(self) -> None:
        return None


class _Worker:
    """A process with a crew, seen from here."""

    def __init__(self, number: int, setting: bytes, folder: Path):
        self.number = number
        self.jobs: dict[int, Job] = {}
        self.kinds: set[int] = set()
        address, key = str(folder / f"worker-{number}-{secrets.token_hex(4)}"), secrets.token_bytes(16)
        listener = connection.Listener(address, "AF_UNIX", authkey=key)
        environment = dict(os.environ, JAX_PLATFORMS="cpu", NPROC="1", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        flags = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        command = [sys.executable, "-m", "gradwise.searching.worker", address]
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
                raise WorkError("a worker process did not start. Run in this process instead: --on here.")
        link = listener.accept()
        listener.close()
        return link

    def close(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.wait()


class Workers(AbstractExecutor):
    """Crews in processes of their own, each on one core: for networks too large to share one."""

    def __init__(self, ground: Ground, *, count: int, slots: AbstractSlots | None = None, varying: Iterable[str] = ()):
        self._setting = pickle.dumps((ground, slots or BySize(), tuple(varying)))
        self._folder = tempfile.TemporaryDirectory(prefix="gradwise-")
        self._made = 0
        self._deaths: dict[int, int] = {}
        self._ended: list[Done] = []
        self.workers = [self._worker() for _ in range(count)]

    def _worker(self) -> _Worker:
        self._made += 1
        return _Worker(self._made, self._setting, Path(self._folder.name))

    @property
    def running(self) -> int:
        return sum(len(worker.jobs) for worker in self.workers)

    def room(self, *, looks_back: bool) -> int:
        each = 1 if looks_back else _DEPTH
        return sum(max(0, each - len(worker.jobs)) for worker in self.workers)

    def submit(self, jobs: Iterable[Job]) -> None:
        """Each job to the least busy worker; among those nearly as free, to one that has its program."""
        given: dict[int, list[Job]] = {}
        for job in jobs:
            kind = kind_of(job.recipe)
            least = min(len(worker.jobs) for worker in self.workers)
            free = [worker for worker in self.workers if len(worker.jobs) <= least + 2]
            chosen = min(free, key=lambda w: (kind not in w.kinds, len(w.jobs)))
            chosen.jobs[job.number] = job
            chosen.kinds.add(kind)
            given.setdefault(self.workers.index(chosen), []).append(job)
        for place, some in given.items():
            self._send(place, ("jobs", some))

    def _send(self, place: int, message: Any) -> None:
        try:
            self.workers[place].link.send(message)
        except OSError:
            self._replace(place)

    def _replace(self, place: int) -> None:
        """A new worker in the place of one that died; its jobs go on, but for those that were there twice."""
        old = self.workers[place]
        old.close()
        self.workers[place] = new = self._worker()
        again = []
        for job in old.jobs.values():
            self._deaths[job.number] = self._deaths.get(job.number, 0) + 1
            if self._deaths[job.number] >= 3:
                self._ended.append(Done(job.number, "failed", reason="its worker process died three times"))
            else:
                again.append(job)
        new.jobs = {job.number: job for job in again}
        if again:
            self._send(place, ("jobs", again))

    def wait(self, seconds: float) -> list[Done]:
        links = {worker.link: place for place, worker in enumerate(self.workers)}
        ready: list[Any] = [] if self._ended else connection.wait(list(links), seconds)
        for link in ready:
            place = links[link]
            try:
                done = link.recv()
            except (EOFError, OSError):
                self._replace(place)
                continue
            for one in done:
                self.workers[place].jobs.pop(one.number, None)
            self._ended += done
        ended, self._ended = self._ended, []
        return ended

    def cut(self, outcome: str) -> list[Done]:
        for place, worker in enumerate(self.workers):
            if worker.jobs:
                self._send(place, ("cut", outcome))
        done: list[Done] = []
        end = time.monotonic() + 60.0
        for worker in self.workers:
            try:
                while worker.jobs and worker.link.poll(max(0.0, end - time.monotonic())):
                    message = worker.link.recv()
                    if message == "cut":
                        break
                    done += message
            except (EOFError, OSError):
                continue  # what it was doing is lost; what it had done came before
            finally:
                worker.jobs = {}
        return done

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._folder.cleanup()
