"""A traced program says what stands where, and its values can be read and nudged."""

import contextlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.specs.paths import trainable
from gradwise.tracing import program as module
from gradwise.tracing.program import is_library, trace

HERE = Path(__file__).name


@jax.custom_vjp
def doubled(x: jax.Array) -> jax.Array:
    return 2.0 * x


doubled.defvjp(lambda x: (2.0 * x, None), lambda _, g: (2.0 * g,))


class Net(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(doubled(jnp.tanh(self.first(x))))


def _made() -> tuple[Net, tuple[jax.Array, jax.Array]]:
    keys = jr.split(jr.key(0), 4)
    net = Net(eqx.nn.Linear(4, 5, key=keys[0]), eqx.nn.Linear(5, 2, key=keys[1]))
    return net, (jr.normal(keys[2], (7, 4)), jr.normal(keys[3], (7, 2)))


def _loss(parameters: Net, batch: tuple[jax.Array, jax.Array], key: jax.Array) -> jax.Array:
    net = eqx.combine(parameters, trainable(_made()[0])[1])
    noise = 0.1 * jr.normal(key, batch[1].shape)
    return jnp.mean((jax.vmap(net)(batch[0]) + noise - batch[1]) ** 2)


def test_sites_know_their_layer_their_line_and_what_they_depend_on() -> None:
    net, batch = _made()
    program = trace(_loss, trainable(net)[0], batch, jr.key(1))
    by_title = {site.title: site for site in program.sites}
    assert by_title["tanh"].layer == "first"
    assert by_title["tanh"].is_bend
    assert by_title["tanh"].shape == (7, 5)
    assert by_title["doubled"].layer == "first"  # named although its derivative is its own
    products = [site for site in program.sites if site.primitive == "dot_general"]
    assert [site.parameters for site in products] == [("first.weight",), ("second.weight",)]
    assert [site.layer for site in products] == ["first", "second"]
    assert all(HERE in site.line for site in products)
    assert "__call__" in by_title["tanh"].line
    assert by_title["tanh"].depends == {"parameters", "batch"}
    assert any(site.depends == {"key"} for site in program.sites)
    assert not any(site.is_activation for site in program.sites if "batch" not in site.depends)


@pytest.mark.slow
def test_a_program_computes_what_its_function_does_and_keeps_what_is_asked_for() -> None:
    net, batch = _made()
    parameters = trainable(net)[0]
    program = trace(_loss, parameters, batch, jr.key(1))
    tanh = next(site.number for site in program.sites if site.title == "tanh")
    value, kept = program.run(parameters, batch, jr.key(1), keep=[tanh])
    assert float(value) == pytest.approx(float(_loss(parameters, batch, jr.key(1))), rel=1e-6)
    np.testing.assert_allclose(kept[tanh], jnp.tanh(jax.vmap(net.first)(batch[0])), rtol=1e-6)


def test_the_gradient_at_a_nudge_is_the_gradient_at_the_activation() -> None:
    net, batch = _made()
    parameters = trainable(net)[0]
    program = trace(_loss, parameters, batch, jr.key(1))
    site = next(site.number for site in program.sites if site.title == "tanh")

    def by_hand(hidden: jax.Array) -> jax.Array:
        outputs = jax.vmap(net.second)(2.0 * hidden) + 0.1 * jr.normal(jr.key(1), batch[1].shape)
        return jnp.mean((outputs - batch[1]) ** 2)

    expected = jax.grad(by_hand)(jnp.tanh(jax.vmap(net.first)(batch[0])))
    gradient = jax.jit(jax.grad(lambda nudges: program.run(parameters, batch, jr.key(1), nudges=nudges)[0]))
    np.testing.assert_allclose(gradient(program.zeros([site]))[site], expected, rtol=1e-5, atol=1e-7)


def test_lines_of_libraries_and_of_python_itself_are_not_the_users() -> None:
    assert is_library(contextlib.__file__)  # decorators stand on the way
    assert is_library(jax.__file__)
    assert is_library(module.__file__)
    assert not is_library(__file__)
    assert not is_library("<stdin>")
    assert not is_library("lib/python3.11/site-packages/somebodys_layers/dense.py")


def test_what_was_traced_once_is_told_by_the_line_that_uses_it() -> None:
    def loss(parameters, batch, key):  # type: ignore[no-untyped-def]
        first = jax.nn.softplus(batch @ parameters)
        return jnp.sum(jax.nn.softplus(first))

    program = trace(loss, jnp.ones((3, 3)), jnp.ones((4, 3)), jr.key(0))
    lines = [site.line for site in program.sites if site.is_bend]
    assert len(lines) == len(set(lines)) == 2
