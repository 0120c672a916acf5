"""Who is given which jobs, and what becomes of those whose worker died."""

import dataclasses
from typing import Any

from gradwise.models.mlp import Mlp
from gradwise.searching.running.device_runner import program_group
from gradwise.searching.running.job_queue import JobQueue, depth
from gradwise.searching.running.jobs import Done, Job, PopulationPlan
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from tests.searching import tiny


@dataclasses.dataclass
class _Crew:
    jobs: dict[int, Job] = dataclasses.field(default_factory=dict)
    kinds: set[int] = dataclasses.field(default_factory=set)
    accelerated: bool = False


def _numbers(given: list[tuple[int, list[Job]]]) -> dict[int, list[int]]:
    return {place: [job.number for job in jobs] for place, jobs in given}


def _line(jobs: list[Job]) -> JobQueue:
    line = JobQueue()
    line.waiting.extend(jobs)
    return line


def test_jobs_of_a_kind_go_to_one_crew_unless_another_is_free() -> None:
    wide: dict[str, Any] = {"model": Mlp(widths=(64,))}
    kinds = [tiny.jobs(1)[0], tiny.jobs(1, start=1, **wide)[0], *tiny.jobs(2, start=2), *tiny.jobs(2, start=4, **wide)]
    runners = [_Crew(), _Crew()]
    assert _numbers(_line(kinds).hand(runners)) == {0: [0, 2, 3], 1: [1, 4, 5]}
    knowing = _Crew(kinds={program_group(kinds[0].recipe)})
    assert _numbers(_line(tiny.jobs(2)).hand([_Crew(), knowing])) == {1: [0], 0: [1]}  # nobody idles
    idle = [_Crew(), _Crew()]
    assert {place: len(jobs) for place, jobs in _line(tiny.jobs(20)).hand(idle)} == {0: 4, 1: 4}


def test_a_crew_holds_so_many_and_the_others_wait() -> None:
    line = _line(tiny.jobs(10))
    runners = [_Crew(), _Crew()]
    line.hand(runners)
    assert [len(runner.jobs) for runner in runners] == [4, 4]
    assert len(line) == 2
    assert line.hand(runners) == []
    runners[1].jobs.clear()
    assert _numbers(line.hand(runners)) == {1: [8, 9]}
    assert depth(looks_back=True, accelerated=True) == 16


def test_a_population_goes_to_an_idle_crew_only() -> None:
    recipe = tiny.recipe()
    rate = dimension(recipe, "optimiser.learning_rate", LogUniform(1e-3, 1.0))
    plan = PopulationPlan(Space(recipe, (rate,)), 4, 8, 2)
    line = _line([Job(first, recipe, first, population=plan) for first in (0, 4, 8)])
    runners = [_Crew(accelerated=True), _Crew(), _Crew(jobs={100: tiny.jobs(1)[0]})]
    assert _numbers(line.hand(runners)) == {0: [0], 1: [4]}
    assert line.hand(runners) == []
    del runners[0].jobs[0]
    assert _numbers(line.hand(runners)) == {0: [8]}
    # One that only reports has not ended: three deaths are three deaths.
    job, found = runners[0].jobs[8], []
    for _ in range(3):
        found += line.died([job])
        line.ended([Done(8, "running")])
    assert [done.outcome for done in found] == ["failed"]


def test_jobs_that_saw_two_deaths_are_tried_alone() -> None:
    line = _line([])
    some = tiny.jobs(3)
    assert line.died(some) == []
    assert _numbers(line.hand([_Crew()])) == {0: [0, 1, 2]}  # one death may be anything: again together
    assert line.died(some) == []
    runners = [_Crew(), _Crew(jobs={9: some[0]})]
    assert _numbers(line.hand(runners)) == {0: [0]}  # the second is busy
    line.waiting.extend(tiny.jobs(1, start=20))
    assert line.hand(runners) == []  # nobody joins a suspect, and nobody else is fed while some wait
    assert [done.number for done in line.died(runners[0].jobs.values())] == [0]
    runners[0].jobs.clear()
    assert _numbers(line.hand(runners)) == {0: [1]}
    runners[0].jobs.clear()
    assert _numbers(line.hand(runners)) == {0: [2], 1: [20]}
    assert len(line) == 0
