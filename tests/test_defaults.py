"""The recommended recipes: one for each task, any part exchangeable, stopping by the metric that is told."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import sparse

import gradwise
from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import Standardise
from gradwise.evaluation.metrics import METRICS
from gradwise.models.activations import Mish, Selu
from gradwise.models.mlp import Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import AdamW
from gradwise.optimisers.first_order.schedules import FlatCosine, RepeatedCosine
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind
from gradwise.pretraining.layer_recipes import learner
from gradwise.recipes import is_for_tables
from gradwise.runtime.errors import RequestError
from gradwise.searching.layerwise.algorithm import draw_settings
from gradwise.specs.contracts import AbstractModel, AbstractOptimiser
from gradwise.specs.dataset import Classes, Column, Dataset, Labels, Numbers
from gradwise.specs.knobs import knob
from gradwise.specs.paths import get
from gradwise.specs.priors import LogUniform, Uniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import read_space
from gradwise.training.stopping import Off, Patience


@pytest.mark.parametrize(
    ("task", "loss"), [(Classes(np.arange(2)), SoftmaxLoss), (Labels(("a",)), SigmoidLoss), (Numbers(), GaussianLoss)]
)
def test_each_task_has_its_recipe(task: Classes | Labels | Numbers, loss: type) -> None:
    recipe = defaults.for_task(task)
    assert isinstance(recipe.criterion.loss, loss)
    recipe.criterion.check_task(task)
    assert defaults.for_task(task, optimiser=Sgd(learning_rate=0.5)).optimiser == Sgd(learning_rate=0.5)


def test_penalties_are_off_beside_early_stopping() -> None:
    assert [penalty.coefficient for penalty in defaults.classification().criterion.penalties] == [0.0, 0.0]


def test_a_part_of_another_kind_or_name_is_refused() -> None:
    with pytest.raises(RequestError, match=r"Recipe\.model|Recipe\.stopping"):
        defaults.classification(stopping=Sgd())
    with pytest.raises(TypeError, match="optimizer"):
        defaults.classification(optimizer=Sgd())


BY_LOSS = dict.fromkeys(("log_loss", "auc", "average_precision", "f1_macro", "precision_macro"), "loss")


@pytest.mark.parametrize(
    ("recipe", "kind", "expected"),
    [
        (defaults.classification(), "classes", BY_LOSS),
        (defaults.multilabel(), "labels", BY_LOSS),
        (defaults.regression(), "numbers", {"rmse": "squared", "mae": "absolute", "r2": "squared"}),
    ],
)
def test_stopping_follows_the_metric(recipe: object, kind: str, expected: dict[str, str]) -> None:
    for metric in METRICS[kind]:
        followed = defaults.following(recipe, metric)
        assert get(followed, "criterion.loss.score_by") == expected.get(metric, "error")


def test_a_criterion_of_ones_own_is_left_as_it_is() -> None:
    recipe = defaults.regression(criterion=lambda model, batch, key: 0.0)
    assert defaults.following(recipe, "mae") is recipe


# --- tables

NUMBERS = np.random.default_rng(0).normal(size=(30, 4))
TASKS = {"classes": Classes(np.arange(2)), "labels": Labels(("a", "b")), "numbers": Numbers()}
TARGETS = {"classes": np.arange(30) % 2, "labels": np.ones((30, 2)), "numbers": NUMBERS[:, :1]}


def data_of(inputs: Any, kind: str = "classes", columns: tuple[Column, ...] = ()) -> Dataset:
    count = inputs.shape[0]
    targets = np.resize(TARGETS[kind], (count, *TARGETS[kind].shape[1:]))
    return Dataset(inputs, targets, TASKS[kind], columns, name="rows")


def is_table_recipe(recipe: Recipe) -> bool:
    return isinstance(recipe.optimiser, RatesByKind)


@pytest.mark.parametrize(
    ("kind", "loss", "units"),
    [("classes", SoftmaxLoss, Selu), ("labels", SigmoidLoss, Selu), ("numbers", GaussianLoss, Mish)],
)
def test_a_table_has_a_recipe_of_its_own(kind: str, loss: type, units: type) -> None:
    recipe = defaults.for_data(data_of(NUMBERS, kind))
    assert recipe == defaults.table(kind, 30)
    assert isinstance(recipe.criterion.loss, loss)
    assert isinstance(recipe.model.activation.activation, units)
    assert (recipe.model.parametrisation, recipe.stopping.keep) == ("ntk", "best")
    assert 0 < recipe.stopping.significance < 0.5  # the latest of those that are as good as the best
    # One wave after another over the whole run, and what holds capacity back let go at its end.
    adam = recipe.optimiser.optimiser
    assert adam.schedule == RepeatedCosine()
    assert recipe.model.dropout_schedule == adam.decay_schedule == FlatCosine()
    named = defaults.for_data(data_of(NUMBERS, kind, tuple(Column(name) for name in "abcd")))
    assert named == recipe


def test_a_small_table_has_a_smaller_network() -> None:
    small, large = (defaults.table("classes", rows) for rows in (999, 1000))
    assert (small.model.widths, small.stopping.epochs) == ((128,) * 3, 64.0)
    assert (large.model.widths, large.stopping.epochs) == ((256,) * 3, 128.0)
    assert defaults.table("classes") == large
    assert defaults.table("numbers", rows=999).stopping.epochs == 128.0  # without noise, numbers gain from every epoch
    assert dataclasses.replace(small, model=large.model, stopping=large.stopping) == large


def test_the_first_layer_of_a_table_s_network_is_overcomplete() -> None:
    """Row D1: more units than inputs, though each number is four of them, up to 31 columns of a small table."""
    for rows, columns in ((999, 31), (1000, 63)):
        model = defaults.table("classes", rows).model
        network = eqx.filter_eval_shape(lambda m, c: m.build((c,), 2, key=jax.random.key(0)), model, columns)
        units, inputs = network.layers[0].weight.shape
        assert inputs == 4 * columns
        assert units > inputs


@pytest.mark.parametrize(
    "inputs",
    [
        sparse.csr_array(NUMBERS),
        NUMBERS.reshape(30, 2, 2),
        np.zeros((30, 64), np.uint8),
    ],
    ids=["sparse", "images", "bytes"],
)
def test_what_is_no_table_has_the_general_recipe(inputs: Any) -> None:
    assert defaults.for_data(data_of(inputs)) == defaults.classification()


def test_a_network_made_for_tables_keeps_its_recipe_on_other_data() -> None:
    """Its weights are parametrised for the rates of that recipe; at the general one's it would hardly move."""
    model = dataclasses.replace(defaults.table("classes").model, dropout=0.3)
    recipe = defaults.for_data(data_of(sparse.csr_array(NUMBERS)), model=model)
    assert recipe == defaults.table("classes", 30, model=model)


