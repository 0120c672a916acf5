"""The evidence of a check, by area: the numbers that the figures of its report show."""

import math
from dataclasses import dataclass, field

from .recorded_flow import FlowGroup
from .verdict import Judgement, RunNumbers


@dataclass(frozen=True)
class ParameterGradient:
    """The gradient of one parameter: its largest relative error, and how many entries were tested and are wrong."""

    name: str
    error: float
    looked_at: int
    wrong: int = 0
    turned: bool = False  # most wrong entries have the wrong sign


@dataclass(frozen=True)
class GradientEvidence:
    """The error of finite differences by step (forward and central), and of each parameter's gradient."""

    epsilons: tuple[float, ...] = ()
    forward: tuple[float, ...] = ()
    central: tuple[float, ...] = ()
    parameters: tuple[ParameterGradient, ...] = ()


@dataclass(frozen=True)
class StartEvidence:
    """The loss over the first updates; `constant` is that of the best constant prediction."""

    losses: tuple[float, ...]
    constant: float = math.nan


@dataclass(frozen=True)
class OverfitEvidence:
    """How a handful of examples was memorised: the loss of each restart, before, after and between."""

    examples: int
    learned: bool
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class GrowthEvidence:
    """Training and validation errors by number of examples, with standard errors; `law` is (a, b, c) of a + b n^-c.

    `predicted` is the validation error with twice the examples (90 % interval), `gain` how much that changes it.
    """

    counts: tuple[int, ...]
    train: tuple[float, ...]
    valid: tuple[float, ...]
    train_errors: tuple[float, ...]
    valid_errors: tuple[float, ...]
    metric: str = "error"
    law: tuple[float, float, float] | None = None
    predicted: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    gain: float = math.nan


@dataclass(frozen=True)
class NoiseScale:
    """B = tr(S) / |G|^2 with its 90 % confidence interval, the `size` of the batches used, and their number."""

    value: float
    low: float
    high: float
    size: int
    groups: int


@dataclass(frozen=True)
class RatesEvidence:
    """The final loss by factor of the learning rate, |update| / |weights| by parameter, and what bounds rate and batch.

    `rate` is that of plain gradient descent, `limit` its largest stable one; NaN if unknown.
    """

    factors: tuple[float, ...]
    losses: tuple[float, ...]
    names: tuple[str, ...]
    ratios: tuple[float, ...]
    size: int
    eigenvalue: float = math.nan
    rate: float = math.nan
    limit: float = math.nan
    noise: NoiseScale | None = None


@dataclass(frozen=True)
class LayerFlow:
    """The last look at one layer: shares of saturated entries and dead units, and the size of the gradient there."""

    name: str
    saturated: float = math.nan
    dead: float = math.nan
    gradient: float = math.nan


@dataclass(frozen=True)
class LayerMap:
    """The singular values of the map from one layer to the next: a tenth lies below `low`, a tenth above `high`."""

    source: str
    target: str
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class FlowEvidence:
    """The layers in the order of the flow, the maps between them, and their numbers before and after a rehearsal."""

    layers: tuple[LayerFlow, ...] = ()
    maps: tuple[LayerMap, ...] = ()
    groups: tuple[FlowGroup, ...] = ()


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a set that are also in training, and how many are to be expected."""

    part: str
    rows: int
    copied: int
    expected: float


@dataclass(frozen=True)
class DataEvidence:
    """Examples by class in each set; rows and groups also in training; what single inputs and neighbours tell.

    `best_input` is the score of the best single input, `exact` whether it is the target itself; `conflicting` and
    `denied` are shares of labels; `separable` is how well a classifier separates a set from training (AUC).
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    copied: tuple[CopiedRows, ...] = ()
    shared_groups: dict[str, int] = field(default_factory=dict)
    constant: int = 0
    best_input: float = math.nan
    exact: bool = False
    conflicting: float = math.nan
    denied: float = math.nan
    separable: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ChoicesEvidence:
    """What the loss was recognised as, its penalty and the rest of it."""

    kind: str = ""
    penalty: float = 0.0
    rest: float = math.nan


@dataclass(frozen=True)
class TrainingEvidence:
    """A whole training: the numbers of its verdict, and its scores by age."""

    numbers: RunNumbers
    ages: tuple[int, ...]
    train: tuple[float, ...]
    valid: tuple[float, ...]
    outcome: str


@dataclass(frozen=True)
class Stage:
    """A layer, or what comes before and after all of them. `products` are the operations within products alone.

    `kept_bytes` are those of its values that the backward pass reads.
    """

    name: str
    kind: str
    sites: int = 0
    operations: float = 0.0
    products: float = 0.0
    bytes: float = 0.0
    backward_sites: int = 0
    backward_operations: float = 0.0
    backward_products: float = 0.0
    kept_bytes: float = 0.0


@dataclass(frozen=True)
class Box:
    """A node as drawn. `kind` is "input", "parameter", "internal", "output" or "loss"."""

    name: str
    kind: str
    stage: str
    shape: tuple[int, ...] = ()
    operations: float = 0.0
    bytes: float = 0.0
    sites: int = 0
    line: str = ""


@dataclass(frozen=True)
class Counts:
    """Equations before compilation. `together` is loss and gradient in one program, with a shared forward pass.

    `unused` reach no result, `repeated` duplicate another: compilation drops both.
    """

    loss: int
    gradient: int
    together: int
    unused: int
    repeated: int


@dataclass(frozen=True)
class Compiled:
    """Loss and gradient after compilation; NaN or empty if the backend does not report it."""

    instructions: int = 0  # in all, those within fusions too
    kernels: int = 0  # what is launched one after another
    fused: int = 0  # instructions within fusions
    kinds: dict[str, int] = field(default_factory=dict)
    operations: float = math.nan
    argument_bytes: float = math.nan
    output_bytes: float = math.nan
    temporary_bytes: float = math.nan


@dataclass(frozen=True)
class CapturedConstant:
    """An array that the loss closed over."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    line: str


@dataclass(frozen=True)
class GraphMeasured:
    """The graph of the loss and of its gradient. `edges` join numbers of boxes, `back_edges` those of stages.

    `precisions` has, for each floating-point type, equations, operations, and the first line that computes in it.
    """

    stages: tuple[Stage, ...]
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    back_edges: tuple[tuple[int, int], ...]
    counts: Counts
    compiled: Compiled
    constants: tuple[CapturedConstant, ...] = ()
    precisions: dict[str, tuple[int, float, str]] = field(default_factory=dict)

    @property
    def operations(self) -> float:
        return sum(stage.operations for stage in self.stages)

    @property
    def backward_operations(self) -> float:
        return sum(stage.backward_operations for stage in self.stages)


@dataclass(frozen=True)
class CheckedEvidence:
    """What each area saw; None where it was not run or has nothing to show."""

    data: DataEvidence | None = None
    gradient: GradientEvidence | None = None
    start: StartEvidence | None = None
    overfit: OverfitEvidence | None = None
    rates: RatesEvidence | None = None
    flow: FlowEvidence | None = None
    choices: ChoicesEvidence | None = None
    graph: GraphMeasured | None = None
    growth: GrowthEvidence | None = None
    training: TrainingEvidence | None = None
    verdict: Judgement | None = None
