"""What a run does with schedules (row J2): it tells them its length, and lets noise, decay and smoothing follow them.

The values of each rule are in `tests/optimisers/first_order/test_schedules.py`.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import log_softmax

from gradwise import defaults
from gradwise.criteria.losses import SigmoidLoss, SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled, Stream
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.schedules import (
    Cosine,
    FlatCosine,
    InverseTime,
    OneCycle,
    RepeatedCosine,
    WarmUp,
)
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind
from gradwise.runtime import keys
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.recipe import Recipe
from gradwise.specs.schedules import AbstractSchedule, Constant, Noise, with_noise_of
from gradwise.training.loop import RunOptions, run_intervals
from gradwise.training.population import Population, enter
from gradwise.training.state import for_building, init, lasts_a_run, updates_of_run
from gradwise.training.stopping import Off, Patience
from gradwise.training.train import train

EPOCHS, BATCH = 20.0, 8


def flat_cosine(update: Any, updates: int, flat: float = 0.5) -> Any:
    """1 for the first part, then half a cosine down."""
    return 0.5 + 0.5 * np.cos(np.pi * np.maximum(0.0, (np.asarray(update) / updates - flat) / (1 - flat)))


def waves(update: Any, updates: int) -> Any:
    """Four waves, each twice as long as the last."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + 15 * np.asarray(update) / updates))


def recipe_of(rate: float = 0.05, **parts: Any) -> Recipe:
    """Everything that can follow a schedule does."""
    optimiser = RatesByKind(AdamW(rate, decay=0.1, schedule=RepeatedCosine(), decay_schedule=FlatCosine()))
    loss = SoftmaxLoss(label_smoothing=0.2, smoothing_schedule=FlatCosine())
    chosen = {
        "batches": Reshuffled(BATCH),
        "model": Mlp(widths=(6,), activation=Tanh(), dropout=0.4, dropout_schedule=FlatCosine()),
        "criterion": Supervised(loss, penalties=()),
        "optimiser": optimiser,
        "stopping": Off(epochs=EPOCHS, spacing=1.0, least_examples=1),
    }
    return defaults.classification(**{**chosen, **parts})


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 2, count)
    return draw.normal(size=(count, 3)) + 2.0 * targets[:, None], targets


def examples(count: int, seed: int) -> Examples:
    inputs, targets = blobs(count, seed)
    return Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.int32))


TRAIN, VALID = examples(24, 1), examples(8, 2)
UPDATES = 60  # twenty epochs of three mini-batches


# --- the length of the run


@pytest.mark.parametrize("schedule", [Cosine(0.0), OneCycle(), RepeatedCosine(), FlatCosine()], ids=str)
def test_a_horizon_of_zero_is_filled_and_no_other(schedule: Any) -> None:
    told = schedule.over(70)
    assert told.horizon_updates == 70.0
    assert told.over(999) is told
    assert dataclasses.replace(told, horizon_updates=0.0) == schedule  # nothing else has changed
    own = dataclasses.replace(schedule, horizon_updates=12.0)
    assert own.over(70) is own


@pytest.mark.parametrize("schedule", [Constant(), InverseTime(), WarmUp(5.0)], ids=str)
def test_one_without_a_horizon_is_left_alone(schedule: AbstractSchedule) -> None:
    assert schedule.over(70) is schedule


def test_a_traced_horizon_is_a_horizon() -> None:
    """In a population horizons are numbers of the program, which nobody may compare with 0."""

    @jax.jit
    def filled(horizon: Any) -> Any:
        return RepeatedCosine(horizon).over(70).horizon_updates

    assert float(filled(0.0)) == 0.0


def test_every_schedule_of_a_recipe_is_told_wherever_it_stands() -> None:
    averaged = MovingAverage(Sgd(schedule=WarmUp(3.0, OneCycle())))
    told = for_building(recipe_of(optimiser=averaged), TRAIN)
    assert told.optimiser.optimiser.schedule.schedule.horizon_updates == UPDATES
    assert told.model.dropout_schedule.horizon_updates == UPDATES
    assert told.criterion.loss.smoothing_schedule.horizon_updates == UPDATES
    table = for_building(recipe_of(), TRAIN).optimiser.optimiser
    assert (table.schedule.horizon_updates, table.decay_schedule.horizon_updates) == (UPDATES, UPDATES)


