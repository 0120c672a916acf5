"""One optimiser after another (row H7): each phase is exactly the run that it stands for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import gradwise
import gradwise.defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.optimisers.wrappers.two_stages import TwoStages
from gradwise.runtime.line_search_state import LineSearch, stalled
from gradwise.specs.dataset import Classes, Dataset
from gradwise.testing.contracts import check_optimiser
from gradwise.testing.spec_contracts import check_spec
from gradwise.training.interval import advance
from gradwise.training.state import init
from gradwise.training.stopping import Patience
from tests.marks import parametrize_one_quick

RNG = np.random.default_rng(2)
T = 46
X = RNG.normal(size=(T, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 3, T)


@pytest.mark.slow
def test_the_contracts() -> None:
    """As for L-BFGS, few updates: rounding grows."""
    check_spec(TwoStages())
    check_optimiser(TwoStages(Sgd(0.1), Lbfgs(), size=10), updates=10)


def problem(optimiser, batches, dropout: float = 0.0):
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(6,), activation=Tanh(), dropout=dropout),
        criterion=Supervised(SoftmaxLoss(), penalties=(L2(0.5),)),
        batches=batches,
        optimiser=optimiser,
    )
    examples = Examples(jnp.asarray(X), jnp.asarray(CLASSES))
    return init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(1))


_once = eqx.filter_jit(lambda task, state: advance(task, state, 1)[0])


def run(task, state, updates: int):
    for _ in range(updates):
        state = _once(task, state)
    return state


def close(one, other, **tolerance) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@parametrize_one_quick(("order", "dropout"), [(Fixed, 0.0), (Reshuffled, 0.3)])
def test_the_first_epochs_are_a_run_with_small_batches(order, dropout: float) -> None:
    """46 examples in batches of 10, the last of 6: order, presence, momentum and noise are all those of that run."""
    first = HeavyBall(0.1, momentum=0.8)
    task, state = problem(TwoStages(first, Lbfgs(), epochs=2.0, size=10), order(1000), dropout)
    ours = run(task, state, 2)
    task, state = problem(first, order(10), dropout)
    alone = run(task, state, 10)
    close(ours.parameters, alone.parameters, rtol=1e-5, atol=1e-6)
    close(ours.optimiser.first, alone.optimiser, rtol=1e-5, atol=1e-6)
    assert not bool(ours.optimiser.began)
    assert float(TwoStages(first).rate(ours.optimiser)) == pytest.approx(0.1)


def test_large_batches_that_do_not_divide_the_set_leave_nothing_out() -> None:
    """B = 20 of T = 46 in small ones of 8: the last batch of 6 has small ones without examples, which are skipped."""
    first = HeavyBall(0.1, momentum=0.8)
    task, state = problem(TwoStages(first, Lbfgs(), epochs=1.0, size=8), Fixed(20))
    ours = run(task, state, 3)
    here, inner = state.parameters, first.build().init(state.parameters)
    task_objective = eqx.filter_jit(
        lambda task, here, rows, present: task.objective(
            _gathered(task, rows, present), jnp.zeros((), jnp.int32)
        ).value_and_gradient(here)
    )
    for start in (0, 8, 16, 20, 28, 36, 40):
        end = min(start + 8, {0: 20, 8: 20, 16: 20, 20: 40, 28: 40, 36: 40, 40: 46}[start])
        rows = np.zeros(8, np.int32)
        rows[: end - start] = np.arange(start, end)
        value, gradient = task_objective(task, here, jnp.asarray(rows), jnp.asarray(np.arange(8) < end - start, float))
        moves, inner = first.build().update(gradient, inner, here, value=value)
        here = optax.apply_updates(here, moves)
    close(ours.parameters, here, rtol=1e-5, atol=1e-6)


def _gathered(task, rows, present):
    from gradwise.curvature.objective import gather

    return gather(task.train, rows, present)


@pytest.mark.slow
def test_then_the_second_goes_on_from_there() -> None:
    """After one epoch: L-BFGS started afresh at the point where gradient descent ended."""
    task, state = problem(TwoStages(Sgd(0.3), Lbfgs(), epochs=1.0, size=10), Fixed(1000))
    handed = run(task, state, 1)
    ours = run(task, handed, 5)
    task, state = problem(Lbfgs(), Fixed(1000))
    fresh = eqx.tree_at(lambda s: s.parameters, state, handed.parameters)
    alone = run(task, fresh, 5)
    close(ours.parameters, alone.parameters, rtol=1e-4, atol=1e-5)
    assert bool(ours.optimiser.began)
    assert not bool(handed.optimiser.began)
    assert float(TwoStages().rate(ours.optimiser)) == float(ours.optimiser.then.step)
    close(ours.optimiser.first, handed.optimiser.first, rtol=0)


@pytest.mark.slow
def test_what_is_judged_follows_the_phase_and_failures_of_the_first_do_not_count() -> None:
    optimiser = TwoStages(MovingAverage(Sgd(0.3), decay=0.9), Lbfgs(), epochs=1.0, size=10)
    task, state = problem(optimiser, Fixed(1000))
    one = run(task, state, 1)
    close(optimiser.judged(one.parameters, one.optimiser), one.optimiser.first.average, rtol=0)
    two = run(task, one, 1)
    close(optimiser.judged(two.parameters, two.optimiser), two.parameters, rtol=0)

    optimiser = TwoStages(Lbfgs(line_steps=1, tolerance=1e-6), Lbfgs(), epochs=1.0, size=46)
    task, state = problem(optimiser, Fixed(1000))
    failed = state.optimiser.first._replace(searches=LineSearch(jnp.asarray(5, jnp.int32)))
    state = eqx.tree_at(lambda s: s.optimiser, state, state.optimiser._replace(first=failed))
    assert not bool(stalled(run(task, state, 1).optimiser))


@pytest.mark.slow
def test_a_fit_on_digits_changes_over_and_ends_by_patience() -> None:
    from sklearn.datasets import load_digits

    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(32,), activation=Tanh(), dropout=0.0),
        batches=Reshuffled(10_000),
        optimiser=TwoStages(Sgd(0.1), Lbfgs(), epochs=8, size=32),
        stopping=Patience(initial_examples=20_000, initial_epochs=0, epochs=400),
    )
    dataset = Dataset(*load_digits(return_X_y=True), Classes(np.arange(10)))
    result = gradwise.train(recipe, dataset, key=jr.key(0))
    assert result.outcome.name == "patience"
    assert result.test < 0.06
    rates = result.history["learning_rate"]
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] != pytest.approx(0.1)
