"""The end of a search with `--batch-size auto`: the mini-batch size is chosen last, then tuned with the rate (row C5).

    check_batch_size(space)                     refuses where it is searched already, or where no rate can follow it
    choose_batch_size(driver, clock, folder)    compares, tunes, and tells what was found

The best trial's recipe trains at sizes around its own, each with a few rates and seeds, and the size that reaches a
common validation score in the least time is taken (`batch_size.py`). These runs have no folds and are compared by time,
so nothing else is chosen from them. If the size moves, a small grid over size and rate around it follows: trials like
all others, with folds where those have them, so that each may win or enter the ensemble.

Within a budget of time the comparison is made as large as the time that is left allows.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from ...records.plain_values import from_values, to_values
from ...records.study_analysis import BatchSizes
from ...records.trial import Trial, best_of
from ...runtime.errors import RequestError
from ...runtime.files import write_whole
from ...specs.paths import get
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ..running.driver import Driver
from ..running.study_clock import StudyClock
from .batch_size import RATES, at_size, compare_batch_sizes, cut_to, rate_path, retune

Timed = Callable[[Recipe], float]
NOTE = "batch_size.json"
_AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the present size
_SHORT = "the budget was too short to compare other sizes"
_SAFE = 0.8  # of the time that is left: a training's length is only expected


@dataclasses.dataclass(frozen=True)
class Design:
    """How much is compared: sizes as multiples of the present one, rates, seeds."""

    sizes: tuple[float, ...] = _AROUND
    rates: tuple[float, ...] = RATES
    seeds: int = 2

    @property
    def trainings(self) -> float:
        """About how many trainings at the present size take as long: a smaller one may take as many times as many
        updates, and a larger one need not be faster."""
        return sum(max(1.0, 1.0 / size) for size in self.sizes) * len(self.rates) * self.seeds


_DESIGNS = (Design(), Design(seeds=1), Design(_AROUND[1:-1], seeds=1), Design(_AROUND[1:-1], (1.0,), 1))


def check_batch_size(space: Space) -> None:
    """Refuses a space whose mini-batch size cannot be chosen at the end."""
    if "batches.size" in space.paths:
        raise RequestError(
            "the mini-batch size is both searched (`batches.size`) and chosen at the end (auto). Leave one out."
        )
    rate_path(space.recipe)


def fitting_design(each: float, seconds: float, hands: int) -> Design | None:
    """The largest comparison that `seconds` suffice for, where one training takes `each`; None if none is."""
    return next((one for one in _DESIGNS if one.trainings * each / hands <= _SAFE * seconds), None)


def _stays(best: Trial, why: str) -> BatchSizes:
    size = best.recipe.batches.size
    return BatchSizes((), size, math.nan, math.nan, f"the batch size stays {size}: {why}.")


def _compare(driver: Driver, clock: StudyClock, best: Trial, timed: Timed | None) -> BatchSizes:
    """The sizes around that of the best trial, as many as there is time for."""
    try:
        rate_path(best.recipe)
    except RequestError:
        return _stays(best, "the best trial's optimiser has no learning rate to adapt to it")
    until = clock.compare_until
    each = best.seconds / len(driver.data.variants)
    design = fitting_design(each, until - driver.seconds, driver.executor.hands)
    if design is None:
        return _stays(best, _SHORT)
    rows = len(driver.data.train)
    present = cut_to(best.recipe, rows).batches.size
    sizes = sorted({max(1, round(present * factor)) for factor in design.sizes})
    total = len([size for size in sizes if size <= rows]) * len(design.rates) * design.seeds
    return compare_batch_sizes(
        best.recipe,
        driver.data,
        driver.executor,
        sizes=sizes,
        rates=design.rates,
        seeds=design.seeds,
        first=driver.next,
        timed=timed,
        stop=lambda: driver.asked.is_set() or driver.seconds >= until,
        watch=lambda done: driver.tell("batch size", total, done),
    )


def _tune(driver: Driver, clock: StudyClock, found: BatchSizes) -> None:
    """Size and rate together, around what was chosen. A study that goes on runs those of the grid that it lacks."""
    rows = len(driver.data.train)
    start = cut_to(driver.trials[found.trial].recipe, rows)
    grid = retune(at_size(start, found.recommended, found.factor), found.recommended, most=rows)
    first = 1 + max(trial.number for trial in driver.of_phase("size"))
    driver.run([(proposal, driver.data.variants) for proposal in grid], first=first, until=clock.tune_until)


def _tuned(driver: Driver, found: BatchSizes) -> str:
    """What tuning both together came to."""
    best, before = best_of(driver.of_phase("batch")), driver.trials[found.trial]
    if best is None:
        return "no time was left to tune it together with the learning rate."
    scale = driver.scale
    after, earlier = (scale.say(one.score) for one in (best, before))
    rate = float(get(best.recipe, rate_path(best.recipe)))
    what = f"tuned together, a size of {best.recipe.batches.size} and a learning rate of {rate:.2g} are best"
    return f"{what}: {scale.name} {after}, was {earlier}."


def _known(note: Path | None, trials: Sequence[Trial]) -> BatchSizes | None:
    """What an earlier run of this study had chosen."""
    if note is None or not note.is_file() or not trials:
        return None
    return from_values(BatchSizes, json.loads(note.read_text()))


def choose_batch_size(
    driver: Driver, clock: StudyClock, folder: Path | None, timed: Timed | None = None
) -> BatchSizes | None:
    """Compares sizes, then tunes size and rate together; None where there is nothing to choose from.

    `timed` gives the seconds of one update of a recipe; by default they are measured.
    """
    best = best_of(driver.of_phase("search", "border", "refine"))
    if best is None:
        cut = driver.best  # nothing ended in time
        return None if cut is None else _stays(cut, _SHORT)
    note = None if folder is None else folder / NOTE
    found = _known(note, driver.of_phase("size"))
    if found is None:
        found = dataclasses.replace(_compare(driver, clock, best, timed), trial=best.number)
        if driver.asked.is_set():
            return None
        driver.adopt(found.trials)
        if note is not None:
            write_whole(note, json.dumps(to_values(found)).encode())
    if found.recommended != cut_to(driver.trials[found.trial].recipe, len(driver.data.train)).batches.size:
        _tune(driver, clock, found)
        found = dataclasses.replace(found, sentence=f"{found.sentence} {_tuned(driver, found)}")
    return found
