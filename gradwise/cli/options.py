"""The options of `gradwise fit`, wherever they come from: the command line, and the [fit] table of a TOML file.

    gradwise fit houses.csv --target price --seed 3 --config run.toml

    [fit]                       # run.toml
    drop = ["id"]
    max_time = "10min"
    kind = {zip = "category"}
    [optimiser]
    learning_rate = 0.03

The command line wins over the file, option by option.
"""

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import RequestError, nearest

_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DEVICES = ("cpu", "gpu")


def parse_seconds(value: Any, name: str) -> float:
    """A time: 90, 90s, 10min, 1h30min."""
    text = str(value).strip().lower()
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    whole = "".join(re.split(r"\s+", text))
    known = all(unit in _UNITS or (unit == "" and len(pieces) == 1) for _, unit in pieces)
    if not pieces or not known or "".join(number + unit for number, unit in pieces) != whole:
        raise RequestError(f"{name} {value}: write a time such as 90s, 10min or 2h.")
    seconds = sum(float(number) * _UNITS.get(unit, 1.0) for number, unit in pieces)
    if seconds <= 0:
        raise RequestError(f"{name} {value}: a time is more than 0.")
    return seconds


def parse_pairs(value: Any, name: str, example: str) -> dict[str, str]:
    """`a=1,b=5`, several of them, or a table, as a mapping; keys may hold commas."""
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    pairs: dict[str, str] = {}
    for text in value if isinstance(value, (list, tuple)) else re.findall(r".+?=[^,]*(?=,|$)|.+", str(value)):
        key, equals, item = str(text).lstrip(",").rpartition("=")
        if not equals or not key.strip() or not item.strip():
            raise RequestError(f"{name} {text}: write it as {example}.")
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
            raise RequestError(f"{name} {label}={text}: a weight is a number.") from None
        if not 0 <= weights[label] < float("inf"):
            raise RequestError(f"{name} {label}={text}: a weight is a number, 0 or more.")
    return weights


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{name} {value}: needs text.")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(item, name) for item in (value if isinstance(value, (list, tuple)) else [value]))


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{name} = {value}: needs true or false.")
    return value


def _whole(low: int, high: int) -> Callable[[Any, str], int]:
    def parse(value: Any, name: str) -> int:
        text = str(value)
        if isinstance(value, (bool, float)) or not re.fullmatch(r"-?\d{1,18}", text) or not low <= int(text) <= high:
            raise RequestError(f"{name} {value}: needs a whole number from {low} to {high}.")
        return int(text)

    return parse


def _seconds_or_zero(value: Any, name: str) -> float:
    return 0.0 if str(value) in {"0", "0.0"} else parse_seconds(value, name)


def _device(value: Any, name: str) -> str:
    text = str(value).lower()
    if text.startswith("ray"):
        raise RequestError(f"{name} {value}: fit runs on one machine. Use {name} cpu or {name} gpu.")
    if text not in DEVICES:
        raise RequestError(f"{name} {value}: there is no such device.{nearest(text, DEVICES)}")
    return text


def _kinds(value: Any, name: str) -> dict[str, str]:
    return parse_pairs(value, name, "column=category, column=number or column=date")


