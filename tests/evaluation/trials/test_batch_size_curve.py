"""The batch size with the least time to a common score, on curves whose answer is known."""

import math

import numpy as np
import pytest

from gradwise.evaluation.trials.batch_size_curve import BatchCurve, best_batch_size


def _curve(size: int, pace: float, floor: float) -> BatchCurve:
    """An exponential fall to a floor: `pace` seconds for each 1 000 examples, slower in examples as batches grow."""
    examples = np.arange(1, 41) * 1000.0
    scores = floor + 0.5 * np.exp(-examples / (2000.0 * math.sqrt(size)))
    return BatchCurve(size, pace * examples / 1000, examples, scores)


def test_the_u_curve_has_its_sweet_spot_where_time_to_the_target_is_least() -> None:
    curves = [_curve(256, 0.1, 0.1), _curve(1, 2.0, 0.1), _curve(16, 0.2, 0.1)]
    found = best_batch_size(curves, target=0.2)
    assert found.sizes.tolist() == [1, 16, 256]
    assert found.recommended == 16
    exact = 2000 * math.log(5) * np.array([1.0, 4.0, 16.0])  # examples until floor + 0.1
    assert found.reached.tolist() == [True, True, False]
    np.testing.assert_allclose(found.examples[:2], exact[:2], rtol=0.02)
    np.testing.assert_allclose(found.seconds[:2], exact[:2] / 1000 * [2.0, 0.2], rtol=0.02)
    assert found.examples[2] == 40_000  # censored: all that was spent
    assert found.best[2] > 0.2


def test_without_a_target_half_of_the_sizes_reach_it() -> None:
    found = best_batch_size([_curve(1, 1.0, 0.3), _curve(4, 1.0, 0.1), _curve(16, 1.0, 0.2)])
    assert found.target == pytest.approx(0.2, abs=0.01)
    assert found.reached.tolist() == [False, True, True]
    assert found.recommended == 4
    none = best_batch_size([_curve(1, 1.0, 0.3), _curve(4, 1.0, 0.1)], target=0.01)
    assert not none.reached.any()
    assert none.recommended == 4


def test_noisy_curves_are_read_by_their_running_minimum() -> None:
    curve = BatchCurve(8, np.arange(5.0), np.arange(5.0) * 100, np.array([np.nan, 0.5, 0.3, 0.9, 0.1]))
    found = best_batch_size([curve], target=0.4)
    assert (found.seconds[0], found.examples[0]) == (1.5, 150.0)
    assert best_batch_size([curve], target=0.2).seconds[0] == 3.5
