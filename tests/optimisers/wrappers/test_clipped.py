"""Clipping shortens a gradient that is too long, and does nothing else."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.clipped import Clipped

_PARAMETERS = {"weight": jnp.ones((2, 2)), "bias": jnp.zeros(2)}


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_updates_are_those_of_optax(scale: float) -> None:
    ours = Clipped(HeavyBall(0.1), norm=2.0).build()
    theirs = optax.chain(optax.clip_by_global_norm(2.0), HeavyBall(0.1).build())
    first, second = ours.init(_PARAMETERS), theirs.init(_PARAMETERS)
    for step in range(3):
        gradient = {"weight": scale * jnp.arange(4.0).reshape(2, 2), "bias": jnp.full(2, scale * step)}
        one, first = ours.update(gradient, first, _PARAMETERS)
        two, second = theirs.update(gradient, second, _PARAMETERS)
        np.testing.assert_allclose(one["weight"], two["weight"], rtol=1e-5)
        np.testing.assert_allclose(one["bias"], two["bias"], rtol=1e-5)


def test_a_long_gradient_keeps_its_direction_and_gets_the_norm() -> None:
    clipped = Clipped(Sgd(1.0), norm=0.5).build()
    gradient = {"weight": jnp.full((2, 2), 30.0), "bias": jnp.zeros(2)}
    moved, _ = clipped.update(gradient, clipped.init(_PARAMETERS), _PARAMETERS)
    np.testing.assert_allclose(moved["weight"], np.full((2, 2), -0.25), rtol=1e-6)


def test_a_gradient_that_is_no_number_stays_one() -> None:
    clipped = Clipped(Sgd(1.0)).build()
    gradient = {"weight": jnp.full((2, 2), jnp.nan), "bias": jnp.zeros(2)}
    moved, _ = clipped.update(gradient, clipped.init(_PARAMETERS), _PARAMETERS)
    assert np.isnan(moved["weight"]).all()
