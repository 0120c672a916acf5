"""Diagonal second derivatives against dense Gauss-Newton matrices and LeCun's recursion written out, in 64 bits."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.losses import GaussianLoss, SoftmaxLoss
from gradwise.criteria.losses import SigmoidLoss as Labels
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.diagonals import back_propagated_diagonal, gauss_newton_diagonal
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.models.mlp import LayerNorm, Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import OutputCriterion
from gradwise.specs.contracts import AbstractCriterion
from gradwise.specs.paths import named_leaves, trainable
from tests import oracles
from tests.marks import parametrize_one_quick

B, D, K = 6, 4, 3
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(B, D))
CLASSES = RNG.integers(0, K, B)
NUMBERS = RNG.normal(size=(B, K))
LABELS = RNG.integers(0, 2, (B, K)).astype(float)
WEIGHTS = np.asarray([1.0, 2.0, 0.5, 1.0, 1.0, 0.3])
PRESENT = np.asarray([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])  # the last slot lies beyond the epoch's end

Diagonal = Callable[..., Any]


def a_case(network: Any, criterion: AbstractCriterion, targets: np.ndarray) -> tuple[Objective, Any]:
    """A criterion on weighted examples, one slot unused, and parameters in 64 bits with biases that are not 0."""
    parameters, rest = trainable(network)
    leaves, structure = jax.tree.flatten(parameters)
    wide = [jnp.asarray(leaf, jnp.float64) for leaf in leaves]
    noisy = [leaf + 0.1 * jr.normal(jr.key(n), leaf.shape) for n, leaf in enumerate(wide)]
    train = Examples(jnp.asarray(INPUTS), jnp.asarray(targets), jnp.asarray(WEIGHTS))
    batch = gather(train, jnp.arange(B), jnp.asarray(PRESENT))
    objective = Objective(criterion, Fixed(B), rest, train, jr.key(8), jnp.asarray(3), batch)
    return objective, jax.tree.unflatten(structure, noisy)


def mlp(widths: tuple[int, ...], activation: Any, **more: Any) -> Any:
    return Mlp(widths=widths, activation=activation, **{"dropout": 0.0, **more}).build((D,), K, key=jr.key(1))


@eqx.filter_jit
def dense(objective: Objective, parameters: Any) -> Any:
    """The diagonal of J' H J from both matrices written out, H in all outputs of the batch at once."""
    jacobian = jax.jacobian(objective.outputs)(parameters)
    hessian = jax.hessian(objective.loss_of)(objective.outputs(parameters))
    return jax.tree.map(
        lambda j: jnp.einsum("bkp,bkcl,clp->p", *(m := j.reshape(B, K, -1), hessian, m)).reshape(j.shape[2:]), jacobian
    )


