"""What a study concludes: the winner, the networks that predict, and unbiased estimates of their error (rows D9, E2).

study.winner.number, study.winner.corrected.score
study.committee.members, study.committee.weights
study.estimates.test, study.estimates.test_interval
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .evidence.fit_evidence import CrossValidationEstimate, FitEvidence


@dataclass(frozen=True)
class CorrectedScore:
    """The winner's score to expect on new data, how optimistic the chosen one was, and a 95 % confidence interval."""

    score: float
    optimism: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Winner:
    """The setting that was chosen, with the score it was chosen by; `corrected` is None where nothing can tell."""

    number: int
    score: float
    values: dict[str, Any] = field(default_factory=dict)
    corrected: CorrectedScore | None = None


@dataclass(frozen=True)
class Finalist:
    """A setting that was trained again with other seeds."""

    number: int
    values: dict[str, Any]
    scores: tuple[float, ...]
    mean: float
    deviation: float


@dataclass(frozen=True)
class CommitteeSummary:
    """The networks that predict together.

    `setting` is the trial whose setting they have (of an ensemble, the best), `numbers` are the trials they come from,
    `trials` counts those that were eligible. An ensemble has `weights` by trial; its `honest` value of the metric, with
    weights chosen on other rows than those that score it; that of the `best_trial` alone; and `last_gain`, what the
    second half of the trials took off the honest loss, with its standard error.
    """

    kind: str
    setting: int
    numbers: tuple[int, ...]
    members: int
    trials: int
    finalists: tuple[Finalist, ...] = ()
    weights: dict[int, float] = field(default_factory=dict)
    honest: float | None = None
    best_trial: float | None = None
    last_gain: tuple[float, float] | None = None
    member_tests: tuple[float, ...] = ()  # the metric of each network on the test set

    @property
    def mean_member_test(self) -> float:
        return float(np.mean(self.member_tests)) if self.member_tests else math.nan


@dataclass(frozen=True)
class WeightedEstimate:
    """The test score of "the best trial", whichever it is: mean, standard deviation, the weight of each contender."""

    mean: float
    deviation: float
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Estimates:
    """How good the model is: every metric by set, and the metric of the study on the test set, if there is one."""

    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    test: float | None = None
    test_interval: tuple[float, float] = (math.nan, math.nan)
    weighted: WeightedEstimate | None = None
    nested: CrossValidationEstimate | None = None  # of the whole search
    evidence: FitEvidence = FitEvidence()