def test_pixels_by_name_are_no_table() -> None:
    columns = tuple(Column(f"p{number}", "pixel") for number in range(4))
    assert defaults.for_data(data_of(NUMBERS, columns=columns)) == defaults.classification()


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({}, True),
        ({"model": Mlp(widths=(8,), parametrisation="ntk")}, True),
        ({"model": SharedWeights(Mlp(parametrisation="ntk"))}, True),
        ({"optimiser": RatesByKind(AdamW(0.01))}, True),
        ({"stopping": Off(epochs=3)}, True),
        ({"scaler": Standardise(), "batches": Reshuffled(32)}, True),
        ({"model": Mlp()}, False),
        ({"model": SharedWeights(Mlp())}, False),
        ({"model": eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(0))}, False),
        ({"optimiser": Sgd()}, False),
        ({"optimiser": AdamW()}, False),
        ({"stopping": Patience()}, False),
    ],
    ids=lambda case: " ".join(type(part).__name__ for part in case.values()) if isinstance(case, dict) else str(case),
)
def test_parts_of_ones_own_go_with_the_recipe_they_were_made_for(parts: dict[str, Any], fits: bool) -> None:
    recipe = defaults.for_data(data_of(NUMBERS), **parts)
    assert is_for_tables(**parts) == fits
    general = defaults.table("classes", 30, **parts) if fits else defaults.classification(**parts)
    assert eqx.tree_equal(recipe, general)
    assert all(getattr(recipe, name) is part for name, part in parts.items())
    if "optimiser" not in parts:
        assert is_table_recipe(recipe) == fits


