"""A worker process spoken to directly: what it answers, what it survives, and when it ends."""

import os
import pickle
import subprocess
import threading
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise.runtime.errors import RequestError
from gradwise.runtime.worker_imports import python_command, safe_import_path
from gradwise.searching.running.executors import one_core
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.worker import pack, unpack
from tests.searching import tiny

_KEY = b"a key for a test"


def _start(address: str, key: bytes) -> subprocess.Popen:
    environment = dict(os.environ, **one_core(), PYTHONPATH=safe_import_path())
    command = python_command("gradwise.searching.running.worker", address)
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(key)
    process.stdin.close()
    return process


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen, Any]]:
    address = str(tmp_path_factory.mktemp("worker") / "link")
    with connection.Listener(address, "AF_UNIX", authkey=_KEY) as listener, _start(address, _KEY) as process:
        link = listener.accept()
        link.send_bytes(pickle.dumps((tiny.data(), {})))
        yield process, link
        link.close()
        process.kill()


def _receive(link: Any) -> Any:
    assert link.poll(100)
    return link.recv()


def test_jobs_are_written_and_read_back() -> None:
    jobs = [*tiny.jobs(2), Job(7, tiny.recipe(criterion=tiny.plain_loss), 3, examples=50, variant=("bag", 1))]
    read, failed = unpack(pack(jobs))
    assert failed == []
    assert [(job.number, job.randomness, job.examples, job.variant) for job in read] == [
        (0, 0, None, ("whole", 0)),
        (1, 1, None, ("whole", 0)),
        (7, 3, 50, ("bag", 1)),
    ]
    np.testing.assert_equal(read[1].recipe.optimiser.learning_rate, jobs[1].recipe.optimiser.learning_rate)
    assert read[2].recipe.criterion is jobs[2].recipe.criterion


def test_a_function_of_the_script_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny.plain_loss, "__module__", "__main__")
    with pytest.raises(RequestError, match="`plain_loss` is defined in the script itself"):
        pack([Job(0, tiny.recipe(criterion=tiny.plain_loss), 0)])


def test_what_cannot_be_read_is_one_failed_trial() -> None:
    ((number, page),) = pack([Job(4, tiny.recipe(model=tiny.Linear()), 4)])
    elsewhere = page.replace(b"tests.searching.tiny", b"tests.searching.tine")
    jobs, failed = unpack([(number, elsewhere), (5, b"torn"), *pack(tiny.jobs(1, start=6))])
    assert [job.number for job in jobs] == [6]
    assert [(done.number, done.outcome) for done in failed] == [(4, "failed"), (5, "failed")]
    assert (
        failed[0].reason
        == "the worker could not read the job: ModuleNotFoundError: No module named 'tests.searching.tine'"
    )


@pytest.mark.slow
def test_it_trains_what_arrives(worker: tuple[subprocess.Popen, Any]) -> None:
    _, link = worker
    link.send(("jobs", [*pack(tiny.jobs(2)), (9, b"torn")]))
    (failed,) = _receive(link)
    assert (failed.number, failed.outcome) == (9, "failed")
    done = _receive(link)
    while len(done) < 2:
        done += _receive(link)
    assert sorted((one.number, one.outcome) for one in done) == [(0, "finished"), (1, "finished")]


@pytest.mark.slow
def test_it_is_cut_and_goes_on(worker: tuple[subprocess.Popen, Any]) -> None:
    _, link = worker
    link.send(("jobs", pack(tiny.jobs(2, epochs=10**6))))
    link.send(("cut", "interrupted"))
    assert all(done.outcome == "interrupted" for done in _receive(link))
    assert _receive(link) == "cut"
    link.send(("jobs", pack(tiny.jobs(1, start=5))))
    assert [done.number for done in _receive(link)] == [5]


def test_it_listens_while_it_has_much_to_say(worker: tuple[subprocess.Popen, Any]) -> None:
    """Both sides write more than a connection holds: if either waited to be read first, both would wait for ever."""
    _, link = worker
    torn = [(number, b"torn" * 500) for number in range(3000)]

    def write() -> None:
        link.send(("jobs", torn))
        link.send(("jobs", torn))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(30)
    assert not writer.is_alive()
    assert len(_receive(link)) == len(_receive(link)) == 3000


def test_it_ends_with_the_connection(worker: tuple[subprocess.Popen, Any]) -> None:
    """Also in the midst of training."""
    process, link = worker
    link.send(("jobs", pack(tiny.jobs(2, epochs=10**6))))
    link.close()
    assert process.wait(15) == 0


def test_it_ends_where_nobody_waits_for_it(tmp_path: Path) -> None:
    with _start(str(tmp_path / "nobody"), _KEY) as process:
        assert process.wait(30) == 0
