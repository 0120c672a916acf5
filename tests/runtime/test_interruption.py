"""Signals that ask a process to end: who hears them, and that everybody's handlers are back afterwards."""

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwise.runtime.interruption import ending_program, listening

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    streams = [os.dup(number) for number in (1, 2)]  # SIGHUP lets go of a terminal
    yield
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    after = [signal.getsignal(number) for number in SIGNALS]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize("number", SIGNALS)
def test_work_that_listens_is_asked_to_end(number: signal.Signals) -> None:
    with ending_program() as ending, listening() as asked:
        assert not asked.is_set()
        signal.raise_signal(number)
        assert asked.is_set()
    assert ending.exit_code == 128 + number


def test_work_that_listens_within_a_caller_s_process_is_asked_too() -> None:
    with listening() as asked:
        signal.raise_signal(signal.SIGTERM)
    assert asked.is_set()


@pytest.mark.parametrize("number", SIGNALS[1:])
def test_a_program_that_does_not_listen_is_interrupted(number: signal.Signals) -> None:
    with ending_program() as ending:
        assert ending.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert ending.exit_code == 128 + number


def test_only_a_second_ctrl_c_is_immediate() -> None:
    """A shell and the system each send SIGHUP when a terminal is closed."""
    with ending_program() as ending, listening() as asked:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert asked.is_set()
    assert ending.exit_code == 129  # the first one


def test_what_the_user_ignores_or_handles_stays_so() -> None:
    heard = []
    before = [signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, lambda *_: heard.append(1))]
    with ending_program(), listening() as asked:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert not asked.is_set()
    assert heard == [1]
    for number, handler in zip((signal.SIGHUP, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


def test_outside_the_main_thread_nothing_is_listened_to() -> None:
    told = []

    def work() -> None:
        with ending_program() as ending, listening() as asked:
            told.append((ending.exit_code, asked.is_set(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == [(130, False, signal.SIG_DFL)]


_CLOSED = """
import sys
from pathlib import Path
from gradwise.runtime.interruption import ending_program, listening
with ending_program() as ending, listening() as asked:
    print("ready", flush=True)
    asked.wait(20)
    print("this has nowhere to go", flush=True)
    Path(sys.argv[1]).write_text(str(ending.exit_code))
"""


def test_a_terminal_that_is_closed_ends_the_work_and_no_line_fails_for_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _CLOSED, str(tmp_path / "code")]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(["setsid", "--ctty", *command], env=environment, **streams)
    os.close(theirs)
    assert b"ready" in os.read(ours, 100)
    os.close(ours)
    process.wait(20)
    assert (tmp_path / "code").read_text() == "129"
