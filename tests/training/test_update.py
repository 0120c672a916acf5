"""One update (row B1), against gradients written by hand in NumPy."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import gather
from gradwise.data.batches import Fixed, Reshuffled, Stream
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.training.state import State
from gradwise.training.update import gather_batch, step

compiled_step = eqx.filter_jit(step)

Start = Callable[..., tuple[Any, State]]


def by_hand(
    weight: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray, w: np.ndarray, slots: int, rate: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One update of softmax regression: new parameters, and each example's loss before it."""
    logits = x @ weight.T + bias
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    losses = -logs[np.arange(len(y)), y]
    delta = (np.exp(logs) - np.eye(len(bias))[y]) * w[:, None] / slots
    return weight - rate * delta.T @ x, bias - rate * delta.sum(0), losses


def _linear(start: Start, **parts: Any) -> tuple[Any, State, dict[str, np.ndarray]]:
    chosen = {"model": Mlp(widths=()), "batches": Fixed(8), "optimiser": Sgd(learning_rate=0.3), **parts}
    problem, state = start(**chosen)
    output = problem.model(state.parameters).output
    arrays = {
        "x": np.asarray(problem.train.inputs, np.float64),
        "y": np.asarray(problem.train.targets),
        "weight": np.asarray(output.weight, np.float64),
        "bias": np.asarray(output.bias, np.float64),
    }
    return problem, state, arrays


