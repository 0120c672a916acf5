"""The compiled unit: what it learns, what it keeps, what it tells, and what memory it takes."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwise
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.averaging.parameter_average import PolyakAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.runtime import keys
from gradwise.specs.dataset import Dataset
from gradwise.specs.networks import apply_batch
from gradwise.specs.recipe import Recipe
from gradwise.training import interval as module
from gradwise.training.interval import advance, evaluate, interval, judge, judged_model
from gradwise.training.state import State, init
from gradwise.training.stopping import Off, Patience
from gradwise.training.update import gather_batch, step
from tests.marks import parametrize_one_quick

compiled_step = eqx.filter_jit(step)

RATE = 1.0  # high enough for validation to get worse again
Start = Callable[..., tuple[Any, State]]


def arrays_of(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def assert_same(first: Any, second: Any) -> None:
    for mine, theirs in zip(arrays_of(first), arrays_of(second), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def validation(problem: Any, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Error and loss of every validation example, in 64-bit NumPy."""
    logits = np.asarray(apply_batch(model, problem.valid.inputs, None), np.float64)
    targets = np.asarray(problem.valid.targets)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return (logits.argmax(1) != targets).astype(float), -logs[np.arange(len(targets)), targets]


@pytest.fixture(scope="module")
def driven(start: Start) -> tuple[Any, list[Any], list[Any], State]:
    """Twelve intervals of three updates: the problem, the rows, the parameters after each, the last state."""
    problem, state = start(optimiser=Sgd(learning_rate=RATE))
    rows, parameters = [], []
    for _ in range(12):
        state, row = interval(problem, state, 3)
        rows.append(jax.device_get(row))
        parameters.append(jax.tree.map(np.array, state.parameters))
    return problem, rows, parameters, state


