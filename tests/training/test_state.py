"""The problem and the state before the first update."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise import defaults
from gradwise.criteria.contrastive_divergence import JointDivergence, PersistentDivergence
from gradwise.criteria.linear_probe import Probed
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.mean_field import MeanFieldDivergence
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed, Reshuffled, Stream
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from gradwise.optimisers.first_order.schedules import SelfTimed
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.knobs import switch
from gradwise.specs.recipe import Recipe
from gradwise.training import interval as module
from gradwise.training.population import enter
from gradwise.training.state import State, init, uses_objective, with_room
from gradwise.training.stopping import Off, Patience
from tests.marks import parametrize_one_quick

Start = Callable[..., tuple[Any, State]]


def test_the_network_follows_the_key(start: Start) -> None:
    first, again, other = (start(seed=seed)[1].parameters for seed in (0, 0, 1))
    assert eqx.tree_equal(first, again)
    assert not eqx.tree_equal(first, other)


def test_the_state_begins_with_the_network_that_was_built(start: Start, recipe: Recipe) -> None:
    problem, state = start()
    expected = recipe.model.build((4,), 3, key=keys.named(keys.from_seed(0), "model"))
    got = problem.model(state.parameters)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)  # compiled whole or op by op
    assert int(state.update) == 0


@pytest.mark.parametrize(
    "parts",
    [
        {"stopping": Patience(significance=0.05)},
        {"optimiser": MovingAverage(Adam(schedule=SelfTimed())), "stopping": Off()},
    ],
)
def test_an_interval_is_compiled_once(start: Start, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    problem, state = start(**parts)
    traced = []
    judge = module.judge
    monkeypatch.setattr(module, "judge", lambda *arguments: traced.append(0) or judge(*arguments))
    for _ in range(3):
        state, _ = module.interval(problem, state, 3)
    assert len(traced) <= 1  # none where a test before has compiled it


@pytest.mark.parametrize("optimiser", [None, MovingAverage(Adam())])
def test_no_two_arrays_of_the_state_share_a_buffer(start: Start, optimiser: Any) -> None:
    _, state = start() if optimiser is None else start(optimiser=optimiser)
    arrays = [leaf for leaf in jax.tree.leaves(state) if eqx.is_array(leaf)]
    places = [array.unsafe_buffer_pointer() for array in arrays if array.size]
    assert len(set(places)) == len(places)  # a buffer can be donated only once


def test_what_is_measured_rather_than_learned_is_kept_with_the_best(start: Start) -> None:
    problem, state = start(model=Mlp(widths=(3,), normalisation=BatchNorm(), dropout=0.0))
    count = {name: sum(leaf.size for leaf in jax.tree.leaves(getattr(state, name))) for name in ("parameters", "best")}
    assert count["best"] == count["parameters"] + 2 * 3
    assert eqx.tree_equal(eqx.combine(state.best, problem.rest), problem.model(state.parameters))


@pytest.mark.parametrize("size", [1, 8, 36, 37, 38, 1000])
def test_an_epoch_has_as_many_updates_as_it_needs(start: Start, size: int) -> None:
    problem, _ = start(batches=Fixed(size))
    assert problem.batch_size == min(size, 37)
    assert problem.updates_per_epoch == -(-37 // min(size, 37))
    _, present, ages = problem.recipe.batches.indices(jnp.arange(problem.updates_per_epoch), 37, key=problem.key)
    assert int(ages[-1]) == int(present.sum()) == 37


@pytest.mark.parametrize("size", [1, 8, 37, 1000])
@pytest.mark.parametrize("validation", [1, 20, 100])
def test_an_interval_visits_at_least_as_many_examples_as_validation_reads(
    start: Start, size: int, validation: int
) -> None:
    problem, _ = start(batches=Fixed(size), valid=validation)
    assert problem.interval_updates * problem.batch_size >= validation
    far, _ = start(batches=Fixed(size), stopping=Patience(spacing=1.0, least_examples=500))
    assert far.interval_updates == -(-500 // min(size, 37))


@parametrize_one_quick("size", [1, 8, 37])
@pytest.mark.parametrize("epochs", [0.1, 1.0, 1.5, 2.9, 7.0])
def test_the_limit_is_the_first_update_that_reaches_the_age(start: Start, size: int, epochs: float) -> None:
    problem, _ = start(batches=Fixed(size), stopping=Off(epochs=epochs))
    updates = problem.limit_updates
    _, _, ages = problem.recipe.batches.indices(jnp.arange(updates), 37, key=problem.key)
    limit = int(epochs * 37)
    assert int(ages[-1]) >= limit
    assert updates == 1 or int(ages[-2]) < limit


def test_a_stream_ends_with_its_examples(start: Start) -> None:
    assert start(batches=Stream(8), stopping=Off(epochs=10))[0].limit_updates == 5
    assert start(batches=Reshuffled(8), stopping=Off(epochs=10))[0].limit_updates == 50


@pytest.mark.slow
def test_a_built_module_and_a_plain_function_take_their_places(start: Start) -> None:
    network = eqx.nn.MLP(4, 3, 5, 1, key=jax.random.key(1))

    def loss(model: Any, batch: Any, key: Any) -> Any:
        return jnp.mean(jax.vmap(model)(batch.inputs) ** 2)

    problem, state = start(model=network, criterion=loss)
    again = problem.model(state.parameters)
    assert eqx.tree_equal(eqx.filter(again, eqx.is_array), eqx.filter(network, eqx.is_array))
    total, _ = problem.recipe.criterion(again, Examples(jnp.ones((2, 4)), jnp.ones(2)), key=None)
    assert total.shape == ()


def test_a_module_of_the_wrong_shape_is_refused_in_one_line(start: Start) -> None:
    with pytest.raises(RequestError, match=r"needs \(3,\)") as caught:
        start(model=eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(1)))
    assert "\n" not in str(caught.value)


def test_examples_know_their_number() -> None:
    assert len(Examples(jnp.zeros((5, 2, 2)), jnp.zeros(5))) == 5


# --- optimisers that ask


class Table(AbstractOptimiser):
    """Keeps the loss of each training example; needs examples that stand alone."""

    needs_objective = True
    examples: int = switch(0, allowed="[0, inf)", row="H3", kind="optimiser", about="training examples")
    optimiser: Any = Sgd()

    def sized(self, examples: int) -> "Table":
        return Table(examples, self.optimiser)

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def init(parameters: Any) -> Any:
            return jnp.zeros(self.examples), inner.init(parameters)

        def update(updates: Any, state: Any, parameters: Any = None, *, objective: Any, **extra: Any) -> Any:
            objective.check_alone(parameters, "Table")
            losses = objective.example_losses(objective.outputs(parameters))
            moved, kept = inner.update(updates, state[1], parameters, objective=objective, **extra)
            return moved, (state[0].at[objective.rows].set(losses), kept)

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: Any) -> Any:
        return self.optimiser.rate(state[1])


def test_who_asks_is_found_at_any_depth() -> None:
    assert [
        uses_objective(one) for one in (Table(), PolyakAverage(Table()), MovingAverage(PolyakAverage(Table())))
    ] == [True] * 3
    plain = Grouped(Sgd(), groups=(ParameterGroup("*.bias", MovingAverage(Adam())),))
    assert [uses_objective(one) for one in (Sgd(), MovingAverage(Adam()), plain)] == [False] * 3


def test_room_is_made_at_any_depth_and_nothing_else_changes() -> None:
    assert with_room(Table(), 37).examples == 37
    deep = with_room(MovingAverage(PolyakAverage(Table(), start_updates=5.0), decay=0.5), 37)
    assert deep.optimiser.optimiser.examples == 37
    assert (float(deep.decay), float(deep.optimiser.start_updates)) == (0.5, 5.0)
    assert with_room(deep, 12).optimiser.optimiser.examples == 12
    plain = MovingAverage(Adam())
    assert with_room(plain, 37) is plain


def test_what_is_remembered_is_each_examples_own(start: Start) -> None:
    """After one epoch of a rate near 0 the table holds the first network's loss of every example."""
    problem, state = start(optimiser=PolyakAverage(Table(optimiser=Sgd(1e-9))))
    model = problem.model(jax.tree.map(jnp.array, state.parameters))
    _, expected = problem.recipe.criterion.examples(model, problem.train.inputs, problem.train.targets)
    state, _ = module.interval(problem, state, problem.updates_per_epoch)
    np.testing.assert_allclose(state.optimiser.inner[0], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"model": Mlp(widths=(3,), normalisation=BatchNorm(), dropout=0.0)},
            "Table needs each example's own gradient",
        ),
        ({"criterion": Supervised(SoftmaxLoss(), mixup=0.2)}, "Table needs a loss of each example's own output: mixup"),
        ({"criterion": lambda model, batch, key: jnp.zeros(())}, "Table needs a loss of each .*FunctionCriterion"),
    ],
    ids=["batch normalisation", "mixup", "plain function"],
)
def test_an_unfit_model_or_loss_is_refused_before_training(
    start: Start, recipe: Recipe, parts: dict[str, Any], words: str
) -> None:
    """Alone and on entering a population; the same parts are let through by an optimiser that does not ask."""
    with pytest.raises(RequestError, match=words) as caught:
        start(optimiser=MovingAverage(Table()), **parts)
    assert "\n" not in str(caught.value)
    problem, _ = start(**parts)
    chosen = dataclasses.replace(recipe, optimiser=Table(), **parts)
    with pytest.raises(RequestError, match=words):
        enter(chosen, problem.train, problem.valid, outputs=3, key=keys.from_seed(0))


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        (Reconstruction(), "Reconstruction needs a network with `decode`, which MlpNetwork lacks. Use the model Auto"),
        (PersistentDivergence(), "PersistentDivergence needs a network with `free_energy`"),
        (MeanFieldDivergence(), "Use the model DeepBoltzmann"),
        (SemiSupervised(), "SemiSupervised needs a network with `features`"),
        (JointDivergence(), "Use the model LabelRbm"),
        (Probed(Reconstruction()), "needs a network with `decode`"),
    ],
)
def test_a_network_that_lacks_what_the_criterion_asks_for_is_refused(criterion, said):
    recipe = defaults.classification(model=Mlp(widths=(3,)), criterion=criterion)
    rows = Examples(jnp.zeros((4, 2)), jnp.zeros(4, jnp.int32))
    with pytest.raises(RequestError, match=said):
        init(recipe, rows, rows, outputs=2, key=jax.random.key(0))
