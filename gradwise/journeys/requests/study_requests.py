"""The requests of commands that run many trainings: search, challenge, compare, seeds, merge.

    gradwise search houses.csv --target price --budget 10min
    gradwise search --config study.toml                   a study again
    gradwise search --out runs/houses --resume            continue, with the options in its study.toml

The command line overrides the file, option by option. The [ranges] of a study file are the whole space; `--range` adds
or changes a range, and `--set` removes a knob from it.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from ...runtime.errors import RequestError
from ...searching.storage.budget import Budget
from . import values
from .options import ARGUMENT, FILE, RUN, SEARCH, TRAINING, option
from .training_requests import DataRequest, FolderRequest, data_option, metric_option, set_option

STUDY_FILE = "study.toml"
_SIZE = "batches.size"
_FEATURES = ("unsupervised", "learner")
_ranges = values.paths_to("range", "optimiser.learning_rate=log(1e-4, 1e-1)")
_folds, _finalists, _many = (values.whole_number(*ends) for ends in ((1, 50), (0, 50), (1, 100_000)))
_WHERE = "here, cpu, gpu, workers:N, ray or ray://HOST:PORT."


def _strategy(last: str) -> Any:
    """`--strategy`: a comparison has no use for those that change knobs during training or learn layer by layer."""
    help = f"recommended, random, sobol, grid, grids, coordinate, zoom, {last}"
    return option("recommended", help, SEARCH, "NAME", values.read_strategy)


@dataclasses.dataclass(frozen=True)
class SearchRequest(DataRequest):
    """Search for the best network within a budget, and estimate its error on held-out data.

    `ranges` are those of the study file `config`, `range` those of the command line, both by path.
    """

    verb: ClassVar[str] = "search"
    question: ClassVar[str] = ""  # the command, if it compares settings instead of searching them
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *DataRequest.exclusive,
        ("time", "nested", "folds mix past and future"),
        *((one, "task", "without a target there is no task") for one in _FEATURES),
        *((one, "class_weight", "features have no classes") for one in _FEATURES),
    )

    metric: str | None = metric_option(
        "As for fit. For features: the learner's own score, probe_error_rate or probe_rmse.",
        "error_rate, rmse, or the learner's own",
    )
    set: dict[str, str] = set_option("Fix a knob, so that it is not searched; repeatable.", SEARCH)
    config: str | None = option(
        None, "A study file (TOML), such as the study.toml of a run.", RUN, "FILE", also=("--study",), in_file=False
    )
    budget: Budget = option(Budget(seconds=600.0), "A time (60s, 2h) or '32 trials'.", SEARCH, "B", values.read_budget)
    trials: Budget | None = option(
        None, "Number of trials; +N adds N to a study.", SEARCH, "N", values.read_trials, in_file=False
    )
    strategy: str = _strategy("halving, forest, gp, tpe, cmaes, pbt or layerwise.")
    range: dict[str, str] = option(
        {},
        "Search a knob: log(1e-4, 1e-1), choice(8, 64); repeatable.",
        SEARCH,
        "PATH=RANGE",
        _ranges,
        in_file=False,
    )
    folds: int | None = option(
        None, "Folds per trial; 1 uses one validation set.", SEARCH, "K", _folds, shown="by the data and the budget"
    )
    finalists: int = option(3, "Settings in the finals, if there are finals.", SEARCH, "N", _finalists)
    seeds: int = option(5, "Seeds per finalist.", SEARCH, "N", values.whole_number(1, 1000))
    committee: str | None = option(
        None,
        "Model: ensemble, best, cheapest, none; with finals: seeds, bagging, inputs, contenders.",
        *(SEARCH, "KIND", values.read_committee),
        shown="ensemble",
    )
    nested: bool | None = option(
        None, "Nested cross-validation.", SEARCH, "", values.read_flag, shown="after finals, for small data"
    )
    batch_size: str | None = option(
        None, "The mini-batch size; auto chooses it last, by training time.", SEARCH, "B", values.read_batch_size
    )
    merged: tuple[dict[str, int], ...] = option((), "The studies it was merged from.", FILE, read=values.read_merged)
    store: str | None = option(None, "Store trials in sqlite:///FILE or postgresql://HOST/NAME.", RUN, "URL")
    name: str | None = option(None, "The name of the study in --store.", RUN, "NAME")
    on: str | None = option(None, _WHERE, RUN, "WHERE", values.read_executor, shown="the best available")
    ranges: dict[str, str] = dataclasses.field(default_factory=dict)
    knob: str | None = None

    def check(self) -> None:
        """Raises on budgets, folds and committees that cannot be."""
        if self.budget.more and not self.resume:
            raise RequestError(f"{self.budget} extends a study: also give --out DIR and --resume.")
        if self.folds and self.folds > 1 and self.time:
            raise RequestError("--folds and --time exclude each other: folds mix past and future. Leave one out.")
        if self.folds and self.folds > 1 and self.committee in {"bagging", "inputs"}:
            raise RequestError(
                f"--committee {self.committee} and --folds {self.folds} exclude each other: the networks of the folds "
                "already form a committee. Use --folds 1."
            )

    @property
    def is_probed(self) -> bool:
        """Whether a linear probe of the target chooses the features."""
        from ...searching.running.evaluation_data import PROBE_METRICS

        return self.metric in PROBE_METRICS

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The request of a command line, with what its study file says, or that of the folder to resume."""
        from ...searching.storage.study_definition import read_study_file
        from ..folders.run_folder import working

        config = given.get("config")
        if config is None and given.get("resume") and given.get("out"):
            kept = working(Path(given["out"])) / STUDY_FILE
            config = str(kept) if kept.is_file() else None
        known = tuple(name for name, declared in cls.options().items() if declared.in_file)
        file = read_study_file(config, known) if config is not None else {}
        recipe, ranges = file.pop("recipe", {}), file.pop("ranges", {})
        chosen = {**cls.read(given, file, str(config)), "config": config}
        if "trials" in chosen:
            if "budget" in given:
                raise RequestError("--trials and --budget exclude each other: both set the budget. Leave one out.")
            chosen["budget"] = chosen.pop("trials")
        fixed, searched = chosen.get("set", {}), chosen.get("range", {})
        twice = next((path for path in fixed if path in searched), None)
        if twice:
            raise RequestError(f"`{twice}` is given to both --set (fixed) and --range (searched). Leave one out.")
        if isinstance(chosen.get("batch_size"), int):  # a size is a knob of the recipe; only `auto` is a choice
            size = chosen.pop("batch_size")
            if _SIZE in fixed or _SIZE in searched:
                raise RequestError(f"`{_SIZE}` is given twice, once as --batch-size {size}. Leave one out.")
            if "batch_size" in given:
                chosen["set"] = {**fixed, _SIZE: str(size)}
            else:
                recipe = {**recipe, _SIZE: size}
        return cls(**chosen, recipe=recipe, ranges=ranges)


