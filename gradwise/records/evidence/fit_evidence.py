"""The evidence of a fit: what the figures and tables of its report show. Predictions are those of the test set."""

import math
from dataclasses import dataclass

from .recorded_flow import RecordedFlow
from .verdict import Judgement


@dataclass(frozen=True)
class ErrorRate:
    """The error rate of one class or label on the test set, with its 95 % confidence interval; NaN if there is none."""

    name: str
    count: int  # examples of this class, or with this label
    errors: int
    rate: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class ReliabilityBins:
    """Predictions grouped by confidence: how sure the network was, how often it was right, how many there are.

    `error` is the mean gap between confidence and accuracy, weighted by count.
    """

    confidence: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()
    count: tuple[int, ...] = ()
    error: float = math.nan


@dataclass(frozen=True)
class Misclassified:
    """A test example with a large loss; `row` is its place in the data that was read."""

    row: int
    true: str
    predicted: str
    probability: float
    loss: float


@dataclass(frozen=True)
class ClassEvidence:
    """A confusion matrix has a row for each true class; reliability is before and after temperature scaling."""

    classes: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    rates: tuple[ErrorRate, ...] = ()
    before: ReliabilityBins = ReliabilityBins()
    after: ReliabilityBins = ReliabilityBins()
    temperature: float = math.nan
    worst: tuple[Misclassified, ...] = ()


@dataclass(frozen=True)
class ThresholdCurve:
    """How well a class or label is told from all others, from the highest threshold on its probability to the lowest.

    At each threshold: the share of the others that is taken for it, the share of it that is found (its recall), and
    the share of those taken for it that is right. There are at most some hundred points; the areas are of all.
    """

    name: str
    count: int  # examples of this class
    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]
    precision: tuple[float, ...]
    auc: float
    average_precision: float


@dataclass(frozen=True)
class ResidualQuantile:
    """A quantile of the errors (predicted - true) of each output."""

    level: float
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Mispredicted:
    """A test example with a large error; `row` is its place in the data that was read."""

    row: int
    true: tuple[float, ...]
    predicted: tuple[float, ...]
    error: float


@dataclass(frozen=True)
class NumberEvidence:
    """Targets and predictions are of a sample of the test set, one row for each example."""

    names: tuple[str, ...] = ()
    targets: tuple[tuple[float, ...], ...] = ()
    predictions: tuple[tuple[float, ...], ...] = ()
    quantiles: tuple[ResidualQuantile, ...] = ()
    worst: tuple[Mispredicted, ...] = ()


@dataclass(frozen=True)
class Filters:
    """Weights of the first layer's units with the largest norms, as bytes in base 64; each unit on its own scale.

    `image` is the shape of the part of an image that a filter sees; it is empty for units that see the whole example.
    """

    units: tuple[int, ...]
    norms: tuple[float, ...]
    of: int
    bytes: str
    image: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reconstructions:
    """Some inputs and their reconstructions, as bytes in base 64; `kept` is the share of each input's variance."""

    count: int
    low: float
    high: float
    given: str
    made: str
    kept: tuple[float, ...]
    kept_of_all: float


@dataclass(frozen=True)
class UnitActivity:
    """How many units are never or always active, and a histogram of their mean activities."""

    count: int
    dead: int = 0
    always_on: int = 0
    mean: float = math.nan
    histogram: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()


@dataclass(frozen=True)
class Spectrum:
    """The share of the codes' variance in each direction, and how many directions of equal weight that is like."""

    shares: tuple[float, ...] = ()
    effective: float = 0.0


@dataclass(frozen=True)
class FeatureEvidence:
    """The features that were learned from `width` inputs; `image` is their shape if an input is an image."""

    width: int
    units: UnitActivity
    spectrum: Spectrum = Spectrum()
    image: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    filters: Filters | None = None
    reconstructions: Reconstructions | None = None


@dataclass(frozen=True)
class PretrainedLayer:
    """How one layer was learned: its validation score by age, and its features."""

    layer: int
    learner: str
    units: int
    metric: str
    valid: float
    outcome: str
    seconds: float
    best_age: int
    age: tuple[int, ...]
    curve: tuple[float, ...]
    features: FeatureEvidence | None = None
    rows: int = 0  # learned from, those held out to stop by included


@dataclass(frozen=True)
class LayerTraining:
    """One training of the layer-wise search: where it stood, how it ended, what it scored."""

    number: int
    level: int  # 1 for the lowest; one more than the highest for fine-tuning
    numbers: tuple[int, ...]
    score: float
    outcome: str
    seconds: float
    age_examples: int
    reason: str = ""


@dataclass(frozen=True)
class LayerwiseChoice:
    """The best fine-tuning's score, the best `of` so many, and the score to expect on new data (NaN: unknown)."""

    score: float
    of: int
    corrected: float = math.nan
    optimism: float = math.nan
    corrected_interval: tuple[float, float] = (math.nan, math.nan)


@dataclass(frozen=True)
class LayerwiseEvidence:
    """Every training of the layer-wise search; which were kept at each level, their scores and their widths."""

    trainings: tuple[LayerTraining, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    scores: tuple[tuple[float, ...], ...]
    widths: tuple[tuple[tuple[int, ...], ...], ...]
    probes: tuple[float, ...]
    choice: LayerwiseChoice


@dataclass(frozen=True)
class CrossValidationEstimate:
    """The metric on each fold's test set, its mean over all examples, and a confidence interval."""

    metric: str
    values: tuple[float, ...]
    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Baseline:
    """A simple model that learned from `rows` of the same training rows, with every metric of the same test rows.

    `gain_interval` is a 99 % confidence interval for how much better it is than the network by the chosen metric,
    rows compared one by one: above 0 where it clearly is.
    """

    name: str
    metrics: dict[str, float]
    rows: int
    gain_interval: tuple[float, float] = (math.nan, math.nan)

    @property
    def is_better(self) -> bool:
        return self.gain_interval[0] > 0


@dataclass(frozen=True)
class ColumnImportance:
    """The mean rise of the error when a column is shuffled; its standard error is that of shuffling again."""

    column: str
    rise: float
    standard_error: float


@dataclass(frozen=True)
class Importance:
    """The columns by importance, the most important first, on `rows` of the `part` shuffled `repeats` times.

    Of a metric whose larger values are better, the rise is its fall. `skipped` says why nothing was measured.
    """

    metric: str
    part: str
    rows: int = 0
    repeats: int = 0
    columns: tuple[ColumnImportance, ...] = ()
    skipped: str = ""


@dataclass(frozen=True)
class PhaseTime:
    """The seconds of one phase of a run, without those of the phases within it, and how often it was entered."""

    name: str
    seconds: float
    times: int = 1


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went: its phases in the order in which they began, and the seconds of them all."""

    seconds: float
    phases: tuple[PhaseTime, ...] = ()

    def share(self, phase: PhaseTime) -> float:
        """The part of the whole that a phase took."""
        return phase.seconds / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class FitEvidence:
    """What was seen of a run, by subject; what does not apply to it is empty."""

    classes: ClassEvidence = ClassEvidence()
    labels: tuple[ErrorRate, ...] = ()
    thresholds: tuple[ThresholdCurve, ...] = ()
    numbers: NumberEvidence = NumberEvidence()
    features: FeatureEvidence | None = None
    flow: RecordedFlow = RecordedFlow()
    layers: tuple[PretrainedLayer, ...] = ()
    layerwise: LayerwiseEvidence | None = None
    estimate: CrossValidationEstimate | None = None
    baselines: tuple[Baseline, ...] = ()
    importance: Importance | None = None
    profile: Profile | None = None
    verdict: Judgement | None = None
