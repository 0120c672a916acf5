"""A real Ray cluster on this machine: a head and two more nodes, of which one is killed while it trains."""

import dataclasses
import importlib.util
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwise
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.searching.running import ray_cluster, ray_connection
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor, WorkerProcesses, import_path
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.ray_cluster import RayCluster, seats
from gradwise.searching.running.run_jobs import run_jobs
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from tests.searching import tiny
from tests.searching.strategies.test_population_run import assert_same_end, job_of

_STORE = 80 * 2**20  # bytes, the least that Ray takes


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def wanted(data: EvaluationData) -> list[Done]:
    return list(run_jobs(LocalExecutor(data), tiny.jobs(12)).values())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One head, which a node joins and another leaves in the tests; its workers find what this process finds."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install gradwise[ray]")
    ray_connection.import_ray()
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = import_path()
    health = {"initial_delay_ms": 500, "period_ms": 500, "failure_threshold": 3}
    options = {
        "num_cpus": 1,
        "object_store_memory": _STORE,
        "include_dashboard": False,
        "_system_config": {f"health_check_{name}": value for name, value in health.items()},
    }
    with ray_connection.quiet_ray():  # JAX's warnings about fork, as Ray starts its processes
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=options)
    yield cluster
    with ray_connection.quiet_ray():
        cluster.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def _add(cluster: Any) -> Any:
    with ray_connection.quiet_ray():
        return cluster.add_node(num_cpus=1, object_store_memory=_STORE)


@pytest.fixture(scope="module")
def nodes(cluster: Any) -> list[Any]:
    return [_add(cluster), _add(cluster)]


@pytest.fixture(scope="module")
def on_cluster(cluster: Any, nodes: list[Any], data: EvaluationData) -> Iterator[RayCluster]:
    with RayCluster(data, address=cluster.address) as executor:
        yield executor


def _collect(executor: RayCluster, count: int) -> list[Done]:
    found: list[Done] = []
    end = time.monotonic() + 120
    while len(found) < count and time.monotonic() < end:
        found += executor.wait(1.0)
    return found


@pytest.mark.slow
def test_a_cluster_gives_the_same_numbers_as_this_process(on_cluster: RayCluster, wanted: list[Done]) -> None:
    on_cluster.submit(tiny.jobs(12))
    assert on_cluster.running == 12
    tiny.assert_same(_collect(on_cluster, 12), wanted)
    assert len(on_cluster.members) == 3  # one to each core
    assert on_cluster.running == 0
    assert on_cluster.room(looks_back=True) == 3
    assert (on_cluster.hands, on_cluster.most_folded, on_cluster.folds_together) == (3, 6, False)


@pytest.mark.slow
def test_new_data_reach_runners_that_live_on(on_cluster: RayCluster, data: EvaluationData, wanted: list[Done]) -> None:
    other = dataclasses.replace(data, words=(0, 7))
    before = list(on_cluster.members)
    on_cluster.use(other)
    found = run_jobs(on_cluster, tiny.jobs(6))
    tiny.assert_same(list(found.values()), list(run_jobs(LocalExecutor(other), tiny.jobs(6)).values()))
    on_cluster.use(data)
    tiny.assert_same(list(run_jobs(on_cluster, tiny.jobs(12)).values()), wanted)
    assert on_cluster.members == before


@pytest.mark.slow
def test_populations_train_side_by_side_and_to_the_same_bits(on_cluster: RayCluster, data: EvaluationData) -> None:
    jobs = [job_of(first) for first in (0, 4)]
    on_cluster.submit(jobs)
    found: dict[int, Done] = {}
    together = 0
    end = time.monotonic() + 120
    while len(found) < 2 and time.monotonic() < end:
        found |= {done.number: done for done in on_cluster.wait(0.5) if done.ended}
        together = max(together, sum(bool(member.jobs) for member in on_cluster.members))
    assert together == 2  # one to a runner
    assert on_cluster.running == 0
    with WorkerProcesses(data, count=1) as workers:  # on one core too
        workers.submit(jobs)
        while workers.running:
            for done in workers.wait(1.0):
                if done.ended:
                    assert_same_end(found[done.number], done)
    on_cluster.submit(jobs)
    reports = on_cluster.wait(60.0)
    assert reports
    on_cluster.cut("out_of_time")
    assert on_cluster.running == 0


