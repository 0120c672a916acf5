"""The options of a command, from the command line and from a table of a TOML file.

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
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...runtime.errors import RequestError, nearest

_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DEVICES = ("cpu", "gpu")


def parse_seconds(value: Any, name: str) -> float:
    """A time: 90, 90s, 10min, 1h30min."""
    text = str(value).strip().lower()
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    whole = "".join(re.split(r"\s+", text))
    known = all(unit in _UNITS or (unit == "" and len(pieces) == 1) for _, unit in pieces)
    if not pieces or not known or "".join(number + unit for number, unit in pieces) != whole:
        raise RequestError(f"{name} {value}: expected a time, such as 90s, 10min or 2h.")
    seconds = sum(float(number) * _UNITS.get(unit, 1.0) for number, unit in pieces)
    if seconds <= 0:
        raise RequestError(f"{name} {value}: expected a time above 0.")
    return seconds


def parse_pairs(value: Any, name: str, example: str) -> dict[str, str]:
    """`a=1,b=5`, several of them, or a table, as a mapping; keys may contain commas."""
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    pairs: dict[str, str] = {}
    for text in value if isinstance(value, (list, tuple)) else re.findall(r".+?=[^,]*(?=,|$)|.+", str(value)):
        key, equals, item = str(text).lstrip(",").rpartition("=")
        if not equals or not key.strip() or not item.strip():
            raise RequestError(f"{name} {text}: expected {example}.")
        pairs[key.strip()] = item.strip()
    return pairs


def parse_class_weight(value: Any, name: str) -> str | dict[str, float]:
    """`balanced`, or a weight for each class."""
    if value == "balanced":
        return "balanced"
    weights = {}
    for label, text in parse_pairs(value, name, "balanced, or class=weight,class=weight").items():
        try:
            weights[label] = float(text)
        except ValueError:
            raise RequestError(f"{name} {label}={text}: expected a number as the weight.") from None
        if not 0 <= weights[label] < float("inf"):
            raise RequestError(f"{name} {label}={text}: a weight cannot be negative.")
    return weights


def text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{name} {value}: expected text.")
    return value


def texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(text(item, name) for item in (value if isinstance(value, (list, tuple)) else [value]))


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{name} = {value}: expected true or false.")
    return value


def whole_number(low: int, high: int) -> Callable[[Any, str], int]:
    def parse(value: Any, name: str) -> int:
        digits = str(value)
        said = isinstance(value, (bool, float)) or not re.fullmatch(r"-?\d{1,18}", digits)
        if said or not low <= int(digits) <= high:
            raise RequestError(f"{name} {value}: expected a whole number from {low} to {high}.")
        return int(digits)

    return parse


def seconds_or_zero(value: Any, name: str) -> float:
    return 0.0 if str(value) in {"0", "0.0"} else parse_seconds(value, name)


def _device(value: Any, name: str) -> str:
    word = str(value).lower()
    if word.startswith("ray"):
        raise RequestError(f"{name} {value}: fit runs on one device. Use {name} cpu or {name} gpu.")
    if word not in DEVICES:
        raise RequestError(f"{name} {value}: unknown device.{nearest(word, DEVICES)}")
    return word


def _layers(value: Any, name: str) -> str:
    """Layers to pre-train, in the syntax of `gradwise.pretraining.layer_recipes`."""
    from ...pretraining.layer_recipes import parse_layers

    try:
        parse_layers(text(value, name))
    except RequestError as problem:
        raise RequestError(f"{name}: {problem}") from None
    return str(value)


def learner_text(value: Any, name: str) -> str:
    """One feature learner: `kind:units`, or `kind` with the default number of units."""
    from ...defaults import FEATURES
    from ...pretraining.layer_recipes import LEARNERS, parse_layers

    given = text(value, name)
    whole_text = given if ":" in given else f"{given}:{FEATURES[1]}"
    try:
        count = len(parse_layers(whole_text))
    except RequestError:
        kind = given.partition(":")[0]
        hint = f" Kinds: {', '.join(LEARNERS)}." if kind in LEARNERS else nearest(kind, LEARNERS)
        raise RequestError(f"{name} {given}: expected kind:units, such as denoising:500.{hint}") from None
    if count != 1:
        raise RequestError(f"{name} {given}: got {count} layers. To stack them, use --pretrain, with a target.")
    return whole_text


def _kinds(value: Any, name: str) -> dict[str, str]:
    return parse_pairs(value, name, "column=category, column=number or column=date")


def declare(default: Any, parse: Callable[[Any, str], Any], *, repeats: bool = True) -> Any:
    """A field with its parser; `repeats`: it belongs in the command that repeats the run."""
    made = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**made, metadata={"parse": parse, "repeats": repeats})


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """The data and the metric: options that every training command has."""

    verb: ClassVar[str] = ""
    asks: ClassVar[str] = "DATA is missing: give a file, a named set such as iris, or - for standard input."
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("resume", "overwrite", "one continues the run, the other replaces it"),
        ("group", "time", "the data can be split by only one of them"),
    )

    data: str = declare("", text)
    target: tuple[str, ...] = declare((), texts)
    task: str | None = declare(None, text)
    drop: tuple[str, ...] = declare((), texts)
    kind: dict[str, str] = declare(dict, _kinds)
    group: str | None = declare(None, text)
    time: str | None = declare(None, text)
    weight: str | None = declare(None, text)
    class_weight: str | dict[str, float] | None = declare(None, parse_class_weight)
    test: str | None = declare(None, text)
    metric: str | None = declare(None, text)

    def check(self) -> None:
        """Raises if options exclude each other."""
        asked: Any = self
        if not self.data:
            raise RequestError(self.asks)
        if self.data == self.test:
            raise RequestError(f"DATA and --test are both {self.data}: a test set must hold other examples.")
        for one, other, why in self.exclusive:
            if getattr(self, one) and getattr(self, other):
                raise RequestError(f"{dashed(one)} and {dashed(other)} exclude each other: {why}. Leave one out.")
        if asked.resume and asked.out is None:
            raise RequestError("--resume needs --out DIR: the folder of the run to continue.")

    @property
    def name_of_data(self) -> str:
        """The default name of the run: that of the data."""
        if self.data == "-":
            return "stdin"
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name.partition(".")[0]) or "data"

    def command(self, changes: tuple[str, ...]) -> str:
        """The shell command that repeats the run; equal commands are equal requests."""
        words = ["gradwise", self.verb, self.data]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            default = {} if field.default is dataclasses.MISSING else field.default
            told = value != default or field.name in {"seed", "budget"}
            if field.name == "data" or not field.metadata["repeats"] or not told:
                continue
            if isinstance(value, bool):
                words.append(dashed(field.name if value else f"no_{field.name}"))
                continue
            items = value if isinstance(value, tuple) else [value]
            if isinstance(value, Mapping):
                items = [f"{key}={item}" for key, item in value.items()]
                items = [",".join(items)] if field.name == "class_weight" else items
            words += [word for item in items for word in (dashed(field.name), str(item))]
        return shlex.join([*words, *(word for change in changes for word in ("--set", change))])


def refuse_target(options: Any) -> None:
    """Raises if a feature learner is given a target, which it would ignore."""
    if options.learner is not None and options.target and not options.unsupervised:
        raise RequestError(
            f"--learner {options.learner} ignores the target. To learn features and then predict it, use gradwise fit "
            f"--pretrain {options.learner}; to learn features alone, add --unsupervised."
        )


@dataclasses.dataclass(frozen=True)
class FitOptions(DataOptions):
    """The options of `gradwise fit`, parsed and validated, without the knobs of the recipe."""

    verb: ClassVar[str] = "fit"
    exclusive: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *DataOptions.exclusive,
        ("folds", "time", "folds mix past and future"),
        ("unsupervised", "task", "without a target there is no task"),
        ("unsupervised", "pretrain", "a pre-trained network is fine-tuned for a target"),
        ("unsupervised", "class_weight", "without a target there are no classes"),
        ("learner", "task", "without a target there is no task"),
        ("learner", "pretrain", "--pretrain names its own learners"),
        ("learner", "class_weight", "without a target there are no classes"),
        ("pretrain", "folds", "every fold would have to pre-train its own layers"),
    )

    unsupervised: bool = declare(False, flag)
    learner: str | None = declare(None, learner_text)
    pretrain: str | None = declare(None, _layers)
    folds: int = declare(0, whole_number(2, 1000))
    watch: int = declare(0, whole_number(1, 10**9))
    seed: int = declare(0, whole_number(0, 2**32 - 1))
    out: str | None = declare(None, text, repeats=False)
    resume: bool = declare(False, flag, repeats=False)
    overwrite: bool = declare(False, flag, repeats=False)
    max_time: float | None = declare(None, parse_seconds, repeats=False)
    checkpoint: float = declare(10.0, seconds_or_zero, repeats=False)
    on: str | None = declare(None, _device, repeats=False)
    dry_run: bool = declare(False, flag, repeats=False)
    json: bool = declare(False, flag, repeats=False)
    quiet: bool = declare(False, flag, repeats=False)
    no_report: bool = declare(False, flag, repeats=False)

    def __post_init__(self) -> None:
        self.check()
        refuse_target(self)

    @property
    def learns_inputs(self) -> bool:
        """Whether to learn features, even if the data have a target."""
        return self.unsupervised or self.learner is not None


def dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_config(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The [fit] table of a TOML file, and the tables of the recipe."""
    file = Path(path)
    if not file.is_file():
        raise RequestError(f"--config {path}: no such file.")
    try:
        content = tomllib.loads(file.read_text())
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"--config {path} is not TOML: {' '.join(str(problem).split())}.") from None
    except OSError as problem:
        raise RequestError(f"--config {path} cannot be read: {problem.strerror}.") from None
    table = content.pop("fit", {})
    if not isinstance(table, dict):
        raise RequestError(f"{path}: `fit` must be a table: write [fit].")
    options = {field.name for field in dataclasses.fields(FitOptions)}
    misplaced = next((key for key in content if key in options), None)
    if misplaced:
        raise RequestError(f"{path}: `{misplaced}` is an option of the command: move it under [fit].")
    return table, content


def chosen_of(
    kind: type[DataOptions], given: Mapping[str, Any], table: Mapping[str, Any] | None = None, source: str = ""
) -> dict[str, Any]:
    """Options by name: from the command line, then from the file's table."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    chosen: dict[str, Any] = {}
    for key, value in (table or {}).items():
        name = key.replace("-", "_")
        if name not in fields:
            raise RequestError(f"{source}: unknown option `{key}` in [{kind.verb}].{nearest(name, fields)}")
        chosen[name] = fields[name].metadata["parse"](value, f"{source}: {key}")
    for name, value in given.items():
        if value is None or value is False or value == []:
            continue
        label = "DATA" if name == "data" else dashed(name)
        chosen[name] = fields[name].metadata["parse"](value, label)
    return chosen


def merge_options(given: Mapping[str, Any], table: Mapping[str, Any] | None = None, source: str = "") -> FitOptions:
    """The options of `fit`: from the command line, then from the file's table, then the defaults."""
    return FitOptions(**chosen_of(FitOptions, given, table, source))
