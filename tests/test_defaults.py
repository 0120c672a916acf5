"""The recommended recipes: one for each task, any part exchangeable, stopping by the metric that is told."""

import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.evaluation.metrics import METRICS
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractModel, AbstractOptimiser
from gradwise.specs.dataset import Classes, Labels, Numbers
from gradwise.specs.knobs import knob
from gradwise.specs.paths import get
from gradwise.specs.priors import LogUniform, Uniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import read_space


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


@pytest.mark.parametrize(
    ("recipe", "kind", "expected"),
    [
        (defaults.classification(), "classes", {"error_rate": "error", "log_loss": "loss", "auc": "loss"}),
        (defaults.multilabel(), "labels", {"error_rate": "error", "log_loss": "loss", "auc": "loss"}),
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
