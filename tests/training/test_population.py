"""Many networks at once: each becomes what it would have become alone, whoever trains beside it (rows E18, F4)."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp, MlpNetwork
from gradwise.models.padded_mlp import pad, trimmed
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.runtime import compilation, keys
from gradwise.searching.running.population_size import free_bytes, slot_bytes
from gradwise.specs.recipe import Recipe
from gradwise.training import loop
from gradwise.training import population as module
from gradwise.training.interval import AT_ONCE, Row
from gradwise.training.population import (
    Member,
    Population,
    enter,
    fold_of,
    program_signature,
    stack_folds,
)
from gradwise.training.state import State, init
from gradwise.training.stopping import Off

CURVES = ("age_examples", "updates", "train_loss", "train_score", "valid_loss", "valid_score")
LONG = 6.4  # epochs; four intervals of 64 examples or so
KEY = keys.from_seed(5)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """One network: its knobs, its widths, the age at which it ends, and when it enters a population."""

    number: int
    rate: float = 0.1
    widths: tuple[int, ...] = (16,)
    examples: int | None = None
    momentum: float = 0.5
    dropout: float = 0.1
    late: int = 0


SEVEN = (  # few pairs of a width and an end, since alone each is a program of its own
    Wanted(0),
    Wanted(1, rate=0.02, widths=(5,)),
    Wanted(2, rate=0.2, widths=(5,), examples=100),
    Wanted(3, widths=(9,), momentum=0.8, late=2),
    Wanted(4, rate=0.05, widths=(5,), examples=30, dropout=0.3),
    Wanted(5, rate=0.15, widths=(9,), late=1),
    Wanted(6, rate=0.08, widths=(9,), dropout=0.2, late=3, examples=130),
)


def blobs(count: int, seed: int) -> Examples:
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 3, count)
    centres = np.random.default_rng(0).normal(size=(3, 4))
    inputs = centres[targets] + draw.normal(size=(count, 4))
    return Examples(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.int32))


TRAIN, VALID = blobs(37, 1), blobs(20, 2)


def recipe_of(wanted: Wanted, epochs: float = LONG) -> Recipe:
    return defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=wanted.widths, activation=Tanh(), dropout=wanted.dropout),
        criterion=Supervised(SoftmaxLoss(), penalties=(L2(0.01),)),
        optimiser=MovingAverage(HeavyBall(learning_rate=wanted.rate, momentum=wanted.momentum), decay=0.8),
        stopping=Off(epochs=epochs, spacing=1.0, least_examples=64),
    )


def padded(recipe: Recipe) -> Recipe:
    """The same recipe with its widths in arrays of 16, or of 256."""
    model = pad(recipe.model, (4,), lambda width: 16 if width <= 16 else 256)
    return eqx.tree_at(lambda r: r.model, recipe, model, is_leaf=lambda node: node is recipe.model)


def entering(wanted: Wanted) -> tuple[Member, State]:
    key = keys.of_trial(KEY, wanted.number)
    return enter(padded(recipe_of(wanted)), TRAIN, VALID, outputs=3, examples=wanted.examples, key=key)


def alone(wanted: Wanted) -> tuple[dict[str, list[Any]], MlpNetwork]:
    """What `fit` makes of it: in arrays of its own size, the end of its training as its recipe says it."""
    epochs = LONG if wanted.examples is None else (wanted.examples + 0.5) / len(TRAIN)
    key = keys.of_trial(KEY, wanted.number)
    problem, state = init(recipe_of(wanted, epochs), TRAIN, VALID, outputs=3, key=key)
    state, history, outcome, _ = loop.run_intervals(problem, state, loop.RunOptions(), "")
    assert outcome.name == "finished"
    return history, problem.model(state.best)


def lines_of(rows: list[tuple[int, Row]]) -> dict[str, list[float]]:
    """The rows of one slot, each with the place it had there, as columns."""
    return {name: [np.asarray(getattr(row, name))[slot].item() for slot, row in rows] for name in CURVES}


def together(
    several: tuple[Wanted, ...],
    slots: int,
    *,
    place: Callable[[int], int] = lambda number: number,
    between: Callable[[Population, set[int]], None] = lambda population, live: None,
    make: Callable[..., Population] = Population,
) -> dict[int, tuple[dict[str, list[float]], MlpNetwork]]:
    """The history and the network of each, in a population of so many slots that are refilled as they get free.

    A newcomer takes slot `place(number)` if it is free, else the first that is; `between` is called before each
    interval with the slots that are taken.
    """
    population = make(*entering(several[0]), TRAIN, VALID, slots=slots)
    waiting, taken, last = list(several), {}, {}
    seen: dict[int, list[tuple[int, Row]]] = {wanted.number: [] for wanted in several}
    found = {}
    turn = 0
    while waiting or taken:
        for wanted in [one for one in waiting if one.late <= turn]:
            free = [slot for slot in range(slots) if slot not in taken]
            if free:
                slot = place(wanted.number) if place(wanted.number) in free else free[0]
                member, state = entering(wanted)
                population.fill(slot, member, state)
                taken[slot], last[wanted.number] = wanted.number, int(member.last)
                waiting.remove(wanted)
        between(population, set(taken))
        rows = jax.device_get(population.interval())
        turn += 1
        for slot, number in list(taken.items()):
            seen[number].append((slot, rows))
            assert rows.diverged_examples[slot] < 0
            if rows.updates[slot] >= last[number]:
                model, _, _ = population.best(slot)
                found[number] = (lines_of(seen[number]), trimmed(model))
                del taken[slot]
    return found


def assert_alike(found: Any, wanted: Any, *, exactly: bool = False) -> None:
    """The same ages, and curves and weights that agree."""
    (lines, network), (expected, other) = found, wanted
    assert lines["age_examples"] == expected["age_examples"]
    assert lines["updates"] == expected["updates"]
    for name in CURVES:
        np.testing.assert_allclose(lines[name], expected[name], rtol=0, atol=0 if exactly else 1e-3, err_msg=name)
    for mine, theirs in zip(jax.tree.leaves(network), jax.tree.leaves(other), strict=True):
        if eqx.is_array(mine):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=0 if exactly else 1e-3)


@pytest.fixture(scope="module")
def apart() -> dict[int, Any]:
    return {wanted.number: alone(wanted) for wanted in SEVEN}


@pytest.fixture(scope="module")
def seven() -> dict[int, Any]:
    return together(SEVEN, 7)


# --- row E18: what a trial becomes depends on its key and its knobs alone


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))
def test_a_trial_of_seven_is_what_it_is_alone(apart: dict[int, Any], seven: dict[int, Any], number: int) -> None:
    """Widths padded into one bucket, other rates and ends, some of them entering late."""
    assert_alike(seven[number], apart[number])


def test_the_comparison_says_something(apart: dict[int, Any]) -> None:
    """Networks that differ end far apart, so that agreement to 1e-3 is no accident; each learned something."""
    losses = [lines["valid_loss"][-1] for lines, _ in apart.values()]
    assert min(abs(a - b) for n, a in enumerate(losses) for b in losses[:n]) > 4e-3
    assert {len(lines["age_examples"]) for lines, _ in apart.values()} == {1, 2, 3, 4}
    assert all(np.argmin(lines["train_loss"]) > 0 for lines, _ in apart.values() if len(lines["train_loss"]) > 1)


@pytest.mark.slow
def test_a_trial_of_256_is_what_it_is_alone(apart: dict[int, Any]) -> None:
    """Every slot taken; the seven sit anywhere among them."""
    others = tuple(Wanted(100 + n, rate=0.01 + 0.001 * n, widths=(1 + n % 16,), late=n % 2) for n in range(249))
    found = together((*SEVEN, *others), 256, place=lambda number: 37 * number % 256 if number < 7 else 255)
    assert len(found) == 256
    for number in range(7):
        assert_alike(found[number], apart[number])


@pytest.mark.slow
def test_slots_that_are_refilled_give_the_same(apart: dict[int, Any]) -> None:
    """Seven jobs for two slots: whoever leaves, another enters over what was left there."""
    found = together(SEVEN, 2)
    for number in range(7):
        assert_alike(found[number], apart[number])


def test_a_member_that_ended_moves_no_more(seven: dict[int, Any]) -> None:
    population = Population(*entering(SEVEN[4]), TRAIN, VALID, slots=2)
    population.fill(0, *entering(SEVEN[4]))
    first = jax.device_get(population.interval())
    before = jax.device_get(population.states)
    second = jax.device_get(population.interval())
    assert (int(first.updates[0]), int(first.age_examples[0])) == (4, 32)
    assert second.updates.tolist() == [4, 0]  # nobody was ever in slot 1
    assert np.array_equal(first.valid_loss, second.valid_loss)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(jax.device_get(population.states)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_refilling_compiles_nothing(seven: dict[int, Any]) -> None:
    """One program for seven widths, ends and rates, and for every entry (counted by how often it was traced)."""
    traced: list[str] = []

    class Counted(SoftmaxLoss):
        def loss(self, output: Any, target: Any) -> Any:
            traced.append("loss")
            return SoftmaxLoss.loss(self, output, target)

    def member(wanted: Wanted) -> tuple[Member, State]:
        recipe = dataclasses.replace(padded(recipe_of(wanted)), criterion=Supervised(Counted()))
        return enter(recipe, TRAIN, VALID, outputs=3, key=keys.of_trial(KEY, wanted.number))

    population = Population(*member(SEVEN[0]), TRAIN, VALID, slots=3)
    population.fill(0, *member(SEVEN[0]))
    population.interval()
    once = len(traced)
    assert once > 0
    for turn, wanted in enumerate(SEVEN):
        population.fill(turn % 3, *member(wanted))
        population.interval()
    assert len(traced) == once
    assert len({program_signature(member(wanted)) for wanted in SEVEN}) == 1
    assert program_signature(member(SEVEN[0])) != program_signature(entering(SEVEN[0]))


def test_several_intervals_in_one_call_are_the_same() -> None:
    """By a program that was compiled ahead, up to the first after which one of them stops."""
    apart, at_once = (Population(*entering(SEVEN[0]), TRAIN, VALID, slots=3) for _ in range(2))
    for population in (apart, at_once):
        for slot, wanted in enumerate(SEVEN[:2]):
            population.fill(slot, *entering(wanted))
    rows = [jax.device_get(apart.interval()) for _ in range(3)]
    at_once.compiled = at_once.compile()
    found = jax.device_get(at_once.turns(3))
    assert found.updates[:, 0].tolist() == [*(int(row.updates[0]) for row in rows), *[0] * (AT_ONCE - 3)]
    for number, row in enumerate(rows):
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(row), strict=True):
            np.testing.assert_allclose(mine[number], theirs, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(jax.tree.leaves(at_once.states), jax.tree.leaves(apart.states), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    poison(at_once, {0})  # one that is lost ends the call, so that it leaves before anything else happens to it
    assert jax.device_get(at_once.turns(3)).updates[:3, 0].tolist() == [int(rows[-1].updates[0]) + apart.updates, 0, 0]


# --- row F4: nothing reads what is not there


def poisoned(tree: Any, slots: set[int]) -> Any:
    """Not-a-number in every floating array of these slots: parameters, moments, best models, knobs, buffers."""
    rows = jnp.asarray(sorted(slots), jnp.int32)

    def poison(leaf: Any) -> Any:
        if not eqx.is_array(leaf) or not len(rows) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return leaf.at[rows].set(jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

    return jax.tree.map(poison, tree)


def poison(population: Population, live: set[int]) -> None:
    idle = set(range(population.slots)) - live
    population.states = poisoned(population.states, idle)
    population.members = poisoned(population.members, idle)


@pytest.mark.slow
def test_poisoned_slots_change_no_bit(seven: dict[int, Any]) -> None:
    """Before every interval all that idle slots hold is not-a-number: unused ones and ones that were left."""
    found = together(SEVEN, 7, between=poison)
    for number in range(7):
        assert_alike(found[number], seven[number], exactly=True)


def test_a_newcomer_finds_nothing_of_the_one_before(apart: dict[int, Any]) -> None:
    found = together(SEVEN, 2, between=poison)
    for number in range(7):
        assert_alike(found[number], apart[number])


@eqx.filter_jit
def _leaking(fixed: Any, states: State) -> Any:
    """The interval with a mistake in it: each slot's rate is the mean over all slots."""
    train, valid, members, updates = fixed
    rate = members.recipe.optimiser.optimiser.learning_rate
    mean = jnp.full_like(rate, jnp.mean(rate))
    members = eqx.tree_at(lambda m: m.recipe.optimiser.optimiser.learning_rate, members, mean)
    return module._interval((train, valid, members, updates), states)


