"""What a row holds, and what of it is worth a curve."""

import math

from gradwise.records.trial import Trial
from gradwise.tracking.tracker import curves_of, describe_recipe, final_numbers, points_of, step_of, trial_row
from tests.tracking.conftest import RECIPE


def test_a_recipe_is_described_by_its_parts_and_knobs():
    about = describe_recipe(RECIPE)
    assert about["optimiser"] == "Sgd"
    assert about["optimiser.learning_rate"] == 0.1
    assert about["stopping.epochs"] == 4.0
    assert about["model.widths"] == "(6,)"
    assert all(isinstance(value, bool | int | float | str) for value in about.values())


def test_a_row_of_a_training_has_the_columns_of_the_history(tracked):
    assert len(tracked.rows) == len(tracked.record.history["age_examples"]) == 4
    for place, row in enumerate(tracked.rows):
        assert {name: row[name] for name in tracked.record.history} == {
            name: values[place] for name, values in tracked.record.history.items()
        }
        assert step_of(row) == row["age_examples"]
        names = {"train_loss", "valid_loss", "train_score", "valid_score", "learning_rate", "epoch", "seconds"}
        assert set(curves_of(row)) == names


def test_a_row_of_a_search_is_a_trial(tracked_search):
    study, rows = tracked_search.record, tracked_search.rows
    assert sorted(row["trial"] for row in rows) == [trial.number for trial in study.trials] == [0, 1, 2]
    best = math.inf
    for row in rows:
        trial = study.trials[row["trial"]]
        assert row == trial_row(trial, best=trial.score < best)
        assert row["values"] == trial.values
        assert len(row["values"]) == 1
        best = min(best, trial.score)
        assert step_of(row) == trial.number
        assert curves_of(row)["score"] == trial.score
        assert [age for age, _ in points_of(row)] == trial.curve["age_examples"]
        assert points_of(row)[-1][1]["valid_score"] == trial.curve["valid_score"][-1]


def test_what_is_not_finite_is_no_point_of_a_curve():
    lost = trial_row(Trial(3, RECIPE, {}, "diverged", train_loss=math.inf, parameters=9), best=False)
    assert curves_of(lost) == {"best_age": 0.0, "seconds": 0.0, "parameters": 9.0}


def test_the_final_numbers_are_every_metric_on_every_set(tracked, tracked_search):
    numbers = final_numbers(tracked.record)
    assert numbers["test_error_rate"] == tracked.record.test
    assert len(numbers) == sum(len(values) for values in tracked.record.metrics.values()) >= 12
    found = tracked_search.record
    assert final_numbers(found)["test_error_rate"] == found.estimates.metrics["test"]["error_rate"]
