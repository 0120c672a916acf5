"""The contractive terms (row A6): closed form against automatic differentiation, and the gradients of both."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.contraction import Contraction, HigherContraction
from gradwise.criteria.reconstruction import AbstractCodePenalty, Reconstruction, SquaredError
from gradwise.evaluation.run_findings import find_in_run
from gradwise.models.activations import AbstractActivation, Identity, Rectifier, Sigmoid, Softsign, Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.pretraining.layer_recipes import learner
from gradwise.records.outcome import Outcome
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.testing.contracts import check_part

KEY = jr.key(5)


class Bare(eqx.Module):
    """A network of which only the call is known."""

    inside: Any

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.inside(x, key=key)


def network(activation: AbstractActivation, widths: tuple[int, ...] = (4,), inputs: int = 6) -> Any:
    built = MlpAutoEncoder(widths=widths, activation=activation).build((inputs,), 0, key=jr.key(0))
    return jax.tree.map(lambda leaf: leaf + 0.1 if eqx.is_array(leaf) else leaf, built)


def rows(count: int = 7, inputs: int = 6) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).uniform(0.0, 1.0, (count, inputs)))


def value_and_slopes(penalty: AbstractCodePenalty, net: Any, x: jax.Array, weights: jax.Array) -> tuple[Any, Any]:
    parts, rest = eqx.partition(net, eqx.is_inexact_array)
    flat, back = jax.flatten_util.ravel_pytree(parts)

    def of(values: jax.Array) -> jax.Array:
        model = eqx.combine(back(values), rest)
        return penalty(model, x, jax.vmap(lambda one: model(one))(x), weights, key=KEY)

    value, slope = jax.jit(jax.value_and_grad(of))(flat)
    return np.asarray(value), np.asarray(slope)


@pytest.mark.slow
@pytest.mark.parametrize(
    "activation", [Sigmoid(), Tanh(), Rectifier(), Identity(), Softsign()], ids=lambda one: type(one).__name__
)
def test_closed_form_is_what_differentiation_gives(activation: AbstractActivation) -> None:
    """Values and gradients, with an unused slot; Softsign has no closed form here and differentiates by itself."""
    with jax.enable_x64(True):
        net, x, weights = network(activation), rows(), jnp.ones(7).at[2].set(0.0)
        closed, closed_slope = value_and_slopes(Contraction(), net, x, weights)
        auto, auto_slope = value_and_slopes(Contraction(form="autodiff"), net, x, weights)
        jacobians = jax.jit(jax.vmap(jax.jacrev(lambda one: net(one))))(x)
        assert closed == pytest.approx(float(weights @ jnp.sum(jacobians**2, axis=(1, 2)) / 7), rel=1e-10)
        assert auto == pytest.approx(float(closed), rel=1e-10)
        np.testing.assert_allclose(closed_slope, auto_slope, rtol=1e-8, atol=1e-10)
        higher = value_and_slopes(HigherContraction(), net, x, weights)
        bare = value_and_slopes(HigherContraction(), Bare(net), x, weights)
        assert higher[0] == pytest.approx(float(bare[0]), rel=1e-8, abs=1e-15)
        np.testing.assert_allclose(higher[1], bare[1], rtol=1e-6, atol=1e-10)
    single = network(activation), rows().astype(jnp.float32), jnp.ones(7)
    closed, closed_slope = value_and_slopes(Contraction(), *single)
    auto, auto_slope = value_and_slopes(Contraction(form="autodiff"), *single)
    np.testing.assert_allclose(closed, auto, rtol=1e-5)
    np.testing.assert_allclose(closed_slope, auto_slope, rtol=1e-5, atol=1e-5)


def test_the_published_formula() -> None:
    """sum_j [h_j (1 - h_j)]^2 sum_i W_ji^2 in NumPy, over the examples."""
    net, x = network(Sigmoid()), rows().astype(jnp.float32)
    weight, bias = np.asarray(net.encoder[0].weight, np.float64), np.asarray(net.encoder[0].bias, np.float64)
    h = 1 / (1 + np.exp(-(np.asarray(x) @ weight.T + bias)))
    expected = np.mean(((h * (1 - h)) ** 2) @ (weight**2).sum(1))
    assert value_and_slopes(Contraction(), net, x, jnp.ones(7))[0] == pytest.approx(expected, rel=1e-5)


def test_deep_encoders_are_differentiated_by_themselves() -> None:
    """J = D2 W2 D1 W1, layer by layer in NumPy."""
    with jax.enable_x64(True):
        net, x = network(Tanh(), (5, 3)), rows()
        found, _ = value_and_slopes(Contraction(), net, x, jnp.ones(7))
        norms = []
        for one in np.asarray(x):
            jacobian, h = np.eye(6), one
            for layer in net.encoder:
                h = np.tanh(np.asarray(layer.weight) @ h + np.asarray(layer.bias))
                jacobian = (1 - h**2)[:, None] * (np.asarray(layer.weight) @ jacobian)
            norms.append((jacobian**2).sum())
        assert found == pytest.approx(np.mean(norms), rel=1e-10)


@pytest.mark.parametrize(
    ("term", "widths"),
    [(Contraction(0.7), (4,)), (Contraction(0.7), (4, 3)), (HigherContraction(3.0, deviation=0.5, samples=2), (4,))],
    ids=["closed", "deep", "higher"],
)
def test_the_gradient_of_the_criterion_holds_second_derivatives(term: AbstractCodePenalty, widths: Any) -> None:
    """Finite differences of the whole criterion in 64 bits, parameter by parameter."""
    with jax.enable_x64(True):
        parts, rest = eqx.partition(network(Sigmoid(), widths, inputs=3), eqx.is_inexact_array)
        flat, back = jax.flatten_util.ravel_pytree(parts)
        batch = Batch(rows(5, 3), jnp.zeros((5, 0)), jnp.ones(5), jnp.ones(5), jnp.asarray(5.0))
        criterion = Reconstruction(on_codes=(term,))

        @jax.jit
        def of(values: jax.Array) -> jax.Array:
            return criterion(eqx.combine(back(values), rest), batch, key=KEY)[0]

        slope = np.asarray(jax.jit(jax.grad(of))(flat))
        steps = 1e-5 * np.eye(len(flat))
        rises = np.asarray([(of(flat + step) - of(flat - step)) / 2e-5 for step in steps])
        np.testing.assert_allclose(slope, rises, rtol=1e-6, atol=1e-8)
        plain = np.asarray(
            jax.jit(jax.grad(lambda v: Reconstruction()(eqx.combine(back(v), rest), batch, key=KEY)[0]))(flat)
        )
        assert np.abs(slope - plain).max() > 1e-3  # the term is there


def test_the_higher_term_is_the_norm_of_the_hessian() -> None:
    """E ||J(x) - J(x + e)||^2 = s^2 ||dJ/dx||^2 for a small s: 12 800 draws agree to 5 %."""
    net, x = network(Sigmoid()), jnp.tile(rows(1).astype(jnp.float32), (200, 1))
    found, _ = value_and_slopes(HigherContraction(deviation=0.01, samples=64), net, x, jnp.ones(200))
    hessian = jax.jit(jax.hessian(lambda one: net(one)))(x[0])
    assert found / 0.01**2 == pytest.approx(float(jnp.sum(hessian**2)), rel=0.05)


def test_other_variants_are_allowed_with_a_finding() -> None:
    history: dict[str, list[Any]] = {"age_examples": [], "best": []}
    train = Dataset(np.zeros((2, 3)), np.zeros((2, 0)), Inputs())

    def said(recipe: Any) -> str:
        found = find_in_run(recipe, history, Outcome("patience", 0), train)
        return " ".join(one.what for one in found if one.row == "A6")

    published = learner("contractive", 10)
    assert said(published) == ""
    assert "untied" in said(replace(published, model=MlpAutoEncoder(widths=(10,), tied=False)))
    assert "Tanh units" in said(replace(published, model=MlpAutoEncoder(widths=(10,), activation=Tanh())))
    squared = replace(published, criterion=Reconstruction(SquaredError(), on_codes=(HigherContraction(),)))
    assert "linear outputs" in said(squared)


def test_contracts() -> None:
    for term in (Contraction(), HigherContraction(), Contraction(0.0, form="autodiff")):
        check_part(term)
