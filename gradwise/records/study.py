"""The result of `search`, which its report shows: all trials and the conclusions."""

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import Any

from ..runtime.files import finite
from ..specs.search_space import Space
from .data_read import DataRead
from .finding import Finding
from .plain_values import to_values
from .score_scale import ScoreScale
from .trial import Trial, best_of
from .used_rows import UsedRows


@dataclass(frozen=True)
class Study:
    """A finished (or interrupted) search.

    `space` is the space as it was at the end, its borders perhaps extended; `asked` the one it began with. `strategy`
    is the strategy's name, `independent` whether its trials are independent draws of one prior (only then the expected
    best of N means anything). `settings` is what a study file holds: data, ranges, strategy, budget, seed.
    `winner`, `committee`, `estimates` and `analysis` hold what was concluded, as plain values.
    """

    task: str
    metric: str
    space: Space
    asked: Space
    strategy: str
    independent: bool
    trials: tuple[Trial, ...]
    settings: dict[str, Any]
    data: DataRead
    seed: int
    seconds: float
    version: str
    machine: dict[str, Any]
    outcome: str = "finished"
    unit: float = 1.0  # of a target that is a number: scores are of standardised targets
    chance: float = math.nan  # the score of a constant prediction on the validation set
    winner: dict[str, Any] = field(default_factory=dict)
    committee: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, Any] = field(default_factory=dict)
    analysis: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    predictor: Any = None
    used: UsedRows | None = field(default=None, repr=False)  # rows that its networks were trained on or chosen by

    @property
    def searched(self) -> tuple[Trial, ...]:
        """The trials of the search proper, in the order of their numbers."""
        return tuple(trial for trial in self.trials if trial.phase == "search")

    @property
    def best(self) -> Trial | None:
        return best_of(self.trials)

    @functools.cached_property
    def scale(self) -> ScoreScale:
        """How its scores are named and written."""
        return ScoreScale.of(self.space.recipe, self.task, self.metric, self.unit)

    def summary(self) -> dict[str, Any]:
        """The record as JSON values, without trials: the content of `result.json`."""
        counted: dict[str, int] = {}
        for trial in self.trials:
            counted[trial.outcome] = counted.get(trial.outcome, 0) + 1
        plain = {
            "kind": "study",
            "task": self.task,
            "metric": self.metric,
            "outcome": self.outcome,
            "strategy": self.strategy,
            "independent": self.independent,
            "trials": len(self.trials),
            "outcomes": counted,
            "winner": self.winner,
            "committee": self.committee,
            "estimates": self.estimates,
            "analysis": self.analysis,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "settings": self.settings,
            "data": to_values(self.data),
            "seed": self.seed,
            "seconds": self.seconds,
            "version": self.version,
            "machine": self.machine,
            "unit": self.unit,
            "chance": self.chance,
        }
        return dict(finite(plain))
