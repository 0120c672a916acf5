"""Runs in MLflow: the recipe as parameters, curves against age, the final metrics, the report as an artifact.

    gw.fit("digits", callbacks=[gw.MLflow("digits", uri="sqlite:///runs.db")])
    mlflow ui --backend-store-uri sqlite:///runs.db

A search is one run with a nested run for each trial. The slim package `mlflow-skinny` suffices to write.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..records.fit import Fit
from ..records.study import Study
from ..runtime.errors import WorkError
from ..runtime.optional_package import check_installed, import_optional
from .tracker import AbstractTracker, Plain, Row, curves_of, final_numbers, outcome_of, points_of, step_of

_FLUSH_SECONDS = 1.0  # a call takes milliseconds, or a trip through the network: a row may take microseconds
_AT_ONCE = 1000  # metrics that MLflow takes in one call
_PARAMETERS_AT_ONCE = 100
_LONGEST = 6000  # characters of a parameter


class _MLflowRun:
    """One run, whose metrics are sent in batches."""

    def __init__(self, client: Any, experiment: str, name: str | None, tags: Mapping[str, str]) -> None:
        self._client = client
        self._entities = import_optional("mlflow.entities", "mlflow")
        self.id: str = client.create_run(experiment, run_name=name, tags=dict(tags)).info.run_id
        self._waiting: list[Any] = []
        self._sent = time.monotonic()

    def settings(self, values: Mapping[str, Plain]) -> None:
        """Parameters."""
        found = [self._entities.Param(name, str(value)[:_LONGEST]) for name, value in values.items()]
        for start in range(0, len(found), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self.id, params=found[start : start + _PARAMETERS_AT_ONCE])

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        """One point of each curve, sent within a second or so."""
        now = int(time.time() * 1000)
        self._waiting += [self._entities.Metric(name, value, now, step) for name, value in values.items()]
        if time.monotonic() - self._sent >= _FLUSH_SECONDS or len(self._waiting) >= _AT_ONCE:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _AT_ONCE):
            self._client.log_batch(self.id, metrics=waiting[start : start + _AT_ONCE])
        self._sent = time.monotonic()

    def end(self, outcome: str, failed: bool) -> None:
        self._send()
        self._client.set_tag(self.id, "outcome", outcome)
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


class MLflow(AbstractTracker):
    """Writes one run into an experiment, at a server or in a database such as `sqlite:///runs.db`.

    Without `uri`, MLflow's own setting decides (MLFLOW_TRACKING_URI).
    """

    def __init__(self, experiment: str = "gradwise", *, uri: str | None = None, name: str | None = None) -> None:
        check_installed("mlflow", "mlflow")
        self.experiment, self.uri, self.name = experiment, uri, name
        self._client: Any = None
        self._home = ""
        self._run: _MLflowRun | None = None
        self._step = 0

    def begin(self, about: Mapping[str, Plain]) -> None:
        mlflow = import_optional("mlflow", "mlflow")
        try:
            self._client = mlflow.MlflowClient(tracking_uri=self.uri)
            found = self._client.get_experiment_by_name(self.experiment)
            self._home = found.experiment_id if found else self._client.create_experiment(self.experiment)
        except mlflow.exceptions.MlflowException as problem:
            where = self.uri or mlflow.get_tracking_uri()
            raise WorkError(f"MLflow cannot write to {where}: {str(problem).partition(chr(10))[0]}") from None
        self._run, self._step = _MLflowRun(self._client, self._home, self.name, {}), 0
        self._run.settings(about)

    def __call__(self, row: Row) -> None:
        assert self._run is not None
        self._step = step_of(row)
        self._run.numbers(curves_of(row), self._step)
        if "trial" in row:
            self._write_trial(row, self._run.id)

    def _write_trial(self, row: Row, parent: str) -> None:
        tags = {"mlflow.parentRunId": parent, "phase": row["phase"]}
        run = _MLflowRun(self._client, self._home, f"trial {row['trial']}", tags)
        run.settings(row["values"])
        for age, numbers in points_of(row):
            run.numbers(numbers, age)
        final = curves_of({name: row[name] for name in ("score", "loss")})
        run.numbers(final, row["age_examples"])
        run.end(row["outcome"], row["outcome"] in {"failed", "diverged"})

    def end(self, record: Fit | Study | None, report: Path | None = None) -> None:
        if self._run is None:
            return
        if record is not None:
            self._run.numbers(final_numbers(record), self._step)
        if report is not None:
            self._client.log_artifact(self._run.id, str(report))
        self._run.end(outcome_of(record), record is None)
        self._run = None