def test_inputs_without_a_target_have_the_recipe_for_features() -> None:
    data = data_of(NUMBERS).without_targets()
    assert defaults.for_data(data) == defaults.features()


# --- what a search varies by itself


@pytest.mark.parametrize(
    ("recipe", "rates"),
    [
        (defaults.classification(), ["optimiser.optimiser.learning_rate"]),
        (defaults.multilabel(), ["optimiser.optimiser.learning_rate"]),
        (defaults.regression(optimiser=Sgd(learning_rate=0.5)), ["optimiser.learning_rate"]),
        (
            defaults.classification(optimiser=Grouped(Sgd(), groups=(ParameterGroup("output.*", Sgd(0.1)),))),
            ["optimiser.base.learning_rate", "optimiser.groups.0.optimiser.learning_rate"],
        ),
    ],
    ids=["classes", "labels", "numbers", "two rates"],
)
def test_every_fraction_of_the_space_makes_a_recipe(recipe: Recipe, rates: list[str]) -> None:
    space = defaults.search_space(recipe)
    assert [path for path in space.paths if path.endswith("learning_rate")] == rates
    assert {"model.widths.count", "model.widths.each", "model.dropout"} <= set(space.paths)
    assert not any(path.startswith("batches") for path in space.paths)  # chosen last, apart
    draw = np.random.default_rng(0)
    corners = [np.full(len(space.paths), end) for end in (0.0, 0.5, 1.0 - 1e-12)]
    for point in (*corners, *draw.random((40, len(space.paths)))):
        made = space.recipe_at(dict(zip(space.paths, point.tolist(), strict=True)))
        assert isinstance(made, Recipe)
        assert all(32 <= width <= 256 for width in made.model.widths)
        assert 1 <= len(made.model.widths) <= 3
        assert set(space.values(made)) == set(space.paths)


def test_the_rate_is_searched_around_the_recommended_one_unless_another_was_chosen() -> None:
    recommended = defaults.search_space(defaults.classification())["optimiser.optimiser.learning_rate"]
    assert recommended.prior == LogUniform(recommended.value / 10, recommended.value * 10)
    chosen = defaults.search_space(defaults.classification(optimiser=Sgd(learning_rate=0.37)))
    assert chosen["optimiser.learning_rate"].prior == LogUniform(1e-6, 1.0)


def test_layers_reach_an_overcomplete_first_one() -> None:
    """Row D1: twice the inputs, categories counted as they are coded; never below 256, never beyond reason."""

    def widest(data: Dataset) -> int:
        space = defaults.search_space(defaults.classification(), data)
        assert len(set(space.recipe_at(dict.fromkeys(space.paths, 1.0 - 1e-9)).model.widths)) == 1
        return space["model.widths.each"].prior.high  # type: ignore[attr-defined]

    assert widest(gradwise.read("digits")) == 256  # four times its 64 pixels
    assert widest(data_of(np.zeros((30, 300)))) == 600
    assert widest(data_of(np.zeros((30, 28, 28)))) == 2 * 28 * 28
    assert widest(data_of(np.zeros((30, 5000)))) == 2048
    towns = tuple(Column(f"c{n}", "category", tuple(map(str, range(100)))) for n in range(4))
    assert widest(data_of(np.zeros((30, 4)), columns=towns)) == 800


def test_weight_decay_is_searched_where_a_module_of_ones_own_has_weights_by_name() -> None:
    class Own(eqx.Module):
        factors: jax.Array

    decay = "criterion.penalties.0.coefficient"
    named = defaults.classification(model=eqx.nn.Linear(4, 2, key=jax.random.key(0)))
    unnamed = defaults.classification(model=Own(jax.numpy.ones((2, 4))))
    assert decay in defaults.search_space(named).paths
    assert defaults.search_space(unnamed).paths == ("optimiser.optimiser.learning_rate",)


