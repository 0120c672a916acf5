"""The quick learners against scikit-learn and closed forms; what they find, and what they leave alone."""

from typing import Any

import numpy as np
import pytest

from gradwise.checking.data.predictability import (
    Signal,
    agreement,
    as_part,
    find_signal,
    measure_signal,
    nearest_rows,
    ridge,
    standardised,
)


def _signal(inputs: Any, targets: Any, task: str, seed: int = 0) -> Signal:
    part = as_part("training", (inputs, targets), task=task)
    assert part is not None
    told = measure_signal(part, task, np.random.default_rng(seed))
    assert told is not None
    return told


def test_learners_agree_with_scikit_learn() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import NearestNeighbors

    random = np.random.default_rng(0)
    base, queries = random.normal(size=(200, 5)), random.normal(size=(40, 5))
    expected = NearestNeighbors(n_neighbors=7).fit(base).kneighbors(queries, return_distance=False)
    np.testing.assert_array_equal(nearest_rows(queries, base, 7), expected)
    own = NearestNeighbors(n_neighbors=3).fit(base).kneighbors(return_distance=False)
    np.testing.assert_array_equal(nearest_rows(base, base, 3, same=True), own)
    inputs, targets = standardised(base), random.normal(size=(200, 2))
    fitted = Ridge(alpha=0.05 * 200).fit(inputs, targets)
    np.testing.assert_allclose(ridge(inputs, targets, queries), fitted.predict(queries), atol=1e-9)


def test_standardising_leaves_out_what_is_missing_or_constant() -> None:
    values = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, np.nan], [np.nan, 5.0, 4.0]])
    np.testing.assert_allclose(standardised(values), [[-1, 0, -1], [1, 0, 0], [0, 0, 1]])


def test_agreement_with_permuted_targets_is_standard_normal() -> None:
    random = np.random.default_rng(0)
    told = [agreement(random.normal(size=(50, 1)), random.normal(size=(50, 1)), random)[1] for _ in range(200)]
    assert np.mean(told) == pytest.approx(0.0, abs=0.25)
    assert np.std(told) == pytest.approx(1.0, abs=0.25)
    line = np.arange(50.0)[:, None]
    assert agreement(line, 3 * line + 2, random)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_at_chance_and_an_interaction_is_not(seed: int) -> None:
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(1200, 6))
    noise = _signal(inputs, random.integers(0, 3, 1200), "classes", seed)
    assert [(finding.code, finding.level) for finding in find_signal(noise)] == [("GW210", "warning")]
    told = _signal(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), "classes", seed)  # nothing linear in it
    assert find_signal(told) == ()


def test_rows_that_follow_in_time_are_not_taken_for_targets_out_of_step() -> None:
    random = np.random.default_rng(0)
    series = random.normal(size=1002)
    for row in range(1, len(series)):
        series[row] += 0.6 * series[row - 1]
    seen = np.stack([series[1:-1] + 0.05 * random.normal(size=1000), series[:-2]], 1)
    told = _signal(seen, series[2:], "numbers")
    assert told.strengths[-1] > 0.9 > told.strengths[0]  # this row tells of the last target better than of its own
    assert told.serial == pytest.approx(0.6, abs=0.1)
    assert find_signal(told) == ()


def test_few_rows_and_targets_of_many_parts_are_left_alone() -> None:
    random = np.random.default_rng(0)
    assert find_signal(_signal(random.normal(size=(90, 3)), random.integers(0, 2, 90), "classes")) == ()
    part = as_part("training", (np.zeros((300, 2)), np.zeros((300, 40))), task="numbers")
    assert part is not None
    assert measure_signal(part, "numbers", random) is None


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Signal(500, {0: 0.5}, {0: 20.0}), []),
        (Signal(500, {0: 0.02, 1: 0.9}, {0: 0.5, 1: 30.0}), [("GW210", "error")]),
        (Signal(500, {0: 0.02, -1: 0.9}, {0: 0.5, -1: 30.0}, (-1,)), [("GW210", "warning")]),  # a forecast of noise
        (Signal(500, {0: 0.02, -1: 0.9}, {0: 0.5, -1: 30.0}, (), 0.8), [("GW210", "warning")]),  # a series
        (Signal(500, {0: 0.8, 1: 0.9}, {0: 20.0, 1: 30.0}), []),
        (Signal(500, {}, {}, (), 0.0, 0.05, 0.0, 0.5), [("GW206", "note")]),
        (Signal(500, {}, {}, (), 0.0, 0.0, 0.2, 0.5), []),  # neighbours know nothing here
    ],
)
def test_findings_come_from_numbers_alone(signal: Signal, expected: list[tuple[str, str]]) -> None:
    assert [(finding.code, finding.level) for finding in find_signal(signal)] == expected