@pytest.mark.parametrize(
    ("parts", "updates"),
    [
        ({}, 60),
        ({"stopping": Off(epochs=0.5)}, 2),  # 12 examples in batches of 8
        ({"stopping": Off(epochs=1e-9)}, 1),
        ({"stopping": Patience(epochs=7.0)}, 21),  # the longest that it may be
        ({"batches": Reshuffled(100)}, 20),  # one batch an epoch
        ({"batches": Stream(8)}, 3),  # each example once
    ],
    ids=str,
)
def test_the_length_of_a_run_is_known_before_it_begins(parts: dict[str, Any], updates: int) -> None:
    recipe = recipe_of(**parts)
    assert updates_of_run(recipe, 24) == updates
    assert for_building(recipe, TRAIN).optimiser.optimiser.schedule.horizon_updates == updates
    assert init(recipe, TRAIN, VALID, outputs=2, key=keys.from_seed(0))[0].limit_updates == updates


def test_whether_an_optimiser_lasts_a_run() -> None:
    assert lasts_a_run(recipe_of().optimiser)
    assert lasts_a_run(MovingAverage(AdamW(decay_schedule=FlatCosine())))
    assert not lasts_a_run(AdamW(schedule=RepeatedCosine(50.0)))
    assert not lasts_a_run(defaults.classification().optimiser)


# --- a run


@pytest.fixture(scope="module")
def record() -> Any:
    inputs, targets = blobs(40, 3)
    return train(recipe_of(), Dataset(inputs, targets, Classes(np.arange(2)), name="blobs"), key=keys.from_seed(0))


def test_a_fit_follows_four_waves_that_end_at_zero(record: Any) -> None:
    assert record.data.rows.train == 24
    rates, updates = (np.asarray(record.history[name]) for name in ("learning_rate", "updates"))
    assert updates.tolist() == list(range(1, UPDATES + 1))  # a validation after each
    np.testing.assert_allclose(rates, 0.05 * waves(updates - 1, UPDATES), atol=1e-6)
    lowest = [0, *(t for t in range(1, 59) if rates[t] < min(rates[t - 1], rates[t + 1]))]
    assert lowest == [0, 4, 12, 28]  # the end is the fifth, one, three, seven and fifteen fifteenths of the run
    np.testing.assert_allclose(rates[lowest], 0.0, atol=1e-7)
    assert rates[-1] < 0.01 * rates.max()
    assert not any("horizon" in finding.what for finding in record.findings)


def test_members_of_a_population_keep_their_own_time() -> None:
    """Two rates beside one another: each goes the way it goes alone, schedules and all."""
    key = keys.from_seed(4)
    alone = {}
    for rate in (0.05, 0.2):
        problem, state = init(recipe_of(rate), TRAIN, VALID, outputs=2, key=key)
        _, history, _, _ = run_intervals(problem, state, RunOptions(), "")
        alone[rate] = history
    entries = [enter(recipe_of(rate), TRAIN, VALID, outputs=2, key=key) for rate in (0.05, 0.2)]
    assert [int(member.last) for member, _ in entries] == [UPDATES] * 2
    population = Population(*entries[0], TRAIN, VALID, slots=3)
    for slot, entry in enumerate(entries):
        population.fill(slot, *entry)
    rows = [jax.device_get(population.interval()) for _ in range(UPDATES)]
    for slot, rate in enumerate((0.05, 0.2)):
        for name in ("learning_rate", "train_loss", "valid_loss"):
            found = [float(getattr(row, name)[slot]) for row in rows]
            np.testing.assert_allclose(found, alone[rate][name], atol=2e-4, err_msg=name)
    short, _ = enter(recipe_of(), TRAIN, VALID, outputs=2, examples=24, key=key)
    assert int(short.last) == 3
    assert short.recipe.optimiser.optimiser.schedule.horizon_updates == UPDATES  # it ends early on the same curve


# --- noise