@pytest.mark.slow
def test_failed_jobs_and_deadly_ones_cost_one_trial_each(on_cluster: RayCluster, wanted: list[Done]) -> None:
    refused = Job(50, tiny.recipe(model=tiny.Refused()), 50)
    deadly = Job(51, tiny.recipe(model=tiny.Deadly(os.getpid())), 51)
    on_cluster.submit([*tiny.jobs(6), refused, deadly, *tiny.jobs(6, start=6)])
    found = {done.number: done for done in _collect(on_cluster, 14)}
    tiny.assert_same([done for number, done in found.items() if number < 50], wanted)
    assert found[50].reason.startswith("this model wants another number of inputs")
    assert (found[51].outcome, found[51].reason) == ("failed", "its worker process died three times")


@pytest.mark.slow
def test_cut_returns_what_stood(on_cluster: RayCluster) -> None:
    on_cluster.submit(tiny.jobs(6, epochs=10**6))
    end = time.monotonic() + 60
    cut: list[Done] = []
    while not cut and time.monotonic() < end:  # until one of them was judged
        assert on_cluster.wait(2.0) == []
        cut = on_cluster.cut("out_of_time")
        if not cut:
            on_cluster.submit(tiny.jobs(6, epochs=10**6))
    assert cut
    assert all(done.outcome == "out_of_time" and 0 < done.best_age <= done.age_examples for done in cut)
    assert on_cluster.running == 0
    assert run_jobs(on_cluster, tiny.jobs(1))[0].outcome == "finished"


@pytest.mark.slow
def test_a_node_that_is_killed_costs_no_trial_and_one_that_joins_is_used(
    cluster: Any, nodes: list[Any], on_cluster: RayCluster, wanted: list[Done], capfd: pytest.CaptureFixture[str]
) -> None:
    """Every job ends once, with the numbers it would have had (rows E16, E18)."""
    import ray

    longer = [Job(100 + job.number, job.recipe, job.randomness) for job in tiny.jobs(12, epochs=1000)]
    on_cluster.submit([*longer, *tiny.jobs(12)])
    found = _collect(on_cluster, 1)
    gone = nodes.pop()
    held = [member for member in on_cluster.members if member.node == gone.node_id]
    while not held[0].jobs and len(found) < 20:  # between two hands it holds none: it must die at work
        found += on_cluster.wait(0.2)
    assert held[0].jobs
    cluster.remove_node(gone, allow_graceful=False)
    nodes.append(_add(cluster))
    found += _collect(on_cluster, 24 - len(found))
    tiny.assert_same([done for done in found if done.number < 100], wanted)
    assert sorted(done.number for done in found if done.number >= 100) == list(range(100, 112))
    assert on_cluster.wait(0.2) == []
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    end = time.monotonic() + 30
    while {member.node for member in on_cluster.members} != alive and time.monotonic() < end:
        on_cluster.submit(tiny.jobs(1))
        _collect(on_cluster, 1)
    assert {member.node for member in on_cluster.members} == alive
    assert nodes[-1].node_id in alive
    assert capfd.readouterr() == ("", "")  # what befell Ray's processes is not told on our output


@pytest.mark.slow
def test_a_machine_with_two_gpus_has_a_runner_on_each(
    cluster: Any, on_cluster: RayCluster, data: EvaluationData, wanted: list[Done]
) -> None:
    """They are two by Ray's account; what trains there is a CPU."""
    before = {member.node for member in on_cluster.members}
    with ray_connection.quiet_ray():
        node = cluster.add_node(num_cpus=2, num_gpus=2, object_store_memory=_STORE)
    found: list[Done] = []
    end = time.monotonic() + 120
    while (
        sum(member.ready for member in on_cluster.members if member.node not in before) < 2 and time.monotonic() < end
    ):
        found = list(run_jobs(on_cluster, tiny.jobs(12)).values())
    tiny.assert_same(list(run_jobs(on_cluster, tiny.jobs(12)).values()), wanted)
    assert [member.node for member in on_cluster.members if member.node not in before] == [node.node_id] * 2
    assert found
    cluster.remove_node(node, allow_graceful=False)
    while len(on_cluster.members) > len(before) and time.monotonic() < end:
        run_jobs(on_cluster, tiny.jobs(1))
    assert {member.node for member in on_cluster.members} == before


