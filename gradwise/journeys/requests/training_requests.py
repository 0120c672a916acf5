"""The requests of commands that train or use one network, each option declared once: fit, check, predict, report.

    gradwise fit houses.csv --target price --seed 3 --config run.toml

    [fit]                       # run.toml
    drop = ["id"]
    max_time = "10min"
    kind = {zip = "category"}
    [optimiser]
    learning_rate = 0.03

The command line overrides the file, option by option.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from ...runtime.errors import RequestError
from . import values
from .given import GivenObjects, call_text
from .options import ARGUMENT, CHECKS, DATA, OUTPUT, RUN, TRAINING, Request, flag_of, option

_read_seed, _read_folds, _read_count = (values.whole_number(*ends) for ends in ((0, 2**32 - 1), (2, 1000), (1, 10**9)))


def data_option(**more: Any) -> Any:
    """`DATA`."""
    files = ".csv .tsv .parquet .npz .npy .svm .idx, .gz"
    told = f"A file ({files}), a folder of pictures, a named set (digits, ...), or - for stdin."
    return option("", told, ARGUMENT, "DATA", **more)


def set_option(help: str, panel: str) -> Any:
    """`--set`, which means a little more in a search than in a training."""
    read = values.paths_to("value", "optimiser.learning_rate=0.03")
    return option({}, help, panel, "PATH=VALUE", read, in_file=False)


def metric_option(
    help: str = "error_rate, accuracy, f1_macro, auc, log_loss, average_precision, ...; rmse, mae or r2 for numbers.",
    shown: str = "error_rate, or rmse",
) -> Any:
    """`--metric`."""
    return option(None, help, TRAINING, "NAME", shown=shown)


@dataclasses.dataclass(frozen=True)
class FolderRequest(Request):
    """A request whose result is a folder."""

    out: str | None = option(None, "The output folder.", RUN, "DIR", shown="runs/NAME-TIME")
    json: bool = option(False, "Print one JSON object to standard output.", OUTPUT)
    quiet: bool = option(False, "Print one line and no progress.", OUTPUT, also=("-q",))
    no_report: bool = option(False, "Do not write report.html.", OUTPUT)


@dataclasses.dataclass(frozen=True)
class DataRequest(FolderRequest):
    """What every training needs: data, a metric, a seed, and knobs of the recipe.

    `recipe` holds the knobs that the file `config` or a call from Python sets, by path; `set` those of the command
    line; `given` what only Python can pass.
    """

    asks: ClassVar[str] = "DATA is missing: give a file, a named set such as iris, or - for standard input."
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("resume", "overwrite", "one continues the run, the other replaces it"),
        ("group", "time", "the data can be split by only one of them"),
    )

    data: str = data_option()
    target: tuple[str, ...] = option((), "The column to predict; repeatable.", DATA, "COLUMN")
    task: str | None = option(None, "classes, labels or numbers.", DATA, "KIND", shown="from the values")
    drop: tuple[str, ...] = option((), "Ignore a column; repeatable.", DATA, "COLUMN")
    kind: dict[str, str] = option(
        {}, "Read a column as number, category, date or text; repeatable.", DATA, "COLUMN=KIND", values.read_kinds
    )
    group: str | None = option(None, "Never split the rows of a group.", DATA, "COLUMN")
    time: str | None = option(None, "Split by time: train on the past, test on the newest.", DATA, "COLUMN")
    weight: str | None = option(None, "Weights of the rows.", DATA, "COLUMN")
    class_weight: str | dict[str, float] | None = option(
        None, "balanced, or class=weight,class=weight.", DATA, "WEIGHTS", values.read_class_weight
    )
    test: str | None = option(None, "A separate test set, in the same format as DATA.", DATA, "FILE")
    metric: str | None = metric_option()
    unsupervised: bool = option(False, "Learn features of the inputs; ignore any target.", TRAINING)
    learner: str | None = option(
        None, "The feature learner: plain, rbm, ...", TRAINING, "KIND:UNITS", values.read_learner, shown="denoising:256"
    )
    seed: int = option(0, "Random seed.", TRAINING, "N", _read_seed)
    set: dict[str, str] = set_option(
        "Set a knob, such as optimiser.learning_rate=0.03; repeatable. gradwise fit DATA --dry-run lists all.", TRAINING
    )
    config: str | None = option(
        None, "A TOML file: options in the table [fit], knobs in tables of their parts.", RUN, "FILE", in_file=False
    )
    resume: bool = option(False, "Continue the run in --out.", RUN)
    overwrite: bool = option(False, "Replace the run in --out.", RUN)
    checkpoint: float = option(10.0, "Time between checkpoints.", RUN, "TIME", values.read_seconds_or_zero, shown="10s")
    no_baselines: bool = option(False, "Do not compare with a linear model and gradient boosting.", OUTPUT)
    dry_run: bool = option(False, "Show the plan and how the data were read; train nothing.", OUTPUT)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    given: GivenObjects = GivenObjects()

    def __post_init__(self) -> None:
        if not self.data:
            raise RequestError(self.asks)
        if self.data == self.test:
            raise RequestError(f"DATA and --test are both {self.data}: a test set must hold other examples.")
        for one, other, why in self.exclusive:
            if getattr(self, one) and getattr(self, other):
                raise RequestError(f"{flag_of(one)} and {flag_of(other)} exclude each other: {why}. Leave one out.")
        if self.resume and self.out is None:
            raise RequestError("--resume needs --out DIR: the folder of the run to continue.")
        if self.learner is not None and self.target and not self.unsupervised and not self.is_probed:
            raise RequestError(
                f"--learner {self.learner} ignores the target. To learn features and then predict it, use gradwise fit "
                f"--pretrain {self.learner}; to learn features alone, add --unsupervised."
            )
        self.check()

    def check(self) -> None:
        """Raises on what is wrong with the options of one command."""

    @property
    def is_probed(self) -> bool:
        """Whether a linear probe of the target chooses the features; their learners never see the target."""
        return False

    @property
    def learns_inputs(self) -> bool:
        """Whether to learn features and ignore the target when reading the data."""
        return (self.unsupervised or self.learner is not None) and not self.is_probed

    def command(self, changes: tuple[str, ...] = (), ranges: Mapping[str, str] | None = None) -> str:
        """The shell command that repeats the request, or the Python call, if only Python can."""
        if not (objects := self.given.objects):
            return super().command(changes, ranges)
        data, targets, test = (objects.pop(name, None) for name in ("data", "targets", "test"))
        first = [json.dumps(self.data)] if data is None else ["data", *(["targets"] if targets is not None else [])]
        told = {name: value for name, _, value in self._chosen(("budget",)) if name not in ("data", "set")}
        apart = {**({} if test is None else {"test": ...}), **dict.fromkeys(objects, ...)}
        chosen = {**told, **apart, **({"range": dict(ranges)} if ranges else {})}
        return call_text(self.verb, first, chosen, changes)

    @property
    def name_of_data(self) -> str:
        """The default name of the run: that of the data."""
        if self.data == "-":
            return "stdin"
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name.partition(".")[0]) or "data"


@dataclasses.dataclass(frozen=True)
class FitRequest(DataRequest):
    """Train one network, estimate its error on held-out data, and write a report."""

    verb: ClassVar[str] = "fit"
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *DataRequest.exclusive,
        ("folds", "time", "folds mix past and future"),
        ("unsupervised", "task", "without a target there is no task"),
        ("unsupervised", "pretrain", "a pre-trained network is fine-tuned for a target"),
        ("unsupervised", "class_weight", "without a target there are no classes"),
        ("learner", "task", "without a target there is no task"),
        ("learner", "pretrain", "--pretrain names its own learners"),
        ("learner", "class_weight", "without a target there are no classes"),
        ("pretrain", "folds", "every fold would have to pre-train its own layers"),
        ("pretrain", "from_", "the layers come from one of them"),
        ("unsupervised", "from_", "a network on the layers of another run is trained for a target"),
        ("learner", "from_", "a network on the layers of another run is trained for a target"),
    )

    pretrain: str | None = option(
        None, "Pre-train layers, then fine-tune: rbm:500,denoising:100x2.", TRAINING, "LAYERS", values.read_layers
    )
    from_: str | None = option(
        None, "Begin with the hidden layers of another run, and its recipe and scaling.", TRAINING, "RUN"
    )
    freeze: int = option(
        0, "With --from: hold so many of the lowest layers still.", TRAINING, "N", _read_count, shown="none"
    )
    folds: int = option(
        0, "Also estimate the error by K-fold cross-validation.", TRAINING, "K", _read_folds, shown="off"
    )
    watch: int = option(
        0, "Record activations and gradients every so many updates.", TRAINING, "UPDATES", _read_count, shown="off"
    )
    profile: bool = option(False, "Say where the time goes: a table, a picture, profile.json.", OUTPUT)
    trace: bool = option(False, "With --profile: also write JAX's trace of the run, for Perfetto.", OUTPUT)
    max_time: float | None = option(
        None, "Maximum training time: 90s, 10min, 2h.", RUN, "TIME", values.read_seconds, shown="no limit"
    )
    on: str | None = option(None, "cpu or gpu.", RUN, "DEVICE", values.read_device, shown="the best available")
    no_examples: bool = option(False, "Do not record the losses of single examples.", OUTPUT)

    def check(self) -> None:
        if self.freeze and self.from_ is None:
            raise RequestError("--freeze belongs to --from RUN: name the run whose layers are to be held still.")
        if self.trace and not self.profile:
            raise RequestError("--trace belongs to --profile: give both, or leave out --trace.")
        if self.trace and self.out is None and self.given.objects:
            raise RequestError("`trace` is written into a folder: name it with `out`.")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The request of a command line, with the options and knobs of its `--config`."""
        config = given.get("config")
        table, recipe = read_config(config) if config is not None else ({}, {})
        return cls(**cls.read(given, table, str(config)), recipe=recipe)


