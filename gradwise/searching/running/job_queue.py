"""The queue of jobs for remote runners: how they are assigned, and what happens when a worker dies.

If a worker dies, its jobs go to other workers. Jobs that saw two workers die then run alone, so that a third death has
one culprit: that job is marked as failed, and its neighbours continue.
"""

import collections
from collections.abc import Iterable, Sequence
from typing import Protocol

from .device_runner import program_group
from .jobs import Done, Job

_DEATHS = 3


def depth(*, looks_back: bool, accelerated: bool) -> int:
    """Jobs that one runner may hold: few where the strategy waits for results, many where they train together."""
    if accelerated:
        return 16 if looks_back else 512
    return 1 if looks_back else 4  # more would wait here while another runner has nothing to do


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
            if one.ended:
                self._deaths.pop(one.number, None)

    def clear(self) -> None:
        self.waiting.clear()
        self.suspects.clear()
        self._deaths.clear()

    def _is_open(self, runner: RemoteRunner, job: Job) -> bool:
        alone = any(self._deaths.get(number, 0) >= _DEATHS - 1 for number in runner.jobs)
        most = depth(looks_back=False, accelerated=runner.accelerated) if job.population is None else 1
        return not alone and len(runner.jobs) < most

    def hand(self, runners: Sequence[RemoteRunner]) -> list[tuple[int, list[Job]]]:
        """What each of the runners, by its place, is given now.

        A suspect goes to a runner that has nothing else; while one waits, runners are left to run empty. Any other job
        goes to an idle runner, else to the least busy one; among those nearly as free, to one that has its program. A
        population goes to an idle one only: its generations are many trainings.
        """
        given: dict[int, list[Job]] = {}
        for place, runner in enumerate(runners):
            if self.suspects and not runner.jobs:
                job = self.suspects.popleft()
                runner.jobs[job.number] = job
                given[place] = [job]
        while self.waiting and not self.suspects:
            job = self.waiting[0]
            free = [place for place, runner in enumerate(runners) if self._is_open(runner, job)]
            if not free:
                break
            self.waiting.popleft()
            kind = program_group(job.recipe)
            least = min(len(runners[place].jobs) for place in free)
            near = [place for place in free if len(runners[place].jobs) <= least + 2 * (least > 0)]
            chosen = min(near, key=lambda n: (kind not in runners[n].kinds, len(runners[n].jobs)))
            runners[chosen].jobs[job.number] = job
            runners[chosen].kinds.add(kind)
            given.setdefault(chosen, []).append(job)
        return list(given.items())
