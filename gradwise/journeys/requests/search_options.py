"""The options of `gradwise search`: from the command line, and from a study file.

    gradwise search houses.csv --target price --budget 10min
    gradwise search --study study.toml                    a study again
    gradwise search --out runs/houses --resume            continue, with the options in its study.toml

The command line overrides the file, option by option. The [ranges] of a study file are the whole space; `--range` adds
or changes a range, and `--set` removes a knob from it.
"""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...runtime.errors import RequestError, nearest
from ...searching.running.evaluation_data import PROBE_METRICS
from ...searching.selection.committee_members import KINDS
from ...searching.storage.study_definition import Budget, parse_budget, read_study_file, split_outside_brackets
from ...searching.strategies.coarse_to_fine import CoarseToFine
from ...searching.strategies.contract import AbstractStrategy
from ...searching.strategies.coordinate_descent import CoordinateDescent
from ...searching.strategies.grid import Grid, GridSequence
from ...searching.strategies.model_based import ModelBased
from ...searching.strategies.optuna_sampler import OptunaSampler
from ...searching.strategies.population_based_training import PopulationBasedTraining
from ...searching.strategies.random_search import Random, Sobol
from ...searching.strategies.recommended import Recommended
from ...searching.strategies.successive_halving import SuccessiveHalving
from ...specs.knobs import declarations
from .. import run_folder as folders
from .assignments import Assignment, parse_assignment
from .fit_options import (
    DataOptions,
    chosen_of,
    declare,
    flag,
    learner_text,
    refuse_target,
    seconds_or_zero,
    text,
    whole_number,
)

STUDY_FILE = "study.toml"
STRATEGIES: dict[str, type[AbstractStrategy]] = {
    "recommended": Recommended,
    "random": Random,
    "sobol": Sobol,
    "grid": Grid,
    "grids": GridSequence,
    "coordinate": CoordinateDescent,
    "zoom": CoarseToFine,
    "halving": SuccessiveHalving,
    "pbt": PopulationBasedTraining,
    "population": PopulationBasedTraining,
}
MODELS = ("forest", "gp")
SAMPLERS = ("tpe", "cmaes")
DEFAULT_BUDGET = Budget(seconds=600.0)
_SIZE = "batches.size"
_MOST_SEEDS = 1000  # of a finalist
_FEATURES = ("unsupervised", "learner")


def _budget(value: Any, name: str) -> Budget:
    try:
        return parse_budget(value)
    except RequestError as problem:
        raise RequestError(f"{name}: {problem}") from None


def _trials(value: Any) -> Budget:
    words = str(value).strip()
    if not re.fullmatch(r"\+?\d{1,12}", words):
        raise RequestError(f"--trials {value}: expected a whole number, such as 32, or +50 for 50 more.")
    return _budget(f"{words} trials", "--trials")


def _counts(words: str, name: str) -> tuple[tuple[str, int], ...]:
    """The counts of a grid: `(learning_rate=5, dropout=3)`."""
    pairs = [pair.partition("=") for pair in words.removeprefix("(").removesuffix(")").split(",") if pair.strip()]
    whole = all(count.strip().isdecimal() for _, _, count in pairs)
    if not pairs or not whole or not (words.startswith("(") and words.endswith(")")):
        raise RequestError(f"{name}: expected counts=(learning_rate=5, dropout=3).")
    return tuple((path.strip(), int(count)) for path, _, count in pairs)


def _setting(kind: type[AbstractStrategy], pair: str, name: str) -> tuple[str, Any]:
    """One setting of a strategy: `values=3`."""
    key, _, value = (part.strip() for part in pair.partition("="))
    known = {field: d.default for field, d in declarations(kind) if isinstance(d.default, (int, float))}
    if key == "counts" and kind is Grid:
        return key, _counts(value, name)
    if key not in known:
        raise RequestError(f"{name}: unknown setting `{key}` of {kind.__name__}.{nearest(key, known)}")
    default = known[key]
    if isinstance(default, bool) and value in {"true", "false"}:
        return key, value == "true"
    try:
        number = float(value)
    except ValueError:
        raise RequestError(f"{name}: expected a number for `{key}`; got {value!r}.") from None
    return key, int(number) if isinstance(default, int) and number.is_integer() else number