@dataclasses.dataclass(frozen=True)
class CheckRequest(FitRequest):
    """Check data, code and training for problems. Exits with code 1 if an error is found."""

    verb: ClassVar[str] = "check"
    without: ClassVar[tuple[str, ...]] = (
        *("class_weight", "metric", "unsupervised", "learner", "pretrain", "from_", "freeze", "folds", "watch"),
        *("config", "max_time", "checkpoint", "no_baselines", "no_examples", "dry_run", "profile", "trace"),
    )
    always: ClassVar[tuple[str, ...]] = ()
    asks: ClassVar[str] = (
        "nothing to check: give DATA (a file, a named set such as iris, or -), your own problem as "
        "file.py:function or package.module:function, or the folder of a finished run."
    )

    data: str = option(
        "", "Data as for fit; your own problem, as file.py:function; or a run.", ARGUMENT, "DATA|MODULE:FUNCTION|RUN"
    )
    only: tuple[str, ...] = option(
        (), "Run only these checks: gradient, or data,gradient; repeatable.", CHECKS, "CHECK", values.read_names
    )
    select: tuple[str, ...] = option(
        (), "Report only these findings: GW304, or GW2 for all GW2xx; repeatable.", CHECKS, "CODE", values.read_names
    )
    ignore: tuple[str, ...] = option(
        (), "Do not report these findings, such as GW2,GW304; repeatable.", CHECKS, "CODE", values.read_names
    )


