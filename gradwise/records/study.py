"""The result of `search`, which its report shows: all trials and the conclusions."""

import functools
import math
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from ..specs.search_space import Space
from .data_read import DataRead
from .finding import Finding
from .plain_values import to_values
from .score_scale import ScoreScale
from .study_analysis import Analysis
from .study_conclusions import CommitteeSummary, Estimates, Winner
from .trial import Trial, best_of
from .used_rows import UsedRows


@dataclass(frozen=True, repr=False)
class Study:
    """A finished (or interrupted) search.

    `space` is the space as it was at the end, its borders perhaps extended; `asked` the one it began with. `strategy`
    is the strategy's name, `independent` whether its trials are independent draws of one prior (only then the expected
    best of N means anything). `settings` is what a study file holds: data, ranges, strategy, budget, seed.
    `winner` is None if no trial left a model, `committee` if no network was saved or none was asked for.
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
    winner: Winner | None = None
    committee: CommitteeSummary | None = None
    estimates: Estimates = Estimates()
    analysis: Analysis = Analysis()
    findings: tuple[Finding, ...] = ()
    predictor: Any = field(default=None, compare=False)
    used: UsedRows | None = field(
        default=None, repr=False, compare=False
    )  # rows that its networks were trained on or chosen by

    def __repr__(self) -> str:
        found = f"{len(self.trials)} trials by {self.strategy}, {self.metric}={self.estimates.test}"
        return f"Study({self.data.name!r}, task={self.task!r}, {found}, outcome={self.outcome!r}, seed={self.seed})"

    @property
    def searched(self) -> tuple[Trial, ...]:
        """The trials of the search proper, in the order of their numbers."""
        return tuple(trial for trial in self.trials if trial.phase == "search")

    @property
    def best(self) -> Trial | None:
        return best_of(self.trials)

    @property
    def winning_trial(self) -> Trial | None:
        """The winner's trial; without a winner, the best one."""
        number = -1 if self.winner is None else self.winner.number
        return next((trial for trial in self.trials if trial.number == number), self.best)

    @functools.cached_property
    def scale(self) -> ScoreScale:
        """How its scores are named and written."""
        return ScoreScale.of(self.space.recipe, self.task, self.metric, self.unit)

    def summary(self) -> dict[str, Any]:
        """The record as JSON values, without its spaces and trials: the content of `result.json`."""
        outcomes = Counter(trial.outcome for trial in self.trials)
        counted = {"kind": "study", "trials": len(self.trials), "outcomes": dict(outcomes)}
        return counted | {name: to_values(getattr(self, name)) for name in SUMMARY}


# The fields that `result.json` holds; spaces and trials have files of their own.
SUMMARY = tuple(one.name for one in fields(Study) if one.compare and one.name not in {"space", "asked", "trials"})