def test_an_update_is_the_mean_gradient_times_the_rate(start: Start) -> None:
    problem, state, a = _linear(start)
    rows = jnp.arange(8)
    new, terms = compiled_step(problem, state, gather_batch(problem, rows, jnp.ones(8)))
    weight, bias, losses = by_hand(a["weight"], a["bias"], a["x"][:8], a["y"][:8], np.ones(8), 8, 0.3)
    np.testing.assert_allclose(new.parameters.output.weight, weight, rtol=2e-6)
    np.testing.assert_allclose(new.parameters.output.bias, bias, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(terms["loss"], losses, rtol=2e-6)
    np.testing.assert_allclose(terms["total"], losses.mean(), rtol=2e-6)
    assert int(new.update) == 1


def test_slots_beyond_the_end_count_for_nothing(start: Start) -> None:
    problem, state, a = _linear(start)
    present = jnp.array([1.0] * 5 + [0.0] * 3)
    batch = gather_batch(problem, jnp.arange(8), present)
    np.testing.assert_array_equal(batch.weights, present)
    new, _ = compiled_step(problem, state, batch)
    # Five of eight slots: the short batch moves the parameters by five eighths of its mean gradient, so that each
    # example counts alike over the epoch.
    weight, bias, _ = by_hand(a["weight"], a["bias"], a["x"][:5], a["y"][:5], np.ones(5), 8, 0.3)
    np.testing.assert_allclose(new.parameters.output.weight, weight, rtol=2e-6)
    np.testing.assert_allclose(new.parameters.output.bias, bias, rtol=2e-6, atol=1e-7)


def test_a_weight_of_zero_is_as_if_the_row_were_absent(start: Start) -> None:
    weights = np.where(np.arange(37) % 3 == 0, 0.0, 1.0)
    problem, state, a = _linear(start, weights=(weights, None))
    with_zeros, _ = compiled_step(problem, state, gather_batch(problem, jnp.arange(8), jnp.ones(8)))
    w = weights[:8]
    kept = w > 0
    weight, _, _ = by_hand(a["weight"], a["bias"], a["x"][:8][kept], a["y"][:8][kept], w[kept], 8, 0.3)
    np.testing.assert_allclose(with_zeros.parameters.output.weight, weight, rtol=2e-6)
    # The same update, were those rows poisoned with anything finite.
    poisoned = eqx.tree_at(
        lambda p: p.train.inputs, problem, jnp.where(jnp.asarray(weights)[:, None] == 0, 100.0, problem.train.inputs)
    )
    same, _ = compiled_step(poisoned, state, gather_batch(poisoned, jnp.arange(8), jnp.ones(8)))
    np.testing.assert_array_equal(same.parameters.output.weight, with_zeros.parameters.output.weight)


def test_a_weight_of_two_is_as_if_the_row_stood_there_twice(start: Start) -> None:
    doubled, state, _ = _linear(start, weights=([2.0] + [1.0] * 36, None))
    plain, _, _ = _linear(start)
    one, _ = compiled_step(doubled, state, gather_batch(doubled, jnp.array([0, 1, 2, 3]), jnp.ones(4)))
    twice, _ = compiled_step(plain, state, gather_batch(plain, jnp.array([0, 0, 1, 2, 3]), jnp.ones(5)))
    first = jax.tree.map(lambda new, old: 4 * (new - old), one.parameters, state.parameters)
    second = jax.tree.map(lambda new, old: 5 * (new - old), twice.parameters, state.parameters)
    for mine, theirs in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_penalty_weighs_its_share_of_the_training_set(start: Start) -> None:
    criterion = Supervised(SoftmaxLoss(), penalties=(L2(5.0),))
    problem, state, a = _linear(start, criterion=criterion)
    plain, _, _ = _linear(start)
    batch = gather_batch(problem, jnp.arange(8), jnp.array([1.0] * 6 + [0.0] * 2))
    with_penalty, _ = compiled_step(problem, state, batch)
    without, _ = compiled_step(plain, state, batch)
    extra = np.asarray(with_penalty.parameters.output.weight - without.parameters.output.weight)
    np.testing.assert_allclose(extra, -0.3 * (6 / 8) * 2 * 5.0 * a["weight"] / 37, rtol=1e-4, atol=1e-6)


def test_a_step_leaves_the_best_and_the_stopping_rule_alone(start: Start) -> None:
    problem, state, _ = _linear(start)
    new, _ = compiled_step(problem, state, gather_batch(problem, jnp.arange(8), jnp.ones(8)))
    assert eqx.tree_equal((new.best, new.stopping), (state.best, state.stopping))
    assert not eqx.tree_equal(new.parameters, state.parameters)
    assert np.isfinite(np.asarray(state.parameters.output.weight)).all()  # the state passed in is still there


@pytest.mark.parametrize(("kind", "totals"), [(Stream, [8, 16, 24, 32, 37, 45, 53]), (Fixed, [37] * 7)])
def test_a_penalty_is_divided_by_the_examples_seen_so_far_in_a_stream_and_else_by_all(
    start: Start, kind: Any, totals: list[int]
) -> None:
    """Two passes, the last batch of each with 5 of 8 slots; a weight's gradient is g / B + (B' / (B t)) 2 lambda w.

    The criterion taken apart, and that of the update to come, have the same T.
    """
    problem, state, a = _linear(start, batches=kind(8), criterion=Supervised(SoftmaxLoss(), penalties=(L2(3.0),)))
    rows, presents, _ = problem.recipe.batches.indices(jnp.arange(7), len(problem.train), key=problem.key)
    weight, bias = a["weight"], a["bias"]
    for number, total in enumerate(totals):
        objective = problem.objective(gather_batch(problem, rows[number], presents[number]), state.update)
        in_use = float(presents[number].sum())
        square = float(jnp.sum(state.parameters.output.weight**2))
        assert float(objective.penalty(state.parameters)) == pytest.approx(in_use / 8 * 3.0 * square / total, rel=1e-5)
        assert float(objective.slots(jnp.arange(3)).batch.total) == total
        if number + 1 < len(totals):
            assert float(objective.upcoming().batch.total) == totals[number + 1]
        at, w = np.asarray(rows[number]), np.asarray(presents[number])
        decayed = weight * (0.3 * in_use / 8 * 2 * 3.0 / total)
        weight, bias, _ = by_hand(weight, bias, a["x"][at], a["y"][at], w, 8, 0.3)
        weight = weight - decayed
        state, _ = compiled_step(problem, state, gather_batch(problem, rows[number], presents[number]))
        np.testing.assert_allclose(state.parameters.output.weight, weight, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(state.parameters.output.bias, bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("updates", [1, 2])
def test_every_update_has_randomness_of_its_own(start: Start, updates: int) -> None:
    problem, state = start(model=Mlp(widths=(8,), dropout=0.5))
    batch = gather_batch(problem, jnp.arange(8), jnp.ones(8))
    _, terms = compiled_step(problem, state, batch)
    later = State(state.parameters, state.optimiser, state.stopping, state.best, state.update + updates)
    _, other = compiled_step(problem, later, batch)
    _, again = compiled_step(problem, state, batch)
    assert float(terms["total"]) == float(again["total"]) != float(other["total"])


def test_a_batch_of_all_examples_in_their_order_is_no_copy(start: Start) -> None:
    """Nothing is gathered, and the step is that of the same examples gathered."""
    problem, state = start(batches=Fixed(size=64), criterion=Supervised(SoftmaxLoss()))
    count = len(problem.train)
    rows, present, _ = problem.recipe.batches.indices(jnp.arange(1), count, key=problem.key)
    batch = gather_batch(problem, rows[0], present[0])
    np.testing.assert_array_equal(batch.rows, np.arange(count))
    assert batch.inputs is problem.train.inputs
    assert batch.targets is problem.train.targets
    gathered = gather(problem.train, rows[0], present[0])
    assert gathered.inputs is not problem.train.inputs
    ours, theirs = (step(problem, state, one)[0].parameters for one in (batch, gathered))
    for new, old in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_shuffled_batches_of_all_examples_stay_shuffled(start: Start) -> None:
    """An optimiser may take them in parts: `TwoStages` does."""
    problem, _ = start(batches=Reshuffled(size=64))
    rows, present, _ = problem.recipe.batches.indices(jnp.arange(1), len(problem.train), key=problem.key)
    batch = gather_batch(problem, rows[0], present[0])
    assert not np.array_equal(batch.rows, np.sort(batch.rows))
    np.testing.assert_array_equal(batch.inputs, problem.train.inputs[rows[0]])
