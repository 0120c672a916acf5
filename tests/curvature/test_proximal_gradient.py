"""Proximal gradient codes against scikit-learn's lasso, their proved rate, and where there is nothing to code."""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.curvature.proximal_gradient import fista, largest_eigenvalue_bound, lasso_codes, soft_threshold

solve = jax.jit(lasso_codes, static_argnums=3)


def _problem(units: int, size: int = 12, rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(units)
    dictionary = draw.normal(size=(units, size))
    return dictionary / np.linalg.norm(dictionary, axis=1, keepdims=True), draw.normal(size=(rows, size))


def _reference(dictionary: np.ndarray, inputs: np.ndarray, penalty: float) -> np.ndarray:
    """Scikit-learn's coordinate descent; its squared error carries 1/(2n), n the inputs of an example."""
    from sklearn.linear_model import Lasso

    model = Lasso(penalty / inputs.shape[1], fit_intercept=False, tol=1e-15, max_iter=100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the duality gap stays above the impossible tolerance
        return np.stack([model.fit(dictionary.T, x).coef_.copy() for x in inputs])


def _objective(dictionary: np.ndarray, inputs: np.ndarray, codes: np.ndarray, penalty: float) -> np.ndarray:
    return 0.5 * ((inputs - codes @ dictionary) ** 2).sum(1) + penalty * np.abs(codes).sum(1)


def test_the_soft_threshold_minimises_its_own_objective() -> None:
    grid = np.linspace(-3.0, 3.0, 60_001)
    for value, amount in ((1.3, 0.5), (-1.3, 0.5), (0.4, 0.5), (-0.5, 0.5), (2.0, 0.0)):
        best = grid[np.argmin((grid - value) ** 2 / 2 + amount * np.abs(grid))]
        assert float(soft_threshold(jnp.asarray(value), amount)) == pytest.approx(best, abs=1e-4)
    assert float(soft_threshold(jnp.asarray(0.49), 0.5)) == 0.0


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 4), (200, 64)])
def test_the_curvature_is_never_underestimated_and_hardly_over(shape: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    flat = np.linalg.qr(draw.normal(size=(max(shape), min(shape))))[0]  # all eigenvalues alike: the worst case
    flat = flat if shape[0] >= shape[1] else flat.T
    bound = jax.jit(largest_eigenvalue_bound)
    for scale in (1.0, 1e-12, 1e12):
        for matrix in (draw.normal(size=shape), np.ones(shape), flat):
            true = np.linalg.svd(scale * matrix, compute_uv=False)[0] ** 2
            ratio = float(bound(jnp.asarray(scale * matrix, jnp.float32))) / true
            assert 1.0 - 1e-6 <= ratio <= min(shape) ** (1 / 32) * (1 + 1e-5)


@pytest.mark.parametrize("units", [8, 20, 40])  # fewer atoms than inputs, more, and so many that halves are cheaper
def test_codes_are_those_of_scikit_learns_lasso(units: int) -> None:
    dictionary, inputs = _problem(units)
    expected = _reference(dictionary, inputs, 0.2)
    short = solve(jnp.asarray(dictionary, jnp.float32), jnp.asarray(inputs, jnp.float32), 0.2, 3000)
    np.testing.assert_allclose(short, expected, atol=1e-4)
    with jax.enable_x64(True):
        codes = np.asarray(solve(jnp.asarray(dictionary), jnp.asarray(inputs), 0.2, 20_000))
        np.testing.assert_allclose(codes, expected, atol=1e-8)
        one_by_one = jax.vmap(lambda x: solve(jnp.asarray(dictionary), x, 0.2, 20_000))(jnp.asarray(inputs))
        np.testing.assert_allclose(one_by_one, codes, atol=1e-11)
    assert 0.2 < np.mean(codes == 0) < 0.9
    np.testing.assert_array_equal(codes == 0, expected == 0)


def test_fista_keeps_its_proved_rate_and_leaves_plain_steps_behind() -> None:
    dictionary, inputs = _problem(20)
    penalty = 0.05
    best = _reference(dictionary, inputs, penalty)
    with jax.enable_x64(True):
        gram, match = jnp.asarray(dictionary @ dictionary.T), jnp.asarray(inputs @ dictionary.T)
        start = jnp.zeros_like(match)
        curvature = float(np.linalg.eigvalsh(dictionary @ dictionary.T)[-1])

        @partial(jax.jit, static_argnums=0)
        def run(method: Any, bound: float, steps: int) -> jax.Array:
            return method(lambda z: z @ gram - match, start, bound, penalty, steps)

        def plain(gradient: Any, z: jax.Array, bound: float, penalty: float, steps: int) -> jax.Array:
            turn = lambda _, z: soft_threshold(z - gradient(z) / bound, penalty / bound)  # noqa: E731
            return jax.lax.fori_loop(0, steps, turn, z)

        def excess(method: Any, steps: int) -> np.ndarray:
            codes = run(method, curvature, steps)
            found = _objective(dictionary, inputs, np.asarray(codes), penalty)
            return found - _objective(dictionary, inputs, best, penalty)

        for steps in (1, 2, 5, 10, 20, 50, 100, 200):
            bound = 2.0 * curvature * (best**2).sum(1) / (steps + 1) ** 2
            fast = excess(fista, steps)
            assert np.all(fast <= bound)
            assert np.all(fast >= -1e-12)
            if steps >= 20:
                assert fast.sum() < 0.5 * excess(plain, steps).sum()
        # The step of a curvature too small by 2.2 is too long: the bound above is what keeps codes finite.
        wild = run(plain, curvature / 2.2, 1000)
        assert not np.all(np.abs(wild) < 1e3)


def test_the_pull_is_a_lasso_on_more_rows() -> None:
    """1/2|x - D'z|^2 + alpha/2|z - f|^2 is a squared error whose dictionary has sqrt(alpha) I beside it."""
    dictionary, inputs = _problem(20)
    towards = np.random.default_rng(1).normal(size=(6, 20))
    wider = np.concatenate([dictionary, np.sqrt(0.7) * np.eye(20)], axis=1)
    expected = _reference(wider, np.concatenate([inputs, np.sqrt(0.7) * towards], axis=1), 0.3)
    with jax.enable_x64(True):
        codes = solve(*map(jnp.asarray, (dictionary, inputs)), 0.3, 500, pull=0.7, towards=jnp.asarray(towards))
        np.testing.assert_allclose(codes, expected, atol=1e-9)
    assert 0.1 < np.mean(np.asarray(codes) == 0) < 0.9


def test_nothing_to_code_gives_zeros_and_no_nan() -> None:
    dictionary, inputs = (jnp.asarray(part, jnp.float32) for part in _problem(20))
    nothing = jnp.zeros_like
    assert float(largest_eigenvalue_bound(nothing(dictionary))) == 0.0
    slope = jax.jit(jax.grad(lambda atoms, rows: jnp.sum(lasso_codes(atoms, rows, 0.1, 50) ** 2)))
    for atoms, rows in ((nothing(dictionary), inputs), (dictionary, nothing(inputs))):
        np.testing.assert_array_equal(solve(atoms, rows, 0.1, 50), 0.0)
        assert np.all(np.isfinite(slope(atoms, rows)))
    most = float(jnp.max(jnp.abs(inputs @ dictionary.T)))  # from this penalty on all codes are 0
    np.testing.assert_array_equal(solve(dictionary, inputs, 1.001 * most, 50), 0.0)
    assert np.any(np.asarray(solve(dictionary, inputs, 0.99 * most, 50)) != 0.0)


def test_what_depends_on_the_dictionary_alone_is_computed_once_under_vmap() -> None:
    dictionary, inputs = (jnp.asarray(part, jnp.float32) for part in _problem(20))
    program = str(jax.make_jaxpr(jax.vmap(lambda x: lasso_codes(dictionary, x, 0.1, 5)))(inputs))
    assert "f32[20,20]" in program
    assert "f32[6,20]" in program
    assert "f32[6,20,20]" not in program
    assert "f32[6,12,12]" not in program
