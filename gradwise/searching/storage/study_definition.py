"""The study file: ranges, strategy, budget and seed in one place. Running it again repeats the study (E17).

    [search]
    data = "digits"
    strategy = "random"
    budget = "32 trials"
    seed = 0

    [ranges]                                  # where to search, in the syntax of --range
    "optimiser.learning_rate" = "log(1e-4, 1e-1)"
    "model.activation" = "choice(Tanh: 0.3, Rectifier: 0.7)"

    [recipe]                                  # fixed values
    "model.widths" = [256, 256]

| text | prior |
|---|---|
| uniform(0, 0.5) | every value as likely as any other |
| log(1e-4, 1e-1) | every order of magnitude |
| integers(16, 1024) | whole numbers, every order of magnitude |
| choice(32, 64, 128), choice(a: 0.7, b: 0.3) | one of these, all alike or with weights |
| zero or log(1e-6, 1e-2), zero(0.3) or ... | exactly 0 half the time, or with this probability |
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from ...runtime.errors import RequestError, nearest
from ...specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from .budget import parse_budget

_FORMS = {
    "uniform": "uniform(0, 0.5)",
    "log": "log(1e-4, 1e-1)",
    "integers": "integers(16, 1024)",
    "choice": "choice(32, 64, 128)",
    "zero": "zero or log(1e-6, 1e-2)",
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _same_word(word: str) -> Any:
    return word


def _number(text: str, form: str) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise RequestError(f"{text!r} is not a number. Write it as {_FORMS[form]}.")
    return float(text)


def _whole(text: str) -> int:
    number = _number(text, "integers")
    if number != int(number):
        raise RequestError(f"{text!r} is not a whole number. Write it as {_FORMS['integers']}.")
    return int(number)


def split_outside_brackets(text: str, mark: str) -> list[str]:
    """The pieces between the marks that stand outside brackets and quotes."""
    pieces, depth, quoted, start, skip = [], 0, False, 0, False
    for place, letter in enumerate(text):
        if skip:
            skip = False
        elif quoted:
            skip = letter == "\\"
            quoted = letter != '"'
        elif letter == '"':
            quoted = True
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == mark and depth == 0:
            pieces.append(text[start:place].strip())
            start = place + 1
    return [*pieces, text[start:].strip()]


def _parse_value(text: str, resolve: Callable[[str], Any]) -> Any:
    """One value of a choice: a number, true or false, several in brackets, text in quotes, or a word to be resolved."""
    if not text:
        raise RequestError(f"a value of a choice is missing. Write it as {_FORMS['choice']}.")
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    if text in {"true", "false"}:
        return text == "true"
    if text[0] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            raise RequestError(f'invalid quoted text {text}. Write it as choice("a", "b").') from None
    if text[0] == "[" and text[-1] == "]":
        return tuple(_parse_value(item, resolve) for item in split_outside_brackets(text[1:-1], ",") if item)
    return resolve(text)


def _parse_choice(inner: str, resolve: Callable[[str], Any]) -> Choice:
    items = [split_outside_brackets(item, ":") for item in split_outside_brackets(inner, ",")]
    if any(len(item) > 2 for item in items):
        raise RequestError(f"choice({inner}): more than one weight for a value. Write it as choice(a: 0.7, b: 0.3).")
    weighted = [len(item) == 2 for item in items]
    if any(weighted) and not all(weighted):
        raise RequestError(f"choice({inner}): give every value a weight, or none. Write it as choice(a: 0.7, b: 0.3).")
    values = tuple(_parse_value(item[0], resolve) for item in items)
    return Choice(values, tuple(_number(item[1], "choice") for item in items) if all(weighted) else ())


def parse_prior(text: str, resolve: Callable[[str], Any] = _same_word) -> AbstractPrior:
    """The prior that a text means. `resolve` turns the words of a choice, such as `Tanh`, into parts.

    >>> parse_prior("zero or log(1e-6, 1e-2)")
    ZeroOr(other=LogUniform(low=1e-06, high=0.01), zero=0.5)
    """
    whole = text.strip()
    zero = re.fullmatch(r"zero\s*(?:\((.*?)\))?\s+or\s+(.*)", whole, flags=re.DOTALL)
    if zero:
        share = 0.5 if zero[1] is None else _number(zero[1].strip(), "zero")
        return ZeroOr(parse_prior(zero[2], resolve), share)
    found = re.fullmatch(r"(\w+)\s*\((.*)\)", whole, flags=re.DOTALL)
    if not found or found[1].lower() not in _FORMS or found[1].lower() == "zero":
        name = re.match(r"\w*", whole)
        near = nearest(name[0].lower(), _FORMS) if name and name[0] else ""
        close = next((form for word, form in _FORMS.items() if f"'{word}'" in near), "")
        forms = close or ", ".join(_FORMS.values())
        raise RequestError(f"invalid range {text!r}. Write {'it as ' if close else 'one of: '}{forms}.")
    form, inner = found[1].lower(), found[2]
    if form == "choice":
        return _parse_choice(inner, resolve)
    ends = split_outside_brackets(inner, ",")
    if len(ends) != 2:
        raise RequestError(f"{text!r} needs two ends. Write it as {_FORMS[form]}.")
    if form == "integers":
        return LogInteger(_whole(ends[0]), _whole(ends[1]))
    return (Uniform if form == "uniform" else LogUniform)(_number(ends[0], form), _number(ends[1], form))


def _is_plain_word(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z_][\w.-]*", text)) and text not in {"true", "false"}


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if _is_plain_word(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_value_text, value)) + "]"
    return type(value).__name__


def prior_text(prior: AbstractPrior) -> str:
    """The text that `parse_prior` reads as this prior. A part is told by the name of its class."""
    if isinstance(prior, ZeroOr):
        share = "" if prior.zero == 0.5 else f"({prior.zero!r})"
        return f"zero{share} or {prior_text(prior.other)}"
    if isinstance(prior, Choice):
        texts = [_value_text(value) for value in prior.values]
        if prior.weights:
            texts = [f"{text}: {weight!r}" for text, weight in zip(texts, prior.weights, strict=True)]
        return f"choice({', '.join(texts)})"
    names: dict[type[AbstractPrior], str] = {Uniform: "uniform", LogUniform: "log", LogInteger: "integers"}
    if type(prior) not in names:
        raise RequestError(f"the prior {type(prior).__name__} cannot be written as text.")
    ends: Any = prior
    return f"{names[type(prior)]}({ends.low!r}, {ends.high!r})"


_TABLES = ("search", "ranges", "recipe", "trials")


def write_study_file(settings: Mapping[str, Any]) -> str:
    """The study file that `read_study_file` reads as these settings; what is None is left out.

    Settings are plain values by name, and two tables by path: `ranges` (texts or priors) and `recipe` (values).
    `trials` says where the trials are, if they are in a database: {"store": ..., "name": ...}.
    """
    ranges = {
        path: prior_text(prior) if isinstance(prior, AbstractPrior) else prior
        for path, prior in (settings.get("ranges") or {}).items()
    }
    tables = {
        "search": {key: value for key, value in settings.items() if key not in _TABLES},
        "ranges": ranges,
        "recipe": settings.get("recipe") or {},
        "trials": settings.get("trials") or {},
    }
    given = {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}
    try:
        text = tomli_w.dumps({name: table for name, table in given.items() if table})
    except TypeError as problem:
        raise RequestError(f"these settings cannot be written to a study file: {problem}.") from None
    return f"# A study of gradwise. Running this file again gives the same study.\n\n{text}"


def flatten_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted paths, those of an array numbered: `[ranges.optimiser]` and quoted keys mean the same."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {str(number): item for number, item in enumerate(value)}
        if isinstance(value, dict):
            found |= flatten_table(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _check(source: str, search: Mapping[str, Any], ranges: Mapping[str, Any]) -> None:
    """Refuses what is wrong whatever the data and the recipe are."""
    if not isinstance(search.get("data"), str) or not search["data"]:
        raise RequestError(f'{source}: [search] needs `data`, a file or a named set, such as data = "digits".')
    seed = search.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise RequestError(f"{source}: `seed` must be a whole number from 0 to {2**32 - 1}; got {seed!r}.")
    try:
        if "budget" in search:
            parse_budget(search["budget"])
    except RequestError as problem:
        raise RequestError(f"{source}: budget: {problem}") from None
    for path, text in ranges.items():
        try:
            if not isinstance(text, str):
                raise RequestError(f'invalid range {text!r}. Write it in quotes, such as "log(1e-4, 1e-1)".')
            parse_prior(text)
        except RequestError as problem:
            raise RequestError(f"{source}: [ranges] {path}: {problem}") from None


def load_toml(path: str | Path, what: str = "the study file") -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise RequestError(f"{what} {path} cannot be read: {problem.strerror}.") from None
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"{what} {path} is not TOML: {' '.join(str(problem).split())}.") from None


def read_store(path: str | Path) -> tuple[str | None, str | None]:
    """The database that holds the trials of the study and the study's name in it, if the file names them."""
    where = load_toml(path).get("trials", {})
    return where.get("store"), where.get("name")


def read_study_file(path: str | Path, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings in a study file. `known` names what [search] may hold; without it, anything.

    Ranges are checked as language and stay texts: which parts their words mean depends on the recipe. Where the trials
    of the study are is left out: the same study elsewhere has its own.
    """
    content = load_toml(path)
    for name, table in content.items():
        if name not in _TABLES:
            raise RequestError(f"{path}: unknown table [{name}].{nearest(name, _TABLES)}")
        if not isinstance(table, dict):
            raise RequestError(f"{path}: `{name}` must be a table: write [{name}].")
    search, ranges = content.get("search", {}), flatten_table(content.get("ranges", {}))
    for key in search:
        if (known and key not in known) or key in _TABLES:
            raise RequestError(f"{path}: unknown option `{key}` in [search].{nearest(key, known)}")
    _check(str(path), search, ranges)
    return {**search, "ranges": ranges, "recipe": flatten_table(content.get("recipe", {}))}
