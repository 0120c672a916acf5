"""What watches a training or a search: any function of one row, or a tracker that also sees the beginning and the end.

    rows = []
    gw.fit("digits", callbacks=[rows.append, gw.TensorBoard("runs/tb")])

A row is a dictionary. In a training there is one for each validation, with the columns of the history:
`age_examples`, `updates`, `epoch`, `train_loss`, `valid_loss`, `train_score`, `valid_score`, `best`, `learning_rate`,
`seconds`, ... In a search there is one for each finished trial: `trial` (its number), `phase`, `outcome`, `score`,
`best`, `values` (what was chosen, by path), `curve`, ... Lower scores are better.
"""

import abc
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..records.fit import Fit
from ..records.study import Study
from ..records.trial import Trial
from ..specs.paths import knobs, parts
from ..specs.recipe import Recipe

Row = dict[str, Any]
Plain = bool | int | float | str

_COUNTS = {"trial", "age_examples", "updates", "patience_examples", "diverged_examples"}


class AbstractTracker(abc.ABC):
    """Follows one training or one search: `begin`, then a call for each row, then `end`.

    An exception in `begin` or in a call stops the training, so that a fault shows at once; checkpoints are written
    first. An exception in `end` becomes a warning: by then the network is trained and must not be lost.
    """

    def begin(self, about: Mapping[str, Plain]) -> None:  # noqa: B027
        """Before the first update: the parts and knobs of the recipe by path, and the seed."""

    @abc.abstractmethod
    def __call__(self, row: Row) -> Any:
        """After each validation of a training, or each trial of a search."""

    def end(self, record: Fit | Study | None, report: Path | None = None) -> None:  # noqa: B027
        """After the last row: the record, and its page where one was written; None if the work failed."""


Callback = AbstractTracker | Callable[[Row], Any]


def describe_recipe(recipe: Recipe) -> dict[str, Plain]:
    """The class of every part and the value of every knob, by path: what other tools call hyper-parameters."""
    found: dict[str, Plain] = {path: type(part).__name__ for path, part in parts(recipe)}
    for path, _, value in knobs(recipe):
        plain = value.tolist() if hasattr(value, "tolist") else value
        found[path] = plain if isinstance(plain, Plain) else str(plain)
    return found


def trial_row(trial: Trial, best: bool) -> Row:
    """The row of a finished trial; `best` says that it is the best so far."""
    names = ("phase", "outcome", "score", "loss", "train_loss", "age_examples", "best_age", "seconds", "parameters")
    fields = {name: getattr(trial, name) for name in names}
    return {"trial": trial.number, "best": best, **fields, "values": dict(trial.values), "curve": dict(trial.curve)}


def step_of(row: Row) -> int:
    """Where the row lies on the axis of a chart: the number of the trial, or the age in examples."""
    return int(row["trial"] if "trial" in row else row["age_examples"])


def curves_of(row: Row) -> dict[str, float]:
    """The finite numbers of a row that are worth a curve, by their names in the history."""
    found = {}
    for name, value in row.items():
        counted = isinstance(value, bool) or not isinstance(value, int | float) or name in _COUNTS
        if not counted and math.isfinite(value):
            found[name] = float(value)
    return found


def points_of(row: Row) -> list[tuple[int, dict[str, float]]]:
    """The learning curve within a trial's row, as ages and the numbers there."""
    columns = {name: values for name, values in row["curve"].items() if name != "age_examples"}
    return [
        (int(age), curves_of({name: values[place] for name, values in columns.items()}))
        for place, age in enumerate(row["curve"].get("age_examples", ()))
    ]


def final_numbers(record: Fit | Study) -> dict[str, float]:
    """Every metric on every set, such as `test_error_rate`."""
    metrics = record.metrics if isinstance(record, Fit) else record.estimates.metrics
    named = {f"{part}_{name}": value for part, values in metrics.items() for name, value in values.items()}
    return {name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)}


def outcome_of(record: Fit | Study | None) -> str:
    """How it ended, in one word."""
    if record is None:
        return "failed"
    return record.outcome.name if isinstance(record, Fit) else record.outcome
