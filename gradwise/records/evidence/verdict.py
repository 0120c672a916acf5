"""The verdict on a run and the numbers that it rests on: data alone, judged in `gradwise.checking.verdict`."""

import math
from dataclasses import dataclass

from ..commands import as_check, as_search, with_options
from ..finding import Finding

# Options of a run that has folds, or whose rows are in an order that folds would break.
_NO_FOLDS = ("--folds", "folds=", "--time", "time=")


@dataclass(frozen=True)
class Probes:
    """How well a linear probe predicts the target from each layer, on held-out examples.

    `names[0]` is the raw input; `untrained` are the same layers before training, without the raw input.
    """

    names: tuple[str, ...]
    errors: tuple[float, ...]
    count: int
    untrained: tuple[float, ...] = ()


@dataclass(frozen=True)
class Present:
    """The command of the run and its knobs with their paths, from which remedies are derived; empty if unknown.

    Without a command (the user's own training loop) remedies are given as code.
    """

    command: str = "gradwise fit DATA"
    data: str = "DATA"
    task: str = "classes"
    rate_path: str = "optimiser.learning_rate"
    rate: float = math.nan
    widths: tuple[int, ...] = ()
    dropout: float = math.nan
    decay_path: str = ""
    decay: float = 0.0
    pretrained: bool = False
    unlabelled_term: bool = False
    early_stopping: bool = True
    checked: bool = False  # the checks were already run and found no bug

    def with_options(self, *options: str, without: str = "") -> str:
        """The command with more options, and without the knobs that it sets of a part."""
        return with_options(self.command, *options, without=without)

    def with_knobs(self, *assignments: str) -> str:
        """The command with these knobs set, each as `path=value`."""
        return with_options(self.command, *(f"--set {one}" for one in assignments))

    @property
    def check(self) -> str:
        """The command that looks for bugs."""
        return as_check(self.command)

    @property
    def search(self) -> str:
        """The command that searches other settings."""
        return as_search(self.command)

    @property
    def estimate(self) -> str:
        """How to estimate the test error more precisely."""
        if not self.command or any(name in self.command for name in _NO_FOLDS):
            return "collect more test examples"
        few_parts = self.pretrained or "--group" in self.command or "group=" in self.command
        return self.with_knobs("split.test=0.4") if few_parts else self.with_options("--folds 10")


@dataclass(frozen=True)
class RunNumbers:
    """What is known about a finished run. Errors are in the metric's own unit; unknown values are NaN.

    `chance` is the error of a constant prediction, `target` the desired or best known one. `gain_at_twice` is the
    decrease of the test error that a learning curve predicts with twice the examples. Facts of the history:
    `train_falling` (still so at the end), `train_noisy`, `gap_opening` (validation got worse while training kept
    improving), `still_improving` (the best model is the last one), `diverged`, `best_share` (the age of the best model
    relative to that of the run), `rate_factor` (by which the learning rate should change, if known).
    """

    train: float
    test: float
    valid: float = math.nan
    train_count: int = 0
    test_count: int = 0
    test_interval: tuple[float, float] = (math.nan, math.nan)
    metric: str = "error_rate"
    chance: float = math.nan
    target: float = math.nan
    gain_at_twice: float = math.nan
    train_falling: bool = False
    train_noisy: bool = False
    gap_opening: bool = False
    still_improving: bool = False
    diverged: bool = False
    best_share: float = math.nan
    rate_factor: float = math.nan
    probes: Probes | None = None
    present: Present = Present()


@dataclass(frozen=True)
class Judgement:
    """The verdict: what the difficulty is, in one sentence, the numbers behind it, and what to try, in order.

    `share_in_training` and `share_of_gap` are the two parts of the test error, relative to a constant prediction;
    `least_gap` is the smallest gap that the noise allows. A saved judgement has its findings in the record.
    """

    sentence: str
    kind: str
    numbers: RunNumbers | None = None
    share_in_training: float = math.nan
    share_of_gap: float = math.nan
    least_gap: float = math.nan
    remedies: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
