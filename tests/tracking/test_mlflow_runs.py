"""The runs, read by MLflow's own client."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from gradwise.runtime.errors import WorkError
from gradwise.tracking.mlflow_runs import MLflow
from gradwise.tracking.tracker import curves_of

# MLflow's tables use a feature of SQLAlchemy that it will drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*``noload`` loader strategy:DeprecationWarning")


def runs(database, name):
    """The client, the main run of the experiment, and those nested in it by their names."""
    client = MlflowClient(tracking_uri=database)
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    nested = {run.info.run_name: run for run in found if "mlflow.parentRunId" in run.data.tags}
    [main] = [run for run in found if run.info.run_name not in nested]
    return client, main, nested


def points(client, run, name):
    history = client.get_metric_history(run.info.run_id, name)
    return sorted((point.step, point.value) for point in history)


def test_every_curve_parameter_and_metric_is_there(tracked, database):
    client, run, nested = runs(database, "tracked")
    assert nested == {}
    for name in curves_of(tracked.rows[0]):
        assert points(client, run, name) == [(row["age_examples"], row[name]) for row in tracked.rows]
    assert run.data.params["optimiser.learning_rate"] == "0.1"
    assert run.data.params["model.widths"] == "(6,)"
    assert run.data.metrics["test_error_rate"] == tracked.record.test
    assert (run.info.status, run.data.tags["outcome"]) == ("FINISHED", "finished")


def test_the_report_is_an_artifact(tracked, database):
    client, run, _ = runs(database, "tracked")
    assert [one.path for one in client.list_artifacts(run.info.run_id)] == ["report.html"]


def test_each_trial_is_a_nested_run(tracked_search, database):
    client, main, nested = runs(database, "searched")
    assert points(client, main, "score") == sorted((row["trial"], row["score"]) for row in tracked_search.rows)
    assert len(nested) == 3
    for trial in tracked_search.record.trials:
        run = nested[f"trial {trial.number}"]
        assert run.data.tags["mlflow.parentRunId"] == main.info.run_id
        assert run.data.params == {path: str(value) for path, value in trial.values.items()}
        expected = list(zip(trial.curve["age_examples"], trial.curve["valid_score"], strict=True))
        assert points(client, run, "valid_score") == expected
        assert run.data.metrics["score"] == trial.score
        assert run.info.status == "FINISHED"


def test_a_training_that_failed_is_marked(failed, database):
    client, run, _ = runs(database, "failed")
    assert (run.info.status, run.data.tags["outcome"]) == ("FAILED", "failed")
    assert len(points(client, run, "valid_loss")) == 1


def test_a_place_that_mlflow_refuses_is_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(WorkError, match=r"^MLflow cannot write to file:.*sqlite:///") as refused:
        MLflow(uri=f"file:{tmp_path / 'mlruns'}").begin({})
    assert "\n" not in str(refused.value)
