"""Bias and variance against closed forms: smoothers on a fixed design, means of finite sets, constructed voters."""

from typing import Any

import jax
import numpy as np
import pytest

from gradwise import defaults
from gradwise.checking.learning.bias_variance import (
    BiasVariance,
    Squared,
    ZeroOne,
    bias_variance,
    decompose,
    find_variance,
    recipe_variance,
    zero_one_terms,
)
from gradwise.data.splits import HoldOut
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Dataset, Numbers
from gradwise.training.stopping import Off

KEY = jax.random.key(0)
COUNT, NOISE = 40, 0.5
GRID = np.linspace(-1, 1, COUNT)[:, None]
TRUTH = np.sin(3 * GRID[:, 0])


def _line(dataset: Dataset) -> np.ndarray:
    """The hat matrix of ridge regression on a line."""
    design = np.concatenate([np.ones_like(GRID), GRID], 1)
    return np.asarray(design @ np.linalg.solve(design.T @ design + 2.0 * np.eye(2), design.T))


def _neighbours(dataset: Dataset) -> np.ndarray:
    """The smoother of the mean of five neighbours."""
    near = np.argsort(np.abs(GRID - GRID.T), axis=1, kind="stable")[:, :5]
    smoother = np.zeros((COUNT, COUNT))
    np.put_along_axis(smoother, near, 0.2, 1)
    return smoother


@pytest.mark.parametrize("smoother", [_line, _neighbours])
def test_linear_smoothers_have_the_terms_of_the_closed_form(smoother: Any) -> None:
    random = np.random.default_rng(1)
    targets = (TRUTH + NOISE * random.normal(size=COUNT))[:, None]
    data = Dataset(GRID, targets, Numbers())
    matrix = smoother(data)

    def fit_one(dataset: Dataset, seed: int) -> Any:
        fresh = TRUTH + NOISE * np.random.default_rng(seed).normal(size=COUNT)  # the design stays, the noise is new
        return lambda inputs: matrix @ fresh

    told = bias_variance(fit_one, data, data, rounds=400, truth=TRUTH, key=KEY).squared
    assert told is not None
    bias = ((matrix @ TRUTH - TRUTH) ** 2).mean()
    variance = NOISE**2 * (matrix**2).sum() / COUNT
    assert told.bias == pytest.approx(bias, abs=4 * told.bias_deviation)
    assert told.variance == pytest.approx(variance, abs=4 * told.variance_deviation)
    assert told.variance == pytest.approx(variance, rel=0.15)
    assert told.noise is not None
    assert told.noise == pytest.approx(((targets[:, 0] - TRUTH) ** 2).mean())
    assert told.error == pytest.approx(told.noise + told.bias + told.variance)


@pytest.mark.parametrize("replacing", [True, False])
def test_the_mean_of_a_resample_has_the_variance_of_the_textbook(replacing: bool) -> None:
    values = np.random.default_rng(0).normal(size=(30, 1))
    data = Dataset(np.zeros((30, 1)), values, Numbers())
    size = 10

    def fit_one(dataset: Dataset, seed: int) -> Any:
        return lambda inputs: np.full(len(inputs), dataset.targets.mean())

    told = bias_variance(fit_one, data, data, rounds=600, size=size, replacing=replacing, key=KEY).squared
    assert told is not None
    expected = values.var() / size if replacing else values.var(ddof=1) / size * (1 - size / 30)
    assert told.variance == pytest.approx(expected, rel=0.2)
    assert abs(told.variance - expected) < 4 * told.variance_deviation
    assert told.noise is None
    assert told.bias == pytest.approx(values.var(), rel=0.02)  # here all of it is noise


def test_bias_has_no_share_of_variance_on_average() -> None:
    random = np.random.default_rng(0)
    test = Dataset(np.zeros((20_000, 1)), np.full((20_000, 1), 1.0), Numbers())
    told = decompose(random.normal(size=(3, 20_000)), test, 10).squared  # three rounds of mean 0 and variance 1
    assert told is not None
    assert told.bias == pytest.approx(1.0, abs=0.05)  # uncorrected it would be 1.33
    assert told.variance == pytest.approx(1.0, abs=0.05)
    squares = (np.random.default_rng(0).normal(size=(3, 20_000)) - 1) ** 2
    assert told.error == pytest.approx(squares.mean())  # the terms sum to the mean error exactly


