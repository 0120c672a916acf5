"""Device runners on many machines, by Ray (row E18): one to a core, or one to a GPU where a machine has any.

    RayCluster(data, address=None)                     a cluster of its own on this machine
    RayCluster(data, address="ray://head:10001")       an existing one, from outside (Ray client)
    RayCluster(data, address="10.0.0.1:6379")          an existing one, from one of its machines

The data go into Ray's object store once. Each runner is an actor with at most one call in progress: it takes new jobs,
trains for a moment and returns what ended, so results reach the one process that saves them. Machines may join or leave
while the search runs: the jobs of a runner that died go to others.
"""

import collections
import contextlib
import dataclasses
import pickle
import sys
import time
from collections.abc import Iterable
from typing import Any

from ...runtime.errors import RequestError, WorkError
from .device_runner import Varied
from .evaluation_data import JobData
from .executors import FOLDED_TOGETHER, AbstractExecutor, import_path, one_core
from .job_queue import JobQueue, depth
from .jobs import Done, Job
from .ray_connection import host_and_port, import_ray, join_cluster, quiet_ray
from .worker import Packed, pack, unpack

_START_SECONDS = 120.0  # for the first runner, and for another once all are gone
_CUT_SECONDS = 60.0
_LOOK_SECONDS = 2.0  # between looks at which machines there are
_TURN_SECONDS = 0.5  # that a runner trains before it answers without anything ended
_STRIKES = 3  # starts of a runner that fail before its machine is given up


class _Runner:
    """What runs on the other machine."""

    def __init__(self, setting: tuple[JobData, dict[str, Any]]):
        self.use(setting)

    def use(self, setting: tuple[JobData, dict[str, Any]]) -> bytes:
        """The data of jobs to come; nothing has ended."""
        from .device_runner import DeviceRunner

        data, options = setting
        self.runner = DeviceRunner(data, **options)
        return pickle.dumps([])

    def about(self) -> tuple[str, bool]:
        from ... import __version__

        return __version__, self.runner.accelerated

    def turn(self, packed: Packed, seconds: float) -> bytes:
        """Trains until something ended or the time is up. The answer is written here: a copy, not a lease of memory."""
        jobs, done = unpack(packed)
        self.runner.submit(jobs)
        end = time.monotonic() + seconds
        while self.runner.busy and not any(one.ended for one in done) and time.monotonic() < end:
            done += self.runner.turn()
        return pickle.dumps(done)

    def cut(self, outcome: str) -> bytes:
        return pickle.dumps(self.runner.cut(outcome))


@dataclasses.dataclass(eq=False)
class _Member:
    """A device runner as it is seen from here. `call` is the answer that is awaited; `fresh` are jobs not yet sent."""

    actor: Any
    node: str
    call: Any
    accelerated: bool
    ready: bool = False
    jobs: dict[int, Job] = dataclasses.field(default_factory=dict)
    kinds: set[int] = dataclasses.field(default_factory=set)
    fresh: list[Job] = dataclasses.field(default_factory=list)


def seats(nodes: Iterable[dict[str, Any]]) -> list[tuple[str, bool]]:
    """The runners that machines have room for, as (machine, whether on a GPU): by turns, those with GPUs first.

    A machine with GPUs has one runner to each, and its cores serve them.
    """
    rows = []
    for node in nodes:
        has = node["Resources"]
        cores, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
        count = min(gpus, cores) if gpus else cores
        rows += [(turn, gpus == 0, node["NodeID"]) for turn in range(count)]
    return [(name, not plain) for _, plain, name in sorted(rows, key=lambda row: (row[1], row[0]))]


