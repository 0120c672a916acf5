"""Jobs and results: what executors receive and return."""

import bisect
import dataclasses
import math
from typing import Any

import numpy as np

from ...specs.recipe import Recipe
from .evaluation_data import WHOLE, Variant

Limits = tuple[tuple[float, ...], tuple[float, ...]]  # ages, and the highest score that is allowed at each


@dataclasses.dataclass(frozen=True)
class Job:
    """One training to do. `randomness` is the number its keys come from; `examples` ends it at that age, and so does a
    best score above its `limits`, if it has any."""

    number: int
    recipe: Recipe
    randomness: int
    examples: int | None = None
    variant: Variant = WHOLE
    limits: Limits = ((), ())

    def is_behind(self, age: float, score: float) -> bool:
        """Whether this best score at this age is above the limits."""
        place = bisect.bisect_right(self.limits[0], age) - 1
        return place >= 0 and score > self.limits[1][place]


@dataclasses.dataclass(frozen=True)
class Done:
    """One training that ended. `scores` and `outputs` are those of the best model on each validation example."""

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
