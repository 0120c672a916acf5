"""A worker process: one device runner, one core, one connection to the process that saves results.

It is started by `executors.WorkerProcesses` and ends with it, even if the connection breaks.
Jobs are serialised one by one, so that one which cannot be read costs one trial.
"""

import io
import os
import pickle
import queue
import signal
import sys
import threading
import types
from collections.abc import Iterable
from multiprocessing import connection
from typing import Any

Packed = list[tuple[int, bytes]]


class _Pickler(pickle.Pickler):
    """Raises if another process could not import this class or function."""

    def persistent_id(self, thing: Any) -> None:
        from ...runtime.errors import RequestError

        if isinstance(thing, type | types.FunctionType) and thing.__module__ == "__main__":
            raise RequestError(
                f"`{thing.__qualname__}` is defined in the script itself, where worker processes cannot import it. "
                "Move it into a module, or search in this process."
            )


def pack(jobs: Iterable[Any]) -> Packed:
    """Jobs with their numbers, serialised for another process; raises if a part cannot be serialised."""
    from ...runtime.errors import RequestError

    written = []
    for job in jobs:
        page = io.BytesIO()
        try:
            _Pickler(page, protocol=pickle.HIGHEST_PROTOCOL).dump(job)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise RequestError(
                f"a part of the recipe cannot be sent to another process ({str(problem).splitlines()[0]}). "
                "Define it at the top of a module, or search in this process."
            ) from None
        written.append((job.number, page.getvalue()))
    return written


def unpack(packed: Packed) -> tuple[list[Any], list[Any]]:
    """The jobs, and those that cannot be read here as failed ones."""
    from .cohort import describe_error
    from .jobs import Done

    jobs, failed = [], []
    for number, page in packed:
        try:
            jobs.append(pickle.loads(page))
        except Exception as problem:  # a module that is missing here: a failed job costs one trial (row E16)
            failed.append(
                Done(number, "failed", reason=f"the worker could not read the job: {describe_error(problem)}")
            )
    return jobs, failed


def _listen(link: Any, orders: "queue.Queue[Any]") -> None:
    """Takes orders at once, whatever the runner is at: the other side never waits to be heard.

    Its end is noticed at once too; a long compilation must not outlive it.
    """
    try:
        while True:
            orders.put(link.recv())
    except (EOFError, OSError):
        os._exit(0)


def work(link: Any) -> None:
    """Trains what arrives until the connection ends."""
    setting = link.recv_bytes()
    orders: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(link, orders), daemon=True).start()

    from .device_runner import DeviceRunner

    def use(setting: bytes) -> DeviceRunner:
        data, options = pickle.loads(setting)
        return DeviceRunner(data, **options)

    runner = use(setting)
    while True:
        while not (runner.busy and orders.empty()):
            order, what = orders.get()
            if order == "jobs":
                jobs, failed = unpack(what)
                if failed:
                    link.send(failed)
                runner.submit(jobs)
            elif order == "use":
                runner = use(what)
            else:
                link.send(runner.cut(what))
                link.send("cut")
        done = runner.turn()
        if done:
            link.send(done)


def main() -> None:
    """Connects to the address on the command line with the key on standard input."""
    from ...runtime.interruption import ENDING_SIGNALS

    for number in (signal.SIGINT, *ENDING_SIGNALS):  # they reach the whole group; whoever started this says when to end
        signal.signal(number, signal.SIG_IGN)
    key = sys.stdin.buffer.read()
    try:
        work(connection.Client(sys.argv[1], "AF_UNIX", authkey=key))
    except (EOFError, OSError):
        return  # the other side is gone


if __name__ == "__main__":
    main()
