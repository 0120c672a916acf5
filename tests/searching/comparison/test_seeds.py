"""The distribution over seeds: the same as training them one by one, with failures counted apart."""

import dataclasses
import json

import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_analysis import SeedDistribution
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.comparison.seeds import seed_distribution
from gradwise.searching.running.device_runner import train_alone
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.population_size import Given
from gradwise.specs.paths import replace
from gradwise.specs.recipe import Recipe
from gradwise.training.stopping import Patience


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return EvaluationData.of(gradwise.read("iris"), HoldOut(), metric="error_rate", key=keys.from_seed(3))


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=0.1),
        stopping=Patience(initial_examples=400, initial_epochs=0, spacing=3.0, least_examples=1, epochs=6),
    )


@pytest.mark.slow
def test_a_population_of_seeds_equals_the_seeds_alone(data: EvaluationData, recipe: Recipe) -> None:
    with LocalExecutor(data, slots=Given(16)) as executor:
        found = seed_distribution(recipe, data, executor, 40, first=7)
    assert len(found.scores) == 40
    assert not found.failures
    assert len(set(found.scores)) > 3
    by_hand = [train_alone(data, [Job(n, recipe, n)], slots=Given(1))[0].score for n in (7, 20, 46)]
    assert [found.scores[n - 7] for n in (7, 20, 46)] == pytest.approx(by_hand, abs=1e-6)
    assert found.mean == pytest.approx(np.mean(found.scores))
    assert found.deviation == pytest.approx(np.std(found.scores, ddof=1))
    assert found.quantiles["0.5"] == pytest.approx(np.median(found.scores))
    assert [trial.number for trial in found.trials] == list(range(7, 47))
    assert from_values(SeedDistribution, json.loads(json.dumps(to_values(found)))) == found
    assert "over 40 seeds the validation error is" in found.sentence


def test_seeds_that_diverge_are_counted_and_not_averaged(data: EvaluationData, recipe: Recipe) -> None:
    wild = replace(recipe, "optimiser.learning_rate", 3e38)
    with LocalExecutor(data) as executor:
        found = seed_distribution(wild, data, executor, 3)
    assert found.scores == ()
    assert found.failures == {"diverged": 3}
    assert np.isnan(found.mean)
    assert found.sentence == "only 0 of 3 seeds produced a model: too few to measure the spread."


def test_folds_are_joined_by_their_sizes(data: EvaluationData, recipe: Recipe) -> None:
    folded = dataclasses.replace(data, folds=3)
    with LocalExecutor(folded, slots=Given(1)) as executor:
        found = seed_distribution(recipe, folded, executor, 2, first=5)
    sizes = [len(folded.judged_rows(variant)) for variant in folded.variants]
    jobs = [Job(n, recipe, 5, None, variant) for n, variant in enumerate(folded.variants)]
    apart = [done.score for done in train_alone(folded, jobs, slots=Given(1))]
    assert found.scores[0] == pytest.approx(np.average(apart, weights=sizes), abs=1e-6)


def test_a_stop_leaves_what_has_ended(data: EvaluationData, recipe: Recipe) -> None:
    asked = iter([False] * 2 + [True] * 100)
    with LocalExecutor(data, slots=Given(2)) as executor:
        found = seed_distribution(recipe, data, executor, 6, stop=lambda: next(asked))
    assert 2 <= len(found.scores) < 6


def test_scores_are_read_in_the_unit_of_the_target(data: EvaluationData, recipe: Recipe) -> None:
    assert data.scale(recipe).shown(0.031) == 0.031
    numbers = EvaluationData.of(gradwise.read("diabetes"), HoldOut(), metric="rmse", key=keys.from_seed(0))
    scale = numbers.scale(defaults.regression())
    assert scale.name == "validation RMSE"
    assert scale.shown(0.25) == pytest.approx(0.5 * numbers.train.targets.std())
    assert numbers.scale(defaults.following(defaults.regression(), "mae")).shown(0.25) == pytest.approx(
        0.25 * numbers.train.targets.std()
    )
    assert data.scale(defaults.following(recipe, "log_loss")).shown(0.25) == 0.25


def test_no_seeds_is_refused(data: EvaluationData, recipe: Recipe) -> None:
    with LocalExecutor(data) as executor, pytest.raises(RequestError, match="at least one"):
        seed_distribution(recipe, data, executor, 0)
