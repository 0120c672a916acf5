"""Descent to minima that are known, within its mask, against gradients of both signs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from gradwise.checking.learning.loss_minimiser import descend, second_try

START = jnp.asarray([-1.2, 1.0, 0.5])
ALL = jnp.ones(3)


def rosenbrock(point: jax.Array) -> jax.Array:
    return jnp.sum(100.0 * (point[1:] - point[:-1] ** 2) ** 2 + (1 - point[:-1]) ** 2)


def uphill(point: jax.Array) -> jax.Array:
    """The same value with the wrong sign of its gradient."""
    return 2 * jax.lax.stop_gradient(rosenbrock(point)) - rosenbrock(point)


def _descended(value, start=START, mask=ALL, updates: int = 100):
    return jax.tree.map(np.asarray, jax.jit(lambda given: descend(value, given, mask, updates, 10))(start))


def test_the_minimum_of_a_bent_valley_is_found_as_scipy_finds_it() -> None:
    end, loss, steepness, curve = _descended(rosenbrock)
    theirs = minimize(rosen, np.asarray(START, float), jac=rosen_der, method="L-BFGS-B")
    assert end == pytest.approx(theirs.x, abs=0.02)
    assert loss < 1e-4 * curve[0]
    slope = np.asarray(jax.grad(rosenbrock)(START))
    assert steepness == pytest.approx(np.linalg.norm(slope) * np.linalg.norm(START) / curve[0], rel=1e-5)
    known = curve[np.isfinite(curve)]
    assert known[0] == pytest.approx(rosen(np.asarray(START)), rel=1e-5)
    assert known[-1] == loss
    assert np.all(np.diff(known) <= 0)
    assert curve.shape == (101,)


def test_what_is_masked_stays() -> None:
    mask = jnp.asarray([1.0, 0.0, 1.0])
    end, loss, _, _ = _descended(lambda point: jnp.sum((point - 3.0) ** 2), mask=mask)
    assert end == pytest.approx([3.0, 1.0, 3.0], abs=1e-4)
    assert loss == pytest.approx(4.0, rel=1e-5)
    best = second_try(lambda point: jnp.sum((point - 3.0) ** 2), START[None], mask, 400)
    assert best == pytest.approx(4.0, rel=1e-3)


def test_a_gradient_with_the_wrong_sign_is_not_followed_to_a_lower_loss() -> None:
    _, loss, _, curve = _descended(uphill)
    assert loss >= curve[0] * (1 - 1e-5)
    assert second_try(uphill, START[None], ALL, 50) == pytest.approx(curve[0], rel=1e-5)
    assert second_try(rosenbrock, START[None], ALL, 400) < 0.01 * curve[0]
