"""Strategies by name: `--strategy random`, `grid(values=3)`, `tpe`, `layerwise(keep=3)`."""

import dataclasses
import re
from typing import Any

from ...pretraining.layer_recipes import FILTERS, LEARNERS, parse_layers
from ...runtime.errors import RequestError, nearest
from ...searching.storage.study_definition import split_outside_brackets
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
_DENSE = tuple(kind for kind in LEARNERS if kind != FILTERS)  # Algorithm 1 learns layers of rows
_WIDTHS = re.compile(r":\s*([1-9]\d{0,8})-([1-9]\d{0,8})")
_LAYERWISE = re.compile(r"\s*layerwise\s*(?:\((.*)\))?\s*", re.IGNORECASE)


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


@dataclasses.dataclass(frozen=True)
class LayerwisePlan:
    """The settings in `--strategy layerwise(...)`: the layers, K, the settings per level and fine-tuning, and whether
    stacks of fewer layers are fine-tuned too."""

    layers: str = "denoising:128-512x3"
    keep: int = 3
    settings: int = 6
    tunings: int = 6
    shallower: bool = False


def parse_ranges(text: str) -> tuple[str, list[tuple[int, int] | None]]:
    """The layers with their largest widths, in the syntax of `--pretrain`, and the range of each, if any."""
    found: list[tuple[int, int] | None] = []
    for piece in text.split(","):
        ends = _WIDTHS.search(piece)
        range_ = (int(ends[1]), int(ends[2])) if ends else None
        if range_ and range_[0] >= range_[1]:
            raise RequestError(f"`{piece.strip()}`: a range of units must increase, as in denoising:128-512x3.")
        found += [range_] * len(parse_layers(_WIDTHS.sub(r":\2", piece), _DENSE))
    return _WIDTHS.sub(r":\2", text), found


def parse_layerwise(text: Any, name: str = "--strategy") -> LayerwisePlan:
    """The plan given by the text."""
    found = _LAYERWISE.fullmatch(str(text))
    if found is None:
        raise RequestError(f"{name} {text}: expected layerwise, or layerwise(keep=3, settings=6).")
    given: dict[str, Any] = {}
    known = [field.name for field in dataclasses.fields(LayerwisePlan)]
    for pair in filter(str.strip, re.split(r",(?=\s*\w+\s*=)", found[1] or "")):  # layers have commas of their own
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in known:
            raise RequestError(f"{name} {text}: unknown setting `{key}` of layerwise.{nearest(key, known)}")
        if key == "layers":
            parse_ranges(value)
            given[key] = value
        elif key == "shallower":
            if value.lower() not in ("true", "false"):
                raise RequestError(f"{name} {text}: expected true or false for `shallower`; got {value!r}.")
            given[key] = value.lower() == "true"
        elif re.fullmatch(r"[1-9]\d{0,4}", value):
            given[key] = int(value)
        else:
            raise RequestError(f"{name} {text}: expected a whole number of at least 1 for `{key}`; got {value!r}.")
    return LayerwisePlan(**given)


def is_layerwise(value: Any) -> bool:
    """Whether the strategy is Algorithm 1, whose trials are layers (`journeys.layerwise`)."""
    return str(value).strip().lower().startswith("layerwise")


def check_strategy(value: Any, name: str) -> None:
    """Raises if no strategy has this name, or if it does not have these settings."""
    if is_layerwise(value):
        parse_layerwise(value, name)
    else:
        parse_strategy(value, name)
