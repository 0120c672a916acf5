"""Event files for TensorBoard: curves against age, and the recipe as hyper-parameters.

    gw.fit("digits", callbacks=[gw.TensorBoard("runs/tb/first")])
    tensorboard --logdir runs/tb

A search writes one folder for each trial, so that TensorBoard's HPARAMS page compares them. Only the package
`tensorboard` is needed, neither TensorFlow nor PyTorch.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..records.fit import Fit
from ..records.study import Study
from ..runtime.optional_package import check_installed, import_optional
from .tracker import AbstractTracker, Plain, Row, curves_of, final_numbers, points_of, step_of

_FLUSH_SECONDS = 1


class _EventFile:
    """One event file in a folder."""

    def __init__(self, folder: Path) -> None:
        module = "tensorboard.summary.writer.event_file_writer"
        writer = import_optional(module, "tensorboard")
        self._folder = folder
        self._proto = import_optional("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._event = import_optional("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._file = writer.EventFileWriter(str(folder), flush_secs=_FLUSH_SECONDS)

    def _add(self, summary: Any, step: int) -> None:
        self._file.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def settings(self, values: Mapping[str, Plain]) -> None:
        """Hyper-parameters."""
        hparams = import_optional("tensorboard.plugins.hparams.summary_v2", "tensorboard")
        self._add(hparams.hparams_pb(dict(values), trial_id=self._folder.name), 0)

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        """One point of each curve."""
        points = [self._proto.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(self._proto.Summary(value=points), step)

    def close(self) -> None:
        self._file.close()


class TensorBoard(AbstractTracker):
    """Writes event files into a folder, one for each training."""

    def __init__(self, folder: str | Path) -> None:
        check_installed("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._file: _EventFile | None = None
        self._step = 0

    def begin(self, about: Mapping[str, Plain]) -> None:
        self._file, self._step = _EventFile(self.folder), 0
        self._file.settings(about)

    def __call__(self, row: Row) -> None:
        assert self._file is not None
        self._step = step_of(row)
        self._file.numbers(curves_of(row), self._step)
        if "trial" in row:
            self._write_trial(row)

    def _write_trial(self, row: Row) -> None:
        file = _EventFile(self.folder / f"trial-{row['trial']:04}")
        file.settings(row["values"])
        for age, numbers in points_of(row):
            file.numbers(numbers, age)
        final = curves_of({name: row[name] for name in ("score", "loss")})
        file.numbers(final, row["age_examples"])
        file.close()

    def end(self, record: Fit | Study | None, report: Path | None = None) -> None:
        if self._file is not None:
            if record is not None:
                self._file.numbers(final_numbers(record), self._step)
            self._file.close()
            self._file = None
