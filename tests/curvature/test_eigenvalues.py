"""The ends of the spectrum equal `eigh`, sign included (row H5); divergence starts where the implied rate says."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from gradwise.curvature.eigenvalues import (
    hessian_range,
    implied_rate,
    lanczos,
    largest_eigenvalue,
    online_eigenvalue,
)
from gradwise.curvature.products import hessian_map
from gradwise.optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.testing.contracts import a_problem
from tests.marks import parametrize_one_quick

KEY = jr.key(0)
LIKE = {"a": np.zeros((2, 2)), "b": (np.zeros(3), None)}
SPECTRA = {
    "positive dominates": [5.0, 3.0, 1.0, 0.1, 0.0, -1.0, -2.0],
    "negative dominates": [-7.0, 3.0, 1.0, 0.1, 0.0, -1.0, -2.0],
    "all negative": [-1.0, -2.0, -2.5, -3.0, -3.5, -4.0, -6.0],
    "all positive": [1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 6.0],
    "both ends of one size": [4.0, -4.0, 1.0, 0.0, 0.5, 2.0, -1.0],
}


@pytest.fixture
def _in_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def matrix(values: list[float]) -> np.ndarray:
    turned, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))
    return turned @ np.diag(values) @ turned.T


def flat(tree: Any) -> Any:
    return jnp.concatenate([jnp.ravel(tree["a"]), tree["b"][0]])


def tree(vector: Any) -> Any:
    return {"a": vector[:4].reshape(2, 2), "b": (vector[4:], None)}


@jax.jit
def all_ways(dense: Any) -> Any:
    product = lambda v: tree(dense @ flat(v))  # noqa: E731
    options = {"key": KEY, "steps": 3000, "tolerance": 1e-7}
    return (
        largest_eigenvalue(product, LIKE, **options),
        lanczos(product, LIKE, key=KEY, steps=20),
    )


@pytest.mark.usefixtures("_in_64_bits")
@pytest.mark.parametrize("name", SPECTRA)
def test_power_method_and_lanczos_equal_eigh(name: str) -> None:
    dense = matrix(SPECTRA[name])
    values, vectors = np.linalg.eigh(dense)
    largest, ritz = all_ways(jnp.asarray(dense))
    if name == "both ends of one size":
        assert float(largest.residual) > 0.1  # the tolerance is 4e-7: it says that it found none
        assert int(largest.products) == 3000
    else:
        place = np.argmax(abs(values))
        assert float(largest.value) == pytest.approx(values[place], abs=1e-9)
        assert abs(flat(largest.vector) @ vectors[:, place]) == pytest.approx(1.0, abs=1e-9)
        assert float(largest.residual) <= 1e-7 * abs(float(largest.value))
        assert int(largest.products) < 300
    # As many steps as there are dimensions and no more: all of the spectrum, each vector an eigenvector.
    np.testing.assert_allclose(ritz.values, values, atol=1e-10)
    assert ritz.vectors["a"].shape == (7, 2, 2)
    columns = np.stack([flat(jax.tree.map(lambda leaf, n=n: leaf[n], ritz.vectors)) for n in range(7)], 1)
    np.testing.assert_allclose(dense @ columns, columns * values, atol=1e-9)
    np.testing.assert_allclose(columns.T @ columns, np.eye(7), atol=1e-10)


@pytest.mark.usefixtures("_in_64_bits")
def test_a_spectrum_of_few_values_exhausts_lanczos_without_harm() -> None:
    """Three values in seven dimensions: after three products the space is closed, and it goes on from elsewhere."""
    dense = matrix([2.0, 2.0, 2.0, -1.0, -1.0, 0.0, 0.0])
    *_, ritz = all_ways(jnp.asarray(dense))
    np.testing.assert_allclose(ritz.values, [-1, -1, 0, 0, 2, 2, 2], atol=1e-10)
    *_, nothing = all_ways(jnp.zeros((7, 7)))
    np.testing.assert_array_equal(nothing.values, np.zeros(7))


def test_many_matrices_at_once_each_as_alone() -> None:
    """In 32 bits and under vmap: members that are done wait unchanged for the others."""
    dense = np.stack([matrix(values) for name, values in SPECTRA.items() if name != "both ends of one size"])

    @jax.jit
    @jax.vmap
    def found(one: Any) -> Any:
        product = lambda v: tree(one @ flat(v))  # noqa: E731
        like = jax.tree.map(jnp.float32, LIKE)
        return largest_eigenvalue(product, like, key=KEY), lanczos(product, like, key=KEY, steps=7)

    largest, ritz = found(jnp.asarray(dense, jnp.float32))
    expected = np.linalg.eigvalsh(dense)
    ends = expected[np.arange(len(expected)), np.abs(expected).argmax(1)]
    np.testing.assert_allclose(largest.value, ends, atol=2e-4)
    np.testing.assert_allclose(ritz.values, expected, atol=2e-5)
    assert len(set(np.asarray(largest.products).tolist())) > 1


# --- Hessians of networks


def network_losses() -> tuple[Any, Any, dict[str, Any]]:
    """A tanh network away from its minimum, as criterion, and two losses of it with negative curvature ahead."""
    objective, parameters = a_problem()
    here = objective(0)

    def upside_down(p: Any) -> Any:
        return -here(p)

    return here, parameters, {"criterion": here, "negated": upside_down}


def dense_hessian(loss: Any, parameters: Any) -> np.ndarray:
    vector, back = ravel_pytree(parameters)
    return np.asarray(jax.jit(jax.hessian(lambda v: loss(back(v))))(vector), np.float64)


@parametrize_one_quick("name", ["criterion", "negated"])
def test_the_range_of_a_networks_hessian_is_that_of_the_dense_one(name: str) -> None:
    """For an `Objective` and for a plain function; the dominating eigenvalue is negative in the second."""
    _, parameters, losses = network_losses()
    values = np.linalg.eigvalsh(dense_hessian(losses[name], parameters))
    assert values[0] < -1e-3
    assert values[-1] > 1e-3
    assert (abs(values[0]) > values[-1]) == (name == "negated")
    lowest, highest = hessian_range(losses[name], parameters, key=KEY)
    assert float(lowest.value) == pytest.approx(values[0], abs=1e-5)
    assert float(highest.value) == pytest.approx(values[-1], abs=1e-5)
    assert max(float(lowest.residual), float(highest.residual)) < 1e-5
    found = jax.jit(
        lambda p: largest_eigenvalue(hessian_map(losses[name], p), p, key=KEY, steps=500, tolerance=1e-4).value
    )(parameters)
    assert float(found) == pytest.approx(values[0] if name == "negated" else values[-1], rel=1e-4)


def test_no_parameters_are_refused() -> None:
    with pytest.raises(RequestError, match="needs parameters"):
        hessian_range(lambda p: jnp.zeros(()), {}, key=KEY)


# --- on line


def stream(values: list[float], noise: float, turns: int) -> tuple[Any, Any]:
    """Batches whose Hessians are a matrix and noise that averages to nothing; the loss is a little more than that."""
    draws = np.random.default_rng(2).normal(size=(turns, 7, 7)) * noise
    batches = jnp.asarray(matrix(values) + (draws + draws.transpose(0, 2, 1)) / 2, jnp.float32)

    def loss(point: Any, dense: Any) -> Any:
        return 0.5 * flat(point) @ dense @ flat(point) + 0.01 * jnp.sum(flat(point) ** 3)

    return loss, batches


@pytest.mark.parametrize(
    ("name", "noise", "tolerance"),
    [("positive dominates", 0.0, 1e-3), ("negative dominates", 0.0, 1e-3), ("positive dominates", 1.0, 0.02)],
)
def test_on_line_it_is_the_highest_eigenvalue_of_the_mean(name: str, noise: float, tolerance: float) -> None:
    """Also where a negative one is larger in size. Measured: within 3e-5 without noise, 0.3 % with noise of size 1."""
    loss, batches = stream(SPECTRA[name], noise, 400)
    start = jax.tree.map(jnp.float32, LIKE)
    found = jax.jit(lambda b: online_eigenvalue(loss, start, b, key=KEY))(batches)
    values = np.linalg.eigvalsh(np.asarray(batches, np.float64).mean(0))
    assert float(found.value) == pytest.approx(values[-1], rel=tolerance)
    assert float(found.residual) < 2 * tolerance * values[-1]


# --- the rate


def diverges(optimiser: AbstractOptimiser, curvature: float) -> bool:
    """Whether gradient descent on curvature x^2 / 2 and on a flatter direction ends farther away than it began."""
    curvatures = jnp.asarray([curvature, 0.3 * curvature], jnp.float32)

    @eqx.filter_jit
    def run(optimiser: AbstractOptimiser) -> Any:
        def body(carry: Any, _: Any) -> Any:
            point, state = carry
            moves, state = optimiser.build().update(curvatures * point, state, point, value=jnp.zeros(()))
            point = optax.apply_updates(point, moves)
            return (point, state), jnp.max(jnp.abs(point))

        start = jnp.ones(2)
        return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=300)[1]

    last = float(run(optimiser)[-1])
    assert not (0.1 < last < 10.0), "neither converges nor diverges"
    return not last <= 0.1  # far away, infinite, or no longer a number


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Sgd, {}),
        (lambda rate: Sgd(rate, smoothing=0.3), {"smoothing": 0.3}),
        (lambda rate: HeavyBall(rate, momentum=0.8), {"momentum": 0.8}),
        (lambda rate: Nesterov(rate, momentum=0.8), {"momentum": 0.8, "nesterov": True}),
    ],
    ids=["Sgd", "Sgd-smoothing", "HeavyBall", "Nesterov"],
)
def test_divergence_starts_at_the_implied_limit(make: Any, options: dict[str, Any]) -> None:
    """At 0.98 of the limit it converges, at 1.02 it diverges; the best rate is half of it."""
    curvature = 3.7
    best, limit = implied_rate(curvature, **options)
    assert not diverges(make(0.98 * float(limit)), curvature)
    assert diverges(make(1.02 * float(limit)), curvature)
    assert float(best) == pytest.approx(float(limit) / 2)


def test_the_limits_in_closed_form() -> None:
    assert [float(rate) for rate in implied_rate(4.0)] == [0.25, 0.5]
    assert float(implied_rate(4.0, 0.9)[1]) == pytest.approx(2 * 1.9 / 4)
    assert float(implied_rate(4.0, 0.9, nesterov=True)[1]) == pytest.approx(2 * 1.9 / (2.8 * 4))
    assert float(implied_rate(4.0, smoothing=0.1)[1]) == pytest.approx(2 * 1.9 / (0.1 * 4))
    # The chapter's momentum is the heavy ball of 1 - beta at beta times the rate.
    assert 0.1 * float(implied_rate(4.0, smoothing=0.1)[1]) == pytest.approx(float(implied_rate(4.0, 0.9)[1]))
    many = jax.vmap(lambda value, kept: implied_rate(value, kept)[1])(jnp.asarray([4.0, 2.0]), jnp.asarray([0.0, 0.5]))
    np.testing.assert_allclose(many, [0.5, 1.5])


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_without_positive_curvature_nothing_diverges(value: float) -> None:
    assert [float(rate) for rate in implied_rate(value)] == [np.inf, np.inf]


def test_two_kinds_of_momentum_at_once_are_refused() -> None:
    with pytest.raises(RequestError, match=r"one kind of momentum; got momentum=0\.9 and smoothing=0\.1") as refusal:
        implied_rate(1.0, momentum=0.9, smoothing=0.1)
    assert "\n" not in str(refusal.value)
