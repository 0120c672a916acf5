"""Signals that ask a process to end: Ctrl-C, SIGTERM of a scheduler, SIGHUP of a terminal that was closed.

    with listening() as asked: ...        the work looks at `asked` between its steps, saves, and ends
    with ending_program() as ending: ...  a whole program: elsewhere they raise KeyboardInterrupt, as Ctrl-C does
    return ending.exit_code               130, 143 or 129

A signal that the user ignores (`nohup`) or handles stays theirs. Signals reach the main thread alone.
"""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Windows has no SIGHUP.
ENDING_SIGNALS = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class EndingProgram:
    """What a program that is asked to end knows: by which signal, and the exit code that says so."""

    def __init__(self) -> None:
        self.signal: int = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self.signal

    def note(self, number: int) -> None:
        """Remembers the signal. A terminal that was closed is let go of: writing to it would be an error."""
        self.signal = number
        if number == getattr(signal, "SIGHUP", None):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                if stat.S_ISCHR(os.fstat(stream).st_mode):
                    os.dup2(nowhere, stream)
            os.close(nowhere)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ends what runs outside of `listening`."""
        self.note(number)
        raise KeyboardInterrupt


_programs: list[EndingProgram] = []  # the one that this process is, if it is one


@contextmanager
def _handling(numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """While active, these signals are handled so; afterwards as before."""
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


def _free() -> list[signal.Signals]:
    """Those of our signals that nobody else ignores or handles."""
    ours = (signal.SIG_DFL, *(program.interrupt for program in _programs))
    return [number for number in ENDING_SIGNALS if signal.getsignal(number) in ours]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def ending_program() -> Iterator[EndingProgram]:
    """While active, SIGTERM and SIGHUP raise KeyboardInterrupt, wherever no work listens to them."""
    program = EndingProgram()
    if not _in_main_thread():
        yield program
        return
    with _handling(_free(), program.interrupt):
        _programs.append(program)
        try:
            yield program
        finally:
            _programs.remove(program)


@contextmanager
def listening() -> Iterator[threading.Event]:
    """While active, the first Ctrl-C, SIGTERM or SIGHUP asks the work to end; a second Ctrl-C is immediate.

    An exception in the middle of an interval would lose the state, whose buffers the interval has taken over. Other
    signals may well come twice, from a shell and from the system, and are no sign of impatience.
    """
    asked = threading.Event()
    if not _in_main_thread():
        yield asked
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        for program in [] if asked.is_set() else _programs:
            program.note(number)
        asked.set()

    with _handling([signal.SIGINT, *_free()], ask):
        yield asked