class RayCluster(AbstractExecutor):
    """Device runners on the machines of a Ray cluster; `workers` is the most there may be."""

    def __init__(self, data: JobData, *, address: str | None, workers: int | None = None, **options: Any):
        """`options` are those of each `DeviceRunner`."""
        if workers is not None and workers < 1:
            raise RequestError(f"the number of workers must be at least 1; got {workers}.")
        if address is not None:
            host_and_port(address)
        self._ray = import_ray()
        self._ours = join_cluster(self._ray, address, workers)
        self._own_machine = address is None
        self._where = address or "this machine"
        self._most = workers or sys.maxsize
        self._line = JobQueue()
        self._ended: list[Done] = []
        self.members: list[_Member] = []
        self._strikes: collections.Counter[str] = collections.Counter()
        self._problem = "all of its cores are in use"
        self._looked = -_LOOK_SECONDS
        self._ready_at = time.monotonic()  # when there was a runner that could work
        try:
            self._options = options
            self._setting = self._ray.put((data, options))
            self._look()
        except BaseException:
            self.close()
            raise

    @property
    def running(self) -> int:
        return len(self._line) + sum(len(member.jobs) for member in self.members)

    @property
    def hands(self) -> int:
        return max(1, len(self.members))

    @property
    def most_folded(self) -> int:
        return max(2, sum(FOLDED_TOGETHER if member.accelerated else 2 for member in self.members))

    @property
    def folds_together(self) -> bool:
        return bool(self.members) and all(member.accelerated for member in self.members)

    def room(self, *, looks_back: bool) -> int:
        free = [depth(looks_back=looks_back, accelerated=m.accelerated) - len(m.jobs) for m in self.members]
        return max(0, sum(max(0, count) for count in free) - len(self._line))

    def submit(self, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        pack(jobs)  # refuses what cannot travel while somebody can still act on it
        self._line.waiting.extend(jobs)

    def _start(self, node: str, gpu: bool) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        environment = {} if gpu else one_core()
        if self._own_machine:
            environment["PYTHONPATH"] = import_path()
        options = {
            "num_cpus": 1,
            "num_gpus": int(gpu),
            "max_restarts": 0,
            "runtime_env": {"env_vars": environment},
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        actor = self._ray.remote(_Runner).options(**options).remote(self._setting)
        self.members.append(_Member(actor, node, actor.about.remote(), gpu))

    def _look(self) -> None:
        """Runners for machines that joined, and in place of those that died; those on machines that left are lost."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for member in [member for member in self.members if member.node not in alive]:
            self._lose(member, "its machine is gone")
        held = collections.Counter(member.node for member in self.members)
        usable = [node for name, node in alive.items() if self._strikes[name] < _STRIKES]
        if alive and not usable:
            raise WorkError(f"no machine of the Ray cluster ({self._where}) can run gradwise: {self._problem}")
        for node, gpu in seats(usable):
            if held[node]:
                held[node] -= 1
            elif len(self.members) < self._most:
                self._start(node, gpu)

    def _lose(self, member: _Member, problem: str) -> None:
        """A device runner that died: its jobs go back in line. One that never worked counts against its machine."""
        self.members.remove(member)
        self._looked = -_LOOK_SECONDS
        kept = {job.number for job in member.fresh}
        self._ended += self._line.died(job for job in member.jobs.values() if job.number not in kept)
        self._line.waiting.extendleft(reversed(member.fresh))
        if not member.ready:
            self._strikes[member.node] += 1
            self._problem = problem
        with contextlib.suppress(self._ray.exceptions.RayError):  # it is dead already
            self._ray.kill(member.actor)

    def _check_alive(self) -> None:
        """There is somebody to work, or there will be soon."""
        if any(member.ready for member in self.members):
            self._ready_at = time.monotonic()
        elif time.monotonic() - self._ready_at > _START_SECONDS:
            raise WorkError(
                f"the Ray cluster ({self._where}) provided no worker within {_START_SECONDS:.0f} s: {self._problem}"
            )

    def _hand(self) -> None:
        """New jobs to those that are ready; a call to each that has work and none under way."""
        able = [member for member in self.members if member.ready]
        for place, jobs in self._line.hand(able):
            able[place].fresh += jobs
        for member in able:
            if member.call is None and member.jobs:
                member.call = member.actor.turn.remote(pack(member.fresh), _TURN_SECONDS)
                member.fresh = []

    def _read(self, member: _Member) -> None:
        """Takes the answer that has come."""
        try:
            answer = self._ray.get(member.call)
        except self._ray.exceptions.RayError as problem:
            self._lose(member, str(problem).strip().rpartition("\n")[2][:200])
            return
        member.call = None
        if member.ready:
            done: list[Done] = pickle.loads(answer)
            for one in done:
                if one.ended:
                    member.jobs.pop(one.number, None)
            self._line.ended(done)
            self._ended += done
            return
        from ... import __version__

        version, member.accelerated = answer
        if version != __version__:
            self._lose(
                member, f"it has gradwise {version}, this machine {__version__}. Install the same version everywhere."
            )
            return
        member.ready = True
        self._strikes[member.node] = 0

    def _turn(self, seconds: float) -> None:
        """Hands out, then reads what has come after at most this long."""
        try:
            self._look()
            self._hand()
            calls = {member.call: member for member in self.members if member.call is not None}
            if not calls:
                time.sleep(min(seconds, 0.1))
                return
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=seconds)
            if ready:
                ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
            for call in ready:
                self._read(calls[call])
        except (ConnectionError, self._ray.exceptions.RaySystemError) as problem:
            raise WorkError(
                f"the connection to the Ray cluster ({self._where}) was lost: {str(problem).strip()[:200]}. "
                "Finished trials are saved: continue with --resume."
            ) from None

    def wait(self, seconds: float) -> list[Done]:
        end = time.monotonic() + seconds
        while self.running and not self._ended and time.monotonic() < end:
            self._turn(max(0.0, end - time.monotonic()))
            self._check_alive()
        ended, self._ended = self._ended, []
        return ended

    def cut(self, outcome: str) -> list[Done]:
        """A device runner that is dead or does not answer is ended: what it was doing is lost."""
        self._line.clear()
        asked = {}
        for member in self.members:
            if len(member.jobs) > len(member.fresh):
                last = [member.call] if member.call is not None else []
                asked[member] = [*last, member.actor.cut.remote(outcome)]
            member.jobs, member.fresh = {}, []
        end = time.monotonic() + _CUT_SECONDS
        for member, calls in asked.items():
            try:
                for call in calls:
                    answer = self._ray.get(call, timeout=max(0.0, end - time.monotonic()))
                    self._ended += pickle.loads(answer)
                member.call = None
            except (self._ray.exceptions.RayError, ConnectionError) as problem:
                self._lose(member, str(problem))
        ended, self._ended = self._ended, []
        return ended

    def use(self, data: JobData, *, varying: Varied = Varied()) -> None:
        """A runner takes its calls in order: the jobs that it is given next find the new data."""
        self._setting = self._ray.put((data, {**self._options, "varying": varying}))
        for member in self.members:
            member.kinds.clear()
            answer = member.actor.use.remote(self._setting)
            member.call = answer if member.ready else member.call

    def close(self) -> None:
        """Frees the runners, and leaves the cluster unless this process was in it before; its own one ends with it."""
        for member in self.members:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):  # it is dead already
                self._ray.kill(member.actor)
        self.members = []
        self._setting = None
        if self._ours:
            self._ours = False
            with quiet_ray():
                self._ray.shutdown()