def worst(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest value of each parameter."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.max(jnp.abs(one - other)) / jnp.max(jnp.abs(other))) for one, other in pairs)


def run(diagonal: Diagonal, objective: Objective, parameters: Any, **more: Any) -> Any:
    return eqx.filter_jit(lambda o, p: diagonal(o, p, "test", **more))(objective, parameters)


@pytest.mark.slow
@pytest.mark.parametrize("activation", [Tanh(), Sigmoid(), Rectifier()], ids=["tanh", "sigmoid", "rectifier"])
def test_one_hidden_layer_and_squared_error_equal_the_gauss_newton_diagonal(activation: Any) -> None:
    with jax.enable_x64(True):
        objective, parameters = a_case(mlp((5,), activation), Supervised(GaussianLoss()), NUMBERS)
        expected = dense(objective, parameters)
        assert worst(run(back_propagated_diagonal, objective, parameters), expected) < 1e-12
        assert worst(run(gauss_newton_diagonal, objective, parameters), expected) < 1e-12


def recursion(parameters: Any, slope: Callable[[np.ndarray], np.ndarray], top: np.ndarray) -> dict[str, np.ndarray]:
    """LeCun's three equations, example by example, for tanh layers; `top` is d2E/da at the outputs."""
    found: dict[str, np.ndarray] = {}
    layers = [*((f"layers.{n}", layer) for n, layer in enumerate(parameters.layers)), ("output", parameters.output)]
    for example in range(B):
        x, tape = INPUTS[example], []
        for _, layer in layers:
            a = np.asarray(layer.weight) @ x + np.asarray(layer.bias)
            tape.append((x, a))
            x = np.tanh(a)
        bend = top[example]
        for number in reversed(range(len(layers))):
            name, layer = layers[number]
            x, a = tape[number]
            if number < len(layers) - 1:
                bend = slope(a) ** 2 * bend
            found[f"{name}.weight"] = found.get(f"{name}.weight", 0) + np.outer(bend, x**2)
            found[f"{name}.bias"] = found.get(f"{name}.bias", 0) + bend
            bend = (np.asarray(layer.weight) ** 2).T @ bend
    return found


@parametrize_one_quick("widths", [(5,), (5, 4), (5, 4, 6)])
def test_deeper_and_with_softmax_it_is_lecuns_recursion_and_not_the_exact_diagonal(widths: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        objective, parameters = a_case(mlp(widths, Tanh()), Supervised(SoftmaxLoss()), CLASSES)
        found = run(back_propagated_diagonal, objective, parameters)
        chances = oracles.softmax(np.asarray(objective.outputs(parameters)))
        top = (WEIGHTS * PRESENT)[:, None] / B * chances * (1 - chances)
        expected = recursion(parameters, lambda a: 1 - np.tanh(a) ** 2, top)
        for name, leaf in named_leaves(found):
            np.testing.assert_allclose(leaf, expected[name], rtol=1e-11, err_msg=name)
        exact = dense(objective, parameters)
        assert worst(run(gauss_newton_diagonal, objective, parameters), exact) < 1e-12
        assert worst(found, exact) > 0.3  # measured: 0.48, 0.37, 0.76


@pytest.mark.parametrize("widths", [(5, 4)])
def test_two_hidden_layers_and_squared_error_are_not_exact(widths: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        objective, parameters = a_case(mlp(widths, Tanh()), Supervised(GaussianLoss()), NUMBERS)
        found, exact = run(back_propagated_diagonal, objective, parameters), dense(objective, parameters)
        np.testing.assert_allclose(found.output.weight, exact.output.weight, rtol=1e-11)
        np.testing.assert_allclose(found.layers[1].weight, exact.layers[1].weight, rtol=1e-11)
        assert worst(found.layers[0], exact.layers[0]) > 0.3  # measured: 0.40


class Own(eqx.Module):
    """A network of the user's own: a convolution, gates, a scale of its own, a matrix used twice."""

    kernel: jax.Array
    turn: jax.Array
    scale: jax.Array
    last: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        h = jnp.convolve(x, self.kernel, mode="same")
        h = jax.nn.gelu(self.turn @ h) + jax.nn.silu(self.turn @ x)
        return self.last(jnp.concatenate([h * self.scale, h[::-1]]))


def own() -> Own:
    keys = jr.split(jr.key(2), 3)
    return Own(jr.normal(keys[0], (3,)), jr.normal(keys[1], (D, D)), jnp.ones(D), eqx.nn.Linear(2 * D, K, key=keys[2]))


@parametrize_one_quick("kind", ["three layers", "own module", "dropout", "layer norm", "labels", "own loss"])
def test_the_exact_diagonal_is_the_dense_one_for_any_model_and_loss(kind: str) -> None:
    """With dropout both see the noise of the same update."""
    network = {
        "own module": own,
        "dropout": lambda: mlp((5, 4), Rectifier(), dropout=0.4),
        "layer norm": lambda: mlp((5, 4), Tanh(), normalisation=LayerNorm()),
    }.get(kind, lambda: mlp((5, 4, 6), Tanh()))
    criterion, targets = {
        "labels": (Supervised(Labels()), LABELS),
        "own loss": (OutputCriterion(lambda y, t: jnp.log(jnp.sum(jnp.cosh(y - t)))), NUMBERS),
    }.get(kind, (Supervised(SoftmaxLoss()), CLASSES))
    with jax.enable_x64(True):
        objective, parameters = a_case(network(), criterion, targets)
        exact = run(gauss_newton_diagonal, objective, parameters)
        assert worst(exact, dense(objective, parameters)) < 1e-10
        found = run(back_propagated_diagonal, objective, parameters)
        assert all(bool(jnp.all(leaf >= 0)) for leaf in jax.tree.leaves(found))
        top = found.last if kind == "own module" else found.output
        sure = exact.last if kind == "own module" else exact.output
        assert worst(top, sure) < 1e-10  # nothing is dropped in the last layer


class Images(eqx.Module):
    """Convolution, maximum over windows, outputs: each weight reaches each output of the loss by one path."""

    convolution: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.pool(jnp.tanh(self.convolution(x.reshape(1, 2, 2)))).reshape(-1)


def test_convolutions_and_pooling_are_passed() -> None:
    """One path from each weight to each output, so nothing is dropped and the result is exact."""
    with jax.enable_x64(True):
        network = Images(eqx.nn.Conv2d(1, K, 2, padding=1, key=jr.key(3)), eqx.nn.MaxPool2d(3, 3))
        objective, parameters = a_case(network, Supervised(GaussianLoss()), NUMBERS)
        found = run(back_propagated_diagonal, objective, parameters)
        assert worst(found, dense(objective, parameters)) < 1e-12


def test_a_wide_loss_is_passed_column_by_column_and_a_diagonal_one_at_once() -> None:
    """More outputs than columns are held at once: p (1 - p) for softmax as for independent labels."""

    class Same(eqx.Module):
        theta: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.theta

    width = 70
    with jax.enable_x64(True):
        for criterion, targets, chances in (
            (Supervised(SoftmaxLoss()), CLASSES, jax.nn.softmax),
            (Supervised(Labels()), np.zeros((B, width)), jax.nn.sigmoid),
        ):
            objective, parameters = a_case(Same(jnp.linspace(-2.0, 2.0, width)), criterion, targets)
            p = chances(parameters.theta)
            expected = float(np.sum(WEIGHTS * PRESENT) / B) * p * (1 - p)
            found = run(back_propagated_diagonal, objective, parameters).theta
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("diagonal", [back_propagated_diagonal, gauss_newton_diagonal])
def test_the_penalty_adds_its_own_curvature(diagonal: Diagonal) -> None:
    """2 lambda / T on the penalised leaves, times the share of slots in use; nothing for L1."""
    penalties = (L2(3.0, where="layers.*.weight"), L1(5.0))
    with jax.enable_x64(True):
        objective, parameters = a_case(mlp((5,), Tanh()), Supervised(GaussianLoss(), penalties=penalties), NUMBERS)
        plain = run(diagonal, objective, parameters)
        added = run(diagonal, objective, parameters, penalty=True)
        rise = dict(named_leaves(jax.tree.map(lambda one, other: one - other, added, plain)))
        for name, leaf in rise.items():
            expected = 2 * 3.0 / B * PRESENT.sum() / B if name == "layers.0.weight" else 0.0
            np.testing.assert_allclose(leaf, expected, atol=1e-14, err_msg=name)


def test_an_operation_that_is_not_known_is_refused_by_name() -> None:
    class Running(eqx.Module):
        matrix: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return jnp.cumsum(self.matrix @ x)

    with jax.enable_x64(True):
        objective, parameters = a_case(Running(jnp.ones((K, D))), Supervised(GaussianLoss()), NUMBERS)
        refused = r"test: the network .*operation `cumsum`.*gauss_newton_diagonal"
        with pytest.raises(RequestError, match=refused) as refusal:
            run(back_propagated_diagonal, objective, parameters)
        assert "\n" not in str(refusal.value)
        exact = run(gauss_newton_diagonal, objective, parameters)
        assert worst(exact, dense(objective, parameters)) < 1e-12
