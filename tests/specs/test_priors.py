"""Priors as inverse distribution functions: monotone, within their ends, with the right shares."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gradwise.runtime.errors import RequestError
from gradwise.specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr

fractions = st.floats(0.0, 1.0, exclude_max=True)


def _ordered(low: float, high: float) -> st.SearchStrategy[tuple[float, float]]:
    ends = st.floats(low, high, allow_subnormal=False)
    return st.tuples(ends, ends).filter(lambda pair: pair[0] < pair[1])


numeric = st.one_of(
    _ordered(-1e6, 1e6).map(lambda ends: Uniform(*ends)),
    _ordered(1e-12, 1e12).map(lambda ends: LogUniform(*ends)),
    st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)).map(lambda pair: LogInteger(pair[0], sum(pair))),
)


@given(numeric, fractions)
def test_a_prior_supports_what_it_draws_and_nothing_beyond_its_ends(prior: Uniform, fraction: float) -> None:
    assert prior.supports(prior.quantile(fraction))
    assert prior.supports(prior.low)
    assert prior.supports(prior.high)
    assert not prior.supports(prior.low - 1.0)
    assert not prior.supports(prior.high + abs(prior.high) + 1.0)
    either = ZeroOr(prior)
    assert either.supports(0.0)
    assert either.supports(prior.quantile(fraction))


def test_a_choice_supports_its_values() -> None:
    prior = Choice(("tanh", (64, 64), 2))
    assert all(prior.supports(value) for value in ("tanh", (64, 64), 2))
    assert not prior.supports(3)


@given(numeric, fractions, fractions)
def test_quantiles_rise_and_stay_within_the_ends(prior: Any, first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert prior.low <= prior.quantile(low) <= prior.quantile(high) <= prior.high


@given(numeric)
def test_the_lowest_quantile_is_the_low_end(prior: Any) -> None:
    assert prior.quantile(0.0) == pytest.approx(prior.low, rel=1e-12)
    assert prior.quantile(math.nextafter(1.0, 0.0)) == pytest.approx(prior.high, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("prior", "oracle"),
    [
        (Uniform(-2.0, 3.0), stats.uniform(-2.0, 5.0)),
        (LogUniform(1e-6, 1.0), stats.loguniform(1e-6, 1.0)),
    ],
)
def test_quantiles_equal_scipys(prior: AbstractPrior, oracle: Any) -> None:
    for fraction in np.linspace(0.01, 0.99, 25):
        assert prior.quantile(float(fraction)) == pytest.approx(oracle.ppf(fraction), rel=1e-12)


def test_log_integer_gives_every_whole_number_its_logarithmic_share() -> None:
    drawn = [LogInteger(1, 4).quantile(f) for f in (np.arange(100_000) + 0.5) / 100_000]
    assert {type(value) for value in drawn} == {int}
    shares = [drawn.count(value) / len(drawn) for value in (1, 2, 3, 4)]
    expected = [math.log((value + 1) / value) / math.log(5) for value in (1, 2, 3, 4)]
    np.testing.assert_allclose(shares, expected, atol=1e-4)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=5).filter(any))
def test_choice_gives_each_value_its_weight(weights: list[float]) -> None:
    prior = Choice(tuple(range(len(weights))), tuple(weights))
    drawn = np.array([prior.quantile(f) for f in (np.arange(2000) + 0.5) / 2000])
    shares = np.bincount(drawn, minlength=len(weights)) / 2000
    np.testing.assert_allclose(shares, np.array(weights) / sum(weights), atol=2e-3)
    assert prior.quantile(0.0) == weights.index(next(weight for weight in weights if weight > 0))


def test_choice_without_weights_is_even_and_keeps_its_values_as_they_are() -> None:
    prior = Choice(("a", (1, 2), None, True))
    assert [prior.quantile(f) for f in (0.0, 0.25, 0.5, 0.75)] == ["a", (1, 2), None, True]


def test_zero_or_is_off_with_its_probability_and_otherwise_the_other() -> None:
    prior = ZeroOr(LogUniform(1e-4, 1.0), zero=0.25)
    drawn = np.array([prior.quantile(f) for f in np.arange(1000) / 1000])
    assert (drawn == 0.0).mean() == 0.25
    assert np.median(drawn[drawn > 0]) == pytest.approx(1e-2, rel=0.02)
    assert drawn[250] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(1.0, 1.0),
        lambda: Uniform(2.0, 1.0),
        lambda: LogUniform(0.0, 1.0),
        lambda: LogUniform(-1.0, 1.0),
        lambda: LogInteger(0, 5),
        lambda: Choice(()),
        lambda: Choice((1, 2), (1.0,)),
        lambda: Choice((1, 2), (1.0, -1.0)),
        lambda: Choice((1, 2), (0.0, 0.0)),
        lambda: ZeroOr(Uniform(0.0, 1.0), zero=1.0),
        lambda: ZeroOr(Uniform(0.0, 1.0), zero=-0.1),
    ],
)
def test_a_prior_that_cannot_be_is_refused_in_one_line(make: Any) -> None:
    with pytest.raises(RequestError) as caught:
        make()
    assert "\n" not in str(caught.value)