@parametrize_one_quick("size", [1, 8, 64])
def test_one_epoch_equals_a_loop_written_by_hand(start: Start, size: int) -> None:
    problem, state = start(model=Mlp(widths=()), batches=Reshuffled(size), optimiser=Sgd(learning_rate=0.2))
    output = problem.model(state.parameters).output
    weight, bias = np.asarray(output.weight, np.float64), np.asarray(output.bias, np.float64)
    x, y = np.asarray(problem.train.inputs, np.float64), np.asarray(problem.train.targets)
    updates, slots = problem.updates_per_epoch, min(size, 37)
    rows, present, _ = problem.recipe.batches.indices(jnp.arange(updates), 37, key=problem.key)
    losses, visited = [], []
    for batch, here in zip(np.asarray(rows), np.asarray(present), strict=True):
        own = batch[here > 0]
        visited += own.tolist()
        logits = x[own] @ weight.T + bias
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        losses += (-logs[np.arange(len(own)), y[own]]).tolist()
        delta = (np.exp(logs) - np.eye(3)[y[own]]) / slots  # the average over the slots of a batch
        weight, bias = weight - 0.2 * delta.T @ x[own], bias - 0.2 * delta.sum(0)
    assert sorted(visited) == list(range(37))
    state, row = interval(problem, state, updates)
    np.testing.assert_allclose(state.parameters.output.weight, weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.parameters.output.bias, bias, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(row.train_loss, np.mean(losses), rtol=1e-5)
    assert int(row.age_examples) == 37


def test_an_interval_equals_its_steps(start: Start, driven: Any) -> None:
    _, rows, parameters, _ = driven
    problem, state = start(optimiser=Sgd(learning_rate=RATE))
    update = jax.jit(lambda number: problem.recipe.batches.indices(number[None], 37, key=problem.key))
    for row, expected in zip(rows[:3], parameters[:3], strict=True):
        losses, scores, classes = [], [], []
        for _ in range(3):
            chosen, present, age = (part[0] for part in update(state.update))
            state, terms = compiled_step(problem, state, gather_batch(problem, chosen, present))
            here = np.asarray(present) > 0
            losses += np.asarray(terms["loss"])[here].tolist()
            scores += np.asarray(terms["score"])[here].tolist()
            classes += np.asarray(problem.train.targets)[np.asarray(chosen)[here]].tolist()
        for mine, theirs in zip(arrays_of(state.parameters), arrays_of(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert float(row.train_loss) == pytest.approx(np.mean(losses), rel=1e-5)
        assert float(row.train_score) == pytest.approx(np.mean(scores), rel=1e-6)
        by_class = [np.mean([s for s, k in zip(scores, classes, strict=True) if k == one]) for one in range(3)]
        np.testing.assert_allclose(row.train_score_by_class, by_class, rtol=1e-6)
        by_class = [np.mean([s for s, k in zip(losses, classes, strict=True) if k == one]) for one in range(3)]
        np.testing.assert_allclose(row.train_loss_by_class, by_class, rtol=1e-5)
        assert int(row.age_examples) == int(age)
        assert int(row.updates) == int(state.update)


def test_the_history_equals_a_recomputation(driven: Any) -> None:
    problem, rows, parameters, _ = driven
    targets = np.asarray(problem.valid.targets)
    for row, kept in zip(rows, parameters, strict=True):
        score, loss = validation(problem, problem.model(kept))
        assert float(row.valid_score) == pytest.approx(score.mean(), rel=1e-6)
        assert float(row.valid_loss) == pytest.approx(loss.mean(), rel=1e-5)
        by_class = [score[targets == k].mean() for k in range(3)]
        np.testing.assert_allclose(row.valid_score_by_class, by_class, rtol=1e-6)
        by_class = [loss[targets == k].mean() for k in range(3)]
        np.testing.assert_allclose(row.valid_loss_by_class, by_class, rtol=1e-5)
        assert float(row.learning_rate) == pytest.approx(RATE)
        assert int(row.diverged_examples) == -1
    assert [int(row.updates) for row in rows] == list(range(3, 39, 3))
    epochs, parts = np.divmod(np.arange(3, 39, 3), 5)
    assert [int(row.age_examples) for row in rows] == (37 * epochs + np.minimum(8 * parts, 37)).tolist()


def test_the_best_parameters_are_those_of_the_best_validation(driven: Any) -> None:
    problem, rows, parameters, state = driven
    order = [(float(row.valid_score), float(row.valid_loss)) for row in rows]
    best = min(range(len(rows)), key=lambda number: order[number])
    assert best < len(rows) - 1  # otherwise the best would be the last and prove nothing
    assert_same(state.best, parameters[best])
    assert not eqx.tree_equal(jax.tree.map(np.asarray, state.best), parameters[-1])
    so_far = (math.inf, math.inf)
    for row, pair in zip(rows, order, strict=True):
        assert bool(row.best) == (pair < so_far)
        so_far = min(so_far, pair)
    score, loss = validation(problem, eqx.combine(state.best, problem.rest))
    assert (score.mean(), loss.mean()) == pytest.approx(min(order), rel=1e-5)


def test_a_class_that_validation_lacks_has_no_mean(start: Start) -> None:
    problem, state = start()
    none = eqx.tree_at(lambda p: p.valid.targets, problem, jnp.zeros(20, jnp.int32))
    _, row = interval(none, state, 3)
    assert np.isnan(np.asarray(row.valid_score_by_class)).tolist() == [False, True, True]


def test_weights_of_validation_weigh_its_mean_and_leave_each_class_its_own(start: Start) -> None:
    weights = np.linspace(0.0, 3.0, 20)
    problem, state = start(weights=(None, weights))
    state, row = interval(problem, state, 3)
    score, loss = validation(problem, problem.model(state.parameters))
    assert float(row.valid_score) == pytest.approx(np.average(score, weights=weights), rel=1e-5)
    assert float(row.valid_loss) == pytest.approx(np.average(loss, weights=weights), rel=1e-5)
    targets = np.asarray(problem.valid.targets)
    expected = [np.average(score[targets == k], weights=weights[targets == k]) for k in range(3)]
    np.testing.assert_allclose(row.valid_score_by_class, expected, rtol=1e-5)
    expected = [np.average(loss[targets == k], weights=weights[targets == k]) for k in range(3)]
    np.testing.assert_allclose(row.valid_loss_by_class, expected, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 1024, 1025, 2500])
def test_validation_in_chunks_equals_validation_at_once(start: Start, count: int) -> None:
    problem, state = start(valid=count)
    model = problem.model(state.parameters)
    got = eqx.filter_jit(evaluate)(problem, model)
    score, loss = validation(problem, model)
    assert got.score.shape == got.loss.shape == (count,)
    np.testing.assert_allclose(got.score, score)
    np.testing.assert_allclose(got.loss, loss, rtol=1e-4, atol=1e-6)


def test_an_average_is_judged_and_kept_where_the_optimiser_averages(start: Start) -> None:
    problem, state = start(optimiser=PolyakAverage(Sgd(learning_rate=0.1)), stopping=Off(epochs=3))
    points = []
    for _ in range(4):
        state, row = interval(problem, state, 1)
        points.append(arrays_of(state.parameters))
    means = [np.mean(leaves, axis=0) for leaves in zip(*points, strict=True)]
    for mine, theirs in zip(arrays_of(state.best), means, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    _, loss = validation(problem, eqx.combine(state.best, problem.rest))
    assert float(row.valid_loss) == pytest.approx(loss.mean(), rel=1e-5)


@pytest.mark.slow
def test_batch_statistics_are_measured_with_the_parameters_that_are_judged(start: Start) -> None:
    problem, state = start(model=Mlp(widths=(8,), normalisation=BatchNorm()), stopping=Off(epochs=3))
    state, row = interval(problem, state, 5)
    layer = eqx.combine(state.best, problem.rest).layers[0]
    activations = np.asarray(problem.train.inputs) @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    mean, variance = layer.norm.moments.value
    np.testing.assert_allclose(mean, activations.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance, activations.var(0), rtol=1e-4, atol=1e-5)
    _, loss = validation(problem, judged_model(problem, state))
    assert float(row.valid_loss) == pytest.approx(loss.mean(), rel=1e-4)


@pytest.mark.slow
def test_divergence_is_found_at_its_age_and_the_best_stays_finite(start: Start) -> None:
    problem, state = start(optimiser=Sgd(learning_rate=1e38))
    first = jax.tree.map(np.array, state.best)
    losses, replay = [], state
    rows, present, ages = problem.recipe.batches.indices(jnp.arange(6), 37, key=problem.key)
    for number in range(6):
        replay, terms = compiled_step(problem, replay, gather_batch(problem, rows[number], present[number]))
        losses.append(np.asarray(terms["loss"])[np.asarray(present[number]) > 0])
    bad = next(number for number, loss in enumerate(losses) if not np.isfinite(loss).all())
    assert 0 < bad < 5  # neither the first update nor the last
    state, row = interval(problem, state, 6)
    assert int(row.diverged_examples) == int(ages[bad])
    assert not bool(row.best)
    assert_same(state.best, first)


def test_divergence_after_the_last_update_is_seen_by_validation(start: Start) -> None:
    problem, state = start(optimiser=Sgd(learning_rate=1e38))
    diverged = -1
    for number in range(1, 7):
        state, row = interval(problem, state, 1)
        diverged = int(row.diverged_examples)
        if diverged >= 0:
            assert diverged == int(row.age_examples) == [8, 16, 24, 32, 37, 45][number - 1]
            break
    assert diverged > 0
    assert all(np.isfinite(leaf).all() for leaf in arrays_of(state.best))


@pytest.mark.parametrize(("train", "size"), [(1, 8), (2, 8), (37, 500)])
def test_any_training_set_and_any_batch_size_go_together(start: Start, train: int, size: int) -> None:
    problem, state = start(train=train, batches=Fixed(size))
    updates = 2 * problem.updates_per_epoch
    state, row = interval(problem, state, updates)
    assert int(row.age_examples) == 2 * train
    assert math.isfinite(float(row.train_loss))
    assert float(row.train_loss) > 0


def test_memory_is_flat_over_intervals(start: Start) -> None:
    problem, state = start()
    state, row = interval(problem, state, 3)
    before = [(array.shape, array.dtype) for array in jax.live_arrays()]
    used = sum(array.nbytes for array in jax.live_arrays())
    for _ in range(20):
        state, row = interval(problem, state, 3)
    after = jax.live_arrays()
    assert len(after) == len(before)
    assert sum(array.nbytes for array in after) == used
    assert int(row.updates) == 63


def test_more_updates_need_no_more_room_for_the_network(start: Start) -> None:
    """Row F5: beyond 10 updates, 990 more take a few bytes for each example, and no more in a larger network."""
    growth = []
    for widths in ((4,), (64, 64)):
        problem, state = start(model=Mlp(widths=widths, dropout=0.0), optimiser=HeavyBall(learning_rate=0.1))
        program = module.program_of_run(module._once, problem, state)
        few, many = (
            program.lower((problem, updates), state).compile().compiled.memory_analysis() for updates in (10, 1000)
        )
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array)))
        assert few.alias_size_in_bytes == many.alias_size_in_bytes == held  # the new state lies where the old one lay
        growth.append((many.temp_size_in_bytes - few.temp_size_in_bytes) / 990)
    assert growth[1] < 1.25 * growth[0]
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(state.parameters))
    assert growth[1] < parameters / 20


