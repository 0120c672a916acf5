"""Non-linearities (row D6) against NumPy, with their slopes, and finite far from 0."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf, expit

from gradwise.models.activations import (
    AbstractActivation,
    Gelu,
    HardTanh,
    Identity,
    Mish,
    Parametric,
    ParametricUnits,
    Rectifier,
    Selu,
    Sigmoid,
    Softsign,
    Tanh,
)
from gradwise.specs.paths import named_leaves, trainable

A = np.linspace(-4.0, 4.0, 33)[np.abs(np.linspace(-4.0, 4.0, 33)) != 1.0]  # the corners of hard tanh left out
# Klambauer et al. 2017, Misra 2019, Hendrycks and Gimpel 2016, each with its derivative.
LAMBDA, ALPHA = 1.0507009873554805, 1.6732632423543772
SOFT = np.log1p(np.exp(A))
NORMAL = 0.5 * (1 + erf(A / np.sqrt(2)))

CASES = [
    (Tanh(), np.tanh(A), 1 - np.tanh(A) ** 2),
    (Sigmoid(), expit(A), expit(A) * expit(-A)),
    (Rectifier(), np.maximum(A, 0), (A > 0).astype(float)),
    (HardTanh(), np.clip(A, -1, 1), (np.abs(A) < 1).astype(float)),
    (Softsign(), A / (1 + np.abs(A)), (1 + np.abs(A)) ** -2.0),
    (Identity(), A, np.ones_like(A)),
    (
        Selu(),
        LAMBDA * np.where(A > 0, A, ALPHA * np.expm1(A)),
        LAMBDA * np.where(A > 0, 1.0, ALPHA * np.exp(A)),
    ),
    (Mish(), A * np.tanh(SOFT), np.tanh(SOFT) + A * expit(A) / np.cosh(SOFT) ** 2),
    (Gelu(), A * NORMAL, NORMAL + A * np.exp(-(A**2) / 2) / np.sqrt(2 * np.pi)),
    (Parametric(), LAMBDA * np.where(A > 0, A, ALPHA * np.expm1(A)), None),
]


@pytest.mark.parametrize(("activation", "value", "slope"), CASES, ids=lambda case: type(case).__name__)
def test_value_and_slope(activation: AbstractActivation, value: np.ndarray, slope: np.ndarray | None) -> None:
    a = jnp.asarray(A, jnp.float32)
    there = A != 0 if isinstance(activation, Selu) else A == A  # a corner at 0
    np.testing.assert_allclose(activation(a), value, atol=2e-6)
    if slope is not None:
        np.testing.assert_allclose(jax.vmap(jax.grad(activation))(a)[there], slope[there], atol=2e-6)


@pytest.mark.parametrize("activation", [Selu(), Mish(), Gelu()], ids=lambda one: type(one).__name__)
def test_finite_far_out(activation: AbstractActivation) -> None:
    """A product of something huge with something tiny: neither overflows, nor does its slope."""
    far = jnp.asarray([-1e4, -100.0, -30.0, 30.0, 100.0, 1e4])
    values, slopes = activation(far), jax.vmap(jax.grad(activation))(far)
    size = LAMBDA if isinstance(activation, Selu) else 1.0
    low = -LAMBDA * ALPHA if isinstance(activation, Selu) else 0.0
    np.testing.assert_allclose(values, [low] * 3 + [size * x for x in (30, 100, 1e4)], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(slopes, [0.0] * 3 + [size] * 3, rtol=1e-6, atol=1e-9)


def test_gains_keep_the_size_of_normal_activations() -> None:
    """gain = 1 / sqrt(E[f(z)^2]) for a standard normal z; `Selu` was made to have 1."""
    for activation, function in (
        (Mish(), lambda z: z * np.tanh(np.logaddexp(0, z))),
        (Gelu(), lambda z: z * 0.5 * (1 + erf(z / np.sqrt(2)))),
        (Selu(), lambda z: LAMBDA * (z if z > 0 else ALPHA * np.expm1(z))),
    ):
        square, _ = quad(lambda z, f=function: f(z) ** 2 * np.exp(-z * z / 2) / np.sqrt(2 * np.pi), -12, 12)
        assert activation.gain() == pytest.approx(1 / np.sqrt(square), abs=1e-3)


def test_parametric_units_go_from_a_line_to_their_activation() -> None:
    units = Parametric(Mish()).units(4)
    assert isinstance(units, ParametricUnits)
    assert np.array_equal(units.slope, np.ones(4))
    assert [name for name, _ in named_leaves(trainable(units)[0])] == ["slope"]
    assert Parametric(Mish()).gain() == Mish().gain()
    a, slope = np.linspace(-3, 3, 20).reshape(5, 4), np.asarray([0.0, 1.0, 0.3, -2.0])
    units = eqx.tree_at(lambda one: one.slope, units, jnp.asarray(slope, jnp.float32))
    mish = a * np.tanh(np.logaddexp(0, a))
    np.testing.assert_allclose(units(jnp.asarray(a, jnp.float32)), (1 - slope) * a + slope * mish, atol=1e-6)
    found = jax.grad(lambda one: jnp.sum(jax.vmap(one)(jnp.asarray(a, jnp.float32))), allow_int=True)(units)
    np.testing.assert_allclose(found.slope, (mish - a).sum(0), rtol=1e-5)
    assert Tanh().units(4) == Tanh()  # what learns nothing is itself


def test_gains() -> None:
    """The chapter's own: Glorot for tanh, four times Glorot for sigmoid, whose slope at 0 is a quarter."""
    gains = {type(activation): activation.gain() for activation, _, _ in CASES}
    assert gains[Tanh] == gains[HardTanh] == gains[Identity] == 1.0
    assert gains[Sigmoid] == 4.0
    assert gains[Sigmoid] * float(jax.grad(Sigmoid())(0.0)) == gains[Tanh] * float(jax.grad(Tanh())(0.0))
    assert gains[Parametric] == gains[Selu] == 1.0
    assert gains[Rectifier] == pytest.approx(np.sqrt(2))
