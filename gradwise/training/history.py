"""The history of a run: one row per interval, stored as columns, plotted against age (rows C12, F6)."""

from typing import Any

import jax
import numpy as np

from .interval import Row

_COLUMNS = (
    "age_examples",
    "updates",
    "train_loss",
    "train_score",
    "valid_loss",
    "valid_score",
    "best",
    "patience_examples",
    "learning_rate",
)
_BY_CLASS = ("train_score_by_class", "valid_score_by_class", "train_loss_by_class", "valid_loss_by_class")


class Monitor:
    """Collects rows. `columns` holds plain Python values, so a history can be written and compared exactly."""

    def __init__(self, examples: int, classes: int, columns: dict[str, list[Any]] | None = None):
        self.examples = examples
        names = (*_COLUMNS, "epoch", "seconds", *(_BY_CLASS if classes else ()))
        self.columns = columns or {name: [] for name in names}

    def add(self, rows: Row, begun: float, ended: float) -> list[dict[str, Any]]:
        """Appends the intervals of one call and returns them as plain values; the call began and ended at these ages.

        A row of no updates is one that the call did not come to.
        """
        host = jax.device_get(rows)
        count = int(np.count_nonzero(host.updates))
        lines = []
        for place in range(count):
            row = {name: value[place] for name, value in vars(host).items()}
            line = {name: np.asarray(row[name]).tolist() for name in (*_COLUMNS, *_BY_CLASS)}
            line["epoch"] = line["age_examples"] / self.examples
            line["seconds"] = begun + (ended - begun) * (place + 1) / count
            for name, values in self.columns.items():
                values.append(line[name])
            line["stop"] = bool(row["stop"])
            line["stalled"] = bool(row["stalled"])
            line["diverged_examples"] = int(row["diverged_examples"])
            lines.append(line)
        return lines

    @property
    def last_age(self) -> int:
        ages = self.columns["age_examples"]
        return int(ages[-1]) if ages else 0

    @property
    def best_age(self) -> int:
        """The age of the model that was kept."""
        ages = [a for a, best in zip(self.columns["age_examples"], self.columns["best"], strict=True) if best]
        return int(ages[-1]) if ages else 0