@dataclasses.dataclass(frozen=True)
class ExplainRequest(Request):
    """Explain a finding: what it means, how it is measured, how to fix it, and when it is a false alarm."""

    verb: ClassVar[str] = "explain"
    code: str = option("", "The code of a finding, such as GW101.", ARGUMENT, "CODE", required=True)


@dataclasses.dataclass(frozen=True)
class PredictRequest(Request):
    """Predict new rows with a trained model."""

    verb: ClassVar[str] = "predict"
    run: str = option("", "The folder of a run, or a model.safetensors file.", ARGUMENT, "RUN", required=True)
    data: str = option(
        "",
        "A file with the model's columns, a picture or a folder of them, or - for stdin.",
        ARGUMENT,
        "DATA",
        required=True,
    )
    out: str = option("-", "The output file; - is standard output.", OUTPUT, "FILE")
    format: str | None = option(None, "csv, parquet or json.", OUTPUT, "FORM", shown="by the name of --out, or csv")
    probabilities: bool = option(False, "Add a column with the probability of each class.", OUTPUT)
    keep: tuple[str, ...] = option((), "Copy a column of DATA to the output; repeatable.", OUTPUT, "COLUMN")
    quiet: bool = option(False, "Print nothing but the predictions.", OUTPUT, also=("-q",))


@dataclasses.dataclass(frozen=True)
class ReportRequest(Request):
    """Rewrite a run's report: one self-contained page."""

    verb: ClassVar[str] = "report"
    run: str = option("", "The folder of a run.", ARGUMENT, "RUN", required=True)
    out: str | None = option(None, "The output file.", OUTPUT, "FILE", shown="report.html in the folder")
    json: bool = option(False, "Print the result as one JSON object to standard output.", OUTPUT)


def read_config(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The [fit] table of a TOML file, and the knobs in its other tables, by path."""
    from ...searching.storage.study_definition import flatten_table, load_toml

    content = load_toml(path, "--config")
    table = content.pop("fit", {})
    if not isinstance(table, dict):
        raise RequestError(f"{path}: `fit` must be a table: write [fit].")
    misplaced = next((key for key in content if key in FitRequest.options()), None)
    if misplaced:
        raise RequestError(f"{path}: `{misplaced}` is an option of the command: move it under [fit].")
    return table, flatten_table(content)
