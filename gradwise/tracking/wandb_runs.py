"""Runs in Weights & Biases: the recipe as configuration, curves against age, the final metrics as summary.

    gw.fit("digits", callbacks=[gw.WandB("digits")])                    a folder wandb/offline-run-..., for `wandb sync`
    gw.fit("digits", callbacks=[gw.WandB("digits", mode="online")])     the server, as you go

Nothing is uploaded unless you say `mode="online"`. The rows of a search hold the trials' scores and what was chosen.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ..records.fit import Fit
from ..records.study import Study
from ..runtime.errors import RequestError
from ..runtime.optional_package import check_installed, import_optional
from .tracker import AbstractTracker, Plain, Row, curves_of, final_numbers, outcome_of, step_of


class WandB(AbstractTracker):
    """Writes one run of a project; offline, into a folder `wandb` inside `folder`."""

    def __init__(
        self,
        project: str = "gradwise",
        *,
        mode: Literal["offline", "online"] = "offline",
        name: str | None = None,
        folder: str | Path = ".",
    ) -> None:
        check_installed("wandb", "wandb")
        if mode not in ("offline", "online"):
            raise RequestError(f"WandB: unknown mode {mode!r}; choose 'offline' or 'online'.")
        self.project, self.mode, self.name, self.folder = project, mode, name, Path(folder)
        self._wandb: Any = None
        self._run: Any = None

    def begin(self, about: Mapping[str, Plain]) -> None:
        self._wandb = import_optional("wandb", "wandb")
        folder = self.folder.resolve()  # W&B writes from a process of its own, whose working folder is another
        folder.mkdir(parents=True, exist_ok=True)
        # W&B would capture what is printed, and with it the progress line; offline it has nothing to announce.
        settings = self._wandb.Settings(console="off", silent=self.mode == "offline")
        named = {"project": self.project, "mode": self.mode, "name": self.name}
        self._run = self._wandb.init(
            **named, dir=str(folder), config=dict(about), settings=settings, reinit="create_new"
        )
        for axis in ("age_examples", "trial"):
            self._run.define_metric(axis)

    def __call__(self, row: Row) -> None:
        axis = "trial" if "trial" in row else "age_examples"
        numbers = curves_of(row)
        for name in numbers:
            self._run.define_metric(name, step_metric=axis)
        chosen = {f"values.{path}": value for path, value in row.get("values", {}).items()}
        self._run.log({axis: step_of(row), **numbers, **chosen})

    def end(self, record: Fit | Study | None, report: Path | None = None) -> None:
        if self._run is None:
            return
        self._run.summary.update({"outcome": outcome_of(record), **(final_numbers(record) if record else {})})
        if report is not None:
            self._run.log({"report": self._wandb.Html(report.read_text(), inject=False)})
        self._run.finish(exit_code=1 if record is None else 0)
        self._run = None
