"""What the trials of a study show besides a winner, and the answers to questions asked with trials of their own.

    study.analysis.advice.sentence
    study.analysis.short_runs.useful, study.analysis.batch_size.recommended
    study.analysis.challenge.against[0].verdict

Scores are in the units of training unless a field says otherwise; every `sentence` is ready to be printed.
"""

from dataclasses import dataclass, field
from typing import Any

from .trial import Trial


@dataclass(frozen=True)
class Advice:
    """Whether to go on, why, and the two numbers that were compared (both in the units of the score)."""

    go_on: bool
    sentence: str
    expected_gain: float  # of doubling the number of trials
    noise: float  # the standard error of one validation score
    trials: int


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation with a 95 % bootstrap interval; NaN where it is not defined."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class ShortRuns:
    """How short runs rank the trials, age by age, compared with full ones (row E15).

    `sentence` describes one of the ages; `useful` says that its interval is decisive either way.
    """

    ages: tuple[int, ...]
    correlations: tuple[RankCorrelation, ...]
    full_age: int
    sentence: str
    useful: bool


@dataclass(frozen=True)
class BatchSizeCost:
    """What one mini-batch size took to reach the common score: means of the logarithms over seeds, at its best rate.

    `reached` says whether at least half of its seeds got there; if not, the true cost is higher.
    """

    size: int
    seconds: float
    examples: int
    reached: bool
    rate: float


@dataclass(frozen=True)
class BatchSizes:
    """What each mini-batch size took to reach the score `target`, and which one to use (rows B4, C5).

    `factor` is what the rate was multiplied by, beside the root of the ratio of the sizes. `trial` is the one whose
    recipe was trained, -1 outside a study.
    """

    table: tuple[BatchSizeCost, ...]
    recommended: int
    rate: float
    target: float
    sentence: str
    factor: float = 1.0
    trial: int = -1
    trials: tuple[Trial, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class PopulationHistory:
    """One population of population-based training (row J8): generation by generation every member's score and knobs.

    `ages` has an entry per generation shown; `scores` and each of `knobs` a row per generation with a value for each
    member. `parents` are the slots copied from, `lineage` the slots along the winner's line of ancestors.
    """

    first: int  # the number of its first trial
    members: int
    intervals: int
    every: int
    changing: tuple[str, ...]
    ages: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    knobs: dict[str, tuple[tuple[float, ...], ...]]
    lineage: tuple[int, ...]
    best_score: float
    copies: int


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, first minus second, with a 95 % t interval."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class PairedResult:
    """One alternative against the reference, on the scale that people read: above 0, the alternative is worse."""

    value: Any
    difference: Difference
    verdict: str


@dataclass(frozen=True)
class ComparedValue:
    """One value of a knob: its score with each seed (NaN where a run left no model).

    `best` holds the other knobs as the search for this value chose them; a challenge changes no other knob.
    """

    value: Any
    scores: tuple[float, ...]
    best: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Challenge:
    """The values of one knob against the reference, paired over seeds (rows I1, E21).

    `trials_each` is the length of the search for each value, 0 if nothing else was searched.
    """

    path: str
    reference: Any
    values: tuple[ComparedValue, ...]
    against: tuple[PairedResult, ...]
    sentence: str
    trials_each: int = 0
    trials: tuple[Trial, ...] = field(default=(), repr=False, compare=False)

    @property
    def scores(self) -> dict[Any, tuple[float, ...]]:
        """The scores of each value, seed by seed."""
        return {one.value: one.scores for one in self.values}


@dataclass(frozen=True)
class SeedDistribution:
    """Scores of one recipe over seeds, in the order of the seeds; those that left no model are counted apart."""

    scores: tuple[float, ...]
    mean: float
    deviation: float
    quantiles: dict[str, float]
    failures: dict[str, int]
    sentence: str
    trials: tuple[Trial, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class RaceLine:
    """One training of a race of optimisers (row H9), look by look: the best so far.

    `size` is its batch size, `rate` its learning rate (NaN if it has none). `loss` is that of all training examples,
    `error` the validation score. Seconds are those of updates alone. It `stays` where it is if it stalled or diverged.
    """

    method: str
    size: int
    rate: float
    seed: int
    updates: tuple[int, ...]
    examples: tuple[int, ...]
    seconds: tuple[float, ...]
    loss: tuple[float, ...]
    error: tuple[float, ...]
    stays: bool = False


@dataclass(frozen=True)
class Overtaking:
    """When a batch method's best so far falls below that of stochastic gradient descent for good: medians over seeds.

    `measure` is "loss" or "error", `clock` "seconds" or "examples". `at` is infinite if it does not happen before
    `until`, and 0 if the batch method leads from the beginning. `updates` are those of either method by then, the
    stochastic one's first, and `examples` those the stochastic one has seen; `seeds` counts those that were overtaken.
    """

    method: str
    measure: str
    clock: str
    at: float
    until: float
    level: float
    updates: tuple[float, float]
    examples: float
    seeds: int


@dataclass(frozen=True)
class BreakEven:
    """Whether and when batch methods overtake stochastic gradient descent on this training set (row H9)."""

    stochastic: str
    batch: tuple[str, ...]
    lines: tuple[RaceLine, ...]
    overtakings: tuple[Overtaking, ...]
    sentence: str
    trials: tuple[Trial, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Analysis:
    """Everything that was found; None where it was not asked for or could not be told."""

    advice: Advice | None = None
    borders: tuple[str, ...] = ()
    short_runs: ShortRuns | None = None
    batch_size: BatchSizes | None = None
    populations: tuple[PopulationHistory, ...] = ()
    challenge: Challenge | None = None
    comparison: Challenge | None = None
    seeds: SeedDistribution | None = None
    break_even: BreakEven | None = None

    @property
    def answers(self) -> tuple[str, ...]:
        """The sentences that answer a question asked instead of a search, or beside it."""
        asked = (self.challenge, self.comparison, self.seeds, self.batch_size, self.break_even)
        return tuple(one.sentence for one in asked if one is not None)
