"""The kinds of visible units: sums over their states, and their draws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from gradwise.models.gaussian_visible import GaussianVisible, normal_of
from gradwise.models.visible_units import BinaryVisible, LabelledVisible, TruncatedExponentialVisible, bernoulli
from gradwise.runtime.errors import RequestError


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def test_log_normaliser_sums_or_integrates_over_visible_states(wide):
    rest = jnp.asarray([0.3, -1.2, 0.8])  # u
    bias = jnp.asarray([0.5, -0.4, 0.1])
    for kind in (BinaryVisible(), LabelledVisible(BinaryVisible(), 2)):
        states = jax.vmap(lambda number, kind=kind: kind.state(number, 3))(jnp.arange(kind.states(3)))
        terms = jax.vmap(lambda v, kind=kind: rest @ v - kind.energy(v, bias))(states)
        np.testing.assert_allclose(kind.log_normaliser(bias + rest, bias), logsumexp(np.asarray(terms)), rtol=1e-12)
    line = np.linspace(-12.0, 12.0, 4001)  # a sum over a fine line is as good as exact for normal densities
    exact = sum(
        logsumexp(u * line - 0.5 * (line - b) ** 2) + np.log(line[1] - line[0]) for u, b in zip(rest, bias, strict=True)
    )
    np.testing.assert_allclose(GaussianVisible().log_normaliser(bias + rest, bias), exact, rtol=1e-12)


def test_units_in_an_interval_have_the_integral_mean_and_draws_of_their_density(wide):
    kind = TruncatedExponentialVisible()
    slopes = np.array([-400.0, -30.0, -1.0, -0.011, -0.009, 0.0, 1e-6, 0.009, 0.011, 2.0, 50.0, 400.0])
    for slope in slopes:
        exact = integrate.quad(
            lambda v, slope=slope: np.exp(slope * v - max(slope, 0.0)), 0.0, 1.0, points=[0.02, 0.98]
        )[0]
        first = integrate.quad(
            lambda v, slope=slope: v * np.exp(slope * v - max(slope, 0.0)), 0.0, 1.0, points=[0.02, 0.98]
        )[0]
        found = kind.log_normaliser(jnp.asarray([slope]), jnp.asarray([0.0]))
        np.testing.assert_allclose(found, np.log(exact) + max(slope, 0.0), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(kind.mean(jnp.asarray([slope])), first / exact, rtol=1e-8)
    total = jax.grad(lambda a: kind.log_normaliser(a, a))(jnp.asarray(slopes))  # its slope is the mean, everywhere
    np.testing.assert_allclose(total, kind.mean(jnp.asarray(slopes)), rtol=1e-6)
    for slope in (-6.0, 0.0, 0.5, 30.0):
        drawn = np.ravel(kind.draw(jnp.full((100, 100), slope), key=jr.key(3)))
        assert 0.0 <= drawn.min() <= drawn.max() <= 1.0
        law = stats.uniform.cdf if slope == 0.0 else lambda v, slope=slope: np.expm1(slope * v) / np.expm1(slope)
        assert stats.kstest(drawn, law).pvalue > 0.01


def test_draws_have_the_stated_distributions():
    chances = jnp.tile(jnp.asarray([0.0, 0.03, 0.5, 1.0]), (20_000, 1))
    means = bernoulli(chances, jr.key(0)).mean(0)
    np.testing.assert_allclose(means, chances[0], atol=4 * 0.5 / np.sqrt(20_000))
    assert means[0] == 0.0
    assert means[3] == 1.0
    normal = GaussianVisible().draw(jnp.full((100, 200), 2.0), key=jr.key(1))
    assert stats.kstest(np.ravel(normal) - 2.0, "norm").pvalue > 0.01
    odds = jnp.tile(jnp.asarray([0.3, 1.0, -2.0]), (20_000, 1))
    classes = LabelledVisible(classes=3).draw_label(odds, key=jr.key(2))
    counted = np.bincount(classes, minlength=3)
    expected = np.exp(np.asarray(odds[0], float))
    assert stats.chisquare(counted, 20_000 * expected / expected.sum()).pvalue > 0.01


def test_biases_give_the_means_back():
    mean = jnp.asarray([0.2, 0.9, 0.1, 0.6, 0.3])
    kinds = (BinaryVisible(), GaussianVisible(), TruncatedExponentialVisible(), LabelledVisible(BinaryVisible(), 3))
    for kind in kinds:
        np.testing.assert_allclose(kind.mean(kind.bias(mean)), mean, rtol=1e-5)


def test_states_of_real_units_are_not_counted():
    assert TruncatedExponentialVisible().states(3) is None
    with pytest.raises(RequestError, match="enumerate the hidden units"):
        TruncatedExponentialVisible().state(jnp.asarray(0), 3)
    assert GaussianVisible().states(3) is None
    assert LabelledVisible(GaussianVisible(), 3).states(5) is None
    assert LabelledVisible(BinaryVisible(), 3).states(5) == 12
    with pytest.raises(RequestError, match="enumerate the hidden units"):
        GaussianVisible().state(jnp.asarray(0), 3)


def test_normal_numbers_are_finite_at_both_ends_and_normal_between() -> None:
    steps = np.array([0.0, 2.0**-24, 0.25, 0.5, 0.9, 1.0 - 2.0**-24], np.float32)
    drawn = np.asarray(normal_of(jnp.asarray(steps)))
    assert np.isfinite(drawn).all()
    np.testing.assert_allclose(drawn[1:-1], stats.norm.ppf(steps[1:-1].astype(float)), rtol=2e-5, atol=1e-6)
    assert drawn[0] < -5.0
    assert drawn[-1] > 5.0
