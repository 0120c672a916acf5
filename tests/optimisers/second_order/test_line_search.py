"""The line search (rows C11, H7) on lines whose conditions can be checked by hand, in 64 bits and at the edge of 32."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.criteria.losses import GaussianLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Objective
from gradwise.models.mlp import Mlp
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.optimisers.second_order.line_search import _is_noisy, wolfe_search
from gradwise.runtime.line_search_state import stalled
from gradwise.testing.contracts import a_problem

# --- the conditions of Wolfe on hard lines (More and Thuente 1994, functions 1 to 3, and two plain ones)


def rational(t):
    return -t / (t**2 + 2.0)


def quintic(t):
    return (t + 0.004) ** 5 - 2.0 * (t + 0.004) ** 4


def wavy(t):
    """Falls to t = 1 with a kink smoothed out, and ripples on it."""
    beta, ripples = 0.01, 39.0
    middle = (t - 1.0) ** 2 / (2.0 * beta) + beta / 2.0
    plain = jnp.where(t <= 1.0 - beta, 1.0 - t, jnp.where(t >= 1.0 + beta, t - 1.0, middle))
    return plain + 2.0 * (1.0 - beta) / (ripples * jnp.pi) * jnp.sin(ripples * jnp.pi * t / 2.0)


def bowl(t):
    return 3.0 * (t - 7.0) ** 2


def cliff(t):
    """Not a number beyond 0.3."""
    return jnp.where(t < 0.3, (t - 0.25) ** 2, jnp.nan)


def _look(both):
    """From value and slope to what a search asks for: these two, and the slope to be kept."""

    def look(t):
        value, slope = both(t)
        return value, slope, slope

    return look


@eqx.filter_jit
def _compiled(function, first, steps, tolerance):
    both = jax.value_and_grad(function)
    return wolfe_search(_look(both), *both(jnp.zeros(())), first, steps=steps, tolerance=tolerance)


def _search(function, first, steps, tolerance):
    return _compiled(function, *(jnp.asarray(number, float) for number in (first, steps, tolerance)))


@pytest.mark.parametrize("function", [rational, quintic, wavy, bowl, cliff])
def test_the_step_meets_both_conditions_from_any_first_step(function) -> None:
    with jax.enable_x64(True):
        height, tilt = (float(one) for one in jax.value_and_grad(function)(jnp.asarray(0.0)))
        for first in (1e-3, 0.1, 1.0, 10.0, 1e3):
            for tolerance in (0.9, 0.1, 0.001):
                found = _search(function, first, 60.0, tolerance)
                case = (first, tolerance, float(found.step))
                assert bool(found.found), case
                step = float(found.step)
                value, slope = (float(one) for one in jax.value_and_grad(function)(jnp.asarray(step)))
                assert float(found.value) == pytest.approx(value, rel=1e-12, abs=1e-15), case
                assert float(found.kept) == pytest.approx(slope, rel=1e-9, abs=1e-13), case
                assert value <= height + 1e-4 * step * tilt, case
                assert abs(slope) <= tolerance * abs(tilt) * (1 + 1e-9), case


def test_on_a_parabola_interpolation_lands_in_the_minimum() -> None:
    """A cubic through two points of a parabola is the parabola: outwards by the slopes, inwards by the values."""
    with jax.enable_x64(True):
        for first in (1.0, 10.0):
            assert float(_search(bowl, first, 2.0, 1e-8).step) == pytest.approx(7.0, rel=1e-12)


def test_steps_bound_the_evaluations_and_a_decrease_is_kept() -> None:
    assert not bool(_search(bowl, 100.0, 1.0, 0.1).found)
    assert float(_search(bowl, 100.0, 1.0, 0.1).step) == 0.0
    short = _search(bowl, 1.0, 1.0, 0.1)  # lower, but still steep: the best there is in one step
    assert (bool(short.found), float(short.step)) == (True, 1.0)

    seen = []

    def watched(t):
        jax.debug.callback(lambda: seen.append(1))
        return jnp.abs(t) + t**2 * 0.0 + jnp.where(t == 0, -1.0, 0.0)

    both = jax.value_and_grad(watched)
    found = wolfe_search(_look(both), -jnp.ones(()), -jnp.ones(()), 1.0, steps=7.0, tolerance=0.9)
    jax.block_until_ready(found.step)
    jax.effects_barrier()
    assert not bool(found.found)
    assert len(seen) == 7


@pytest.mark.parametrize("slope", [1.0, 0.0, np.nan, -np.inf])
def test_a_direction_that_does_not_descend_is_not_searched(slope: float) -> None:
    found = wolfe_search(
        _look(jax.value_and_grad(bowl)),
        jnp.asarray(1.0),
        jnp.asarray(slope, jnp.float32),
        1.0,
        steps=9.0,
        tolerance=0.9,
    )
    assert (bool(found.found), float(found.step)) == (False, 0.0)


def test_where_the_criterion_is_blind_the_slopes_decide() -> None:
    """1000 + (t - 1e-3)^2 / 2 does not change in 32 bits around its minimum, but its slope does."""

    def flat(t):
        return 1000.0 + 0.5 * (t - 1e-3) ** 2

    found = _search(flat, 1.0e-4, 20.0, 0.1)
    assert bool(found.found)
    assert float(found.value) == 1000.0
    assert float(found.step) == pytest.approx(1e-3, rel=0.1)

    def steepening(t):  # as flat for the criterion, but its slope never falls
        return 1000.0 - 1e-8 * (t + t**2)

    assert not bool(_search(steepening, 1.0e-4, 5.0, 0.1).found)


def test_a_rise_within_rounding_is_no_decrease_where_a_fall_was_promised() -> None:
    """The slope promises 1; the criterion at the trial is higher by half a rounding, and flat."""

    def table(t):
        return jnp.where(t == 0, 1.0, 1.0 + 2e-7), jnp.where(t == 0, -1.0, 0.0)

    found = wolfe_search(_look(table), jnp.ones(()), -jnp.ones(()), 1.0, steps=3.0, tolerance=0.9)
    assert not bool(found.found)


def test_a_population_of_searches_equals_each_alone() -> None:
    firsts = jnp.asarray([0.01, 1.0, 30.0, 400.0])
    together = jax.jit(jax.vmap(lambda first: _search(wavy, first, 40.0, 0.1)))(firsts)
    for number, first in enumerate(firsts):
        alone = _search(wavy, first, 40.0, 0.1)
        np.testing.assert_allclose(together.step[number], alone.step, rtol=1e-6)
        assert bool(together.found[number]) == bool(alone.found)


# --- what a descent knows of its present point


def _network_problem(**parts) -> tuple[Objective, object]:
    objective, parameters = a_problem()
    plain = objective(0)
    return eqx.tree_at(
        lambda one: tuple(getattr(one, name) for name in parts), plain, tuple(parts.values())
    ), parameters


def test_noise_is_read_off_the_program() -> None:
    plain, parameters = _network_problem()
    assert not _is_noisy(plain, parameters)
    blended, _ = _network_problem(criterion=Supervised(GaussianLoss(), mixup=0.3))
    assert _is_noisy(blended, parameters)
    from gradwise.specs.paths import trainable

    dropping, rest = trainable(Mlp(widths=(4,), dropout=0.5).build((3,), 2, key=jr.key(0)))
    dropped, _ = _network_problem(rest=rest)
    assert _is_noisy(dropped, dropping)


def _one_update(state, parameters, objective):
    value, gradient = objective.value_and_gradient(parameters)
    return Lbfgs().build().update(gradient, state, parameters, value=value, objective=objective)


def test_a_point_or_batch_changed_by_others_is_seen() -> None:
    """The gradient of the last search is used again only where it still is the gradient."""
    plain, parameters = _network_problem()
    update = eqx.filter_jit(_one_update)
    moves, state = update(Lbfgs().build().init(parameters), parameters, plain)
    moved = eqx.apply_updates(parameters, moves)
    elsewhere = jax.tree.map(lambda leaf: leaf + 0.1, moved)
    fewer = plain.on(plain.rows, plain.batch.present.at[:7].set(0.0))
    unknown = state._replace(known=state.known._replace(value=jnp.full((), jnp.nan)))
    for point, objective in ((moved, plain), (elsewhere, plain), (moved, fewer)):
        ours, _ = update(state, point, objective)
        anew, _ = update(unknown, point, objective)
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(anew), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_each_update_on_the_whole_set_asks_once_and_the_caller_s_gradient_is_not_computed() -> None:
    """Ten updates whose first trial is taken: ten evaluations and one at the start."""
    plain, parameters = _network_problem()
    seen = []

    class Watched(Supervised):
        def of_parameters(self, model):
            jax.debug.callback(lambda: seen.append(1))
            return jnp.zeros(())

    watched = eqx.tree_at(lambda one: one.criterion, plain, Watched(GaussianLoss()))

    @eqx.filter_jit
    def run(parameters, state):
        def body(carry, _):
            here, state = carry
            gradient, value = jax.tree.map(jnp.zeros_like, here), jnp.zeros(())  # neither is read
            moves, state = Lbfgs().build().update(gradient, state, here, value=value, objective=watched)
            return (eqx.apply_updates(here, moves), state), state.step

        return jax.lax.scan(body, (parameters, state), None, length=10)

    (_, state), taken = run(parameters, Lbfgs().build().init(parameters))
    jax.block_until_ready(taken)
    jax.effects_barrier()
    assert not bool(stalled(state))
    extra = int(np.sum(np.asarray(taken)[1:] != 1.0))  # a step that is not 1 took more than one trial
    assert 11 <= len(seen) <= 11 + 3 * (extra + 1)
