"""The progress line of a journey: the phase, and during training the age, the errors and the time left.

It goes to standard error, and only to a terminal. Text from the user's data is never interpreted as markup.
"""

import math
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..records.score_scale import ScoreScale
from ..reporting import wording
from ..specs.dataset import Dataset
from ..specs.search_space import Space
from .progress import AbstractProgress, Watch

if TYPE_CHECKING:
    from ..searching.storage.budget import Budget


class ProgressBar(AbstractProgress):
    """A progress line: the phase, and during training the age, the errors and the time left."""

    def __init__(self, shown: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._begun: tuple[float, int] | None = None
        self._best = math.inf
        self._length = math.inf
        self._scale = ScoreScale("loss")
        self._prefix = ""
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TextColumn
            from rich.progress import Progress as Bar

            texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[note]"))
            columns = (SpinnerColumn(), next(texts), BarColumn(10), next(texts))
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="")
        return self

    def __exit__(self, *problem: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def phase(self, text: str) -> None:
        """Starts a phase of unknown length."""
        if self._bar is not None:
            self._bar.update(self._task, description=wording.clean(text), note="", total=None, completed=0)

    def tell(self, text: str) -> None:
        """Prints a permanent line above the progress."""
        if self._bar is not None:
            self._bar.console.print(wording.clean(text), markup=False, highlight=False)

    def training(self, prefix: str, *, length: float, scale: ScoreScale) -> None:
        """Starts a training of at most `length` examples, whose scores are on this scale."""
        self._begun, self._best, self._length = None, math.inf, length
        self._prefix, self._scale = prefix, scale
        self.phase(f"{prefix}: compiling")

    def searching(self, budget: "Budget", space: Space, dataset: Dataset, prefix: str = "", metric: str = "") -> Watch:
        """Starts a search and returns its progress callback."""
        self.phase(f"{prefix}search: starting")
        numbers = dataset.task.kind == "numbers"
        unit = float(np.std(dataset.targets, axis=0).mean()) if numbers else 1.0
        show = ScoreScale.of(space.recipe, dataset.task.kind, metric, unit).say

        def watch(line: dict[str, Any]) -> None:
            if self._bar is None:
                return
            spent, total = float(line["seconds"]), float(line["total"])
            by_time = budget.seconds is not None and not math.isfinite(total)
            whole = f" of {total:.0f}" if math.isfinite(total) else ""
            pieces = [
                f"{line['done']}{whole} done",
                f"{line['running']} running",
                f"{line['failed']} failed" if line["failed"] else "",
                f"best {show(line['best'])}",
                "" if budget.seconds is None else f"{wording.duration(max(0.0, budget.seconds - spent))} left",
            ]
            self._bar.update(
                self._task,
                description=f"{prefix}{line['phase']}",
                completed=spent if by_time else line["done"],
                total=budget.seconds if by_time else max(total, 1) if math.isfinite(total) else None,
                note="  ".join(filter(None, pieces)),
            )

        return watch

    def watch(self, line: dict[str, Any]) -> None:
        """Updates the bar after an interval; it ends where patience will, unless the score improves."""
        if self._bar is None:
            return
        age, now = int(line["age_examples"]), time.monotonic()
        begun, start = self._begun = self._begun or (now, age)
        end = min(float(line["patience_examples"]), self._length)
        speed = (age - start) / (now - begun) if now > begun and age > start else math.nan
        if line["best"]:
            self._best = line["valid_score"]
        show = self._scale.say
        pieces = [  # together with the bar they must fit into 80 columns
            f"age {wording.age(age)}",
            f"loss {line['train_loss']:.2g}",
            f"valid {show(line['valid_score'])}",
            f"best {show(self._best)}",
            f"{wording.duration(max(0.0, end - age) / speed)} left" if math.isfinite(speed) else "",
        ]
        note = "  ".join(filter(None, pieces))
        self._bar.update(self._task, description=self._prefix, completed=age, total=max(end, age), note=note)


def progress_here(shown: bool | None = None) -> ProgressBar:
    return ProgressBar(shown is not False)