def test_a_recipe_of_ones_own_parts_is_searched_in_all_that_has_a_prior() -> None:
    class Own(AbstractModel):
        leak: float = knob(0.1, allowed="[0, 1)", prior=Uniform(0.0, 0.5), row="D6", about="a slope")

        def build(self, inputs, outputs, *, key):
            raise NotImplementedError

    class Rule(AbstractOptimiser):
        pace: float = knob(0.1, allowed="(0, inf)", prior=LogUniform(1e-3, 1.0), row="C1", about="a rate")

        def build(self):
            raise NotImplementedError

        def judged(self, parameters, state):
            return parameters

        def rate(self, state):
            return self.pace

    def criterion(model, batch, key):
        return 0.0

    recipe = defaults.classification(model=Own(), optimiser=Rule(), criterion=criterion)
    space = defaults.search_space(recipe)
    assert {"model.leak", "optimiser.pace", "batches.size"} <= set(space.paths)
    assert space.dimensions == read_space(recipe)


@pytest.mark.parametrize(
    ("kind", "path", "values"),
    [
        ("denoising", "criterion.corruption.level", (0.1, 0.25, 0.6)),
        ("contractive", "criterion.on_codes.0.coefficient", (0.001, 0.1, 10.0)),
        ("sparse", "criterion.on_codes.0.coefficient", (0.01, 3.0, 100.0)),
        ("sparse", "criterion.on_codes.0.target", (0.02, 0.05, 0.2)),
        ("plain", "model.tied", (False, True)),
    ],
)
def test_what_a_learner_of_features_depends_on_is_a_knob_with_a_prior_around_its_value(kind, path, values) -> None:
    """Row D11: the chapter's values lie within the prior, and a level's search varies all but the tying."""
    recipe = learner(kind, 8)
    (found,) = [one for one in read_space(recipe) if one.path == path]
    assert all(found.prior.supports(value) for value in values)
    assert found.prior.supports(get(recipe, path))
    assert (path in defaults.level_space(recipe).paths) == (path.rpartition(".")[2] not in ("tied", "target"))


@pytest.mark.parametrize("kind", ["denoising", "rbm", "psd"])
def test_a_level_draws_its_width_where_it_has_a_range(kind: str) -> None:
    """Row E8: in steps of about the root of 2, both ends among them."""
    space = defaults.level_space(learner(kind, 256), (128, 512))
    path = "model.widths.0" if kind == "denoising" else "model.units"
    assert space.paths[0] == path
    draws = [space.values(one)[path] for one in draw_settings(space, 60, key=jax.random.key(0))]
    assert set(draws) == {128, 181, 256, 362, 512}
    assert path not in defaults.level_space(learner(kind, 256)).paths
    assert set(defaults.level_space(learner(kind, 9), (9, 10))[path].prior.values) == {9, 10}


def test_a_trial_of_a_search_has_a_longest_run_where_rows_are_many() -> None:
    assert defaults.search_stopping(48_000).limit_examples(48_000) == 64 * 48_000
    assert defaults.search_stopping(10_000).limit_examples(10_000) == 3_000_000
    assert defaults.search_stopping(1_000).epochs == Patience().epochs
    dataset = Dataset(np.zeros((60_000, 2, 2), np.float32), np.zeros(60_000, int), Classes(np.arange(2)))
    assert defaults.for_search(dataset).stopping == defaults.search_stopping(60_000)


def test_a_search_on_many_images_takes_larger_mini_batches_than_one_network() -> None:
    dataset = Dataset(np.zeros((60_000, 2, 2), np.float32), np.zeros(60_000, int), Classes(np.arange(2)))
    assert defaults.for_data(dataset).batches.size == 64
    assert defaults.for_search(dataset).batches.size == 256
    assert defaults.for_search(dataset, batches=Reshuffled(size=32)).batches.size == 32
    assert defaults.for_search(dataset.take(np.arange(1000))).batches.size == 64
    table = Dataset(np.zeros((60_000, 9)), np.zeros(60_000, int), Classes(np.arange(2)))
    assert defaults.for_search(table).batches == defaults.for_data(table).batches