@dataclasses.dataclass(frozen=True)
class QuestionRequest(SearchRequest):
    """A question answered by trials of its own."""

    always: ClassVar[tuple[str, ...]] = ("seed",)
    absent: ClassVar[tuple[str, ...]] = (
        *("unsupervised", "learner", "config", "finalists", "committee", "nested", "batch_size"),
        *("merged", "resume", "store", "name", "checkpoint", "no_baselines", "dry_run"),
    )
    without: ClassVar[tuple[str, ...]] = (*absent, "trials", "strategy", "range")

    metric: str | None = metric_option()
    set: dict[str, str] = set_option("Set a knob in every training; repeatable.", TRAINING)
    budget: Budget = option(
        Budget(), "Start no training after this time: 60s, 2h.", SEARCH, "TIME", values.read_time_limit
    )
    nested: bool | None = False


@dataclasses.dataclass(frozen=True)
class KnobRequest(QuestionRequest):
    """A question about the values of one knob."""

    data: str = data_option(required=True)
    knob: str | None = option(None, "A knob and its values: model.dropout=0,0.2.", ARGUMENT, "PATH=V,V", required=True)


@dataclasses.dataclass(frozen=True)
class ChallengeRequest(KnobRequest):
    """Compare values of one knob over the same seeds, everything else unchanged."""

    verb: ClassVar[str] = "challenge"
    question: ClassVar[str] = verb
    seeds: int = option(10, "Seeds for each value.", TRAINING, "N", _many)


@dataclasses.dataclass(frozen=True)
class CompareRequest(KnobRequest):
    """Compare values of one knob, with all other knobs searched for each value."""

    verb: ClassVar[str] = "compare"
    question: ClassVar[str] = verb
    without: ClassVar[tuple[str, ...]] = QuestionRequest.absent
    seeds: int = option(5, "Seeds for the best setting of each value.", TRAINING, "N", _many)
    trials: Budget | None = option(
        None, "Number of trials over all values.", SEARCH, "N", values.read_trials, in_file=False, shown="16 for each"
    )
    strategy: str = _strategy("halving, forest, gp, tpe or cmaes.")


@dataclasses.dataclass(frozen=True)
class SeedsRequest(QuestionRequest):
    """Train one recipe with many seeds, to see the effect of chance."""

    verb: ClassVar[str] = "seeds"
    question: ClassVar[str] = verb
    seeds: int = option(30, "How many seeds.", TRAINING, "N", _many)


@dataclasses.dataclass(frozen=True)
class BreakEvenRequest(QuestionRequest):
    """Find out when batch methods overtake stochastic gradient descent on these data."""

    verb: ClassVar[str] = "break-even"
    question: ClassVar[str] = verb
    always: ClassVar[tuple[str, ...]] = ("seed", "budget")
    without: ClassVar[tuple[str, ...]] = (*QuestionRequest.without, "folds", "on")
    budget: Budget = option(
        Budget(seconds=60.0), "Training time of all runs together: 60s, 2h.", SEARCH, "TIME", values.read_time_limit
    )
    methods: str = option(
        "Lbfgs,HessianFree", "Batch methods, which take all training examples at each update.", SEARCH, "NAME,NAME"
    )
    seeds: int = option(3, "Seeds for each method.", TRAINING, "N", _many)


@dataclasses.dataclass(frozen=True)
class MergeRequest(FolderRequest):
    """Merge studies of the same data into one, and conclude it."""

    verb: ClassVar[str] = "merge"
    studies: tuple[str, ...] = option((), "Folders or stores of two studies or more.", ARGUMENT, "STUDY", required=True)
    finalists: int | None = option(
        None, "Settings in the finals.", SEARCH, "N", _finalists, shown="as in the first study"
    )
    on: str | None = option(None, _WHERE, RUN, "WHERE", values.read_executor, shown="the best available")
