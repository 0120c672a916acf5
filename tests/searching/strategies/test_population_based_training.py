"""Population-based training: copies are exact, lines of ancestors are recorded, and it beats its fixed members."""

import jax
import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.strategies.population_based_training import Evolution, evolve, perturbed
from gradwise.specs.priors import Choice, LogUniform, Uniform, ZeroOr
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Dimension, Space, dimension
from gradwise.training.stopping import Patience

RATE, DROPOUT = "optimiser.learning_rate", "model.dropout"


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    digits = gradwise.read("digits").take(np.arange(400))
    return EvaluationData.of(digits, HoldOut(), metric="log_loss", key=keys.from_seed(3))


@pytest.fixture(scope="module")
def space() -> Space:
    recipe = defaults.following(
        defaults.classification(
            batches=Reshuffled(16),
            model=Mlp(widths=(16,), activation=Tanh(), dropout=0.0),
            optimiser=Sgd(learning_rate=0.1),
            stopping=Patience(initial_examples=100, initial_epochs=0, spacing=3.0, least_examples=1, epochs=1),
        ),
        "log_loss",
    )
    rate = dimension(recipe, RATE, LogUniform(1e-3, 1.0))
    return Space(recipe, (rate, dimension(recipe, DROPOUT, ZeroOr(Uniform(0.1, 0.6)))))


def test_a_copy_is_exact_and_goes_on_with_its_own_knobs(data: EvaluationData, space: Space) -> None:
    evolution = Evolution(space, data, size=8, intervals=4)
    moment = evolution.interval()
    before = [evolution.population.state_of(slot) for slot in range(8)]
    copied = evolution.exploit()
    order = np.argsort(moment.scores)
    assert set(copied) == set(order[-2:].tolist())
    assert set(copied.values()) <= set(order[:2].tolist())
    rates = np.asarray(evolution.population.members.recipe.optimiser.learning_rate)
    for slot in range(8):
        after, source = evolution.population.state_of(slot), before[copied.get(slot, slot)]
        same = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), after, source)
        assert all(jax.tree.leaves(same))
        assert rates[slot] == np.float32(evolution.knobs[slot][RATE])
        assert (evolution.knobs[slot] == moment.knobs[slot]) == (slot not in copied)
    evolution.interval()
    (slot, parent), *_ = copied.items()
    moved = jax.tree.leaves(evolution.population.state_of(slot).parameters)
    assert not np.array_equal(moved[0], jax.tree.leaves(evolution.population.state_of(parent).parameters)[0])


def test_it_is_not_worse_than_its_best_fixed_member(data: EvaluationData, space: Space) -> None:
    fixed = evolve(space, data, size=8, intervals=16, every=16)
    found = evolve(space, data, size=8, intervals=16, every=2)
    assert all(moment.parents == tuple(range(8)) for moment in fixed.history)
    assert found.loss < fixed.loss
    assert found.score == min(min(moment.scores) for moment in found.history)
    # The network that comes back is the one that was judged.
    scaler = data.scaler(space.recipe.scaler)
    outputs = np.asarray(jax.vmap(lambda x: found.network(x, key=None))(scaler.apply(data.valid.inputs)))
    logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    loss = -logs[np.arange(len(logs)), data.valid.targets].mean()
    assert loss == pytest.approx(found.loss, rel=1e-4)


def test_the_schedule_follows_the_line_of_ancestors(data: EvaluationData, space: Space) -> None:
    found = evolve(space, data, size=8, intervals=9, every=1)
    assert found.lineage[-1] == found.slot
    assert len(found.schedule) == len(found.lineage)
    assert found.schedule[-1]["age_examples"] == found.age_examples
    for number in range(len(found.lineage) - 1):
        moment = found.history[number]
        assert moment.parents[found.lineage[number + 1]] == found.lineage[number]
        assert {**moment.knobs[found.lineage[number]], "age_examples": moment.age_examples} == found.schedule[number]
    assert any(moment.parents != tuple(range(8)) for moment in found.history)
    again = evolve(space, data, size=8, intervals=9, every=1)
    assert again.history == found.history


def test_members_that_diverge_are_replaced(data: EvaluationData, space: Space) -> None:
    wild = space.with_priors({RATE: Choice((0.1, 3e38))})
    evolution = Evolution(wild, data, size=8, intervals=4)
    moment = evolution.interval()
    lost = {slot for slot, score in enumerate(moment.scores) if not np.isfinite(score)}
    assert 0 < len(lost) < 8
    copied = evolution.exploit()
    assert set(copied) <= lost
    assert all(moment.knobs[parent][RATE] == 0.1 for parent in copied.values())
    hopeless = evolve(space.with_priors({RATE: LogUniform(2e38, 3e38)}), data, size=8, intervals=3, every=1)
    assert hopeless.network is None
    assert hopeless.schedule == ()


def test_knobs_move_a_little_and_stay_within_their_priors() -> None:
    random = np.random.default_rng(0)
    rate = Dimension(RATE, LogUniform(1e-3, 1.0))
    moved = np.array([perturbed(rate, 0.1, random) for _ in range(2000)])
    steps = np.isclose(moved, 0.12) | np.isclose(moved, 0.1 / 1.2)
    assert steps.mean() == pytest.approx(0.75, abs=0.03)
    drawn = moved[~steps]
    assert np.log10(drawn).mean() == pytest.approx(-1.5, abs=0.1)  # the middle of the prior
    edge = [perturbed(rate, 1.0, random) for _ in range(200)]
    assert max(edge) <= 1.0
    decay = Dimension("optimiser.decay", Choice((0.9, 0.99, 0.999)))
    assert {perturbed(decay, 0.99, random) for _ in range(100)} == {0.9, 0.99, 0.999}
    zero = Dimension(DROPOUT, ZeroOr(Uniform(0.1, 0.6)))
    assert 0.0 in {perturbed(zero, 0.0, random) for _ in range(20)}


@pytest.mark.parametrize(
    ("paths", "options", "told"),
    [
        ((RATE, "model.widths"), {}, r"`model\.widths` changes the compiled program"),
        ((RATE,), {"size": 3}, "at least 4 members"),
        ((RATE,), {"intervals": 0}, "at least 1"),
        ((), {}, "needs a knob that can change"),
    ],
)
def test_what_cannot_evolve_is_refused(
    data: EvaluationData, space: Space, paths: tuple[str, ...], options: dict[str, int], told: str
) -> None:
    recipe: Recipe = space.recipe
    with pytest.raises(RequestError, match=told):
        evolve(Space(recipe, tuple(dimension(recipe, path) for path in paths)), data, **options)
