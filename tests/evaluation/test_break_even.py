"""Times to a target, and where two methods take the same one."""

import math

import numpy as np
import pytest

from gradwise.evaluation.break_even import break_even_size, overtaking, time_to
from gradwise.runtime.errors import RequestError


def test_the_time_to_a_target_lies_on_the_line_between_two_points() -> None:
    assert time_to([0.0, 1.0, 3.0], [1.0, 0.6, 0.2], 0.4) == pytest.approx(2.0)
    assert time_to([0.0, 1.0], [0.3, 0.2], 0.3) == 0.0
    assert time_to([0.0, 1.0], [0.3, 0.2], 0.1) == math.inf
    assert time_to([0.0, 1.0, 2.0], [math.inf, 0.1, 0.0], 0.1) == 1.0
    with pytest.raises(RequestError, match="one time per error; got 2 and 1"):
        time_to([0.0, 1.0], [1.0], 0.5)


def test_power_laws_cross_where_they_are_equal() -> None:
    """n^0.3 against n / 1000: equal at n = 1000^(1/0.7)."""
    sizes = np.geomspace(100, 1e6, 9)
    found = break_even_size(sizes, sizes**0.3, sizes / 1000)
    assert found.examples == pytest.approx(1000 ** (1 / 0.7), rel=1e-9)
    assert (found.below, found.above) == ("batch", "stochastic")
    assert str(found) == "batch is faster below about 19,307 examples, stochastic above"


def test_one_that_never_arrives_loses_and_one_that_always_wins_is_named() -> None:
    found = break_even_size([1, 10, 100], [1.0, 1.0, 1.0], [0.5, 2.0, math.inf], names=("a", "b"))
    assert 1 < found.examples < 10
    assert found.above == "a"
    always = break_even_size([1, 10], [1.0, 1.0], [2.0, 3.0], names=("a", "b"))
    assert math.isnan(always.examples)
    assert str(always) == "a is faster at every size that was tried"


def test_nonsense_is_refused() -> None:
    with pytest.raises(RequestError, match="neither method reached the target"):
        break_even_size([1, 2], [math.inf] * 2, [math.inf] * 2)
    with pytest.raises(RequestError, match="must increase"):
        break_even_size([2, 1], [1, 1], [2, 2])
    with pytest.raises(RequestError, match="each number of examples"):
        break_even_size([1, 2], [1], [2, 2])


def test_curves_that_cross_once_cross_where_they_are_equal() -> None:
    """exp(-t) against 2 exp(-2t): equal at t = ln 2."""
    first, second = np.linspace(0, 3, 4001), np.linspace(0, 2.5, 3001)
    at, until = overtaking((first, np.exp(-first)), (second, 2 * np.exp(-2 * second)))
    assert at == pytest.approx(math.log(2), abs=1e-5)
    assert until == 2.5


def test_only_the_last_overtaking_counts_and_by_the_best_so_far() -> None:
    flat = ([0.0, 10.0], [1.0, 1.0])
    assert overtaking(([0.0, 4.0, 6.0, 10.0], [1.0, 1.0, 0.0, 9.0]), ([0.0, 2.0, 8.0], [2.0, 0.5, 0.0])) == (
        math.inf,
        8.0,
    )
    assert overtaking(flat, ([0.0, 4.0, 8.0, 10.0], [2.0, 0.0, 3.0, 3.0])) == (2.0, 10.0)
    assert overtaking(flat, ([0.0, 10.0], [1.0, 0.0])) == (0.0, 10.0)
    assert overtaking(flat, ([0.0, 10.0], [2.0, 1.0])) == (math.inf, 10.0)
    assert overtaking(flat, ([0.0, 3.0, 10.0], [math.nan, 0.5, 0.5])) == (3.0, 10.0)


def test_a_method_that_has_come_to_its_end_stays_where_it_is() -> None:
    slow, stuck = ([0.0, 20.0], [1.0, 0.0]), ([0.0, 1.0], [1.0, 0.5])
    assert overtaking(stuck, slow) == (math.inf, 1.0)
    assert overtaking(stuck, slow, stays=(True, False)) == (10.0, 20.0)
    assert overtaking(slow, stuck, stays=(False, True)) == (math.inf, 20.0)
    assert overtaking(stuck, ([0.0, 3.0], [1.0, 0.2]), stays=(True, True))[1] == 3.0


def test_lines_that_are_none_are_refused() -> None:
    line = ([0.0, 1.0], [1.0, 0.0])
    for bad in (([], []), ([0.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 2.0])):
        with pytest.raises(RequestError, match="a line needs at least one point"):
            overtaking(line, bad)
