"""The thoroughness of a study, and how its time is divided: searching, refining, the mini-batch size, the finals."""

import dataclasses
import math
import statistics
from collections.abc import Callable

from ...records.trial import Proposal
from ...runtime.errors import RequestError
from ...training.stopping import Off
from ..selection.committee_members import ANSWERS
from ..storage.budget import Budget
from .driver import Driver
from .effort import Effort
from .evaluation_data import EvaluationData

_REFINED = 0.2  # of the time of the search proper
_BESIDE = 0.25  # of the whole that borders and finals may take together
SIZED = 0.4  # of the time before finals, to choose the mini-batch size
_CONCLUDED = 0.04  # of a budget of time, for what follows the last training
_REPORT_SECONDS = 3.5
_SPARE = 0.95  # of the time that is left is planned with
_STEP = 0.05
_SHORTEST = 0.3  # of its epochs that a trial is worth to have


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """The thoroughness of a search, apart from its budget. None means automatic.

    `folds` are the folds of a trial; `finalists` settings are retrained with `seeds` seeds each; `refine` searches
    around the best; `borders` extends ranges whose best value is at an end; `stop_early` ends a timed search when
    more trials are no longer worth it; `race` stops a trial of the recommended search that is clearly worse than the
    recommended recipe after its first fold. `batch_size="auto"` chooses the mini-batch size last, by training time,
    and then tunes it together with the learning rate; None keeps the recipe's size.
    """

    folds: int | None = None
    finalists: int = 3
    seeds: int = 5
    refine: bool = True
    borders: bool = True
    stop_early: bool = True
    race: bool = True
    committee: str = "ensemble"
    batch_size: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size not in (None, "auto"):
            raise RequestError(
                f"`batch_size` must be None or 'auto'; got {self.batch_size!r}. To fix the size, set the knob "
                "`batches.size` of the recipe."
            )


def seeds_of(plan: SearchPlan, data: EvaluationData) -> int:
    """Seeds of each finalist. Where a seed is a network for each fold, fewer seeds give as many networks."""
    each = len(data.final_variants)
    if each == 1 or plan.committee in {"bagging", "inputs"}:  # whose members are not judged on folds
        return plan.seeds
    return max(1, -(-plan.seeds // each))


class StudyClock:
    """How the time of a study is shared out, as ages of the study at which each stage ends."""

    def __init__(self, budget: Budget, driver: Driver, plan: SearchPlan, concluding: Callable[[], float] = lambda: 0.0):
        """`concluding` tells how long it took to make the model that the study would end with, as it was last made."""
        self.budget, self.driver, self.plan, self.concluding = budget, driver, plan, concluding

    @property
    def end(self) -> float:
        """When training ends: what follows takes a share of a budget, and in a short one the time to write a report."""
        seconds = self.budget.seconds
        if seconds is None:
            return math.inf
        return seconds - max(_CONCLUDED * seconds, min(_REPORT_SECONDS + self.concluding(), 0.4 * seconds))

    @property
    def reserve(self) -> float:
        """Time to keep for the finals: what they would take, between a tenth and a quarter of the whole."""
        if math.isinf(self.end) or not self.plan.finalists or self.plan.committee in ANSWERS:
            return 0.0
        trials = [trial for trial in self.driver.of_phase("search", "border", "refine") if trial.ok]
        trials.sort(key=lambda trial: trial.score)
        best = trials[: max(3, len(trials) // 4)]
        each = sum(trial.seconds for trial in best) / len(best) if best else 0.0
        seeds = seeds_of(self.plan, self.driver.data)
        networks = seeds * len(self.driver.data.final_variants) / len(self.driver.data.variants)
        needed = 1.2 * each * self.plan.finalists * networks / self.driver.executor.hands
        return min(_BESIDE * self.end, max(0.1 * self.end, needed))

    @property
    def border_seconds(self) -> float:
        """Time for trials beyond the borders: what finals leave of a quarter of the whole."""
        return math.inf if math.isinf(self.end) else _BESIDE * self.end - self.reserve

    @property
    def search_until(self) -> float:
        share = 1.0 - (_REFINED if self.plan.refine else 0.0)
        return share * self.refine_until

    @property
    def refine_until(self) -> float:
        return (1.0 - SIZED if self.plan.batch_size else 1.0) * self.tune_until

    @property
    def compare_until(self) -> float:
        """The end of the comparison of mini-batch sizes: half of what they are given."""
        return 0.5 * (self.refine_until + self.tune_until)

    @property
    def tune_until(self) -> float:
        """The end of tuning size and rate together, and of all that comes before finals."""
        return self.end - self.reserve

    def fit(self, proposal: Proposal) -> Proposal | None:
        """The proposal, with fewer epochs where the time left is too short for all of them; None where it is for that.

        A rate that falls to zero in time is worth more than one that is cut while it is high.
        """
        driver = self.driver
        until = self.refine_until - driver.seconds
        whole = [trial.seconds for trial in driver.of_phase("search") if trial.outcome not in {"behind", "out_of_time"}]
        if not whole or not driver.waits or math.isinf(until):
            return proposal
        if driver.executor.folds_together:
            share = _SPARE * until / statistics.median(driver.waits)
        else:
            folds, hands = len(driver.data.variants), driver.executor.hands
            each = statistics.median(whole) / folds
            share = _SPARE * (until - driver.trainings * each / hands) / (each * math.ceil(folds / hands))
        if share >= 1.0 or not isinstance(proposal.recipe.stopping, Off):
            return proposal
        if share < _SHORTEST:
            return None
        rounded = math.floor(share / _STEP) * _STEP  # those that begin together are to be alike
        return dataclasses.replace(proposal, recipe=Effort(epochs=rounded).applied(proposal.recipe))
