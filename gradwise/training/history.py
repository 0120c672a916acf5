"""The history of a run: one line an interval, kept as columns, drawn against age (rows C12, F6)."""

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
_BY_CLASS = ("train_score_by_class", "valid_score_by_class")


class Monitor:
    """Collects rows. `columns` holds plain Python values, so a history can be written and compared exactly."""

    def __init__(self, examples: int, classes: int, columns: dict[str, list[Any]] | None = None):
        self.examples = examples
        names = (*_COLUMNS, "epoch", "seconds", *(_BY_CLASS if classes else ()))
        self.columns = columns or {name: [] for name in names}

    def add(self, row: Row, seconds: float) -> dict[str, Any]:
        """Appends one interval and returns it as plain values."""
        host = jax.device_get(row)
        line = {name: np.asarray(getattr(host, name)).tolist() for name in (*_COLUMNS, *_BY_CLASS)}
        line["epoch"] = line["age_examples"] / self.examples
        line["seconds"] = seconds
        for name, values in self.columns.items():
            values.append(line[name])
        line["stop"] = bool(host.stop)
        line["stalled"] = bool(host.stalled)
        line["diverged_examples"] = int(host.diverged_examples)
        return line

    @property
    def last_age(self) -> int:
        ages = self.columns["age_examples"]
        return int(ages[-1]) if ages else 0

    @property
    def best_age(self) -> int:
        """The age of the model that was kept."""
        ages = [a for a, best in zip(self.columns["age_examples"], self.columns["best"], strict=True) if best]
        return int(ages[-1]) if ages else 0
