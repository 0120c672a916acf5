"""Who trains: executors behind one interface. Each gives jobs to runners and brings back what they did.

    with LocalExecutor(data) as executor:                  a runner in this process
    with WorkerProcesses(data, count=2) as executor:      runners in processes of their own, one core each
        executor.submit(jobs)
        for done in executor.wait(1.0): ...

A worker that dies costs nothing but time: its jobs go to others. Those that saw two workers die are tried alone from
then on, so that a third death is the doing of one: that job is called failed, and its neighbours go on. Results come
back to the one process that writes them down.
"""

import abc
import collections
import os
import pickle
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol, Self

from ...runtime.errors import RequestError, WorkError
from .device_runner import DeviceRunner, program_group
from .evaluation_data import JobData
from .jobs import Done, Job
from .population_size import AbstractSlots, BySize
from .worker import pack

_START_SECONDS = 120.0
_CUT_SECONDS = 60.0
_DEATHS = 3
_FOLDED_TOGETHER = 16  # trials on an accelerator: fewer leave it idle, and of more none ends for long
_DEEP = 60  # letters of a folder beyond which a socket's path would be too long


def depth(*, looks_back: bool, accelerated: bool) -> int:
    """Jobs that one runner may hold: few where the strategy waits for results, many where they train together."""
    if accelerated:
        return 16 if looks_back else 512
    return 1 if looks_back else 4  # more would wait here while another runner has nothing to do


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
        """What ended, after at most about this long."""

    @abc.abstractmethod
    def cut(self, outcome: str) -> list[Done]:
        """Ends everything that runs, as it stands."""

    def drop(self, numbers: Collection[int]) -> None:
        """Nobody wants these jobs any more; an executor that cannot take them back lets them end."""
        return

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def use(self, data: JobData, *, varying: Iterable[str] = ()) -> None:
        """From now on jobs train on these data, and these knobs vary. For an executor that has nothing to do."""

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

    def __init__(
        self,
        data: JobData,
        *,
        slots: AbstractSlots | None = None,
        varying: Iterable[str] = (),
        at_once: int = _FOLDED_TOGETHER,
    ):
        self.runner = DeviceRunner(data, slots=slots or BySize(), varying=varying)
        self.at_once = at_once
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
        self._numbers -= {one.number for one in done}
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

    def use(self, data: JobData, *, varying: Iterable[str] = ()) -> None:
        self.runner = DeviceRunner(data, slots=self.runner.slots, varying=varying)

    def close(self) -> None:
        return None


class RemoteRunner(Protocol):
    """A device runner elsewhere, as it is seen from here: the jobs it has and the kinds of programs it knows."""

    jobs: dict[int, Job]
    kinds: set[int]
    accelerated: bool


class JobQueue:
    """Jobs that wait for a runner, and how often each saw its worker die."""

    def __init__(self) -> None:
        self.waiting: collections.deque[Job] = collections.deque()
        self.suspects: collections.deque[Job] = collections.deque()
        self._deaths: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.waiting) + len(self.suspects)

    def died(self, jobs: Iterable[Job]) -> list[Done]:
        """Takes back the jobs of a worker that died; those that have seen it too often are failed."""
        failed: list[Done] = []
        again: list[Job] = []
        for job in jobs:
            self._deaths[job.number] = self._deaths.get(job.number, 0) + 1
            if self._deaths[job.number] >= _DEATHS:
                failed.append(Done(job.number, "failed", reason="its worker process died three times"))
            elif self._deaths[job.number] == _DEATHS - 1:
                self.suspects.append(job)
            else:
                again.append(job)
        self.waiting.extendleft(reversed(again))
        self.ended(failed)
        return failed

    def ended(self, done: Iterable[Done]) -> None:
        """What ended is no suspect any more; its number may come again."""
        for one in done:
            self._deaths.pop(one.number, None)

    def clear(self) -> None:
        self.waiting.clear()
        self.suspects.clear()
        self._deaths.clear()

    def _is_open(self, runner: RemoteRunner) -> bool:
        alone = any(self._deaths.get(number, 0) >= _DEATHS - 1 for number in runner.jobs)
        return not alone and len(runner.jobs) < depth(looks_back=False, accelerated=runner.accelerated)

    def hand(self, runners: Sequence[RemoteRunner]) -> list[tuple[int, list[Job]]]:
        """What each of the runners, by its place, is given now.

        A suspect goes to a runner that has nothing else; while one waits, runners are left to run empty. Any other job
        goes to an idle runner, else to the least busy one; among those nearly as free, to one that has its program.
        """
        given: dict[int, list[Job]] = {}
        for place, runner in enumerate(runners):
            if self.suspects and not runner.jobs:
                job = self.suspects.popleft()
                runner.jobs[job.number] = job
                given[place] = [job]
        while self.waiting and not self.suspects:
            free = [place for place, runner in enumerate(runners) if self._is_open(runner)]
            if not free:
                break
            job = self.waiting.popleft()
            kind = program_group(job.recipe)
            least = min(len(runners[place].jobs) for place in free)
            near = [place for place in free if len(runners[place].jobs) <= least + 2 * (least > 0)]
            chosen = min(near, key=lambda n: (kind not in runners[n].kinds, len(runners[n].jobs)))
            runners[chosen].jobs[job.number] = job
            runners[chosen].kinds.add(kind)
            given.setdefault(chosen, []).append(job)
        return list(given.items())


def _short_folder() -> str | None:
    """Where sockets can be made: their paths may have a hundred letters, and some temporary folders lie deep."""
    deep = len(tempfile.gettempdir()) > _DEEP
    return "/tmp" if deep and os.access("/tmp", os.W_OK) else None


class _Worker:
    """A process with a runner, seen from here."""

    def __init__(self, number: int, setting: bytes, folder: Path):
        self.number = number
        self.jobs: dict[int, Job] = {}
        self.kinds: set[int] = set()
        self.accelerated = False
        address, key = str(folder / f"worker-{number}-{secrets.token_hex(4)}"), secrets.token_bytes(16)
        listener = connection.Listener(address, "AF_UNIX", authkey=key)
        environment = dict(os.environ, **one_core(), PYTHONPATH=import_path())
        command = [sys.executable, "-m", "gradwise.searching.running.worker", address]
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

    def __init__(
        self,
        data: JobData,
        *,
        count: int,
        slots: AbstractSlots | None = None,
        varying: Iterable[str] = (),
    ):
        if count < 1:
            raise RequestError(f"the number of workers must be at least 1; got {count}.")
        self._slots = slots or BySize()
        self._setting = pickle.dumps((data, self._slots, tuple(varying)))
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

    def use(self, data: JobData, *, varying: Iterable[str] = ()) -> None:
        """The workers live on, with what they have imported and compiled."""
        self._setting = pickle.dumps((data, self._slots, tuple(varying)))
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
