"""Where progress is shown: on a terminal, in a notebook, as lines in a log, or nowhere. Never on standard output.

    with display_here() as display:
        display.update("training", "age 3k  loss 0.2", completed=3000, total=60000)

A line that has ended leaves nothing behind. A notebook needs nothing beyond IPython.
"""

import html
import math
import os
import sys
import time
from typing import Any, Self

_NOTEBOOK_SECONDS = 0.2  # between two messages to the browser
_LOG_SECONDS = 10.0  # between two lines of a log


class AbstractDisplay:
    """Shows one line of progress, with a bar. This one shows nothing."""

    shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Takes the line away."""

    def update(self, description: str, note: str = "", completed: float = 0, total: float | None = None) -> None:
        """Changes the line; without a `total` the end is unknown."""

    def say(self, text: str) -> None:
        """Adds a line that stays."""


HIDDEN = AbstractDisplay()


class TerminalDisplay(AbstractDisplay):
    """A line on standard error, redrawn ten times a second and when a phase begins."""

    shown = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[note]"))
        columns = (SpinnerColumn(), next(texts), BarColumn(10), next(texts))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bar.stop()

    def update(self, description: str, note: str = "", completed: float = 0, total: float | None = None) -> None:
        task = self._bar.tasks[0]
        task.total, begins = total, description != task.description  # to `update`, None would mean the total before
        self._bar.update(self._task, completed=completed, description=description, note=note, refresh=begins)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


class NotebookDisplay(AbstractDisplay):
    """A line below the cell of a notebook."""

    shown = True

    def __init__(self) -> None:
        self._handle: Any = None
        self._description = ""
        self._sent = -math.inf

    def __exit__(self, *problem: object) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
            self._handle = None

    def update(self, description: str, note: str = "", completed: float = 0, total: float | None = None) -> None:
        from IPython.display import display

        now = time.monotonic()
        if description == self._description and now - self._sent < _NOTEBOOK_SECONDS:
            return
        self._description, self._sent = description, now
        place = "" if total is None else f' value="{completed:.0f}" max="{total:.0f}"'
        texts = [html.escape(text) for text in (description, note)]
        line = f'{texts[0]} <progress{place} style="width: 8em"></progress> {texts[1]}'
        styled = f'<div style="font-family: monospace; white-space: pre">{line}</div>'
        shown = {"text/plain": f"{description} {note}", "text/html": styled}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def say(self, text: str) -> None:
        from IPython.display import display

        display({"text/plain": text}, raw=True)


class LogDisplay(AbstractDisplay):
    """A line on standard error for each phase, and now and then one within a phase."""

    shown = True

    def __init__(self) -> None:
        self._description = ""
        self._written = -math.inf

    def update(self, description: str, note: str = "", completed: float = 0, total: float | None = None) -> None:
        now = time.monotonic()
        if description != self._description or now - self._written >= _LOG_SECONDS:
            self._description, self._written = description, now
            self.say(f"{description}  {note}".rstrip())

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _is_notebook() -> bool:
    if "IPython" not in sys.modules:  # which every notebook has imported
        return False
    from rich.console import Console

    return Console().is_jupyter


def display_here(verbose: bool | None = None) -> AbstractDisplay:
    """The display that suits where the program runs: a terminal, a notebook, and nothing in a pipe or in tests.

    With `verbose=True` a pipe gets a line now and then; with `verbose=False` nothing is shown anywhere.
    """
    if verbose is False or (verbose is None and "PYTEST_CURRENT_TEST" in os.environ):
        return HIDDEN
    if _is_notebook():
        return NotebookDisplay()
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalDisplay()
    return LogDisplay() if verbose and sys.stderr is not None else HIDDEN