@pytest.mark.slow
def test_a_process_of_another_cluster_is_told_so(cluster: Any, on_cluster: RayCluster, data: EvaluationData) -> None:
    with pytest.raises(RequestError, match=r"already belongs to the Ray cluster at "):
        RayCluster(data, address="ray://127.0.0.1:1")


def test_an_address_that_is_none_is_refused(data: EvaluationData) -> None:
    for address in ("head", "http://head:80", "ray://", "head:port", "ray://head:1/x"):
        with pytest.raises(RequestError, match=r"not the address of a Ray cluster\. Write ray://host:10001"):
            RayCluster(data, address=address)
    with pytest.raises(RequestError, match="at least 1; got 0"):
        RayCluster(data, address=None, workers=0)


def test_without_ray_it_says_what_to_install(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RequestError, match=r"Ray is not installed\. Run: pip install gradwise\[ray\]"):
        RayCluster(data, address=None)


def _node(name: str, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "Resources": resources}


def test_runners_sit_on_every_gpu_or_on_every_core() -> None:
    assert seats([_node("a", CPU=2.0, memory=1e9), _node("b", CPU=3.0)]) == [
        ("a", False),
        ("b", False),
        ("a", False),
        ("b", False),
        ("b", False),
    ]
    assert seats([_node("a", CPU=1.0), _node("b", CPU=16.0, GPU=2.0)]) == [("b", True), ("b", True), ("a", False)]
    assert seats([_node("head"), _node("idle", CPU=0.5)]) == []


@pytest.fixture
def _apart(on_cluster: RayCluster) -> None:
    """Outside of any cluster, as a new process is; for tests after those that use the cluster."""
    on_cluster.close()


@pytest.mark.slow
@pytest.mark.usefixtures("_apart")
def test_closing_leaves_a_cluster_that_it_joined(cluster: Any, on_cluster: RayCluster) -> None:
    import ray

    assert not ray.is_initialized()
    assert all(node.any_processes_alive() for node in cluster.list_all_nodes())
    on_cluster.close()  # a second time is harmless


@pytest.mark.usefixtures("_apart")
def test_an_unreachable_head_is_one_line(data: EvaluationData) -> None:
    for address in ("ray://127.0.0.1:1", "127.0.0.1:1"):
        with pytest.raises(WorkError, match=f"no Ray head answers at {address} .*ray start --head") as problem:
            RayCluster(data, address=address)
        assert "\n" not in str(problem.value)


@pytest.mark.slow
@pytest.mark.usefixtures("_apart")
def test_something_else_than_a_head_is_one_line_too(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_connection, "_JOIN_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(WorkError, match=f"the server at {address} is not a Ray head"):
            RayCluster(data, address=address)
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.usefixtures("_apart")
def test_a_cluster_of_its_own_starts_silently_and_ends(
    data: EvaluationData,
    wanted: list[Done],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """On the way it finds another version of gradwise: one line, and no job is lost. What had begun here goes on."""
    import ray

    checkpoints = JobCheckpoints(tmp_path / "running", 0.0)
    tiny.begin_training(data, tiny.jobs(1), checkpoints)

    capfd.readouterr()
    monkeypatch.setattr(ray_cluster, "_STRIKES", 1)
    with RayCluster(data, address=None, workers=1, checkpoints=checkpoints) as executor:
        executor.submit(tiny.jobs(3))
        monkeypatch.setattr(gradwise, "__version__", "0.0.0")
        with pytest.raises(WorkError, match=r"can run gradwise: it has gradwise .*, this machine 0\.0\.0"):
            _collect(executor, 1)
        monkeypatch.undo()
        executor._strikes.clear()  # as if the right one was installed there
        found = _collect(executor, 3)
        assert len(executor.members) == 1
        assert ray.is_initialized()
    assert not ray.is_initialized()
    tiny.assert_same(found, [done for done in wanted if done.number < 3])
    assert [done.number for done in found if done.curve["valid_loss"][0] == 123.0] == [0]
    assert capfd.readouterr() == ("", "")
