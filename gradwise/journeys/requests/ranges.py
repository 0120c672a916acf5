"""The search space: the recommended one, or that of a study file or a mapping, changed by `--range` and `--set`.

    --range "optimiser.learning_rate=log(1e-4, 1e-1)"
    --range "optimiser=choice(Sgd, Adam)" --range "optimiser.momentum=uniform(0, 0.99)"      searched only with Sgd

A space without any possible trial raises here, before anything starts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx

from ... import defaults
from ...portfolio import portfolio_of
from ...runtime.errors import RequestError
from ...searching.storage.study_definition import parse_prior, prior_text
from ...specs.dataset import Dataset
from ...specs.paths import knobs, parts
from ...specs.priors import AbstractPrior, Choice, LogUniform, Uniform
from ...specs.recipe import Recipe
from ...specs.search_space import Dimension, Space, dimension, read_at, write_at
from .assignments import AssignmentError, locate, value_of_word

Range = str | AbstractPrior  # "log(1e-4, 1e-1)" or LogUniform(1e-4, 1e-1)


def _values(prior: AbstractPrior) -> tuple[Any, ...]:
    return prior.values if isinstance(prior, Choice) else ()


def _check_values(recipe: Recipe, found: Dimension, source: str) -> None:
    """Raises if the knob does not accept every value of the range."""
    values = _values(found.scale)
    default = found.declaration.default if found.declaration else None
    if found.declaration is None and not all(isinstance(value, eqx.Module) for value in values or (None,)):
        raise RequestError(
            f"{source} {found.path}: is a part, not a number. Give class names: choice(Tanh, Rectifier)."
        )
    several = isinstance(default, tuple) and isinstance(read_at(recipe, found.path)[1], tuple)
    if several and not all(isinstance(value, tuple) for value in values or (None,)):
        hint = f"{found.path}.each=integers(32, 256), or {found.path}=choice([64], [64, 64])"
        raise RequestError(f"{source} {found.path}: is a list of numbers. Use {hint}.")
    whole = isinstance(default, (int, tuple)) and found.declaration is not None and found.declaration.static
    if whole and isinstance(found.scale, (Uniform, LogUniform)):
        raise RequestError(f"{source} {found.path}: takes whole numbers. Use integers(...) or choice(...).")
    for value in values or (found.at(0.0), found.at(0.999)):
        try:
            write_at(recipe, found.path, value)
        except (ValueError, TypeError) as problem:
            said = " ".join(str(problem).split())
            raise RequestError(f"{source} {found.path}: invalid value {value!r}: {said}") from None


def _variants(recipe: Recipe, dimensions: Iterable[Dimension]) -> list[Recipe]:
    """The recipe, and the recipe with each alternative part; knobs are looked up in all of them."""
    found = [recipe]
    for one in dimensions:
        items = [value for value in _values(one.scale) if isinstance(value, eqx.Module)]
        found += [write_at(recipe, one.path, item) for item in items]
    return found


def read_prior(recipe: Recipe, path: str, given: Range, source: str) -> tuple[str, AbstractPrior]:
    """The full path and the range given for it; its words may name parts, or values of a switch."""
    full, _ = locate(recipe, path, source)
    if isinstance(given, AbstractPrior):
        return full, given
    try:
        return full, parse_prior(given, lambda word: value_of_word(recipe, full, word, source))
    except AssignmentError:
        raise  # says itself where
    except RequestError as problem:
        raise RequestError(f"{source} {path}: {problem}") from None


def _owner(recipes: list[Recipe], path: str, source: str) -> Recipe:
    """The first recipe that has the path."""
    problems = []
    for recipe in recipes:
        try:
            locate(recipe, path, source)
        except RequestError as problem:
            problems.append(problem)
        else:
            return recipe
    raise problems[0]


def _dimension(recipe: Recipe, path: str, given: Range, source: str) -> Dimension:
    full, prior = read_prior(recipe, path, given, source)
    try:
        found = dimension(recipe, full, prior)
    except RequestError as problem:
        raise RequestError(f"{source} {path}: {problem}") from None
    _check_values(recipe, found, source)
    return found


def _ordered(recipe: Recipe, dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """Parts and counts before the knobs within them, then the order of the recommended space: equal requests, in any
    order, give equal spaces."""
    whole = {path for path, _ in parts(recipe)}
    recommended = list(defaults.search_space(recipe).paths)

    def rank(one: Dimension) -> tuple[int, int, str]:
        place = 0 if one.path in whole else 1 if one.path.endswith(".count") else 2
        known = recommended.index(one.path) if one.path in recommended else len(recommended)
        return place, known, one.path

    return tuple(sorted(dimensions, key=rank))


def _with_ranges(
    recipe: Recipe, dimensions: Iterable[Dimension], ranges: Mapping[str, Range], source: str
) -> tuple[Dimension, ...]:
    """The dimensions, changed and extended by these ranges. Choices of parts come first, as others may need them."""
    found = {one.path: one for one in dimensions}
    whole = {path for path, _ in parts(recipe)}
    for path, given in sorted(ranges.items(), key=lambda item: item[0] not in whole):
        one = _dimension(_owner(_variants(recipe, found.values()), path, source), path, given, source)
        found[one.path] = one
    return _ordered(recipe, found.values())


def _without(recipe: Recipe, dimensions: Iterable[Dimension], paths: Iterable[str]) -> list[Dimension]:
    """The dimensions without the knobs that were set; a part that was replaced keeps its own knobs in the space."""
    still = {path for path, _, _ in knobs(recipe)} & set(paths)
    return [d for d in dimensions if not any(d.path == path or d.path.startswith(f"{path}.") for path in still)]


def build_space(
    recipe: Recipe,
    *,
    ranges: Mapping[str, Range] | None = None,
    source: str = "",
    more_ranges: Mapping[str, Range] | None = None,
    fixed: Iterable[str] = (),
    turned: Iterable[str] = (),
    dataset: Dataset | None = None,
) -> Space:
    """The space of a request.

    `ranges`, of a study file or from Python, replace the recommended space, which depends on the `dataset`; messages
    name their `source`. `more_ranges`, of the command line, change either. `fixed` are all paths that were set,
    `turned` those set on the command line.
    """
    space = recommended = _without(recipe, defaults.search_space(recipe, dataset).dimensions, fixed)
    if ranges:
        space = _without(recipe, _with_ranges(recipe, (), ranges, source), turned)
    found = _with_ranges(recipe, space, more_ranges or {}, "--range")
    if not found:
        raise RequestError("nothing to search: every knob is set. Give a range (--range), or fit one network instead.")
    # In other ranges a recipe of the portfolio might lie outside. A study file always names its ranges.
    usual = written_ranges(Space(recipe, found)) == written_ranges(Space(recipe, tuple(recommended)))
    return Space(recipe, found, portfolio_of(recipe, fixed) if usual else ())


def written_ranges(space: Space) -> dict[str, str]:
    """The ranges of a space, as written to a study file."""
    return {one.path: prior_text(one.prior) for one in space.dimensions}
