"""Jobs and results: what executors receive and return."""

import bisect
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from ...records.study_analysis import PopulationHistory
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from .evaluation_data import WHOLE, Variant

Limits = tuple[tuple[float, ...], tuple[float, ...]]  # ages, and the highest score that is allowed at each


@dataclasses.dataclass(frozen=True)
class PopulationPlan:
    """A population that is one job (row J8): members of a space that copy one another `every` few intervals.

    The process that trains it writes every generation to `folder`, and goes on with what it finds there.
    """

    space: Space
    members: int
    intervals: int
    every: int
    folder: Path | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """One training to do. `randomness` is the number its keys come from; `examples` ends it at that age, and so does a
    best score above its `limits`, if it has any. With a `population` it is that of the trials from `number` on."""

    number: int
    recipe: Recipe
    randomness: int
    examples: int | None = None
    variant: Variant = WHOLE
    limits: Limits = ((), ())
    population: PopulationPlan | None = None

    def is_behind(self, age: float, score: float) -> bool:
        """Whether this best score at this age is above the limits."""
        place = bisect.bisect_right(self.limits[0], age) - 1
        return place >= 0 and score > self.limits[1][place]


@dataclasses.dataclass(frozen=True)
class Done:
    """One training that ended. `scores` and `outputs` are those of the best model on each validation example.

    Of a population, `report` says where it stands; one that is "running" has not ended.
    """

    number: int
    outcome: str
    score: float = math.nan
    loss: float = math.nan
    train_loss: float = math.nan
    age_examples: int = 0
    best_age: int = 0
    seconds: float = 0.0
    parameters: int = 0
    curve: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    reason: str = ""
    scores: np.ndarray | None = None
    outputs: np.ndarray | None = None
    network: Any = None
    report: "PopulationReport | None" = None

    @property
    def ended(self) -> bool:
        return self.outcome != "running"


@dataclasses.dataclass(frozen=True)
class PopulationReport:
    """How far a population has come; of one that ended also its members, each with the knobs of its best moment.

    A member that holds the same network as one before it has none of its own.
    """

    intervals: int
    lost: int
    best: float
    members: tuple[tuple[Done, dict[str, float]], ...] = ()
    story: PopulationHistory | None = None
