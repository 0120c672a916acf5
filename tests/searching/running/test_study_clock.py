"""How a study's time is shared out."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from gradwise.searching.running.study_clock import SearchPlan, StudyClock, seeds_of
from gradwise.searching.storage.study_definition import Budget


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


def test_finals_keep_what_they_would_take_between_a_tenth_and_a_half() -> None:
    plan = SearchPlan(committee="seeds")
    slow, quick = (SimpleNamespace(ok=True, score=0.1, seconds=s) for s in (1e6, 1e-6))
    end = StudyClock(Budget(seconds=1000.0), driver(), plan).end
    assert StudyClock(Budget(seconds=1000.0), driver((slow,)), plan).reserve == pytest.approx(0.5 * end)
    assert StudyClock(Budget(seconds=1000.0), driver((quick,)), plan).reserve == pytest.approx(0.1 * end)


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
