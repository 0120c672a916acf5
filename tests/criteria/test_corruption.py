"""How inputs are spoilt (row A5): the right share, the right values, and nothing but the key decides."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from gradwise.criteria.corruption import AbstractCorruption, Clean, GaussianNoise, Masking, SaltAndPepper
from gradwise.testing.contracts import check_part

INPUTS = jnp.asarray(np.random.default_rng(0).uniform(0.2, 0.8, (400, 50)), jnp.float32)
ALL = [Clean(), Masking(0.3), GaussianNoise(0.4), SaltAndPepper(0.2)]


@pytest.mark.parametrize("corruption", ALL, ids=lambda part: type(part).__name__)
def test_nothing_but_the_key_decides(corruption: AbstractCorruption) -> None:
    """The same noise whatever the inputs are; another for another key; inputs not touched are as they were."""
    check_part(corruption)
    spoilt, touched = corruption(INPUTS, key=jr.key(1))
    other, touched_other = corruption(INPUTS + 5.0, key=jr.key(1))
    np.testing.assert_array_equal(touched, touched_other)
    if isinstance(corruption, GaussianNoise):
        np.testing.assert_allclose(other - (INPUTS + 5.0), spoilt - INPUTS, atol=2e-6)
    else:
        np.testing.assert_array_equal(other[touched], spoilt[touched])
    np.testing.assert_array_equal(spoilt[~touched], INPUTS[~touched])
    again = jax.jit(lambda key: corruption(INPUTS, key=key)[0])
    np.testing.assert_allclose(again(jr.key(1)), spoilt, atol=1e-6)
    if not isinstance(corruption, Clean):
        assert float(jnp.mean(again(jr.key(2)) == spoilt)) < 0.8


@pytest.mark.parametrize("level", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("kind", [Masking, SaltAndPepper])
def test_the_share_of_touched_inputs(kind: type, level: float) -> None:
    """20 000 coins: the binomial test, and neither rows nor columns nor neighbours hang together."""
    spoilt, touched = map(np.asarray, kind(level)(INPUTS, key=jr.key(3)))
    assert stats.binomtest(int(touched.sum()), touched.size, level).pvalue > 1e-3
    for axis in (0, 1):
        spread = touched.mean(axis).var() * touched.shape[axis] / (level * (1 - level))
        assert spread == pytest.approx(1.0, abs=0.75 if axis == 0 else 0.3)
    assert abs(np.corrcoef(touched[:, 1:].ravel(), touched[:, :-1].ravel())[0, 1]) < 0.03
    if kind is Masking:
        assert set(np.unique(spoilt[touched])) == {0.0}
    else:
        assert set(np.unique(spoilt[touched])) == {0.0, 1.0}
        ones = int(spoilt[touched].sum())
        assert stats.binomtest(ones, int(touched.sum()), 0.5).pvalue > 1e-3


def test_gaussian_noise_is_normal() -> None:
    spoilt, touched = GaussianNoise(0.3)(INPUTS, key=jr.key(4))
    noise = np.asarray(spoilt - INPUTS).ravel()
    assert bool(touched.all())
    assert stats.kstest(noise[:5000], stats.norm(scale=0.3).cdf).pvalue > 1e-3
    assert noise.std() == pytest.approx(0.3, rel=0.02)


def test_a_level_of_nothing_changes_nothing() -> None:
    for corruption in (Clean(), Masking(0.0), SaltAndPepper(0.0), GaussianNoise(0.0)):
        np.testing.assert_array_equal(corruption(INPUTS, key=jr.key(5))[0], INPUTS)
