"""How a study's time is shared out."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from gradwise.records.trial import Proposal
from gradwise.searching.running.study_clock import SearchPlan, StudyClock, seeds_of
from gradwise.searching.storage.budget import Budget
from tests.searching import small_study


def driver(trials: tuple[Any, ...] = (), variants: int = 1, finals: int = 5) -> Any:
    data = SimpleNamespace(variants=("v",) * variants, final_variants=("v",) * finals)
    return SimpleNamespace(of_phase=lambda *_: list(trials), data=data, executor=SimpleNamespace(hands=2))


def test_an_ensemble_has_no_finals_so_nothing_is_kept_back_but_the_report() -> None:
    clock = StudyClock(Budget(seconds=1000.0), driver(), SearchPlan(refine=False))
    assert clock.reserve == 0.0
    assert clock.search_until == clock.end == pytest.approx(960.0)
    assert StudyClock(Budget(seconds=60.0), driver(), SearchPlan()).end == pytest.approx(56.5)
    assert StudyClock(Budget(seconds=8.0), driver(), SearchPlan()).end == pytest.approx(4.8)
    assert StudyClock(Budget(seconds=60.0), driver(), SearchPlan(), lambda: 3.0).end == pytest.approx(53.5)
    assert StudyClock(Budget(trials=3), driver(), SearchPlan()).end == math.inf


def test_finals_keep_what_they_would_take_between_a_tenth_and_a_quarter() -> None:
    plan = SearchPlan(committee="seeds")
    slow, quick = (SimpleNamespace(ok=True, score=0.1, seconds=s) for s in (1e6, 1e-6))
    end = StudyClock(Budget(seconds=1000.0), driver(), plan).end
    assert StudyClock(Budget(seconds=1000.0), driver((slow,)), plan).reserve == pytest.approx(0.25 * end)
    assert StudyClock(Budget(seconds=1000.0), driver((quick,)), plan).reserve == pytest.approx(0.1 * end)


def test_borders_have_what_finals_leave_of_a_quarter() -> None:
    plan = SearchPlan(committee="seeds")
    slow, quick = (SimpleNamespace(ok=True, score=0.1, seconds=s) for s in (1e6, 1e-6))
    clock = StudyClock(Budget(seconds=1000.0), driver((quick,)), plan)
    assert clock.border_seconds == pytest.approx(0.15 * clock.end)
    assert StudyClock(Budget(seconds=1000.0), driver((slow,)), plan).border_seconds == pytest.approx(0.0)
    assert StudyClock(Budget(trials=4), driver((slow,)), plan).border_seconds == math.inf


# --- the last trials of a search by time


def asked(seconds: float, *, trainings: int = 0, together: bool = False, whole: float = 100.0) -> float | None:
    """The epochs, of 100, that a trial is given with so many seconds left; whole ones of five folds take 100 of both
    cores, or as long on a device that has all folds at once."""
    ended = SimpleNamespace(ok=True, outcome="finished", seconds=whole)
    executor = SimpleNamespace(hands=2, folds_together=together)
    data = SimpleNamespace(variants=("v",) * 5)
    late = SimpleNamespace(
        of_phase=lambda *_: [ended], waits=[60.0], executor=executor, data=data, trainings=trainings, seconds=0.0
    )
    budget = Budget(seconds=seconds / 0.96)
    found = StudyClock(budget, late, SearchPlan()).fit(Proposal(small_study.recipe_at(0.1, epochs=100.0)))  # type: ignore[arg-type]
    return None if found is None else found.recipe.stopping.epochs  # type: ignore[attr-defined]


def test_a_trial_that_would_not_end_in_time_has_fewer_epochs() -> None:
    """Three rounds of 20 seconds take 60, of which a twentieth is spare."""
    assert asked(200.0) == 100.0
    assert asked(150.0, trainings=8) == pytest.approx(100.0), "eight take both cores 80 seconds"
    assert asked(120.0, trainings=8) == pytest.approx(60.0)
    assert asked(100.0, trainings=8) == pytest.approx(30.0)
    assert asked(95.0, trainings=8) is None


def test_where_folds_train_together_the_time_of_the_last_ones_counts() -> None:
    assert asked(120.0, trainings=400, together=True) == 100.0
    assert asked(63.0, together=True) == pytest.approx(95.0)
    assert asked(31.0, together=True) == pytest.approx(45.0)


def test_a_seed_that_is_a_network_for_each_fold_makes_fewer_seeds() -> None:
    assert seeds_of(SearchPlan(seeds=5), driver(finals=1).data) == 5
    assert seeds_of(SearchPlan(seeds=5, committee="seeds"), driver(finals=5).data) == 1
    assert seeds_of(SearchPlan(seeds=5, committee="bagging"), driver(finals=5).data) == 5


def test_choosing_the_batch_size_takes_time_from_the_search_and_none_from_finals() -> None:
    for committee in ("ensemble", "seeds"):
        plan = SearchPlan(committee=committee, batch_size="auto")
        clock = StudyClock(Budget(seconds=1000.0), driver(), plan)
        without = StudyClock(Budget(seconds=1000.0), driver(), SearchPlan(committee=committee))
        assert clock.tune_until == without.tune_until == without.refine_until == clock.end - clock.reserve
        assert clock.refine_until == pytest.approx(0.6 * clock.tune_until)
        assert clock.refine_until < clock.compare_until < clock.tune_until
    endless = StudyClock(Budget(trials=3), driver(), plan)
    assert (endless.refine_until, endless.compare_until, endless.tune_until) == (math.inf, math.inf, math.inf)