def test_a_planted_read_of_another_slot_is_caught() -> None:
    population = Population(*entering(SEVEN[0]), TRAIN, VALID, slots=7)
    population.fill(0, *entering(SEVEN[0]))
    population._program = _leaking
    clean = jax.device_get(population.interval())
    assert np.isfinite(clean.valid_loss[0])
    poison(population, {0})
    caught = jax.device_get(population.interval())
    assert not np.isfinite(caught.valid_loss[0])
    assert caught.diverged_examples[0] >= 0


# --- several devices


def _spread_here() -> dict[str, Any]:
    """Run in a process that has eight devices: the seven over all of them."""
    compilation.use_compilation_cache()
    devices = tuple(jax.devices())
    made: list[Population] = []

    def over(*given: Any, **options: Any) -> Population:
        made.append(Population(*given, **options, devices=devices))
        return made[-1]

    found = together(SEVEN, 7, make=over)
    weights = made[0].states.parameters.output.weight
    return {
        "devices": len(devices),
        "slots": made[0].slots,
        "each": [shard.data.shape[0] for shard in weights.addressable_shards],
        "examples": len(made[0].train.inputs.sharding.device_set),
        "curves": {number: lines for number, (lines, _) in found.items()},
    }


@pytest.mark.slow
def test_a_population_spreads_over_all_devices(seven: dict[int, Any]) -> None:
    """Eight devices (of one CPU): a slot on each, the examples on all, and the same numbers."""
    here = Path(__file__).resolve()
    script = "import json; from tests.training import test_population as t; print(json.dumps(t._spread_here()))"
    paths = str(here.parents[2])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = dict(os.environ, PYTHONPATH=paths, XLA_FLAGS=flags.strip(), JAX_PLATFORMS="cpu")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert (told["devices"], told["slots"], told["examples"]) == (8, 8, 8)  # seven slots were asked: one more is idle
    assert told["each"] == [1] * 8
    for number in range(7):
        for name in CURVES:
            np.testing.assert_allclose(told["curves"][str(number)][name], seven[number][0][name], atol=1e-3)


