"""Every optimiser can be chosen by name and trains a network: through `fit`, in a search, in an estimator."""

import dataclasses

import jax.random as jr
import numpy as np
import pytest

import gradwise
import gradwise.optimisers
from gradwise import defaults
from gradwise.data.batches import Fixed
from gradwise.journeys.requests.assignments import Assignment, resolve
from gradwise.models.centred_mlp import CentredMlp
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.vsgd import Vsgd
from gradwise.optimisers.first_order.frozen import Frozen
from gradwise.optimisers.first_order.sag import Sag
from gradwise.optimisers.second_order.conjugate_gradient import ConjugateGradient
from gradwise.optimisers.second_order.hessian_free import HessianFree
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.optimisers.wrappers.recentred import Recentred
from gradwise.optimisers.wrappers.two_stages import TwoStages
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.search import SearchPlan, run_study
from gradwise.searching.storage.budget import Budget
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.specs.priors import LogUniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Space, dimension
from gradwise.testing.contracts import public_specs
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

KINDS = [
    kind for kind in public_specs(gradwise.optimisers) if issubclass(kind, AbstractOptimiser) and kind is not Frozen
]


def _clouds() -> Dataset:
    """Three clouds, 40 examples each: any rule that works learns them."""
    random = np.random.default_rng(0)
    targets = np.arange(120) % 3
    inputs = 2.0 * np.eye(3)[targets] + random.normal(size=(120, 3))
    return Dataset(inputs, targets, Classes(np.array(["a", "b", "c"])), tuple(Column(f"x{n}") for n in range(3)))


def _recipe(kind: type[AbstractOptimiser], epochs: int) -> Recipe:
    model = CentredMlp(widths=(6,)) if kind is Recentred else Mlp(widths=(6,), dropout=0.0)
    recipe = defaults.classification(model=model, batches=Fixed(size=24), stopping=Off(epochs=epochs))
    return resolve(recipe, [Assignment("optimiser", kind.__name__)]).recipe


def test_the_chapter_is_there() -> None:
    assert len(KINDS) >= 34


@parametrize_one_quick("kind", KINDS, ids=lambda kind: kind.__name__)
def test_by_its_name_it_trains_through_fit(kind: type[AbstractOptimiser]) -> None:
    recipe = _recipe(kind, 15)
    if kind in (
        TwoStages,
        ConjugateGradient,
        HessianFree,
        Lbfgs,
    ):  # one small batch after another is not for them
        recipe = dataclasses.replace(recipe, batches=Fixed(size=1000))
    result = gradwise.train(recipe, _clouds(), key=jr.key(0))
    assert type(result.recipe.optimiser) is kind
    assert result.outcome.name in {"finished", "stalled"}
    losses = result.history["train_loss"]
    assert losses[-1] < losses[0]
    assert np.isfinite(result.history["learning_rate"]).all()
    assert result.test < 0.7  # chance is 0.67


@pytest.mark.slow
def test_those_that_ask_work_in_a_search_and_in_an_estimator() -> None:
    recipe = _recipe(Vsgd, 3)
    space = Space(recipe, (dimension(recipe, "criterion.penalties.0.coefficient", LogUniform(0.01, 100.0)),))
    plan = SearchPlan(folds=1, finalists=0, refine=False, borders=False)
    study = run_study(space, _clouds(), budget=Budget(trials=3), key=keys.from_seed(0), plan=plan)
    assert [trial.outcome for trial in study.trials] == ["finished"] * 3
    assert len({trial.train_loss for trial in study.trials}) == 3

    clouds = _clouds()
    network = gradwise.Classifier(model=Mlp(widths=(6,)), optimiser=Lbfgs(), batches=Fixed(size=1000), random_state=0)
    assert network.fit(clouds.inputs, clouds.targets).score(clouds.inputs, clouds.targets) > 0.7


def test_a_rule_that_remembers_examples_refuses_passes_over_others() -> None:
    clouds = _clouds()
    network = gradwise.Classifier(model=Mlp(widths=()), optimiser=Sag())
    with pytest.raises(RequestError, match="Sag remembers every training example"):
        network.partial_fit(clouds.inputs, clouds.targets, classes=[0, 1, 2])
