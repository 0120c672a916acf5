"""Challenges find a planted difference, deny one that is not there, and share randomness between the values."""

import json
import math
from typing import Any

import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.evaluation.trials.selection_bias import paired_difference
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_analysis import Challenge
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.comparison.challenge import challenge, compare
from gradwise.searching.running.device_runner import train_alone
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.population_size import Given
from gradwise.searching.strategies.coarse_to_fine import CoarseToFine
from gradwise.specs.paths import replace
from gradwise.specs.priors import LogUniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Patience

RATE = "optimiser.learning_rate"


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return EvaluationData.of(gradwise.read("iris"), HoldOut(), metric="error_rate", key=keys.from_seed(3))


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=0.3),
        stopping=Patience(initial_examples=1000, initial_epochs=0, spacing=3.0, least_examples=1, epochs=8),
    )


@pytest.fixture(scope="module")
def executor(data: EvaluationData) -> Any:
    with LocalExecutor(data, slots=Given(8)) as made:
        yield made


def test_a_rate_that_is_far_too_small_is_found_worse(data: EvaluationData, recipe: Recipe, executor: Any) -> None:
    found = challenge(recipe, RATE, (0.001,), data, executor, seeds=6, first=10)
    assert found.reference == 0.3
    (against,) = found.against
    expected = paired_difference(*(np.array(found.scores[value]) for value in (0.001, 0.3)))
    assert against.difference == expected
    assert expected.low > 0
    assert f"0.001 is worse than 0.3 by {100 * expected.mean:.2g} points" in found.sentence
    assert "paired over 6 seeds" in found.sentence
    # The n-th runs share their randomness: each is what that seed alone gives.
    for value in (0.3, 0.001):
        apart = train_alone(data, [Job(0, replace(recipe, RATE, value), 12)], slots=Given(1))[0]
        assert found.scores[value][2] == pytest.approx(apart.score, abs=1e-6)
    plain = to_values(found)
    assert plain["against"][0]["difference"]["count"] == 6
    assert from_values(Challenge, json.loads(json.dumps(plain))) == found
    assert {trial.phase for trial in found.trials} == {"challenge"}
    assert sorted(trial.number for trial in found.trials) == list(range(10, 22))


def test_no_difference_is_claimed_where_there_is_none(data: EvaluationData, recipe: Recipe, executor: Any) -> None:
    found = challenge(recipe, RATE, (0.3 * (1 + 1e-7),), data, executor, seeds=4)
    assert found.against[0].difference.mean == pytest.approx(0.0, abs=1.0)
    assert "no significant difference between" in found.sentence


def test_a_value_that_fails_is_said_to_fail(data: EvaluationData, recipe: Recipe, executor: Any) -> None:
    found = challenge(recipe, RATE, (3e38, 0.1), data, executor, seeds=3)
    assert all(math.isnan(score) for score in found.scores[3e38])
    assert "could not be compared: too few pairs; 3e+38 failed with 3 of 3 seeds" in found.sentence
    assert found.against[1].difference.count == 3


def test_parts_can_be_challenged(data: EvaluationData, recipe: Recipe, executor: Any) -> None:
    found = challenge(recipe, "model.widths", ((8,), (1,)), data, executor, seeds=4)
    assert found.reference == "8"
    assert list(found.scores) == ["8", "1"]
    assert "1 is worse than 8" in found.sentence


@pytest.mark.parametrize(
    ("path", "values", "seeds", "told"),
    [
        ("optimiser.learning_rat", (0.1,), 3, "Did you mean 'optimiser.learning_rate'"),
        (RATE, (0.3,), 3, "at least two distinct values"),
        (RATE, (0.1,), 1, "at least 2 seeds"),
        (RATE, (-1.0,), 3, "must lie in"),
    ],
)
def test_bad_requests_are_one_line(
    data: EvaluationData,
    recipe: Recipe,
    executor: Any,
    path: str,
    values: tuple[Any, ...],
    seeds: int,
    told: str,
) -> None:
    with pytest.raises(RequestError, match=told) as refused:
        challenge(recipe, path, values, data, executor, seeds=seeds)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def space(recipe: Recipe) -> Space:
    return Space(recipe, (dimension(recipe, RATE, LogUniform(0.003, 3.0)), dimension(recipe, "model.widths")))


def test_a_comparison_re_optimises_and_pairs_the_draws(data: EvaluationData, space: Space, executor: Any) -> None:
    found = compare(space, "model.widths", ((8,), (1,)), data, executor, trials_each=4, seeds=4, first=100)
    rates = {
        value: [trial.values[RATE] for trial in found.trials[:8] if trial.values["model.widths"] == value]
        for value in ("8", "1")
    }
    assert len(rates["8"]) == 4
    assert rates["8"] == rates["1"]  # the same draws for each value
    best = {}
    for one in found.values:
        searched = [t for t in found.trials[:8] if t.values["model.widths"] == one.value]
        best[one.value] = min(searched, key=lambda trial: trial.score)
        assert one.best == best[one.value].values
    assert (found.reference, found.trials_each) == ("8", 4)
    assert "1 is worse than 8" in found.sentence
    assert "each is the best of 4 trials, retrained" in found.sentence
    assert len({trial.number for trial in found.trials}) == 16
    assert min(trial.number for trial in found.trials) == 100
    assert max(trial.number for trial in found.trials) == 115
    # The best runs again with seeds that no trial of the searches had.
    apart = train_alone(data, [Job(0, best["8"].recipe, 104)], slots=Given(1))[0]
    assert found.scores["8"][0] == pytest.approx(apart.score, abs=1e-6)


def test_a_strategy_that_looks_back_is_fed_its_own_trials(data: EvaluationData, space: Space, executor: Any) -> None:
    found = compare(space, "model.widths", ((8,), (4,)), data, executor, 3, CoarseToFine(), seeds=2)
    assert len(found.trials) == 2 * 3 + 2 * 2
    assert [set(one.best) for one in found.values] == [{RATE, "model.widths"}] * 2
