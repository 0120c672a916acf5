"""Executors: the same numbers here and in workers, and no trial lost to a worker, a part or a process that dies."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gradwise.criteria.supervised import Supervised
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import (
    AbstractExecutor,
    LocalExecutor,
    WorkerProcesses,
    one_core,
)
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.run_jobs import run_jobs
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from tests.searching import tiny

_LONG = 10**6  # epochs: more than any test waits for


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def here(data: EvaluationData) -> LocalExecutor:
    return LocalExecutor(data)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files with the names of modules that a worker imports; each says so if it is."""
    folder = tmp_path_factory.mktemp("planted")
    for name in ("html", "json", "numpy", "queue"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()\n")
    return folder


@pytest.fixture(scope="module")
def workers(data: EvaluationData, planted: Path) -> Iterator[WorkerProcesses]:
    with contextlib.chdir(planted):
        workers = WorkerProcesses(data, count=2)
    with workers:
        yield workers


@pytest.fixture(scope="module")
def wanted(here: LocalExecutor) -> list[Done]:
    return list(run_jobs(here, tiny.jobs(12)).values())


@pytest.fixture(params=["here", "workers"])
def executor(request: pytest.FixtureRequest) -> AbstractExecutor:
    return request.getfixturevalue(request.param)


def _collect(executor: AbstractExecutor, count: int) -> list[Done]:
    """Everything that ends until so many did, without hiding what ends twice."""
    found: list[Done] = []
    end = time.monotonic() + 120
    while len(found) < count and time.monotonic() < end:
        found += executor.wait(1.0)
    return found


@pytest.mark.slow
def test_workers_give_the_same_numbers_as_this_process(workers: WorkerProcesses, wanted: list[Done]) -> None:
    workers.submit(tiny.jobs(12))
    assert workers.running == 12
    found = _collect(workers, 12)
    tiny.assert_same(found, wanted)
    assert len({done.score for done in found}) > 1  # learning rates matter here: the comparison says something
    assert workers.running == 0
    assert workers.wait(5.0) == []


@pytest.mark.slow
def test_a_study_is_the_same_to_the_last_bit_however_many_train_it(
    data: EvaluationData, workers: WorkerProcesses, wanted: list[Done]
) -> None:
    """One worker and two, and in this process one job at a time: the width of the program is the same.

    Between a worker, which has one core, and this process the order of a sum may differ.
    """

    def losses(found: Iterable[Done]) -> list[tuple[int, float]]:
        return sorted((one.number, one.loss) for one in found)

    jobs = tiny.jobs(12)
    alone = [run_jobs(LocalExecutor(data), [job])[job.number] for job in jobs[:3]]
    assert losses(alone) == losses(wanted)[:3]
    several = losses(run_jobs(workers, jobs).values())
    with WorkerProcesses(data, count=1) as single:
        assert losses(run_jobs(single, jobs).values()) == several
    np.testing.assert_allclose(several, losses(wanted), atol=1e-6)


@pytest.mark.slow
def test_a_killed_worker_costs_no_trial(workers: WorkerProcesses, wanted: list[Done]) -> None:
    """SIGKILL in the middle of the work: every job ends once, with the numbers it would have had (row E16)."""
    longer = [dataclasses.replace(job, number=100 + job.number) for job in tiny.jobs(4, epochs=1000)]
    workers.submit([*longer, *tiny.jobs(12)])
    found = _collect(workers, 1)
    victim = max(workers.workers, key=lambda worker: len(worker.jobs))
    assert victim.jobs
    os.kill(victim.process.pid, signal.SIGKILL)
    found += _collect(workers, 16 - len(found))
    assert victim not in workers.workers
    tiny.assert_same([done for done in found if done.number < 100], wanted)
    assert sorted(done.number for done in found if done.number >= 100) == [100, 101, 102, 103]
    assert workers.wait(0.2) == []


@pytest.mark.slow
def test_a_worker_goes_on_with_what_another_process_had_begun(data: EvaluationData, tmp_path: Path) -> None:
    """The file says what this process had seen, which no training of the worker's own would."""
    checkpoints = JobCheckpoints(tmp_path / "running", 0.0)
    tiny.begin_training(data, tiny.jobs(2), checkpoints)
    with WorkerProcesses(data, count=1, checkpoints=checkpoints) as single:
        found = run_jobs(single, tiny.jobs(2))
    assert [done.curve["valid_loss"][0] for done in found.values()] == [123.0, 123.0]


@pytest.mark.slow
def test_a_job_that_kills_its_workers_fails_alone(workers: WorkerProcesses, wanted: list[Done]) -> None:
    deadly = Job(50, tiny.recipe(model=tiny.Deadly(os.getpid())), 50)
    workers.submit([*tiny.jobs(6), deadly, *tiny.jobs(6, start=6)])
    found = _collect(workers, 13)
    tiny.assert_same([done for done in found if done.number != 50], wanted)
    (failed,) = [done for done in found if done.number == 50]
    assert (failed.outcome, failed.reason) == ("failed", "its worker process died three times")


@pytest.mark.slow
def test_new_data_reach_an_executor_that_lives_on(executor: AbstractExecutor, data: EvaluationData) -> None:
    """Whoever trains forgets the old data; a worker that takes the place of a dead one hears of the new ones alone."""
    before = {worker.process.pid for worker in getattr(executor, "workers", ())}
    other = dataclasses.replace(data, words=(0, 7))
    wanted = run_jobs(LocalExecutor(other), tiny.jobs(4))
    executor.use(other)
    found = run_jobs(executor, tiny.jobs(4))
    assert {worker.process.pid for worker in getattr(executor, "workers", ())} == before
    for worker in getattr(executor, "workers", ()):
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    again = run_jobs(executor, tiny.jobs(4))
    executor.use(data)
    first = run_jobs(executor, tiny.jobs(4))
    tiny.assert_same(list(found.values()), list(wanted.values()))
    tiny.assert_same(list(again.values()), list(wanted.values()))
    assert all(abs(first[n].loss - wanted[n].loss) > 1e-3 for n in wanted)


@pytest.mark.slow
def test_a_failed_job_costs_one_trial(executor: AbstractExecutor) -> None:
    refused = Job(1, tiny.recipe(model=tiny.Refused()), 1)
    broken = Job(2, tiny.recipe(criterion=Supervised(tiny.Broken())), 2)
    found = run_jobs(executor, [*tiny.jobs(1), refused, broken, *tiny.jobs(2, start=3)])
    assert {number: done.outcome for number, done in sorted(found.items())} == {
        0: "finished",
        1: "failed",
        2: "failed",
        3: "finished",
        4: "finished",
    }
    assert found[1].reason.startswith("this model wants another number of inputs")
    assert found[2].reason.startswith("ZeroDivisionError: a mistake in the user's own loss")


@pytest.mark.slow
def test_cut_returns_what_stood(executor: AbstractExecutor) -> None:
    """The short job trains beside the long ones; when it ends they have been judged at least once."""
    short = dataclasses.replace(tiny.jobs(1, epochs=_LONG)[0], examples=300)
    executor.submit([short, *tiny.jobs(5, start=1, epochs=_LONG)])
    (first,) = _collect(executor, 1)
    assert (first.number, first.outcome) == (0, "finished")
    cut = executor.cut("out_of_time")
    assert cut
    assert {done.number for done in cut} <= {1, 2, 3, 4, 5}
    for done in cut:
        assert done.outcome == "out_of_time"
        assert done.score <= 1
        assert 0 < done.best_age <= done.age_examples
        assert done.network is not None
    assert executor.running == 0
    assert executor.wait(0.1) == []
    assert run_jobs(executor, tiny.jobs(1))[0].outcome == "finished"  # it works on


@pytest.mark.slow
def test_a_worker_that_died_is_cut_too(workers: WorkerProcesses) -> None:
    workers.submit(tiny.jobs(4, epochs=_LONG))
    workers.wait(0.0)
    for worker in workers.workers:
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    assert workers.cut("out_of_time") == []
    assert len(run_jobs(workers, tiny.jobs(2))) == 2


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """A parent that is killed has no time to end its workers: they notice, even while they train."""
    script = (
        "from tests.searching import tiny\n"
        "from gradwise.searching.running.executors import WorkerProcesses\n"
        f"workers = WorkerProcesses(tiny.data(), count=2)\n"
        f"workers.submit(tiny.jobs(4, epochs={_LONG}))\n"
        "workers.wait(0.0)\n"
        "print(*[worker.process.pid for worker in workers.workers], flush=True)\n"
        "workers.wait(1000)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[3]), *[path for path in sys.path if path]])
    environment = dict(os.environ, PYTHONPATH=paths, TMPDIR=str(tmp_path))
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(_lives(pid) for pid in pids)
        parent.kill()
    end = time.monotonic() + 15
    while any(_lives(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_cannot_travel_is_refused_before_any_trial(workers: WorkerProcesses, here: LocalExecutor) -> None:
    own = type("Own", (tiny.Linear,), {"__module__": "__main__"})
    with pytest.raises(RequestError, match="`Own` is defined in the script itself"):
        workers.submit([Job(0, tiny.recipe(model=own()), 0)])
    with pytest.raises(RequestError, match="a part of the recipe cannot be sent"):
        workers.submit([Job(0, tiny.recipe(criterion=lambda model, batch, key: 0.0), 0)])
    assert workers.running == 0
    assert run_jobs(here, [Job(0, tiny.recipe(model=own()), 0)])[0].outcome == "finished"


def test_an_own_model_of_a_module_travels(workers: WorkerProcesses) -> None:
    done = run_jobs(workers, [Job(0, tiny.recipe(model=tiny.Linear()), 0)])[0]
    assert done.outcome == "finished"
    assert done.network.weight.shape == (3, 4)


def test_workers_import_nothing_that_lies_in_the_working_directory(workers: WorkerProcesses, planted: Path) -> None:
    assert workers.hands == 2
    assert not (planted / "imported").exists()


def test_room_is_what_is_free(workers: WorkerProcesses, here: LocalExecutor) -> None:
    assert (here.room(looks_back=True), here.room(looks_back=False)) == (1, 4)
    assert (workers.room(looks_back=True), workers.room(looks_back=False)) == (2, 8)
    assert (here.most_folded, workers.most_folded) == (2, 4)
    workers.submit(tiny.jobs(3, epochs=_LONG))
    assert (workers.room(looks_back=True), workers.room(looks_back=False)) == (0, 5)
    workers.wait(0.0)
    assert (workers.room(looks_back=True), workers.room(looks_back=False)) == (0, 5)
    workers.cut("out_of_time")
    assert workers.room(looks_back=True) == 2


def test_on_an_accelerator_many_folded_trials_go_on_together(data: EvaluationData) -> None:
    executor = LocalExecutor(data)
    executor.runner.accelerated = True
    assert executor.most_folded == 16
    assert executor.hands == 1


def test_no_workers_are_refused(data: EvaluationData) -> None:
    with pytest.raises(RequestError, match="at least 1; got 0"):
        WorkerProcesses(data, count=0)


def test_an_option_that_no_runner_has_is_refused_before_a_worker_starts(data: EvaluationData) -> None:
    with pytest.raises(TypeError, match="slot"):
        WorkerProcesses(data, count=1, slot=8)


def test_a_process_for_one_core_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    environment = one_core()
    assert environment["XLA_FLAGS"] == "--xla_dump_to=x --xla_cpu_multi_thread_eigen=false"
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["OMP_NUM_THREADS"] == "1"