def test_the_share_of_dropped_units_follows_its_schedule() -> None:
    model = Mlp(widths=(3000,), activation=Tanh(), dropout=0.4, dropout_schedule=FlatCosine(100.0))
    network = eqx.filter_jit(lambda: model.build((3,), 1, key=jr.key(0)))()

    @eqx.filter_jit
    def dropped(network: Any, update: Any) -> Any:
        hidden = with_noise_of(network, update).layers[0](jnp.ones(3), key=jr.key(1))
        return jnp.mean(hidden == 0), with_noise_of(network, update).layers[0].dropout.value

    for update in (0, 50, 60, 75, 90, 100, 200):
        share, level = dropped(network, jnp.asarray(update))
        expected = 0.4 * flat_cosine(min(update, 100), 100)
        assert float(level) == pytest.approx(expected, abs=1e-6)
        assert float(share) == pytest.approx(expected, abs=0.03)
    assert float(network.layers[0].dropout.value) == pytest.approx(0.4)


def test_a_run_trains_with_the_noise_of_each_update() -> None:
    problem, state = init(recipe_of(), TRAIN, VALID, outputs=2, key=keys.from_seed(0))
    batch = Batch(TRAIN.inputs[:8], TRAIN.targets[:8], jnp.ones(8), jnp.ones(8), jnp.asarray(24.0), jnp.arange(8))
    for update in (0, 45, 60):
        objective = problem.objective(batch, jnp.asarray(update))
        level = objective.model(state.parameters).layers[0].dropout.value
        assert float(level) == pytest.approx(0.4 * flat_cosine(update, UPDATES), abs=1e-6)


def test_constant_noise_is_left_alone() -> None:
    tree = {"a": Noise(jnp.asarray(0.3)), "b": jnp.ones(2)}
    assert with_noise_of(tree, jnp.asarray(7))["a"] is tree["a"]


# --- smoothing

OUTPUTS = np.random.default_rng(5).normal(size=(6, 3))


@pytest.mark.parametrize("update", [0, 30, 45, 60])
def test_label_smoothing_follows_its_schedule(update: int) -> None:
    share = 0.2 * flat_cosine(update, 60)
    targets = np.asarray([0, 1, 2, 0, 1, 2])
    logs = log_softmax(OUTPUTS, axis=1)
    expected = -(1 - share) * logs[np.arange(6), targets] - share * logs.mean(1)
    loss = SoftmaxLoss(label_smoothing=0.2, smoothing_schedule=FlatCosine(60.0))
    found = jax.vmap(loss.at(jnp.asarray(update)).loss)(jnp.asarray(OUTPUTS), jnp.asarray(targets))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    labels = np.asarray([[0, 1, 1], [1, 0, 0]] * 3)
    smooth = labels * (1 - share) + share / 2
    several = SigmoidLoss(label_smoothing=0.2, smoothing_schedule=FlatCosine(60.0)).at(jnp.asarray(update))
    found = jax.vmap(several.loss)(jnp.asarray(OUTPUTS), jnp.asarray(labels))
    np.testing.assert_allclose(found, (np.logaddexp(0, OUTPUTS) - smooth * OUTPUTS).sum(1), rtol=1e-5)


def test_the_criterion_reads_the_update_of_its_batch() -> None:
    """Through the run's own objective; a batch of no run has the smoothing it was given."""
    problem, state = init(recipe_of(model=Mlp(widths=(), dropout=0.0)), TRAIN, VALID, outputs=2, key=keys.from_seed(0))
    batch = Batch(TRAIN.inputs[:8], TRAIN.targets[:8], jnp.ones(8), jnp.ones(8), jnp.asarray(24.0), jnp.arange(8))
    network = problem.model(state.parameters)
    logs = log_softmax(np.asarray(TRAIN.inputs[:8]) @ np.asarray(network.output.weight).T, axis=1)
    exact = -logs[np.arange(8), np.asarray(TRAIN.targets[:8])]
    for update in (0, 45, 60):
        share = 0.2 * flat_cosine(update, UPDATES)
        value = problem.objective(batch, jnp.asarray(update))(state.parameters)
        assert float(value) == pytest.approx(np.mean((1 - share) * exact - share * logs.mean(1)), rel=1e-4)
    plain = problem.recipe.criterion(network, batch, key=jr.key(0))[0]
    assert float(plain) == pytest.approx(np.mean(0.8 * exact - 0.2 * logs.mean(1)), rel=1e-4)


def test_a_smoothing_that_is_off_or_constant_is_the_loss_itself() -> None:
    for loss in (SoftmaxLoss(smoothing_schedule=FlatCosine()), SoftmaxLoss(label_smoothing=0.1), SigmoidLoss()):
        assert loss.at(jnp.asarray(3)) is loss
