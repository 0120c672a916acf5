"""Capacity is never chosen on training error, openly or along with another knob, wherever a score chooses."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from gradwise import defaults
from gradwise.estimators.auto import AutoClassifier
from gradwise.estimators.base import TrainingRows
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam, AdamW
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.reporting.report import verdict
from gradwise.runtime.errors import RequestError
from gradwise.searching.comparison.challenge import challenge, compare
from gradwise.searching.layerwise.algorithm import layerwise
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.search import Budget, SearchPlan, run_study
from gradwise.searching.selection.batch_size import compare_batch_sizes
from gradwise.searching.selection.knob_kinds import (
    kind_at,
    refuse_capacity,
    space_recipes,
    varied_capacity,
    without_capacity,
)
from gradwise.searching.strategies.population_based_training import evolve
from gradwise.searching.strategies.random_search import Random
from gradwise.specs.priors import Choice, LogUniform, Uniform
from gradwise.specs.search_space import Dimension, Space, dimension, write_at
from gradwise.training.stopping import Off

from .. import tiny

RATE = "optimiser.learning_rate"
WIDTH = "model.widths.each"
KEY = jax.random.key(0)


def iris() -> Any:
    return tiny.data().pool


def short(**parts: Any) -> Any:
    return tiny.recipe(epochs=4, split=TrainingRows(), **parts)


def trained_on(folds: int = 1) -> EvaluationData:
    return EvaluationData.of(iris(), TrainingRows(), metric="error_rate", folds=folds, key=KEY)


def space(*dimensions: tuple[str, Any], **parts: Any) -> Space:
    recipe = short(**parts)
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in dimensions))


RATES = (RATE, LogUniform(0.01, 1.0))
WIDTHS = (WIDTH, Choice((2, 8)))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("optimiser.optimiser.learning_rate", "optimiser"),
        ("model.widths", "capacity"),
        ("model.widths.count", "capacity"),
        ("model.widths.1", "capacity"),
        ("model.dropout", "capacity"),
        ("model", "capacity"),
        ("criterion.mixup", "model"),
        ("optimiser", "optimiser"),
        ("model.activation", "model"),
    ],
)
def test_a_knob_a_switch_and_a_part_have_a_kind(path: str, kind: str) -> None:
    assert kind_at(defaults.classification(), path) == kind


def test_a_wrong_path_has_no_kind() -> None:
    with pytest.raises(RequestError, match="Did you mean"):
        kind_at(defaults.classification(), "model.width")


def test_capacity_is_refused_on_training_error_with_its_name() -> None:
    recipes = [tiny.recipe(rate=0.1), write_at(tiny.recipe(rate=0.5), "model.dropout", 0.3)]
    with pytest.raises(RequestError, match=r"^`model\.dropout` sets capacity") as refused:
        refuse_capacity("train", recipes)
    assert "\n" not in str(refused.value)
    refuse_capacity("valid", recipes)
    refuse_capacity("train", [tiny.recipe(rate=0.1), tiny.recipe(rate=0.5)])


@pytest.mark.parametrize(
    ("dimensions", "named"),
    [
        ([RATES], None),
        ([RATES, WIDTHS], "model.widths"),
        ([RATES, ("model.dropout", Uniform(0.0, 0.5))], "model.dropout"),
        # A part brings its knobs: the one has a weight decay, the other has none.
        ([("optimiser", Choice((Adam(), AdamW(decay=0.1))))], "optimiser.decay"),
        ([("optimiser", Choice((Sgd(), HeavyBall()))), ("optimiser.momentum", Uniform(0.5, 0.9))], None),
        ([("model", Choice((Mlp(widths=(4,)), Mlp(widths=(4, 4)))))], "model.widths"),
    ],
)
def test_a_space_shows_the_capacity_that_it_varies(dimensions: list[tuple[str, Any]], named: str | None) -> None:
    recipe = tiny.recipe()
    varied = Space(recipe, tuple(Dimension(path, prior) for path, prior in dimensions))
    assert varied_capacity(space_recipes(varied)) == named


def test_the_recommended_space_without_capacity_is_that_of_the_rate_and_of_what_is_learned() -> None:
    paths = without_capacity(defaults.search_space(defaults.table("classes", 15))).paths
    assert paths == (
        "optimiser.optimiser.learning_rate",
        "model.inputs.numbers.deviation",
        "criterion.loss.label_smoothing",
    )


def test_scores_are_of_training_rows_where_they_are_the_same_rows_or_copies_of_them() -> None:
    assert trained_on().judged_on == "train"
    assert trained_on(folds=5).judged_on == "valid"  # each fold is judged by a network that did not see it
    assert tiny.data().judged_on == "valid"
    data = tiny.data()
    copied = dataclasses.replace(data, valid=dataclasses.replace(data.train, rows=None))
    assert copied.judged_on == "train"
    assert dataclasses.replace(copied, folds=5).judged_on == "train"  # a copy lies in another fold
    assert dataclasses.replace(data, valid=data.train.take(np.arange(7))).judged_on == "train"


def test_a_search_by_training_rows_refuses_capacity_and_chooses_the_rate() -> None:
    plan = SearchPlan(folds=1, committee="none", refine=False, borders=False)
    with pytest.raises(RequestError, match=r"^`model\.widths` sets capacity"):
        run_study(space(RATES, WIDTHS), iris(), strategy=Random(), budget=Budget(trials=2), key=KEY, plan=plan)
    study = run_study(space(RATES), iris(), strategy=Random(), budget=Budget(trials=3), key=KEY, plan=plan)
    scores = {trial.number: (trial.score, trial.loss) for trial in study.trials}
    assert study.winner.number == min(scores, key=lambda number: scores[number])
    # The score is what it is: of rows that were trained on, with nothing to correct it by.
    assert study.data.judged_on == "train"
    assert study.winner.corrected is None
    assert any("scored on their own training rows" in finding.what for finding in study.findings)
    assert verdict(study).headline.startswith("Training error")
    assert "optimistic" in verdict(study).interval


def test_every_other_way_to_choose_by_a_score_asks_the_same() -> None:
    data, names_width = trained_on(), r"^`model\.widths` sets capacity"
    with LocalExecutor(data) as executor:
        with pytest.raises(RequestError, match=names_width):
            challenge(short(), WIDTH, (2, 8), data, executor, 2)
        with pytest.raises(RequestError, match=names_width):
            compare(space(RATES, WIDTHS), RATE, (0.1, 0.5), data, executor, 1, seeds=2)
        with pytest.raises(RequestError, match=names_width):
            compare(space(RATES), WIDTH, (2, 8), data, executor, 1, seeds=2)
        assert len(challenge(short(), RATE, (0.1, 0.5), data, executor, 2).trials) == 4
        # The batch size and the rate are the optimiser's, whatever judges.
        sizes = compare_batch_sizes(short(), data, executor, sizes=(8, 16), rates=(1.0,), seeds=1, timed=lambda _: 1e-3)
        assert len(sizes.trials) == 2
    with pytest.raises(RequestError, match=r"^`model\.dropout` sets capacity"):
        evolve(space(("model.dropout", Uniform(0.0, 0.5))), data, size=4, intervals=1)


def test_layer_by_layer_too() -> None:
    tuning = [short(model=Mlp(widths=(4,), dropout=0.0))]
    layer = dataclasses.replace(learner("denoising", 4), stopping=Off(epochs=1.0))
    noisier = write_at(layer, "criterion.corruption.level", 0.5)
    with pytest.raises(RequestError, match=r"^`criterion\.corruption\.level` sets capacity"):
        layerwise([[layer, noisier]], tuning, iris(), keep=1, key=KEY)
    with pytest.raises(RequestError, match=r"^`model\.dropout` sets capacity"):
        layerwise([[layer]], [*tuning, write_at(tuning[0], "model.dropout", 0.5)], iris(), keep=1, key=KEY)


def test_few_rows_leave_capacity_as_recommended_unless_it_is_asked_for() -> None:
    whole = iris()
    rows = np.arange(0, 120, 8)
    inputs, targets = whole.inputs[rows], whole.targets[rows]
    with pytest.raises(RequestError, match=r"^`model\.dropout` sets capacity"):
        AutoClassifier("1 trials", space={"model.dropout": "uniform(0, 0.5)"}).fit(inputs, targets)
    quick = {"model": Mlp(widths=(4,)), "stopping": Off(epochs=2.0)}
    study = AutoClassifier("2 trials", space=quick, random_state=0).fit(inputs, targets).study_
    assert study.space.paths == ("optimiser.optimiser.learning_rate",)
    assert len(study.trials) == 2
