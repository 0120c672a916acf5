"""What explains a wrong gradient: a stop that is taken out, a step on every way, an own derivative within a loop."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.gradient.finite_differences import Differences
from gradwise.checking.gradient.parameter_gradients import measure_leaves
from gradwise.checking.gradient.wrong_derivatives import culprits_of, explained
from gradwise.checking.subject import Subject

HERE = Path(__file__).name

INPUTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def told(loss, model):
    generator = np.random.default_rng(1)
    differences = Differences.of(Subject.of(loss, model, INPUTS), key=jax.random.key(0))
    leaves = explained(differences, measure_leaves(differences, 8, generator))
    return {leaf.name: leaf for leaf in leaves}, *culprits_of(differences, leaves, generator)


def test_stops_and_steps_explain_what_they_cut():
    def loss(model, batch):
        target = jax.lax.stop_gradient(batch @ model["value"])  # a bootstrapped target
        gate = jnp.where(jnp.sum(batch, axis=1, keepdims=True) > model["threshold"], 1.0, 0.5)
        return jnp.mean(gate * (batch @ model["value"] - 0.9 * target[::-1] - 1.0) ** 2) + jnp.sum(model["free"] ** 2)

    model = {"free": jnp.ones(2), "threshold": jnp.asarray([0.1]), "value": jnp.asarray([[0.3], [-0.4], [0.5]])}
    leaves, culprits, sites = told(loss, model)
    assert "stop_gradient" in leaves["value"].stop
    assert HERE in leaves["value"].stop
    assert not leaves["value"].zero
    assert np.all(leaves["value"].wrong)
    assert leaves["threshold"].zero
    assert "gt" in leaves["threshold"].step
    assert HERE in leaves["threshold"].step
    assert (leaves["free"].stop, leaves["free"].step) == ("", "")
    assert culprits == ()
    assert sites == ()


def test_an_own_derivative_within_a_loop_is_named():
    @jax.custom_jvp
    def squash(x):
        return jnp.tanh(x)

    squash.defjvp(lambda p, t: (jnp.tanh(p[0]), 0.5 * (1 - jnp.tanh(p[0]) ** 2) * t[0]))

    def loss(model, batch):
        step = lambda carry, x: (squash(x @ model["read"] + carry @ model["again"]), None)  # noqa: E731
        return jnp.sum(jax.lax.scan(step, jnp.zeros(3), batch)[0] * model["out"])

    model = {"again": jnp.eye(3) * 0.5, "out": jnp.asarray([1.0, -2.0, 0.5]), "read": jnp.eye(3) * 0.7}
    leaves, (culprit,), _ = told(loss, model)
    assert (culprit.title, culprit.layer) == ("squash", "again")
    assert HERE in culprit.line
    assert culprit.users
    assert culprit.meant == ""
    assert culprit.parameters == ("again", "read")
    assert culprit.error > 0.1
    assert np.any(leaves["read"].wrong)
    assert not np.any(leaves["out"].wrong)


def test_what_gives_back_its_argument_may_be_meant():
    @jax.custom_vjp
    def reverse(x):
        return x

    reverse.defvjp(lambda x: (x, None), lambda _, g: (-3 * g,))
    _, (culprit,), _ = told(lambda model, batch: jnp.mean(jnp.sin(reverse(batch @ model))), jnp.ones(3))
    assert (culprit.title, culprit.meant, culprit.ratio) == ("reverse", "identity", pytest.approx(-3.0))