def test_the_state_passed_in_is_used_up_and_its_buffers_reused(start: Start) -> None:
    problem, state = start()
    state, _ = interval(problem, state, 3)
    weights = state.parameters.layers[0].weight
    again, _ = interval(problem, state, 3)
    assert weights.is_deleted()
    assert state.best.layers[0].weight.is_deleted()
    assert not again.parameters.layers[0].weight.is_deleted()
    assert not problem.train.inputs.is_deleted()


def test_the_users_own_network_is_not_used_up(start: Start) -> None:
    network = eqx.nn.MLP(4, 3, 5, 1, key=jax.random.key(1))
    before = arrays_of(network)
    problem, state = start(model=network)
    for _ in range(2):
        state, _ = interval(problem, state, 3)
    for mine, theirs in zip(arrays_of(network), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not eqx.tree_equal(eqx.filter(network, eqx.is_inexact_array), state.parameters)


def test_a_knob_at_another_value_compiles_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    interval(*start(), 3)
    traced = []

    def counted(*arguments: Any) -> Any:
        traced.append(arguments)
        return judge(*arguments)

    monkeypatch.setattr(module, "judge", counted)
    for rate in (0.05, 0.01):
        _, row = interval(*start(optimiser=Sgd(learning_rate=rate)), 3)
        assert float(row.learning_rate) == pytest.approx(rate)
    assert traced == []
    interval(*start(), 4)  # another length is another program
    assert len(traced) == 1


def test_driving_the_loop_oneself_gives_what_fit_gives(iris: Dataset, recipe: Recipe) -> None:
    """The example of the guide: `init`, then `interval` until the rule says stop."""
    key = keys.from_seed(5)
    train, valid, _ = recipe.split(iris, key=keys.named(key, "split"))
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    examples = [
        Examples(jnp.asarray(scaler.apply(part.inputs)), jnp.asarray(part.targets.astype(np.int32)))
        for part in (train, valid)
    ]
    problem, state = gradwise.init(recipe, *examples, outputs=3, classes=3, key=key)
    ages, losses = [], []
    while True:
        updates = min(problem.interval_updates, problem.limit_updates - int(state.update))
        state, row = gradwise.interval(problem, state, updates)
        ages.append(int(row.age_examples))
        losses.append(float(row.valid_loss))
        if bool(row.stop) or int(row.updates) >= problem.limit_updates:
            break
    result = gradwise.train(recipe, iris, key=key)
    assert result.history["age_examples"] == ages
    assert result.history["valid_loss"] == losses
    assert_same(result.predictor.network, eqx.combine(state.best, problem.rest))
    assert_same(result.state.parameters, state.parameters)


def test_patience_ends_the_loop_where_the_row_says(start: Start) -> None:
    problem, state = start(
        stopping=Patience(initial_examples=64, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)
    )
    ages, patience = [], []
    stop = False
    while not stop:
        state, row = interval(problem, state, 3)
        ages.append(int(row.age_examples))
        patience.append(int(row.patience_examples))
        stop = bool(row.stop)
    assert ages[-1] >= patience[-1]
    assert all(age < limit for age, limit in zip(ages[:-1], patience[:-1], strict=True))


@pytest.mark.slow
def test_weights_of_training_weigh_its_curves_as_those_of_validation_do() -> None:
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(8, 3)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, 2, 8), jnp.int32)
    weights = jnp.asarray([3.0, 1.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0])
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(4,), dropout=0.0), optimiser=Sgd(1e-12), batches=Fixed(8), stopping=Off()
    )
    plain = Examples(inputs, targets)
    problem, state = init(
        recipe, Examples(inputs, targets, weights), plain, outputs=2, classes=2, key=jax.random.key(0)
    )
    _, losses = problem.recipe.criterion.examples(problem.model(state.parameters), inputs, targets)
    _, told = advance(problem, state, 1)
    assert float(told["train_loss"]) == pytest.approx(float(jnp.sum(losses * weights) / 8.0), rel=1e-5)
    assert float(jnp.mean(losses)) != pytest.approx(float(told["train_loss"]), rel=1e-3)
