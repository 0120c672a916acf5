"""How the values of options are read, from the words of a command line or the values of a TOML file.

Each reader gets the value and the name to blame, `--seed` or `run.toml: seed`, and returns the value in its own type.
What needs a library is imported late, so that `--help` is fast.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.durations import parse_duration
from ...runtime.errors import RequestError, nearest
from ...searching.storage.budget import Budget, parse_budget

DEVICES = ("cpu", "gpu")


def read_text(value: Any, name: str) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise RequestError(f"{name} {value}: expected text.")
    return value


def read_texts(value: Any, name: str) -> tuple[str, ...]:
    """One text, or several."""
    return tuple(read_text(item, name) for item in (value if isinstance(value, (list, tuple)) else [value]))


def read_names(value: Any, name: str) -> tuple[str, ...]:
    """Several texts, which may also be separated by commas."""
    return tuple(part.strip() for item in read_texts(value, name) for part in item.split(",") if part.strip())


def read_flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} = {value}: expected true or false.")
    return value


def whole_number(low: int, high: int) -> Callable[[Any, str], int]:
    """The reader of a whole number within these bounds."""

    def read(value: Any, name: str) -> int:
        digits = str(value)
        odd = isinstance(value, (bool, float)) or not re.fullmatch(r"-?\d{1,18}", digits)
        if odd or not low <= int(digits) <= high:
            raise RequestError(f"{name} {value}: expected a whole number from {low} to {high}.")
        return int(digits)

    return read


def read_seconds(value: Any, name: str) -> float:
    """A time: 90, 90s, 10min, 1h30min."""
    text = str(value)
    seconds = float(text) if re.fullmatch(r"\d+(\.\d+)?", text.strip()) else parse_duration(text)
    if seconds is None:
        raise RequestError(f"{name} {value}: expected a time, such as 90s, 10min or 2h.")
    if seconds <= 0:
        raise RequestError(f"{name} {value}: expected a time above 0.")
    return seconds


def read_seconds_or_zero(value: Any, name: str) -> float:
    """A time, or 0."""
    return 0.0 if str(value) in {"0", "0.0"} else read_seconds(value, name)


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


def read_kinds(value: Any, name: str) -> dict[str, str]:
    """How to read some columns: `zip=category`."""
    return parse_pairs(value, name, "column=category, column=number, column=date or column=text")


def read_class_weight(value: Any, name: str) -> str | dict[str, float]:
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


def paths_to(what: str, example: str) -> Callable[[Any, str], dict[str, str]]:
    """The reader of `path=value`, given several times: the values by path, as texts."""

    def read(value: Any, name: str) -> dict[str, str]:
        if isinstance(value, Mapping):
            return dict(value)
        found: dict[str, str] = {}
        for text in read_texts(value, name):
            path, equals, words = (part.strip() for part in text.partition("="))
            if not path or not equals or (what == "range" and not words):
                raise RequestError(f"{name} {text}: expected path={what}, such as {example}.")
            found[path] = words
        return found

    return read


def read_device(value: Any, name: str) -> str:
    """`cpu` or `gpu`."""
    word = str(value).lower()
    if word.startswith("ray"):
        raise RequestError(f"{name} {value}: fit runs on one device. Use {name} cpu or {name} gpu.")
    if word not in DEVICES:
        raise RequestError(f"{name} {value}: unknown device.{nearest(word, DEVICES)}")
    return word


def read_executor(value: Any, name: str) -> str:
    """Where trials run: this process, a device, worker processes or Ray."""
    word = str(value).strip()
    if not re.fullmatch(r"here|cpu|gpu|workers(:[1-9]\d{0,3})?|ray(://.+)?", word.lower()):
        raise RequestError(f"{name} {value}: unknown device. Choose here, cpu, gpu, workers:N, ray or ray://HOST:PORT.")
    return word if "://" in word else word.lower()


def read_layers(value: Any, name: str) -> str:
    """Layers to pre-train, in the syntax of `gradwise.pretraining.layer_recipes`."""
    from ...pretraining.layer_recipes import parse_layers

    try:
        parse_layers(read_text(value, name))
    except RequestError as problem:
        raise RequestError(f"{name}: {problem}") from None
    return str(value)


def read_learner(value: Any, name: str) -> str:
    """One feature learner: `kind:units`, or `kind` with the default number of units."""
    from ...defaults import FEATURES
    from ...pretraining.layer_recipes import FILTERS, FILTERS_BY_DEFAULT, LEARNERS, SUPERVISED, parse_layers

    given = read_text(value, name)
    units = FILTERS_BY_DEFAULT if given == FILTERS else FEATURES[1]
    whole_text = given if ":" in given else f"{given}:{units}"
    try:
        count = len(parse_layers(whole_text, tuple(LEARNERS)))
    except RequestError:
        kind = given.partition(":")[0]
        if kind == SUPERVISED:
            told = f"{name} {given}: supervised layers need a target. Use --pretrain {whole_text}."
            raise RequestError(told) from None
        hint = f" Kinds: {', '.join(LEARNERS)}." if kind in LEARNERS else nearest(kind, LEARNERS)
        raise RequestError(f"{name} {given}: expected kind:units, such as denoising:500.{hint}") from None
    if count != 1:
        raise RequestError(f"{name} {given}: got {count} layers. To stack them, use --pretrain, with a target.")
    return whole_text


def read_budget(value: Any, name: str) -> Budget:
    """A time or a number of trials."""
    try:
        return parse_budget(value)
    except RequestError as problem:
        raise RequestError(f"{name}: {problem}") from None


def read_time_limit(value: Any, name: str) -> Budget:
    """A time, as a budget."""
    return Budget(seconds=read_seconds(value, name))


def read_trials(value: Any, name: str) -> Budget:
    """A number of trials, or `+N` for so many more."""
    words = str(value).strip()
    if not re.fullmatch(r"\+?\d{1,12}", words):
        raise RequestError(f"{name} {value}: expected a whole number, such as 32, or +50 for 50 more.")
    return read_budget(f"{words} trials", name)


def read_strategy(value: Any, name: str) -> str:
    """The name of a strategy, with its settings in brackets."""
    from .strategies import check_strategy

    check_strategy(value, name)
    return str(value).strip()


def read_committee(value: Any, name: str) -> str:
    """What the model consists of."""
    from ...searching.selection.committee_members import KINDS

    if value not in KINDS:
        raise RequestError(f"{name} {value}: unknown committee.{nearest(str(value), KINDS)}")
    return str(value)


def read_batch_size(value: Any, name: str) -> str | int:
    """`auto`, or a size."""
    word = str(value).strip().lower()
    if word == "auto":
        return word
    if isinstance(value, (bool, float)) or not re.fullmatch(r"[1-9]\d{0,8}", word):
        raise RequestError(f"{name} {value}: expected a whole number of at least 1, or auto to choose it at the end.")
    return int(word)


def read_merged(value: Any, name: str) -> tuple[dict[str, int], ...]:
    """The origin of the trial numbers of a merged study."""
    items = value if isinstance(value, (list, tuple)) else [None]
    if not all(isinstance(item, dict) and set(item) == {"seed", "offset"} for item in items):
        raise RequestError(f"{name}: expected pairs of seed and offset, as gradwise merge writes them.")
    return tuple(items)
