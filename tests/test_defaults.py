"""The recommended recipes: one for each task, any part exchangeable, stopping by the metric that is told."""

import numpy as np
import pytest

from gradwise import defaults
from gradwise.core.dataset import Classes, Labels, Numbers
from gradwise.core.errors import RequestError
from gradwise.core.metric import METRICS
from gradwise.core.tree import get
from gradwise.criteria.loss import Gaussian, Sigmoid, Softmax
from gradwise.optimisers.sgd import Sgd


@pytest.mark.parametrize(
    ("task", "loss"), [(Classes(np.arange(2)), Softmax), (Labels(("a",)), Sigmoid), (Numbers(), Gaussian)]
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
