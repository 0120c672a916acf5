"""The record of a search: what it tells of its trials, and how a score is read."""

import dataclasses
import json
import math

import pytest

from gradwise import defaults
from gradwise.records.data_read import DataRead
from gradwise.records.finding import Finding
from gradwise.records.study import Study
from gradwise.records.trial import Trial
from gradwise.specs.priors import LogUniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Space, dimension


def study_of(recipe: Recipe, task: str = "classes", metric: str = "error_rate", **about: object) -> Study:
    space = Space(recipe, (dimension(recipe, "optimiser.optimiser.learning_rate", LogUniform(1e-4, 1e-1)),))
    given = {
        "strategy": "Random",
        "independent": True,
        "trials": (),
        "settings": {},
        "data": DataRead(),
        "seed": 0,
        "seconds": 1.0,
        "version": "0",
        "machine": {},
    }
    return Study(task=task, metric=metric, space=space, asked=space, **{**given, **about})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def study() -> Study:
    recipe = defaults.classification()
    trials = (
        Trial(0, recipe, {}, "finished", score=0.2, loss=0.5),
        Trial(1, recipe, {}, "diverged", score=0.05, age_examples=10),
        Trial(2, recipe, {}, "patience", score=0.2, loss=0.4),
        Trial(3, recipe, {}, "failed", reason="no room"),
        Trial(4, recipe, {}, "finished", score=0.1, loss=0.9, phase="refine"),
    )
    return study_of(recipe, trials=trials, findings=(Finding("note", "a thing", "E4"),))


def test_the_search_proper_is_told_from_what_followed(study: Study) -> None:
    assert [trial.number for trial in study.searched] == [0, 1, 2, 3]


def test_the_best_left_a_model(study: Study) -> None:
    """A trial that diverged counts for nothing, whatever its score was before."""
    assert study.best is not None
    assert study.best.number == 4
    ties = dataclasses.replace(study, trials=study.trials[:4])
    assert ties.best is not None
    assert ties.best.number == 2  # the loss breaks the tie
    assert dataclasses.replace(study, trials=study.trials[1:2]).best is None


@pytest.mark.parametrize(
    ("task", "metric", "kind", "shown"),
    [
        ("classes", "error_rate", "error", 0.25),
        ("classes", "log_loss", "loss", 0.25),
        ("numbers", "rmse", "squared", 3.0 * 0.5),
        ("numbers", "r2", "squared", 3.0 * 0.5),
        ("numbers", "mae", "absolute", 3.0 * 0.25),
    ],
)
def test_scores_are_shown_in_the_units_of_the_target(task: str, metric: str, kind: str, shown: float) -> None:
    """Scores are of standardised targets: a squared error is shown as its root, an absolute one as it is."""
    recipe = {"classes": defaults.classification, "numbers": defaults.regression}[task]()
    study = study_of(defaults.following(recipe, metric), task, metric, unit=3.0 if task == "numbers" else 1.0)
    assert study.scale.kind == kind
    assert study.scale.shown(0.25) == pytest.approx(shown)
    assert math.isnan(study.scale.shown(math.nan))


def test_the_summary_is_plain_and_counts_the_outcomes(study: Study) -> None:
    told = study.summary()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["kind"] == "study"
    assert told["trials"] == 5
    assert told["outcomes"] == {"finished": 2, "diverged": 1, "patience": 1, "failed": 1}
    assert told["findings"][0]["what"] == "a thing"
    assert told["chance"] is None  # not-a-number has no place in JSON
