"""The curve of errors against examples: power laws are found again, digits learn as the chapter says."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.checking.learning.learning_curve import (
    ErrorsBySize,
    counts_of,
    errors_by_size,
    recipe_growth,
    subject_growth,
)
from gradwise.checking.learning.learning_curve_findings import find_growth
from gradwise.checking.subject import Subject
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.specs.dataset import Classes, Dataset

COUNTS = (100, 200, 400, 800, 1600, 3200)


def _valid(count: int) -> float:
    return 0.05 + 3.0 * count**-0.6


def _codes(growth: ErrorsBySize | None) -> list[str]:
    return [finding.code for finding in find_growth(growth)]


def test_a_power_law_is_found_again_and_extrapolated() -> None:
    valid = np.array([[_valid(count)] for count in COUNTS])
    growth = errors_by_size(COUNTS, 0 * valid, valid, metric="error")
    assert growth.law == pytest.approx((0.05, 3.0, 0.6), rel=0.02)
    assert growth.predicted == pytest.approx(_valid(6400), rel=1e-3)
    assert growth.gain == pytest.approx(_valid(6400) - _valid(3200), rel=1e-2)
    assert growth.evidence().gain == growth.gain
    several = valid + 0.01 * np.random.default_rng(0).normal(size=(len(COUNTS), 4))
    noisy = errors_by_size(COUNTS, 0 * several, several, metric="error")
    assert noisy.interval[0] < _valid(6400) < noisy.interval[1]
    assert noisy.interval[1] - noisy.interval[0] < 0.08


def test_counts_rise_and_none_is_too_small() -> None:
    assert counts_of(1200, (1 / 32, 1 / 16, 1)) == [38, 75, 1200]
    assert counts_of(40, (1 / 32, 1 / 16, 1)) == [8, 40]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))
    return (inputs[order] / 8 - 1).astype(np.float32), targets[order]


def _loss(parameters: dict[str, jax.Array], batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(batch[0] @ parameters["weight"], batch[1]).mean()


def _linear(inputs: np.ndarray, targets: np.ndarray) -> Subject:
    parts = [(inputs[:800], targets[:800]), (inputs[800:1300], targets[800:1300])]
    batch = (inputs[:64], targets[:64])
    start = {"weight": jnp.zeros((64, 10))}
    return Subject.of(
        _loss,
        start,
        batch,
        apply=lambda p, x: x @ p["weight"],
        train=parts[0],
        valid=parts[1],
        optimiser=optax.sgd(0.1),
    )


def test_a_users_own_problem_grows_as_the_chapter_says_and_random_labels_do_not(
    digits: tuple[np.ndarray, np.ndarray],
) -> None:
    inputs, targets = digits
    growth = subject_growth(_linear(inputs, targets), updates=100, key=jax.random.key(0))
    assert growth is not None
    assert growth.metric == "error_rate"
    assert growth.counts.tolist() == [25, 50, 100, 200, 400, 800]
    assert growth.train[0, 0] == 0
    assert growth.valid[-1, 0] < 0.12 < 0.2 < growth.valid[0, 0]
    assert find_growth(growth) == ()
    shuffled = np.random.default_rng(1).permutation(targets)
    random = subject_growth(_linear(inputs, shuffled), updates=100, key=jax.random.key(0))
    assert _codes(random) == ["GW403"]


@pytest.mark.slow
def test_a_recipe_grows_in_one_program(digits: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, targets = digits
    dataset = Dataset(inputs, targets, Classes(np.arange(10)))
    recipe = defaults.classification(model=Mlp(widths=(16,), dropout=0.0), optimiser=Sgd(learning_rate=0.2))
    growth = recipe_growth(recipe, dataset, fractions=(1 / 32, 1 / 8, 1 / 2, 1), key=jax.random.key(0), budget=400)
    assert growth.metric == "error_rate"
    assert np.all(np.diff(growth.valid[:, 0]) < 0)
    assert growth.valid[-1, 0] < 0.1 < growth.valid[0, 0]
    assert growth.train[0, 0] == 0
    assert find_growth(growth) == ()
    assert growth.predicted <= growth.valid[-1, 0] + 0.01
