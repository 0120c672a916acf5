"""k-fold estimates (row E2): every example judged once, and an interval around the mean."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from gradwise import defaults
from gradwise.data.splits import Fold
from gradwise.evaluation.metrics import wilson
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.fit import Fit
from gradwise.records.plain_values import from_values, to_values
from gradwise.runtime import keys
from gradwise.specs.dataset import Dataset, Numbers
from gradwise.specs.recipe import Recipe
from gradwise.training import interval as module
from gradwise.training.cross_validation import cross_validate, summarise_folds
from gradwise.training.stopping import Off

KEY = keys.from_seed(0)
FOLDS = [Fold(number, 5) for number in range(5)]


def test_every_example_is_judged_exactly_once(recipe: Recipe) -> None:
    draw = np.random.default_rng(0)
    rows = np.arange(150.0)
    dataset = Dataset(draw.normal(size=(150, 4)), rows[:, None], Numbers())  # each row's target is its number
    judged: list[float] = []

    def watch(number: int, result: Fit) -> None:
        assert result.recipe.split == FOLDS[number]
        judged.extend(target for (target,) in result.evidence.numbers.targets)

    chosen = defaults.regression(
        batches=recipe.batches, model=recipe.model, stopping=Off(epochs=1, spacing=1.0), optimiser=recipe.optimiser
    )
    estimate = cross_validate(chosen, dataset, FOLDS, key=KEY, watch=watch)
    assert sorted(judged) == rows.tolist()
    assert len(estimate.values) == 5
    assert estimate.metric == "rmse"
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]


def test_the_estimate_counts_errors_over_all_folds(iris: Dataset, recipe: Recipe) -> None:
    results: list[Fit] = []
    estimate = cross_validate(recipe, iris, FOLDS, key=KEY, watch=lambda number, result: results.append(result))
    errors = sum(sum(one.errors for one in result.evidence.classes.rates) for result in results)
    assert sum(np.sum(result.evidence.classes.confusion) for result in results) == 150
    assert estimate.mean == pytest.approx(errors / 150)
    assert estimate.interval == pytest.approx(wilson(errors, 150))
    assert estimate.values == tuple(result.test for result in results)
    again = cross_validate(recipe, iris, FOLDS, key=KEY)
    assert again == estimate


def test_all_folds_share_one_program(iris: Dataset, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    judge = module.judge
    monkeypatch.setattr(module, "judge", lambda *arguments: traced.append(0) or judge(*arguments))
    cross_validate(recipe, iris, FOLDS, key=KEY)
    assert len(traced) <= 1


def test_options_reach_every_fold(iris: Dataset, recipe: Recipe) -> None:
    estimate = cross_validate(recipe, iris, FOLDS[:2], key=KEY, metric="log_loss")
    assert estimate.metric == "log_loss"
    assert len(estimate.values) == 2


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.15], [3.0, 4.0], [1.0] * 4])
def test_the_interval_is_students(values: list[float]) -> None:
    got = summarise_folds("rmse", values, [10] * len(values), count_errors=False)
    assert got.mean == pytest.approx(np.mean(values))
    spread = stats.sem(values)
    expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), spread) if spread > 0 else (1.0, 1.0)
    assert got.interval == pytest.approx(expected)


def test_folds_of_unequal_size_count_by_their_rows() -> None:
    got = summarise_folds("error_rate", [0.0, 0.5], [30, 10], count_errors=True)
    assert got.mean == pytest.approx(5 / 40)
    assert got.interval == pytest.approx(wilson(5, 40))


def test_one_fold_has_no_interval_and_all_of_it_is_json() -> None:
    one = summarise_folds("rmse", [2.0], [10], count_errors=False)
    assert all(math.isnan(end) for end in one.interval)
    two = summarise_folds("rmse", [2.0, 4.0], [10, 10], count_errors=False)
    assert from_values(CrossValidationEstimate, json.loads(json.dumps(to_values(two)))) == two
    assert (two.metric, two.mean, two.values) == ("rmse", 3.0, (2.0, 4.0))