def parse_strategy(value: Any, name: str = "--strategy") -> AbstractStrategy:
    """A strategy by name, optionally with settings: random, grid(values=3), tpe, or the class of an Optuna sampler."""
    found = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", str(value))
    word = found[1].lower() if found else str(value)
    known = (*STRATEGIES, *MODELS, *SAMPLERS, "layerwise")
    if found and (word in SAMPLERS or word.endswith("sampler")):
        kind: type[AbstractStrategy] = OptunaSampler
        given: dict[str, Any] = {"sampler": word if word in SAMPLERS else found[1]}
    elif found and word in MODELS:
        kind, given = ModelBased, {"model": word}
    elif found and word in STRATEGIES:
        kind, given = STRATEGIES[word], {}
    else:
        raise RequestError(f"{name} {value}: unknown strategy.{nearest(word, known)}")
    pairs = [pair for pair in split_outside_brackets(found[2] or "", ",") if pair]
    given |= dict(_setting(kind, pair, f"{name} {value}") for pair in pairs)
    made: AbstractStrategy = kind(**given)
    return made


def is_layerwise(value: Any) -> bool:
    """Whether the strategy is Algorithm 1, whose trials are layers (`journeys.layerwise`)."""
    return str(value).strip().lower().startswith("layerwise")


def _strategy(value: Any, name: str) -> str:
    if is_layerwise(value):
        from ..layerwise import parse_layerwise

        parse_layerwise(value, name)
    else:
        parse_strategy(value, name)
    return str(value).strip()


def _batch_size(value: Any, name: str) -> str | int:
    """`auto`, or a size, which is a knob of the recipe (set by `read_request`)."""
    word = str(value).strip().lower()
    if word == "auto":
        return word
    if isinstance(value, (bool, float)) or not re.fullmatch(r"[1-9]\d{0,8}", word):
        raise RequestError(f"{name} {value}: expected a whole number of at least 1, or auto to choose it at the end.")
    return int(word)


def _committee(value: Any, name: str) -> str:
    if value not in KINDS:
        raise RequestError(f"{name} {value}: unknown committee.{nearest(str(value), KINDS)}")
    return str(value)


def _who(value: Any, name: str) -> str:
    word = str(value).strip()
    if not re.fullmatch(r"here|cpu|gpu|workers(:[1-9]\d{0,3})?|ray(://.+)?", word.lower()):
        raise RequestError(f"{name} {value}: unknown device. Choose here, cpu, gpu, workers:N, ray or ray://HOST:PORT.")
    return word if "://" in word else word.lower()


def _yes(value: Any, name: str) -> bool:
    return flag({"yes": True, "no": False}.get(value, value) if isinstance(value, str) else value, name)


def _merged(value: Any, name: str) -> tuple[dict[str, int], ...]:
    """The origin of the trial numbers of a merged study."""
    items = value if isinstance(value, (list, tuple)) else [None]
    if not all(isinstance(item, dict) and set(item) == {"seed", "offset"} for item in items):
        raise RequestError(f"{name}: expected pairs of seed and offset, as gradwise merge writes them.")
    return tuple(items)