def _option(default: Any, parse: Callable[[Any, str], Any], *, repeats: bool = True) -> Any:
    """A field with its parser; `repeats` says that it belongs in the command that repeats the run."""
    made = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**made, metadata={"parse": parse, "repeats": repeats})


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """What was asked of `gradwise fit`, read and checked, the recipe's knobs apart."""

    data: str = _option("", _text)
    target: tuple[str, ...] = _option((), _texts)
    task: str | None = _option(None, _text)
    drop: tuple[str, ...] = _option((), _texts)
    kind: dict[str, str] = _option(dict, _kinds)
    group: str | None = _option(None, _text)
    time: str | None = _option(None, _text)
    weight: str | None = _option(None, _text)
    class_weight: str | dict[str, float] | None = _option(None, parse_class_weight)
    test: str | None = _option(None, _text)
    metric: str | None = _option(None, _text)
    folds: int = _option(0, _whole(2, 1000))
    seed: int = _option(0, _whole(0, 2**32 - 1))
    out: str | None = _option(None, _text, repeats=False)
    resume: bool = _option(False, _flag, repeats=False)
    overwrite: bool = _option(False, _flag, repeats=False)
    max_time: float | None = _option(None, parse_seconds, repeats=False)
    checkpoint: float = _option(10.0, _seconds_or_zero, repeats=False)
    on: str | None = _option(None, _device, repeats=False)
    dry_run: bool = _option(False, _flag, repeats=False)
    json: bool = _option(False, _flag, repeats=False)
    quiet: bool = _option(False, _flag, repeats=False)
    no_report: bool = _option(False, _flag, repeats=False)

    def __post_init__(self) -> None:
        if not self.data:
            raise RequestError("what is to be learned from? Give DATA: a file, a named set such as iris, or -.")
        if self.data == self.test:
            raise RequestError(f"DATA and --test are both {self.data}: a test set holds other examples.")
        exclusive = (
            ("resume", "overwrite", "one goes on with what is there, the other replaces it"),
            ("group", "time", "a split follows one of them"),
            ("folds", "time", "folds mix past and future"),
        )
        for one, other, why in exclusive:
            if getattr(self, one) and getattr(self, other):
                raise RequestError(f"{_dashed(one)} and {_dashed(other)} exclude each other: {why}. Leave one out.")
        if self.resume and self.out is None:
            raise RequestError("--resume needs --out DIR: the folder of the run that is to go on.")

    @property
    def name(self) -> str:
        """What the run is called by default: the data's own name."""
        if self.data == "-":
            return "stdin"
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name.partition(".")[0]) or "data"

    def command(self, changes: tuple[str, ...]) -> str:
        """The shell line that repeats the run; equal lines are equal requests."""
        words = ["gradwise", "fit", self.data]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "data" or not field.metadata["repeats"] or (not value and field.name != "seed"):
                continue
            items = value if isinstance(value, tuple) else [value]
            if isinstance(value, Mapping):
                items = [f"{key}={item}" for key, item in value.items()]
                items = [",".join(items)] if field.name == "class_weight" else items
            words += [word for item in items for word in (_dashed(field.name), str(item))]
        return shlex.join([*words, *(word for change in changes for word in ("--set", change))])


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_config(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The [fit] table of a TOML file, and the tables of the recipe."""
    file = Path(path)
    if not file.is_file():
        raise RequestError(f"--config {path}: there is no such file.")
    try:
        content = tomllib.loads(file.read_text())
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"--config {path} is not TOML: {' '.join(str(problem).split())}.") from None
    except OSError as problem:
        raise RequestError(f"--config {path} cannot be read: {problem.strerror}.") from None
    table = content.pop("fit", {})
    if not isinstance(table, dict):
        raise RequestError(f"{path}: `fit` must be a table, written [fit].")
    options = {field.name for field in dataclasses.fields(FitOptions)}
    misplaced = next((key for key in content if key in options), None)
    if misplaced:
        raise RequestError(f"{path}: `{misplaced}` is an option of the command: write it under [fit].")
    return table, content


def merge(given: Mapping[str, Any], table: Mapping[str, Any] | None = None, source: str = "") -> FitOptions:
    """The options: those given on the command line, then those of the file's table, then the defaults."""
    fields = {field.name: field for field in dataclasses.fields(FitOptions)}
    chosen: dict[str, Any] = {}
    for key, value in (table or {}).items():
        name = key.replace("-", "_")
        if name not in fields:
            raise RequestError(f"{source}: [fit] has no `{key}`.{nearest(name, fields)}")
        chosen[name] = fields[name].metadata["parse"](value, f"{source}: {key}")
    for name, value in given.items():
        if value is None or value is False or value == []:
            continue
        label = "DATA" if name == "data" else _dashed(name)
        chosen[name] = fields[name].metadata["parse"](value, label)
    return FitOptions(**chosen)
