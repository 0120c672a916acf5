"""A worker process: one crew, one core, one connection to the process that writes results down.

It is started by `executor.Workers` and ends with it: when the connection breaks, there is nobody left to work for.
"""

import pickle
import signal
import sys
from multiprocessing import connection
from typing import Any


def work(link: Any) -> None:
    """Trains what arrives until the connection ends."""
    from .crew import Crew

    ground, slots, varying = pickle.loads(link.recv_bytes())
    crew = Crew(ground, slots=slots, varying=varying)
    while True:
        while link.poll(0 if crew.busy else None):
            order, what = link.recv()
            if order == "jobs":
                crew.submit(what)
            else:
                link.send(crew.cut(what))
                link.send("cut")
        done = crew.turn()
        if done:
            link.send(done)


def main() -> None:
    """Connects to the address on the command line with the key on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks; it says when to end
    key = sys.stdin.buffer.read()
    try:
        work(connection.Client(sys.argv[1], "AF_UNIX", authkey=key))
    except (EOFError, OSError):
        return  # the other side is gone


if __name__ == "__main__":
    main()
