"""Failures grouped where they were planted, and the verdict when nothing worked."""

import math
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.evaluation.trials.failures import _surprise, group_failures, why_all_failed
from gradwise.records.trial import Trial
from gradwise.specs.priors import Choice, LogUniform, Uniform
from gradwise.specs.search_space import Dimension, Space

RATE = "optimiser.learning_rate"
SPACE = Space(defaults.classification(), (Dimension(RATE, LogUniform(1e-3, 10.0)),))


def _trial(number: int, outcome: str, reason: str = "", age: int = 100, **values: Any) -> Trial:
    score = 0.2 if outcome == "finished" else math.nan
    named = {RATE if name == "rate" else name: value for name, value in values.items()}
    return Trial(number, None, named, outcome, score, age_examples=age, reason=reason)  # type: ignore[arg-type]


def _planted(count: int = 60, **more: Any) -> list[Trial]:
    """Diverges exactly where the rate is above 0.3; two knobs beside it do not matter."""
    draw = np.random.default_rng(0)
    trials = []
    for n in range(count):
        rate = LogUniform(1e-3, 10.0).quantile(draw.random())
        momentum = Uniform(0.0, 1.0).quantile(draw.random())
        kind = Choice(("tanh", "sigmoid")).quantile(draw.random())
        trials.append(_trial(n, "diverged" if rate > 0.3 else "finished", rate=rate, momentum=momentum, kind=kind))
    return trials


def test_a_planted_threshold_is_found_and_nothing_else() -> None:
    trials = _planted()
    found = group_failures(trials)
    bad = [t.values[RATE] for t in trials if t.outcome == "diverged"]
    fine = [t.values[RATE] for t in trials if t.outcome == "finished"]
    assert found.diverged == len(bad)
    assert [group.path for group in found.groups] == [RATE]
    group = found.groups[0]
    assert max(fine) <= group.low < min(bad)
    assert group.high == math.inf
    assert (group.bad, group.count) == (len(bad), len(bad))
    assert group.sentence == f"all {len(bad)} trials with `{RATE}` above {group.low:g} diverged"
    assert group.sentence in found.sentence


def test_a_category_and_a_lower_end_are_found_too() -> None:
    draw = np.random.default_rng(1)
    trials = []
    for n in range(80):
        decay, kind = float(draw.random()), ("a", "b", "c", "d")[int(draw.integers(4))]
        outcome = "failed" if kind == "c" else "diverged" if decay < 0.2 else "finished"
        trials.append(_trial(n, outcome, "out of memory\ntrace", decay=decay, kind=kind))
    found = group_failures(trials)
    assert {(g.path, g.outcome) for g in found.groups} == {("kind", "failed"), ("decay", "diverged")}
    named = next(g for g in found.groups if g.path == "kind")
    assert (named.category, named.bad) == ("c", found.failed)
    lower = next(g for g in found.groups if g.path == "decay")
    assert lower.low == -math.inf
    assert 0.1 < lower.high < 0.3
    assert lower.bad == lower.count
    assert lower.sentence.startswith("of the others all ")
    assert found.reasons == (("out of memory", found.failed),)
    assert "out of memory" in found.sentence


def test_divergence_at_random_is_put_down_to_nothing() -> None:
    draw = np.random.default_rng(2)
    blamed = 0
    for _ in range(20):
        trials = [
            _trial(n, "diverged" if draw.random() < 0.3 else "finished", a=float(draw.random()), b=float(draw.random()))
            for n in range(40)
        ]
        blamed += bool(group_failures(trials).groups)
    assert blamed <= 2


def test_the_surprise_bounds_the_exact_chance() -> None:
    from scipy.stats import hypergeom

    for bad, count in [(5, 5), (8, 10), (20, 25), (3, 10)]:
        exact = hypergeom.sf(bad - 1, 100, 30, count)
        assert math.exp(-float(_surprise(bad, count, 0.3))) >= exact
    assert float(_surprise(5, 5, 0.3)) == pytest.approx(-5 * math.log(0.3))


def test_thousands_of_failures_are_one_region() -> None:
    trials = _planted(3000)
    assert len(group_failures(trials).groups) == 1


def test_no_failure_is_said_plainly() -> None:
    assert group_failures([_trial(0, "finished")]).sentence == "each of the 1 trials produced a model."
    assert group_failures([_trial(0, "out_of_time")]).unfinished == 1


def test_the_verdict_names_the_rates_below_those_that_diverged() -> None:
    trials = [
        _trial(n, "diverged", rate=rate, age=int(1000 / rate)) for n, rate in enumerate([0.3, 1.0, 2.0, 5.0, 9.0])
    ]
    found = why_all_failed(SPACE, trials)
    assert found is not None
    assert (found.path, found.low, found.high) == (RATE, 3e-4, 0.3)
    assert "all 5 trials diverged" in found.sentence
    assert "smaller rates survived longer" in found.sentence
    assert found.sentence.endswith(f"Try {RATE}=log(0.0003, 0.3).")
    assert why_all_failed(SPACE, [*trials, _trial(5, "finished", rate=0.1)]) is None
    assert why_all_failed(SPACE, []) is None


def test_a_rate_that_is_not_searched_is_read_off_the_recipe() -> None:
    other = Space(SPACE.recipe, (Dimension("model.dropout", Uniform(0.0, 0.5)),))
    found = why_all_failed(other, [_trial(0, "diverged"), _trial(1, "diverged")])
    assert found is not None
    assert found.path.endswith("learning_rate")
    assert found.low == pytest.approx(found.high / 1000)


def test_a_tiny_rate_is_not_blamed() -> None:
    found = why_all_failed(SPACE, [_trial(0, "diverged", rate=1e-8), _trial(1, "diverged", rate=0.1)])
    assert found is not None
    assert found.path == ""
    assert "even with" in found.sentence
    assert "data" in found.sentence


def test_failures_that_are_no_divergences_have_their_own_verdict() -> None:
    failed = why_all_failed(SPACE, [_trial(0, "failed", "out of memory"), _trial(1, "failed", "out of memory")])
    assert failed is not None
    assert failed.sentence.endswith("2 failed with: out of memory")
    late = why_all_failed(SPACE, [_trial(0, "out_of_time"), _trial(1, "out_of_time")])
    assert late is not None
    assert "more time" in late.sentence
    mixed = why_all_failed(SPACE, [_trial(n, "diverged", rate=0.5) for n in range(3)] + [_trial(3, "failed", "x")])
    assert mixed is not None
    assert mixed.path == RATE
