"""Non-linearities (row D6) against NumPy, with their slopes, and finite far from 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from gradwise.models.activations import AbstractActivation, HardTanh, Identity, Rectifier, Sigmoid, Softsign, Tanh

A = np.linspace(-4.0, 4.0, 33)[np.abs(np.linspace(-4.0, 4.0, 33)) != 1.0]  # the corners of hard tanh left out

CASES = [
    (Tanh(), np.tanh(A), 1 - np.tanh(A) ** 2),
    (Sigmoid(), expit(A), expit(A) * expit(-A)),
    (Rectifier(), np.maximum(A, 0), (A > 0).astype(float)),
    (HardTanh(), np.clip(A, -1, 1), (np.abs(A) < 1).astype(float)),
    (Softsign(), A / (1 + np.abs(A)), (1 + np.abs(A)) ** -2.0),
    (Identity(), A, np.ones_like(A)),
]


@pytest.mark.parametrize(("activation", "value", "slope"), CASES, ids=lambda case: type(case).__name__)
def test_value_and_slope(activation: AbstractActivation, value: np.ndarray, slope: np.ndarray) -> None:
    a = jnp.asarray(A, jnp.float32)
    np.testing.assert_allclose(activation(a), value, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(activation))(a), slope, atol=1e-6)


def test_gains() -> None:
    """The chapter's own: Glorot for tanh, four times Glorot for sigmoid, whose slope at 0 is a quarter."""
    gains = {type(activation): activation.gain() for activation, _, _ in CASES}
    assert gains[Tanh] == gains[HardTanh] == gains[Identity] == 1.0
    assert gains[Sigmoid] == 4.0
    assert gains[Sigmoid] * float(jax.grad(Sigmoid())(0.0)) == gains[Tanh] * float(jax.grad(Tanh())(0.0))
    assert gains[Rectifier] == pytest.approx(np.sqrt(2))