def test_constructed_voters_have_the_terms_of_the_zero_one_loss() -> None:
    # Four examples of class 0 with 10 voters: all right; 7 right; 4 right of two classes; 2 right, 5 say 1, 3 say 2.
    votes = [[0] * 10, [0] * 7 + [1] * 3, [0] * 4 + [1] * 6, [0] * 2 + [1] * 5 + [2] * 3]
    told = zero_one_terms(np.array(votes).T, np.zeros(4, int), 3)
    assert told.bias == pytest.approx(2 / 4)
    assert told.unbiased_variance == pytest.approx(0.3 / 4)
    assert told.biased_variance == pytest.approx((0.4 + 0.2) / 4)
    assert told.error == pytest.approx((0 + 0.3 + 0.6 + 0.8) / 4)
    assert told.error == pytest.approx(told.bias + told.net_variance)


def test_deviations_are_those_of_a_mean_where_the_error_is_one() -> None:
    answers = (np.random.default_rng(0).random((30, 1)) < 0.3).astype(int)
    told = zero_one_terms(answers, np.zeros(1, int), 2)
    assert told.error_deviation == pytest.approx(answers.std(ddof=1) / np.sqrt(30))


def test_a_tree_is_all_variance_and_a_constant_is_all_bias() -> None:
    from sklearn.datasets import load_iris
    from sklearn.dummy import DummyClassifier
    from sklearn.tree import DecisionTreeClassifier

    inputs, targets = load_iris(return_X_y=True)
    data = Dataset(inputs[:, :2], targets, Classes(np.arange(3)))
    train, test = data.take(np.arange(0, 150, 2)), data.take(np.arange(1, 150, 2))

    def learner(kind: Any) -> Any:
        return lambda dataset, seed: kind(random_state=seed).fit(dataset.inputs, dataset.targets)

    tree = bias_variance(learner(DecisionTreeClassifier), train, test, rounds=30, key=KEY)
    constant = bias_variance(learner(DummyClassifier), train, test, rounds=30, size=2, key=KEY)  # may miss classes
    assert tree.squared is not None
    assert tree.zero_one is not None
    assert constant.zero_one is not None
    assert tree.zero_one.unbiased_variance > 0.05
    assert constant.zero_one.bias == pytest.approx(2 / 3)
    (finding,) = find_variance(constant)
    assert finding.evidence["dominates"] == "bias"
    assert len(constant.bias_each) == len(test)


def test_a_recipe_is_taken_apart_on_a_fixed_test_part() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(120, 2))
    data = Dataset(inputs, (inputs[:, 0] > 0).astype(int), Classes(np.array(["no", "yes"])))
    recipe = defaults.classification(model=Mlp(widths=(4,)), stopping=Off(epochs=3), split=HoldOut(test=0.3))
    told = recipe_variance(recipe, data, rounds=3, key=KEY)
    assert (told.rounds, told.rows, told.task) == (3, 36, "classes")
    assert told.squared is not None
    assert told.zero_one is not None
    assert told.squared.variance > 0  # the networks differ
    assert told.zero_one.error == pytest.approx(told.zero_one.bias + told.zero_one.net_variance)
    with pytest.raises(RequestError, match="need a test set"):
        recipe_variance(defaults.classification(split=HoldOut(test=0)), data, rounds=3, key=KEY)


@pytest.mark.parametrize(
    ("bias", "variance", "side"), [(1.0, 0.1, "bias"), (0.1, 1.0, "variance"), (0.5, 0.6, "neither")]
)
def test_findings_come_from_numbers_alone(bias: float, variance: float, side: str) -> None:
    none = np.zeros(0)
    squared = Squared(bias + variance, None, bias, variance, 0.1, 0.1, 0.1)
    (finding,) = find_variance(BiasVariance("numbers", 20, 100, 50, True, squared, None, none, none))
    assert (finding.code, finding.level, finding.evidence["dominates"]) == ("GW807", "note", side)
    voted = ZeroOne(bias + variance, bias, variance, 0.0, variance, 0.1, 0.1, 0.1)
    (finding,) = find_variance(BiasVariance("classes", 20, 100, 50, True, None, voted, none, none))
    assert finding.evidence["dominates"] == side


def test_impossible_requests_are_refused() -> None:
    data = Dataset(GRID, TRUTH[:, None], Numbers())
    with pytest.raises(RequestError, match="`rounds` must be at least 2"):
        bias_variance(lambda dataset, seed: None, data, data, rounds=1, key=KEY)
    with pytest.raises(RequestError, match="must return something with `predict`"):
        bias_variance(lambda dataset, seed: None, data, data, key=KEY)
