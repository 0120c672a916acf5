"""Relevance recovered on functions where it was planted."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwise.evaluation.trials.knob_relevance import Relevance, relevance_of
from gradwise.records.trial import Trial
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Dimension, Space

SPACE = Space(
    None,
    (
        Dimension("rate", LogUniform(1e-4, 1.0)),
        Dimension("units", LogInteger(16, 1024)),
        Dimension("momentum", Uniform(0.0, 1.0)),
        Dimension("decay", ZeroOr(LogUniform(1e-6, 1e-2))),
        Dimension("kind", Choice(("tanh", "sigmoid", "relu"))),
        Dimension("batch", Choice((16, 64, 256))),
    ),
)


def _study(objective: Callable[[dict[str, Any]], float], count: int, seed: int = 0) -> list[Trial]:
    draw = np.random.default_rng(seed)
    trials = []
    for n in range(count):
        values = {d.path: d.at(draw.random()) for d in SPACE.dimensions}
        score = objective(values) + 0.01 * draw.normal()
        outcome = "finished" if math.isfinite(score) else "diverged"
        trials.append(Trial(n, None, values, outcome, score))  # type: ignore[arg-type]
    return trials


def _order(found: Relevance, of: np.ndarray) -> list[str]:
    return [found.paths[i] for i in np.argsort(-of)]


def test_the_planted_knobs_come_out_on_top_and_the_others_near_nothing() -> None:
    def objective(values: dict[str, Any]) -> float:
        kind = {"tanh": 0.0, "sigmoid": 0.4, "relu": 0.0}[values["kind"]]
        return 0.25 * (math.log10(values["rate"]) + 1.5) ** 2 + kind

    found = relevance_of(SPACE, _study(objective, 120), worst=1.0)
    assert found.paths == SPACE.paths
    for of in (found.ard, found.fanova):
        assert _order(found, of)[0] == "rate"
        assert _order(found, of)[1] == "kind"
        others = of[[1, 2, 3, 5]]
        assert others.max() < 0.15 * of[0]
    assert found.fanova[0] > 0.6
    assert found.fanova[[1, 2, 3, 5]].max() < 0.03
    assert (found.ard_spread >= 0).all()
    assert found.trials == 120


def test_diverged_trials_count_and_failed_ones_do_not() -> None:
    trials = _study(lambda values: math.nan if values["rate"] > 0.03 else 0.3, 60, seed=1)
    trials.append(Trial(60, None, trials[0].values, "failed"))  # type: ignore[arg-type]
    found = relevance_of(SPACE, trials, worst=0.9, refits=4)
    assert found.trials == 60
    assert _order(found, found.ard)[0] == "rate"
    assert _order(found, found.fanova)[0] == "rate"


def test_a_knob_that_is_not_always_active_is_judged_where_it_is() -> None:
    def objective(values: dict[str, Any]) -> float:
        if values["kind"] != "relu":
            del values["momentum"]  # not active in two thirds of the trials
            return 0.5
        return 0.5 + 1.5 * (values["momentum"] - 0.5)

    found = relevance_of(SPACE, _study(objective, 100, seed=2), worst=1.0, refits=5)
    assert _order(found, found.fanova)[0] == "momentum"
    assert _order(found, found.ard)[0] == "momentum"


def test_numbers_of_a_choice_are_in_their_order() -> None:
    found = relevance_of(SPACE, _study(lambda values: math.log2(values["batch"]) / 8, 60, seed=3), worst=2.0, refits=4)
    assert _order(found, found.fanova)[0] == "batch"
    assert _order(found, found.ard)[0] == "batch"


def test_what_did_not_vary_has_no_relevance_and_few_trials_say_nothing() -> None:
    trials = _study(lambda values: values["momentum"], 30, seed=4)
    for trial in trials:
        trial.values["rate"] = 0.1
    found = relevance_of(SPACE, trials, worst=1.0, refits=2)
    assert math.isnan(found.ard[0])
    assert math.isnan(found.fanova[0])
    assert _order(found, np.nan_to_num(found.fanova))[0] == "momentum"
    assert np.isnan(relevance_of(SPACE, trials[:5], worst=1.0).ard).all()
    alike = [Trial(t.number, None, t.values, "finished", 0.5) for t in trials]  # type: ignore[arg-type]
    assert np.nan_to_num(relevance_of(SPACE, alike, worst=1.0).fanova).tolist() == [0.0] * 6


def test_the_same_seed_gives_the_same_and_optunas_voice_is_given_back() -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    trials = _study(lambda values: values["momentum"], 20, seed=5)
    first, second = (relevance_of(SPACE, trials, worst=1.0, refits=2, seed=3) for _ in range(2))
    assert first.ard == pytest.approx(second.ard, nan_ok=True)
    assert first.fanova == pytest.approx(second.fanova, nan_ok=True)
    assert optuna.logging.get_verbosity() == before
