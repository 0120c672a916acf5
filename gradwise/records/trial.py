"""One trial of a search: its values, outcome and score. Failures and divergences are trials too.

A `Proposal` is a trial that has not run. Its randomness depends on the study's seed and on its number alone; a
proposal that `continues` another shares that one's randomness, so that it is the same network trained for longer.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from ..specs.recipe import Recipe
from ..specs.serialisation import from_plain, to_plain
from .outcome import Outcome


@dataclass(frozen=True)
class Proposal:
    """What a strategy asks for. `examples` ends the run at that age; None leaves the end to the recipe."""

    recipe: Recipe
    examples: int | None = None
    continues: int | None = None
    phase: str = "search"


@dataclass(frozen=True)
class Trial:
    """A finished trial.

    `values` holds what was chosen for each active dimension, by path, as numbers and words. `score` is the validation
    score that stopping follows, lower is better, of the best model seen; `loss` breaks ties; both are not-a-number
    where there is no model. `curve` has a few columns of the history (age_examples, valid_score, train_loss, seconds).
    `seconds` is this trial's share of the time where several train at once. `parameters` counts the network's numbers,
    which is what a prediction costs. `phase` says what the trial was for: "search", or "refine", "batch", "finalist",
    "size", ..., which were chosen after looking at others and are no independent draws.
    """

    number: int
    recipe: Recipe
    values: dict[str, Any]
    outcome: str
    score: float = math.nan
    loss: float = math.nan
    train_loss: float = math.nan
    age_examples: int = 0
    best_age: int = 0
    seconds: float = 0.0
    parameters: int = 0
    curve: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""
    examples: int | None = None
    continues: int | None = None
    phase: str = "search"

    @property
    def ok(self) -> bool:
        """Whether it left a model that can be compared."""
        return math.isfinite(self.score) and self.outcome not in {"diverged", "failed"}

    @property
    def randomness(self) -> int:
        """The number that its random keys come from."""
        return self.number if self.continues is None else self.continues

    def __str__(self) -> str:
        if self.outcome == "failed":
            return f"trial {self.number} failed: {self.reason}"
        return f"trial {self.number} {Outcome(self.outcome, self.age_examples)}"


def better(first: Trial, second: Trial) -> bool:
    """Whether the first is better than the second: by score, then by loss, then by the earlier number."""
    return (first.score, first.loss, first.number) < (second.score, second.loss, second.number)


def best_of(trials: Any) -> Trial | None:
    """The best of those that left a model. Runs that compare mini-batch sizes have no folds, and do not count."""
    ok = [trial for trial in trials if trial.ok and trial.phase != "size"]
    return min(ok, key=lambda trial: (trial.score, trial.loss, trial.number)) if ok else None


def trial_to_plain(trial: Trial) -> dict[str, Any]:
    """A trial as JSON values (not-a-number as null)."""
    plain = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial) if f.name not in {"recipe", "curve"}}
    for name in ("score", "loss", "train_loss"):
        plain[name] = plain[name] if math.isfinite(plain[name]) else None
    curve = {name: [x if math.isfinite(x) else None for x in column] for name, column in trial.curve.items()}
    return {**plain, "curve": curve, "recipe": to_plain(trial.recipe)}


def trial_from_plain(plain: dict[str, Any], classes: tuple[Any, ...] = ()) -> Trial:
    """The trial that `trial_to_plain` wrote."""
    fields = dict(plain)
    for name in ("score", "loss", "train_loss"):
        fields[name] = math.nan if fields[name] is None else float(fields[name])
    fields["curve"] = {name: [math.nan if x is None else x for x in column] for name, column in fields["curve"].items()}
    fields["recipe"] = from_plain(fields["recipe"], classes=classes)
    return Trial(**fields)