# --- memory and time


@pytest.mark.slow
def test_the_estimate_of_a_slot_is_near_what_the_compiler_takes() -> None:
    """Within a factor of 3 of the compiler's own account, for a small network and for one a hundred times as large."""
    for widths, slots in (((16,), 7), ((256, 8), 2)):
        member, state = enter(padded(recipe_of(Wanted(0, widths=widths))), TRAIN, VALID, outputs=3, key=KEY)
        population = Population(member, state, TRAIN, VALID, slots=slots)
        population.compiled = population.compile()
        analysis = population.compiled.compiled.memory_analysis()
        taken = (analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes) / slots
        assert taken / 3 < slot_bytes(member, state, TRAIN, VALID) < 3 * taken


def test_wider_networks_and_longer_batches_take_more_memory() -> None:
    def taken(recipe: Recipe) -> int:
        return slot_bytes(*enter(recipe, TRAIN, VALID, outputs=3, key=KEY), TRAIN, VALID)

    small = recipe_of(Wanted(0))
    assert taken(small) < taken(dataclasses.replace(small, batches=Reshuffled(32)))
    assert 200 * taken(small) < 200 * taken(small) + taken(recipe_of(Wanted(0, widths=(512, 512))))
    assert taken(recipe_of(Wanted(0, widths=(512, 512)))) > 4 * 512 * 512 * 4
    assert free_bytes() > 2**20


def test_best_models_read_in_one_call_are_those_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nineteen slots are two calls, the second with places to spare."""
    member, state = entering(SEVEN[1])
    population = Population(member, state, TRAIN, VALID, slots=20)
    for slot in range(20):
        population.fill(slot, *entering(SEVEN[slot % 7]))
    population.interval()
    slots = list(range(1, 20))
    apart = [population.best(slot) for slot in slots]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for together, alone in zip(population.best_of(slots), apart, strict=True):
        for found, wanted in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    assert population.best_of([]) == []


def test_folds_of_different_sizes_are_not_stacked() -> None:
    fewer = jax.tree.map(lambda leaf: leaf[:-1], TRAIN)
    assert stack_folds([(TRAIN, VALID), (fewer, VALID)]) is None
    other = jax.tree.map(lambda leaf: leaf[::-1], TRAIN)
    stacked = stack_folds([(TRAIN, VALID), (other, VALID)])
    assert stacked is not None
    assert eqx.tree_equal(fold_of(stacked, 1), (other, VALID))
