"""The progress of a journey as one line: the phase, and during training the age, the errors and the time left.

    with progress_here() as progress:
        progress.phase("reading")
        progress.training("training", length=60000, scale=scale)
        train(recipe, dataset, key=key, options=RunOptions(watch=progress.watch))

It is shown on a terminal or in a notebook. Text from the user's data is never interpreted as markup.
"""

import math
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..records.score_scale import ScoreScale
from ..reporting import wording
from ..specs.dataset import Dataset
from ..specs.search_space import Space
from .progress import AbstractProgress, Watch
from .progress_displays import AbstractDisplay, display_here

if TYPE_CHECKING:
    from ..searching.storage.budget import Budget


class ProgressBar(AbstractProgress):
    """The progress of a journey on a display."""

    def __init__(self, display: AbstractDisplay) -> None:
        self._display = display
        self._begun: tuple[float, int] | None = None
        self._best = math.inf
        self._length = math.inf
        self._scale = ScoreScale("loss")
        self._prefix = ""

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._display.__exit__(*problem)

    def phase(self, text: str) -> None:
        """Starts a phase of unknown length."""
        self._display.update(wording.clean(text))

    def tell(self, text: str) -> None:
        """Prints a permanent line above the progress."""
        self._display.say(wording.clean(text))

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
            if not self._display.shown:
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
            self._display.update(
                f"{prefix}{line['phase']}",
                "  ".join(filter(None, pieces)),
                completed=spent if by_time else line["done"],
                total=budget.seconds if by_time else max(total, 1) if math.isfinite(total) else None,
            )

        return watch

    def watch(self, line: dict[str, Any]) -> None:
        """Updates the bar after an interval; it ends where patience will, unless the score improves."""
        if not self._display.shown:
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
        self._display.update(self._prefix, "  ".join(filter(None, pieces)), completed=age, total=max(end, age))


def progress_here(verbose: bool | None = None) -> ProgressBar:
    """Progress for this place: a terminal or a notebook; in a pipe only with `verbose=True`."""
    return ProgressBar(display_here(verbose))