@dataclasses.dataclass(frozen=True)
class SearchOptions(DataOptions):
    """The options of `gradwise search`, parsed and validated, without ranges and knobs."""

    verb: ClassVar[str] = "search"
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *DataOptions.exclusive,
        ("time", "nested", "folds mix past and future"),
        *((one, "task", "without a target there is no task") for one in _FEATURES),
        *((one, "class_weight", "features have no classes") for one in _FEATURES),
    )

    unsupervised: bool = declare(False, flag)
    learner: str | None = declare(None, learner_text)
    budget: Budget = declare(DEFAULT_BUDGET, _budget)
    strategy: str = declare("recommended", _strategy)
    folds: int | None = declare(None, whole_number(1, 50))
    finalists: int = declare(3, whole_number(0, 50))
    seeds: int | None = declare(None, whole_number(1, 100_000))
    committee: str | None = declare(None, _committee)
    nested: bool | None = declare(None, _yes)
    batch_size: str | None = declare(None, _batch_size)
    seed: int = declare(0, whole_number(0, 2**32 - 1))
    merged: tuple[dict[str, int], ...] = declare((), _merged, repeats=False)
    question: str = declare("", text, repeats=False)
    knob: str | None = declare(None, text, repeats=False)
    out: str | None = declare(None, text, repeats=False)
    resume: bool = declare(False, flag, repeats=False)
    overwrite: bool = declare(False, flag, repeats=False)
    store: str | None = declare(None, text, repeats=False)
    name: str | None = declare(None, text, repeats=False)
    checkpoint: float = declare(10.0, seconds_or_zero, repeats=False)
    on: str | None = declare(None, _who, repeats=False)
    dry_run: bool = declare(False, flag, repeats=False)
    json: bool = declare(False, flag, repeats=False)
    quiet: bool = declare(False, flag, repeats=False)
    no_report: bool = declare(False, flag, repeats=False)

    def __post_init__(self) -> None:
        self.check()
        if not self.is_probed:
            refuse_target(self)
        if not self.question and self.seeds and self.seeds > _MOST_SEEDS:
            raise RequestError(f"--seeds {self.seeds}: expected a whole number from 1 to {_MOST_SEEDS}.")
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
        """Whether a linear probe of the target chooses the features; their learners never see the target."""
        return self.metric in PROBE_METRICS

    @property
    def learns_inputs(self) -> bool:
        """Whether to ignore the target when reading the data."""
        return (self.unsupervised or self.learner is not None) and not self.is_probed

    def settings(self) -> dict[str, Any]:
        """The contents of a study file without ranges and recipe: every chosen option, as plain values."""
        always = {"data", "budget", "strategy", "seed"}
        found: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            default = field.default if field.default is not dataclasses.MISSING else {}
            if not (field.metadata["repeats"] or field.name == "merged"):
                continue
            if field.name in always or value != default:
                plain = list(value) if isinstance(value, tuple) else value
                found[field.name] = str(value) if isinstance(value, Budget) else plain
        return found

    def command(self, changes: tuple[str, ...], ranges: Mapping[str, str] | None = None) -> str:
        """The shell command that repeats the study."""
        words = shlex.split(DataOptions.command(self, changes))
        if self.question:
            words[1:3] = [self.question, self.data, *([self.knob] if self.knob else [])]
        more = [word for path, prior in (ranges or {}).items() for word in ("--range", f"{path}={prior}")]
        return shlex.join([*words, *more])


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request: options, and the assignments and ranges of the file and of the command line."""

    options: SearchOptions
    recipe: tuple[Assignment, ...]
    sets: tuple[Assignment, ...]
    ranges: dict[str, str]
    more_ranges: dict[str, str]
    source: str = ""


def parse_range(words: str) -> tuple[str, str]:
    """`path=range`, the range as text."""
    path, equals, prior = words.partition("=")
    if not equals or not path.strip() or not prior.strip():
        raise RequestError(f"--range {words}: expected path=range, such as optimiser.learning_rate=log(1e-4, 1e-1).")
    return path.strip(), prior.strip()


def read_request(given: Mapping[str, Any], study: str | None, sets: list[str], ranges: list[str]) -> Asked:
    """The request: from the command line, then from the study file or the folder to resume."""
    given = dict(given)
    trials = given.pop("trials", None)
    if trials is not None and given.get("budget") is not None:
        raise RequestError("--trials and --budget exclude each other: both set the budget. Leave one out.")
    nested = given.get("nested")
    given |= {"nested": None if nested is None else "yes" if nested else "no"}
    if study is None and given.get("resume") and given.get("out"):
        kept = folders.working(Path(given["out"])) / STUDY_FILE
        study = str(kept) if kept.is_file() else None
    known = tuple(field.name for field in dataclasses.fields(SearchOptions))
    file: dict[str, Any] = {}
    if study is not None:
        file = read_study_file(study, known)
    recipe = [Assignment(path, value, str(study)) for path, value in (file.pop("recipe", None) or {}).items()]
    written = dict(file.pop("ranges", None) or {})
    chosen = chosen_of(SearchOptions, given, file, str(study))
    if trials is not None:
        chosen["budget"] = _trials(trials)
    more = dict(parse_range(words) for words in ranges)
    turned = [parse_assignment(words) for words in sets]
    twice = next((item.path for item in turned if item.path in more), None)
    if twice:
        raise RequestError(f"`{twice}` is given to both --set (fixed) and --range (searched). Leave one out.")
    if isinstance(chosen.get("batch_size"), int):
        size = Assignment(_SIZE, chosen.pop("batch_size"), "--batch-size" if given.get("batch_size") else str(study))
        if any(item.path == _SIZE for item in turned) or _SIZE in more:
            raise RequestError(f"`{_SIZE}` is given twice, once as --batch-size {size.value}. Leave one out.")
        (turned if given.get("batch_size") else recipe).append(size)
    return Asked(SearchOptions(**chosen), tuple(recipe), tuple(turned), written, more, str(study or ""))
