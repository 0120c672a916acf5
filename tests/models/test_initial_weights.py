"""Initial weights (row D8): their distributions, and what they do to signals on the way through five layers."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from gradwise.models.activations import AbstractActivation, HardTanh, Identity, Rectifier, Sigmoid, Softsign, Tanh
from gradwise.models.initial_weights import AbstractInitial, FanIn, GaussianWeights, Glorot, SparseWeights, ZeroWeights
from tests.marks import parametrize_one_quick

COMPILED_WELL = True  # see tests/conftest.py


@pytest.mark.slow
@pytest.mark.parametrize(
    ("initial", "expected"),
    [
        (Glorot(), stats.uniform(-np.sqrt(6 / 300) * 4, 2 * np.sqrt(6 / 300) * 4)),
        (Glorot(scale=0.5), stats.uniform(-np.sqrt(6 / 300) * 2, 2 * np.sqrt(6 / 300) * 2)),
        (FanIn(), stats.uniform(-4 / 10, 2 * 4 / 10)),
        (GaussianWeights(), stats.norm(scale=0.01)),
        (GaussianWeights(deviation=0.1), stats.norm(scale=0.1)),
    ],
    ids=["glorot", "glorot-half", "fan-in", "gaussian", "gaussian-0.1"],
)
def test_the_distribution(initial: AbstractInitial, expected) -> None:
    """200 units of 100 inputs and a sigmoid's gain of 4: the Gaussian of Boltzmann machines knows no gain."""
    weights = np.asarray(initial.draw(200, 100, 4.0, key=jr.key(0)))
    assert weights.shape == (200, 100)
    assert stats.kstest(weights.ravel(), expected.cdf).pvalue > 1e-3
    # Neighbouring units and inputs are independent.
    assert abs(np.corrcoef(weights[:-1].ravel(), weights[1:].ravel())[0, 1]) < 4 / np.sqrt(weights.size)
    assert abs(np.corrcoef(weights[:, :-1].ravel(), weights[:, 1:].ravel())[0, 1]) < 4 / np.sqrt(weights.size)


def test_sparse_units_hear_fifteen_inputs_each() -> None:
    """400 units of 100 inputs: exactly 15 normal weights each, all inputs heard alike, no unit like another."""
    weights = np.asarray(SparseWeights().draw(400, 100, 4.0, key=jr.key(0)))
    heard = weights != 0
    assert np.array_equal(heard.sum(1), np.full(400, 15))
    assert stats.kstest(weights[heard], stats.norm.cdf).pvalue > 1e-3  # of deviation 1, whatever the gain
    assert stats.chisquare(heard.sum(0)).pvalue > 1e-3
    assert len({tuple(row) for row in heard}) == 400
    np.testing.assert_allclose(SparseWeights(scale=0.1).draw(400, 100, 4.0, key=jr.key(0)), 0.1 * weights, rtol=1e-6)


@parametrize_one_quick("fan_in", [15, 7, 1])
def test_a_sparse_unit_with_few_inputs_hears_all(fan_in: int) -> None:
    assert np.all(np.asarray(SparseWeights(15).draw(5, fan_in, 1.0, key=jr.key(1))) != 0)


@pytest.mark.parametrize("fan_in", [3, 20])
def test_a_sparse_layer_is_the_same_in_a_larger_array(fan_in: int) -> None:
    """Places beyond its own inputs hold 0 and take no connection away, with a size known only at run time."""
    alone = np.asarray(SparseWeights(5).draw(4, fan_in, 1.0, key=jr.key(2)))

    @jax.jit
    def padded(units, inputs):
        return SparseWeights(5).draw(units, inputs, 1.0, key=jr.key(2), shape=(6, 32))

    wide = np.asarray(padded(4, fan_in))
    assert np.array_equal(wide[:4, :fan_in], alone)
    assert not wide[:, fan_in:].any()


def test_zeros() -> None:
    assert np.array_equal(ZeroWeights().draw(3, 4, 1.0, key=jr.key(0)), np.zeros((3, 4)))


@pytest.mark.parametrize(
    "initial", [FanIn(), GaussianWeights(), SparseWeights(3)], ids=["fan-in", "gaussian", "sparse"]
)
def test_more_units_leave_the_first_ones_as_they_were(initial: AbstractInitial) -> None:
    narrow, wide = (np.asarray(initial.draw(width, 6, 1.0, key=jr.key(3))) for width in (4, 9))
    assert np.array_equal(narrow, wide[:4])
    assert not np.array_equal(wide[:4], wide[4:8])


def test_under_glorot_more_units_change_the_scale_alone() -> None:
    narrow, wide = (np.asarray(Glorot().draw(width, 6, 1.0, key=jr.key(3))) for width in (4, 9))
    np.testing.assert_allclose(narrow * np.sqrt(4 + 6), wide[:4] * np.sqrt(9 + 6), rtol=1e-6)


WIDTH = 100


@jax.jit
def five_layers(initial: AbstractInitial):
    return jnp.stack([initial.draw(WIDTH, WIDTH, 1.0, key=jr.fold_in(jr.key(0), number)) for number in range(5)])


@functools.partial(jax.jit, static_argnames="activation")
def variances(activation: AbstractActivation, weights):
    """Variances of the activations a and of the gradients with respect to them, layer by layer."""

    def forward(x, shifts):
        seen = []
        for weight, shift in zip(weights, shifts, strict=True):
            seen.append(weight @ x + shift)
            x = activation(seen[-1])
        return x, jnp.stack(seen)

    x, back = jnp.asarray(np.random.default_rng(1).normal(size=(2, 200, WIDTH)), jnp.float32)
    still = jnp.zeros((5, WIDTH))
    activations = jax.vmap(lambda x: forward(x, still)[1])(x)
    gradients = jax.vmap(lambda x, c: jax.grad(lambda shifts: forward(x, shifts)[0] @ c)(still))(x, back)
    return activations.var((0, 2)), gradients.var((0, 2))


def faded(activation: AbstractActivation, initial: AbstractInitial, gain: float) -> np.ndarray:
    """By what factor activations fade from the first layer to the fifth, and gradients on the way back."""
    activations, gradients = variances(activation, gain * five_layers(initial))
    return np.asarray([activations[0] / activations[-1], gradients[-1] / gradients[0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "factor"),
    [(Identity(), 1.3), (Rectifier(), 2.0), (HardTanh(), 5.0), (Tanh(), 10.0), (Softsign(), 10.0)],
    ids=lambda value: type(value).__name__ if isinstance(value, AbstractActivation) else "",
)
def test_variances_are_kept_through_five_layers(activation: AbstractActivation, factor: float) -> None:
    """Within the stated factor both ways; the old 1/sqrt(fan_in) loses several times more."""
    kept = faded(activation, Glorot(), activation.gain())
    assert np.all(kept > 1 / factor), kept
    assert np.all(kept < factor), kept
    lost = faded(activation, FanIn(), activation.gain())
    assert np.all(lost > 3 * kept), lost


def test_a_sigmoid_keeps_activations_and_needs_its_gain_for_gradients() -> None:
    """Its outputs have mean 1/2, so deep gradients still fade (row D6 warns): by 100 with the gain, by 10^4 without."""
    activations, gradients = faded(Sigmoid(), Glorot(), Sigmoid().gain())
    assert 1 / 4 < activations < 4
    assert 10 < gradients < 100
    assert faded(Sigmoid(), Glorot(), 1.0)[1] > 1e4
