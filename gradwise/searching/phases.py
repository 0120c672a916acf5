"""The phases of a study, one after the other: the search proper, the mini-batch size, the finals.

    ended = explore(strategy, clock, folder)
    choose_size(strategy, clock, folder)
    hold_finals(clock)

The clock knows the study's driver, budget and plan. Each phase depends only on the trials before it, so that a resumed
study makes the same decisions.
"""

import math
from collections.abc import Iterable
from pathlib import Path

from ..records.study_analysis import BatchSizes
from ..records.trial import Proposal, Trial, best_of
from .running.driver import Driver
from .running.evaluation_data import Variant
from .running.study_clock import StudyClock, seeds_of
from .selection.batch_size_choice import choose_batch_size
from .selection.committee_members import setting_of
from .selection.finalists import finalist_proposals
from .storage.budget import Budget
from .strategies.coarse_to_fine import AroundBest
from .strategies.contract import AbstractStrategy
from .strategies.population_based_training import PopulationBasedTraining
from .strategies.population_search import train_populations
from .strategies.random_search import Random
from .strategies.recommended import Recommended

_BORDER_ROUNDS = 3


def trials_wanted(budget: Budget, driver: Driver) -> int | None:
    """How many trials of the search proper there are to be in the end."""
    if budget.trials is None:
        return None
    return budget.trials + (len(driver.of_phase("search")) if budget.more else 0)


def _beyond_borders(driver: Driver, each: int, clock: StudyClock) -> str:
    """Rounds of so many trials beyond the borders that hold the best value; how they ended.

    Each round is decided by the trials before it, so that a study that goes on decides as it did the first time.
    """
    until = min(clock.refine_until, driver.seconds + clock.border_seconds)
    for turn in range(_BORDER_ROUNDS):
        before = [*driver.of_phase("search"), *driver.of_phase("border")[: turn * each]]
        if best_of(before) is None or not driver.follow_borders(before):
            break
        ended = driver.explore(Random(), trials=(turn + 1) * each, until=until, phase="border")
        if ended != "finished":
            return ended
    return "finished"


def explore(strategy: AbstractStrategy, clock: StudyClock, folder: Path | None) -> str:
    """The search proper, beyond its borders and around its best; how it ended."""
    driver, plan = clock.driver, clock.plan
    wanted = trials_wanted(clock.budget, driver)
    by_time = wanted is None
    if isinstance(strategy, PopulationBasedTraining):
        end = clock.end if by_time else math.inf
        train_populations(driver, strategy, trials=wanted, until=end, folder=folder)
        return "interrupted" if driver.asked.is_set() else "finished"
    if isinstance(strategy, Recommended):
        until = clock.refine_until if by_time else math.inf
        driver.explore(strategy, trials=wanted, until=until, race=plan.race, fit=clock.fit)
        return "interrupted" if driver.asked.is_set() else "finished"
    ended = driver.explore(
        strategy,
        trials=wanted,
        until=clock.search_until if by_time else math.inf,
        borders=plan.borders and (by_time or strategy.looks_back),
        stop_early=plan.stop_early and by_time,
    )
    if ended == "interrupted":
        return ended
    if plan.borders:
        ended = _beyond_borders(driver, max(4, (wanted or len(driver.of_phase("search"))) // 4), clock)
    if plan.refine and driver.best is not None and ended != "interrupted":
        limit = None if by_time else max(2, (wanted or 0) // 4)
        ended = driver.explore(AroundBest(), trials=limit, until=clock.refine_until, phase="refine", few=by_time)
    return "interrupted" if driver.asked.is_set() else "finished"


def choose_size(strategy: AbstractStrategy, clock: StudyClock, folder: Path | None) -> BatchSizes | None:
    """The mini-batch size, where it is to be chosen; more trials, where that took less than its share of the time."""
    if not clock.plan.batch_size or clock.driver.asked.is_set():
        return None
    found = choose_batch_size(clock.driver, clock, folder)
    if isinstance(strategy, Recommended) and clock.budget.trials is None:
        clock.driver.explore(strategy, until=clock.tune_until, race=clock.plan.race)
    return found


def hold_finals(clock: StudyClock) -> None:
    """The best few settings again, with seeds of their own: as many as there is time for.

    Their numbers follow those of all other trials, so that a study that goes on finds those that it has.
    """

    driver, plan = clock.driver, clock.plan

    def plan_of(trials: Iterable[Trial]) -> list[tuple[Proposal, tuple[Variant, ...]]]:
        return finalist_proposals(
            trials,
            driver.data.final_variants,
            settings=plan.finalists,
            seeds=seeds_of(plan, driver.data),
            kind=plan.committee if plan.committee != "contenders" else "seeds",
        )

    trials = driver.trials
    first = 1 + max((number for number, trial in trials.items() if trial.phase != "finalist"), default=-1)
    proposals = plan_of(trial for number, trial in trials.items() if number < first)
    if any(
        n in trials and setting_of(trials[n].recipe) != setting_of(p.recipe)
        for n, (p, _) in enumerate(proposals, first)
    ):
        first, proposals = driver.next, plan_of(trials.values())  # those there are were made by another plan
    driver.run(proposals, first=first, until=clock.end)
