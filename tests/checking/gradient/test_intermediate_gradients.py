"""Slopes at the values between, and the walk that names the place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.gradient.derivative_sites import reaching, read_sites
from gradwise.checking.gradient.intermediate_gradients import EPSILONS, measure_sites, slope_of
from gradwise.tracing.program import trace

STEPS = np.asarray(EPSILONS)


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


def loss(parameters, batch, key):
    """Two ways from the hidden values: one through `doubled`, one beside it; a rectifier; a row of nothing."""
    hidden = batch @ parameters["first"]["w"]
    bent = doubled(hidden) + hidden
    return jnp.mean(jax.nn.log_softmax(jax.nn.relu(bent) @ parameters["second"]["w"])[:, 0])


@pytest.fixture(scope="module")
def measured():
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 3)
        parameters = {
            n: {"w": jax.random.normal(k, (3, 3), float)} for n, k in zip(("first", "second"), keys, strict=False)
        }
        batch = jax.random.normal(keys[2], (5, 3), float).at[4].set(0.0)
        program = trace(loss, parameters, batch, jax.random.key(1))
        places, result = read_sites(program, parameters)
        used = reaching(places, result)
        sites = [p.site.number for p in places if p.above and p.site.is_float and p.site.number in used]
        own = [p.site.number for p in places if p.kind == "own"]
        arguments = jax.tree.leaves((parameters, batch, jax.random.key(1)))
        found = measure_sites(program, places, arguments, sites, own, np.random.default_rng(0))
    return places, used, *found


def test_only_what_lies_below_the_wrong_derivative_is_wrong(measured):
    places, _, sites, own = measured
    wrong = [places[site.number].site.title for site in sites if site.wrong]
    assert wrong == ["dot_general"]
    assert sites[0].wrong
    assert sum(not site.wrong for site in sites) >= 6
    alone = {places[one.number].site.title: one for one in own}
    assert alone["doubled"].slope.ratio == pytest.approx(2.0, rel=1e-4)
    assert not alone["doubled"].identity
    assert not alone["relu"].slope.error > 1e-3


def test_a_slope_is_told_from_its_values():
    def of(function, analytic):
        values = np.stack([function(STEPS), function(-STEPS)], axis=-1)
        return slope_of(np.asarray([analytic, analytic]), np.stack([values, values]), float(function(np.zeros(1))[0]))

    assert of(lambda e: np.exp(2 * e), 2.0).error < 1e-6
    wrong = of(lambda e: np.exp(2 * e), -2.0)
    assert wrong.error == pytest.approx(1.0)
    assert wrong.ratio == pytest.approx(-1.0)
    assert np.isnan(of(np.abs, 0.5).error)  # a kink says nothing
    step = of(lambda e: np.full(np.shape(e), 0.7), 1.0)
    assert step.flat
    assert step.error == pytest.approx(1.0)
