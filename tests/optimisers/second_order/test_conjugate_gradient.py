"""Conjugate gradient (row C11): on a quadratic all formulas are the linear method; each by hand besides.

SciPy's optimum, Rosenbrock's valley, failing searches and early stopping are tested beside L-BFGS's.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.optimisers.second_order.conjugate_gradient import _FORMULAS, ConjugateGradient, _aim, _begin, _learn
from gradwise.optimisers.second_order.line_search import Move
from gradwise.specs.contracts import AbstractCriterion
from gradwise.testing.contracts import a_problem, check_optimiser
from gradwise.testing.spec_contracts import check_spec

RNG = np.random.default_rng(1)


@pytest.mark.slow
def test_the_contracts() -> None:
    """As for L-BFGS, few updates: rounding grows."""
    check_spec(ConjugateGradient())
    check_optimiser(ConjugateGradient(iterations=2), updates=5)


# --- the quadratic: a linear network under squared error, its batch the whole set


def _quadratic(kind: type):
    """x'Ax/2 - b'x as a criterion that `Objective` can carry, and its matrices."""
    size = 8
    root = RNG.normal(size=(size, size))
    matrix, linear = root @ root.T + np.eye(size), RNG.normal(size=size)

    class Criterion(AbstractCriterion):
        def __call__(self, model, batch, *, key):
            return 0.5 * model @ jnp.asarray(matrix, kind) @ model - jnp.asarray(linear, kind) @ model, {}

        def examples(self, model, inputs, targets):
            raise AssertionError("the search along a line asks for the value of a batch")

    objective = a_problem()[0](0)
    objective = eqx.tree_at(lambda one: (one.criterion, one.rest), objective, (Criterion(), None))
    return objective, matrix, linear


def _linear_method(matrix: np.ndarray, linear: np.ndarray, updates: int) -> np.ndarray:
    """Hestenes and Stiefel (1952) from 0."""
    place = np.zeros(len(linear))
    rest = linear - matrix @ place
    direction = rest
    places = [place]
    for _ in range(updates):
        step = (rest @ rest) / (direction @ matrix @ direction)
        place = place + step * direction
        new = rest - step * matrix @ direction
        direction = new + (new @ new) / (rest @ rest) * direction
        rest = new
        places.append(place)
    return np.stack(places)


@pytest.mark.parametrize("formula", _FORMULAS)
def test_with_exact_searches_on_a_quadratic_it_is_the_linear_method(formula: str) -> None:
    """Eight updates in eight dimensions reach the solution; on the way every point agrees to 1e-6."""
    with jax.enable_x64(True):
        objective, matrix, linear = _quadratic(np.float64)
        optimiser = ConjugateGradient(formula, line_steps=60, tolerance=1e-9)

        @jax.jit
        def run(start):
            def body(carry, _):
                here, state = carry
                value, gradient = objective.value_and_gradient(here)
                moves, state = optimiser.build().update(gradient, state, here, value=value, objective=objective)
                return (optax.apply_updates(here, moves), state), here

            return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=9)

        (_, _), places = run(jnp.zeros(8))
        np.testing.assert_allclose(places, _linear_method(matrix, linear, 8), atol=1e-6)
        np.testing.assert_allclose(places[8], np.linalg.solve(matrix, linear), atol=1e-6)


# --- the shares by hand


def _move(before, after, direction, step=0.5) -> Move:
    before, after, direction = (jnp.asarray(one, jnp.float32) for one in (before, after, direction))
    return Move(jnp.asarray(step), direction, jnp.vdot(before, direction), before, after)


def test_each_formula_by_hand() -> None:
    """g = (3, 0), g' = (1, 2), d = (-3, 0): y = (-2, 2), g.g = 9, g'.g' = 5, g'.y = 2, d.y = 6, y.y = 8, d.g' = -3."""
    move = _move([3.0, 0.0], [1.0, 2.0], [-3.0, 0.0])
    expected = {"fletcher-reeves": 5 / 9, "polak-ribiere": 2 / 9, "hager-zhang": (2 - 2 * 8 / 6 * -3) / 6}
    for formula, share in expected.items():
        last = _learn(formula, 10.0)(_begin(jnp.zeros(2)), move)
        assert float(last.share) == pytest.approx(share, rel=1e-6), formula
        direction, first = _aim(last, move.after)
        np.testing.assert_allclose(direction, [-1 - 3 * share, -2.0], rtol=1e-6)
        slope = -5.0 - 3 * share
        assert float(first) == pytest.approx(min(0.5 * -9.0 / slope, 5.0), rel=1e-6)  # the same promised fall


def test_it_starts_anew_where_gradients_overlap_or_the_share_would_be_negative() -> None:
    overlapping = _move([3.0, 0.0], [2.0, 1.0], [-3.0, 0.0])  # g.g' = 6, g'.g' = 5
    assert float(_learn("fletcher-reeves", 1.0)(_begin(jnp.zeros(2)), overlapping).share) == 0.0
    assert float(_learn("fletcher-reeves", 1.3)(_begin(jnp.zeros(2)), overlapping).share) > 0.0
    assert float(_learn("polak-ribiere", 1.3)(_begin(jnp.zeros(2)), overlapping).share) == 0.0  # g'.y = -1


def test_no_gradient_is_no_direction_and_no_nan() -> None:
    still = _move([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], step=0.0)
    for formula in _FORMULAS:
        direction, first = _aim(_learn(formula, 1.0)(_begin(jnp.zeros(2)), still), still.after)
        np.testing.assert_array_equal(direction, 0.0)
        assert np.isfinite(first)
