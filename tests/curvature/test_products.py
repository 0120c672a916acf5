"""Products of Jacobian, Hessian and Gauss-Newton matrix (row B6) equal the dense matrices, in 64 bits."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from gradwise.curvature.products import (
    gauss_newton_map,
    gauss_newton_vector,
    hessian_map,
    hessian_vector,
    jacobian_vector,
    vector_jacobian,
)
from gradwise.specs.paths import trainable

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))
CLASSES = RNG.integers(0, 2, 7)
NUMBERS = RNG.normal(size=(7, 2))


@pytest.fixture(autouse=True, scope="module")
def _in_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Own(eqx.Module):
    """A module of the user's: two leaves in a tuple, one beside it, and something that is no parameter."""

    layers: tuple[Any, Any]
    shift: Any
    name: str = "mine"

    def __call__(self, x: Any) -> Any:
        return jnp.tanh(x @ self.layers[0]) @ self.layers[1] + self.shift


def cross_entropy(outputs: Any) -> Any:
    return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(7), CLASSES])


def squared(outputs: Any) -> Any:
    return 0.5 * jnp.mean(jnp.sum((outputs - NUMBERS) ** 2, 1))


class Case(NamedTuple):
    outputs: Callable[[Any], Any]
    loss: Callable[[Any], Any]
    parameters: Any


def module() -> tuple[Callable[[Any], Any], Any]:
    network = Own((jnp.asarray(RNG.normal(size=(3, 4))), jnp.asarray(RNG.normal(size=(4, 2)))), jnp.ones(2))
    parameters, rest = trainable(network)
    return lambda p: jax.vmap(eqx.combine(p, rest))(X), parameters


def plain() -> tuple[Callable[[Any], Any], Any]:
    parameters = {"a": jnp.asarray(RNG.normal(size=(3, 2))), "b": (jnp.asarray(0.7), None)}
    return lambda p: jnp.sin(X @ p["a"]) * p["b"][0], parameters


CASES = {
    f"{name}-{loss.__name__}": (make, loss)
    for name, make in (("module", module), ("function", plain))
    for loss in (cross_entropy, squared)
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    make, loss = CASES[request.param]
    outputs, parameters = make()
    return Case(outputs, loss, parameters)


def dense(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, Callable[[Any], Any]]:
    """The Jacobian, the Hessian and the Gauss-Newton matrix, and how a flat vector becomes a tree."""
    flat, tree = ravel_pytree(case.parameters)

    def outputs(v: Any) -> Any:
        return case.outputs(tree(v)).ravel()

    jacobian = np.asarray(jax.jacobian(outputs)(flat))
    hessian = np.asarray(jax.hessian(lambda v: case.loss(case.outputs(tree(v))))(flat))
    curvature = np.asarray(jax.hessian(lambda z: case.loss(z.reshape(7, 2)))(outputs(flat)))
    return jacobian, hessian, jacobian.T @ curvature @ jacobian, tree


@pytest.mark.slow
def test_every_product_equals_the_dense_matrix(case: Case) -> None:
    jacobian, hessian, gauss_newton, tree = dense(case)
    total = lambda p: case.loss(case.outputs(p))  # noqa: E731
    second, middle = hessian_map(total, case.parameters), gauss_newton_map(case.outputs, case.loss, case.parameters)
    for vector in RNG.normal(size=(3, hessian.shape[0])):
        v, u = tree(jnp.asarray(vector)), RNG.normal(size=(7, 2))
        found = {
            "J v": (jacobian_vector(case.outputs, case.parameters, v), jacobian @ vector),
            "J' u": (vector_jacobian(case.outputs, case.parameters, jnp.asarray(u)), jacobian.T @ u.ravel()),
            "H v": (hessian_vector(total, case.parameters, v), hessian @ vector),
            "H v, map": (second(v), hessian @ vector),
            "G v": (gauss_newton_vector(case.outputs, case.loss, case.parameters, v), gauss_newton @ vector),
            "G v, map": (middle(v), gauss_newton @ vector),
        }
        for name, (mine, theirs) in found.items():
            np.testing.assert_allclose(ravel_pytree(mine)[0], theirs, rtol=1e-10, atol=1e-12, err_msg=name)
        assert jax.tree.structure(found["G v"][0]) == jax.tree.structure(case.parameters)


@pytest.mark.slow
def test_gauss_newton_has_no_negative_curvature_where_the_hessian_has(case: Case) -> None:
    _, hessian, _, tree = dense(case)
    product = gauss_newton_map(case.outputs, case.loss, case.parameters)
    rows = jax.vmap(lambda unit: ravel_pytree(product(tree(unit)))[0])(jnp.eye(hessian.shape[0]))
    np.testing.assert_allclose(rows, rows.T, atol=1e-12)
    assert np.linalg.eigvalsh(hessian)[0] < -1e-3
    assert np.linalg.eigvalsh(rows)[0] > -1e-12


def test_a_map_looks_at_the_function_once() -> None:
    """Ten products of a map run neither the network nor the loss again."""
    outputs, parameters = module()
    calls = {"outputs": 0, "loss": 0}

    def counted_outputs(p: Any) -> Any:
        calls["outputs"] += 1
        return outputs(p)

    def counted_loss(z: Any) -> Any:
        calls["loss"] += 1
        return squared(z)

    maps = (
        hessian_map(lambda p: counted_loss(counted_outputs(p)), parameters),
        gauss_newton_map(counted_outputs, counted_loss, parameters),
    )
    before = dict(calls)
    assert before == {"outputs": 2, "loss": 2}
    for product in maps:
        for _ in range(10):
            product(parameters)
    assert calls == before


def test_products_compile_and_vectorise() -> None:
    outputs, parameters = module()
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 2.0 * leaf]), parameters)

    @jax.jit
    def both(vectors: Any) -> Any:
        return jax.vmap(gauss_newton_map(outputs, squared, parameters))(vectors)

    alone = gauss_newton_vector(outputs, squared, parameters, parameters)
    for mine, theirs in zip(jax.tree.leaves(both(many)), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(mine[0], theirs, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(mine[1], 2 * theirs, rtol=1e-10, atol=1e-13)
