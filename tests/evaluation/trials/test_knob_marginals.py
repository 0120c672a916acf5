"""One- and two-knob pictures against sums done by hand."""

import math
from typing import Any

import numpy as np
import pytest

from gradwise.evaluation.trials.knob_marginals import axis_of, marginal, pair, parallel_coordinates, places_of
from gradwise.models.activations import Rectifier, Tanh
from gradwise.runtime.errors import RequestError
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Dimension, Space

RATE = Dimension("rate", LogUniform(1e-4, 1.0))
DECAY = Dimension("decay", ZeroOr(LogUniform(1e-6, 1e-2)))
DEPTH = Dimension("depth", LogInteger(1, 3))
ACTIVATION = Dimension("activation", Choice((Tanh(), Rectifier())))
SPACE = Space(None, (RATE, DECAY, DEPTH, ACTIVATION))


def _trial(number: int, score: float, **values: Any) -> Any:
    from gradwise.records.trial import Trial

    outcome = "finished" if math.isfinite(score) else "diverged"
    return Trial(number, None, values, outcome, score)  # type: ignore[arg-type]


def test_a_rate_is_laid_out_in_its_logarithm() -> None:
    axis = axis_of(RATE, cells=4)
    np.testing.assert_allclose(places_of(RATE, [1e-4, 1e-3, 1e-2, 1.0, 50.0], axis), [0, 0.25, 0.5, 1, 1], atol=1e-12)
    assert axis.labels[0] == "0.0001–0.001"
    assert dict(zip(axis.tick_labels, np.round(axis.ticks, 6), strict=True))["0.01"] == 0.5
    assert axis.numeric
    assert axis.logarithmic


def test_an_exact_zero_has_a_cell_of_its_own() -> None:
    axis = axis_of(DECAY, cells=4)
    assert axis.zero
    assert axis.labels[0] == "0"
    np.testing.assert_allclose(places_of(DECAY, [0.0, 1e-6, 1e-2], axis), [0.1, 0.2, 1.0], atol=1e-12)
    assert axis.tick_labels[0] == "0"


def test_few_whole_numbers_and_categories_are_cells() -> None:
    assert axis_of(DEPTH).labels == ("1", "2", "3")
    axis = axis_of(ACTIVATION, ["Tanh()", "Softsign()"])
    assert axis.labels == ("Tanh()", "Rectifier()", "Softsign()")  # one that the prior does not have comes last
    np.testing.assert_allclose(places_of(ACTIVATION, [Tanh(), "Softsign()"], axis), [1 / 6, 5 / 6])
    sizes = Dimension("batches.size", Choice((16, 64, 256)))
    np.testing.assert_allclose(places_of(sizes, [64.0, np.int64(16)], axis_of(sizes)), [0.5, 1 / 6])


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert axis_of(Dimension("a", Uniform(0.13, 0.98))).tick_labels == ("0.2", "0.4", "0.6", "0.8")
    assert axis_of(Dimension("a", LogUniform(0.03, 0.08))).tick_labels == ("0.05",)
    assert axis_of(Dimension("a", LogInteger(18, 1024))).tick_labels == ("100", "1000")
    assert len(axis_of(Dimension("a", LogUniform(1e-20, 1.0))).ticks) <= 6


def test_a_marginal_is_the_mean_and_the_minimum_of_its_cell() -> None:
    trials = [
        _trial(0, 0.5, rate=2e-4),
        _trial(1, 0.3, rate=5e-4),
        _trial(2, 0.1, rate=2e-2),
        _trial(3, math.nan, rate=0.5),
        _trial(4, math.nan, rate=0.02),
        _trial(5, 0.2),  # not active
    ]
    found = marginal(SPACE, trials, "rate", cells=4)
    np.testing.assert_allclose(found.mean, [0.4, np.nan, 0.1, np.nan])
    np.testing.assert_allclose(found.minimum, [0.3, np.nan, 0.1, np.nan])
    assert found.count.tolist() == [2, 0, 1, 0]
    assert found.failed.tolist() == [0, 0, 1, 1]
    assert found.numbers.tolist() == [0, 1, 2, 3, 4]
    assert found.values[2] == 2e-2
    with pytest.raises(RequestError, match="Did you mean 'rate'"):
        marginal(SPACE, trials, "rat")


def test_a_pair_is_a_table_of_cells() -> None:
    draw = np.random.default_rng(0)
    trials = [
        _trial(n, float(draw.random()), rate=RATE.at(draw.random()), depth=int(draw.integers(1, 4))) for n in range(200)
    ]
    found = pair(SPACE, trials, "rate", "depth", cells=4)
    assert found.mean.shape == found.minimum.shape == (4, 3)
    for i in range(4):
        low, high = 1e-4 * 10**i, 1e-3 * 10**i
        for j in range(3):
            inside = [t.score for t in trials if low <= t.values["rate"] < high and t.values["depth"] == j + 1]
            assert found.count[i, j] == len(inside)
            assert found.mean[i, j] == pytest.approx(np.mean(inside))
            assert found.minimum[i, j] == min(inside)
    np.testing.assert_allclose(found.places[:, 1], [(t.values["depth"] - 0.5) / 3 for t in trials])


def test_parallel_coordinates_hold_ranks_and_leave_out_what_is_not_active() -> None:
    trials = [
        _trial(7, 0.2, rate=1e-2, activation="Rectifier()"),
        _trial(8, 0.1, rate=1.0, decay=0.0, depth=3, activation="Tanh()"),
        _trial(9, math.nan, rate=1e-4),
        _trial(10, 0.2, rate=1e-4),
    ]
    found = parallel_coordinates(SPACE, trials)
    assert [axis.path for axis in found.axes] == ["rate", "decay", "depth", "activation"]
    np.testing.assert_allclose(found.places[0], [0.5, np.nan, np.nan, 0.75], atol=1e-12)
    np.testing.assert_allclose(found.ranks, [0.75, 0.0, np.nan, 0.75])
    assert found.numbers.tolist() == [7, 8, 9, 10]


def test_no_trials_make_an_empty_picture() -> None:
    assert np.isnan(marginal(SPACE, [], "rate").mean).all()
    assert pair(SPACE, [], "rate", "activation").count.sum() == 0
    assert parallel_coordinates(SPACE, []).places.shape == (0, 4)
