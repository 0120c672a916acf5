"""The search space: dimensions, each a path into a recipe and a prior over the values there.

    read_space(recipe)                                    everything that has a prior
    space = Space(recipe, (Dimension("optimiser.learning_rate", LogUniform(1e-4, 1.0)), ...))
    space.recipe_at({"optimiser.learning_rate": 0.5})     the recipe at this fraction of the prior
    space.values(recipe)                                  the values of a recipe, by path

A path leads to a knob, a switch or a whole part (`model.activation`). Three more forms reach into a switch that holds
whole numbers, such as `model.widths`:

    model.widths.count      how many there are, all alike
    model.widths.each       the value of all of them
    model.widths.2          the third alone

A dimension whose path does not exist in a recipe is inactive (the width of a third layer if there are two, the momentum
of an optimiser without one): conditional knobs need no declaration (row E3). Dimensions apply in order, so parts and
counts come before the knobs within them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from ..runtime.errors import RequestError, nearest
from .knobs import Allowed, Declaration, changed_knobs, declarations
from .paths import get, knobs, parts, replace_several
from .priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from .serialisation import from_plain, to_plain


@dataclass(frozen=True)
class Dimension:
    """One axis of the space."""

    path: str
    prior: AbstractPrior
    declaration: Declaration | None = None
    value: Any = None

    @property
    def row(self) -> str:
        return self.declaration.row if self.declaration else "E3"

    @property
    def kind(self) -> str:
        """Whose knob it is: "optimiser", "model" or "capacity" (row E19)."""
        return self.declaration.kind if self.declaration else "model"

    @property
    def numeric(self) -> bool:
        """Whether its values lie on a line, so that it has borders and a middle."""
        return isinstance(self.scale, (Uniform, LogUniform, LogInteger))

    @property
    def logarithmic(self) -> bool:
        return isinstance(self.scale, (LogUniform, LogInteger))

    @property
    def scale(self) -> AbstractPrior:
        """The prior of the values other than an exact zero."""
        return self.prior.other if isinstance(self.prior, ZeroOr) else self.prior

    @property
    def allowed(self) -> tuple[float, float]:
        """The ends beyond which no value makes sense."""
        if self.path.endswith((".count", ".each")) or self.path.rpartition(".")[2].isdigit():
            return (1.0, math.inf)
        rule = self.declaration.allowed if self.declaration else None
        return rule.ends() if isinstance(rule, Allowed) else (-math.inf, math.inf)

    def at(self, fraction: float) -> Any:
        """The value at this fraction of the prior."""
        return self.prior.quantile(fraction)


def read_space(recipe: Any) -> tuple[Dimension, ...]:
    """The dimensions of a recipe, in the order of its fields."""
    return tuple(
        Dimension(path, declaration.prior, declaration, value)
        for path, declaration, value in knobs(recipe)
        if declaration.prior is not None
    )


@functools.cache
def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def exists(recipe: Any, path: str) -> bool:
    """Whether a path leads somewhere, found by walking rather than by listing every knob."""
    node = recipe
    for name in path.split("."):
        if isinstance(node, tuple):
            if not name.isdigit() or int(name) >= len(node):
                return False
            node = node[int(name)]
        elif isinstance(node, eqx.Module) and name in _field_names(type(node)):
            node = getattr(node, name)
        else:
            return False
    return True


def _within(recipe: Any, path: str) -> tuple[str, str] | None:
    """The switch and the word of a path such as `model.widths.each`, if it is one."""
    head, _, word = path.rpartition(".")
    if not (word in {"count", "each"} or word.isdigit()) or not exists(recipe, head):
        return None
    several = get(recipe, head)
    whole = isinstance(several, tuple) and all(isinstance(item, int) for item in several)
    return (head, word) if whole else None


def read_at(recipe: Any, path: str) -> tuple[bool, Any]:
    """Whether the path is active in this recipe, and the value there."""
    inner = _within(recipe, path)
    if inner is None:
        return (True, _plain_number(get(recipe, path))) if exists(recipe, path) else (False, None)
    several = get(recipe, inner[0])
    if inner[1] == "count":
        return True, len(several)
    place = 0 if inner[1] == "each" else int(inner[1])
    return (True, several[place]) if place < len(several) else (False, None)


def write_at(recipe: Any, path: str, value: Any) -> Any:
    """The recipe with this value there; as it is where the path is not active."""
    return _write_together(recipe, [(path, value)])


def _with_word(several: tuple[int, ...], word: str, value: Any) -> tuple[int, ...]:
    """Whole numbers with another count, another value of all, or another one at a place, if there is such a place."""
    if word == "count":
        first = several[0] if several else 1
        return (*several, *(first,) * int(value))[: int(value)]
    if word == "each":
        return (int(value),) * len(several)
    place = int(word)
    return several if place >= len(several) else (*several[:place], int(value), *several[place + 1 :])


def _write_together(recipe: Any, given: Sequence[tuple[str, Any]]) -> Any:
    """The recipe with values at these paths, in their order; a path that is not active is passed over."""
    changes: dict[str, Any] = {}
    for path, value in given:
        inner = _within(recipe, path)
        if inner is not None:
            head, word = inner
            changes[head] = _with_word(changes.get(head, get(recipe, head)), word, value)
        elif exists(recipe, path):
            changes[path] = value
    return replace_several(recipe, changes) if changes else recipe


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def label(value: Any) -> Any:
    """A value for tables and pictures: numbers and words stay, a part is its name and what differs from its default."""
    value = _plain_number(value)
    if isinstance(value, eqx.Module):
        differs = changed_knobs(value) if list(declarations(value)) else {}
        return f"{type(value).__name__}({', '.join(f'{n}={label(v)}' for n, v in differs.items())})"
    if isinstance(value, (tuple, list)):
        return "×".join(str(label(item)) for item in value) or "()"
    return value


@dataclass(frozen=True)
class Space:
    """A recipe and the dimensions along which it may vary; everything else is fixed.

    `portfolio` are other recipes worth a trial, the most useful first, independent of the dimensions.
    """

    recipe: Any
    dimensions: tuple[Dimension, ...]
    portfolio: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        paths = [dimension.path for dimension in self.dimensions]
        twice = next((path for path in paths if paths.count(path) > 1), None)
        if twice:
            raise RequestError(f"`{twice}` appears twice in the space.")

    def __getitem__(self, path: str) -> Dimension:
        for dimension in self.dimensions:
            if dimension.path == path:
                return dimension
        raise RequestError(f"unknown dimension `{path}` of the space.{nearest(path, self.paths)}")

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dimension.path for dimension in self.dimensions)

    def with_recipes(self, change: Callable[[Any], Any]) -> "Space":
        """The space with its recipe and those of its portfolio changed alike."""
        return Space(change(self.recipe), self.dimensions, tuple(change(one) for one in self.portfolio))

    def recipe_of(self, values: Mapping[str, Any]) -> Any:
        """The recipe with these values; dimensions that are not named keep the recipe's own."""
        given = [(one.path, values[one.path]) for one in self.dimensions if one.path in values]
        if not any(isinstance(value, (eqx.Module, tuple)) for _, value in given):
            return _write_together(self.recipe, given)
        recipe = self.recipe
        for path, value in given:  # a part decides what there is within it
            recipe = write_at(recipe, path, value)
        return recipe

    def recipe_at(self, fractions: Mapping[str, float]) -> Any:
        """The recipe at these fractions of the priors."""
        return self.recipe_of({path: self[path].at(fraction) for path, fraction in fractions.items()})

    def values(self, recipe: Any) -> dict[str, Any]:
        """What a recipe chose, by path; dimensions that are not active in it are left out."""
        found = {}
        for dimension in self.dimensions:
            active, value = read_at(recipe, dimension.path)
            if active:
                found[dimension.path] = self._item(dimension, value, recipe)
        return found

    def beyond(self, recipe: Any) -> dict[str, Any]:
        """What a recipe of the portfolio has otherwise than the space's own, where there is no dimension; by path."""
        theirs = dict([*parts(self.recipe), *((path, value) for path, _, value in knobs(self.recipe))])
        found: dict[str, Any] = {}
        for path, value in [*parts(recipe), *((path, value) for path, _, value in knobs(recipe))]:
            inside = any(path == known or path.startswith(f"{known}.") for known in (*found, *self.paths))
            if inside or (path in theirs and theirs[path] == value):
                continue
            if isinstance(value, eqx.Module) and type(value) is type(theirs.get(path)):
                continue  # what differs lies within it
            found[path] = value
        return found

    def _item(self, dimension: Dimension, value: Any, recipe: Any) -> Any:
        """The item of a choice of parts that a part came from, the knobs searched within it set aside."""
        if not (isinstance(dimension.scale, Choice) and isinstance(value, eqx.Module)):
            return value
        inner = [d.path for d in self.dimensions if d.path.startswith(f"{dimension.path}.")]
        for item in dimension.scale.values:
            filled = item
            for path in inner if type(item) is type(value) else ():
                filled = write_at(filled, path.removeprefix(f"{dimension.path}."), read_at(recipe, path)[1])
            if filled == value:
                return item
        return value

    def fractions(self, recipe: Any) -> dict[str, float]:
        """Where a recipe lies in the space, by path; active dimensions only."""
        return {path: self[path].prior.fraction(value) for path, value in self.values(recipe).items()}

    def with_priors(self, changes: Mapping[str, AbstractPrior]) -> "Space":
        """The same dimensions with other priors."""
        for path in changes:
            self[path]  # names what is missing
        dimensions = (dataclasses.replace(d, prior=changes.get(d.path, d.prior)) for d in self.dimensions)
        return Space(self.recipe, tuple(dimensions), self.portfolio)

    def only(self, paths: Sequence[str], recipe: Any = None) -> "Space":
        """Some of the dimensions; the others stand as in `recipe`."""
        chosen = tuple(d for d in self.dimensions if d.path in paths)
        return Space(self.recipe if recipe is None else recipe, chosen)


def dimension(recipe: Any, path: str, prior: AbstractPrior | None = None) -> Dimension:
    """A dimension at a path of this recipe, by default with the knob's own prior. Raises on an unknown path."""
    inner = _within(recipe, path)
    declared = {name: declaration for name, declaration, _ in knobs(recipe)}
    declaration = declared.get(inner[0] if inner else path)
    known = [*declared, *(name for name, _ in parts(recipe))]
    if declaration is None and path not in known:
        raise RequestError(f"unknown knob `{path}`.{nearest(path, known)}")
    chosen = prior or (declaration.prior if declaration else None)
    if chosen is None:
        raise RequestError(f"`{path}` has no default range: give one, such as {path}=log(1e-4, 1e-1).")
    _, value = read_at(recipe, path)
    found = Dimension(path, chosen, declaration, value)
    if found.numeric and not isinstance(declaration and declaration.allowed, tuple):
        low, high = found.allowed
        scale: Any = found.scale
        if scale.low < low or scale.high > high:
            raise RequestError(
                f"`{path}` must lie in [{low:g}, {high:g}]; got the range {scale.low:g} to {scale.high:g}."
            )
    return found


_PRIORS: dict[str, Any] = {kind.__name__: kind for kind in (Uniform, LogUniform, LogInteger, Choice, ZeroOr)}


def _prior_to_plain(prior: AbstractPrior) -> dict[str, Any]:
    plain: dict[str, Any] = {"prior": type(prior).__name__}
    for field in dataclasses.fields(prior):  # type: ignore[arg-type]
        value = getattr(prior, field.name)
        if isinstance(value, AbstractPrior):
            plain[field.name] = _prior_to_plain(value)
        else:
            plain[field.name] = to_plain(value)
    return plain


def _prior_from_plain(plain: dict[str, Any], classes: tuple[Any, ...]) -> AbstractPrior:
    if plain.get("prior") not in _PRIORS:
        raise RequestError(f"unknown prior {plain.get('prior')!r}; choose from {', '.join(_PRIORS)}.")
    fields = {
        name: _prior_from_plain(value, classes)
        if isinstance(value, dict) and "prior" in value
        else from_plain(value, classes=classes)
        for name, value in plain.items()
        if name != "prior"
    }
    found: AbstractPrior = _PRIORS[plain["prior"]](**fields)
    return found


def space_to_plain(space: Space) -> dict[str, Any]:
    """The space as JSON values."""
    dimensions = [{"path": d.path, **_prior_to_plain(d.prior)} for d in space.dimensions]
    return {"recipe": to_plain(space.recipe, incomplete=True), "dimensions": dimensions}


def space_from_plain(plain: dict[str, Any], classes: tuple[Any, ...] = ()) -> Space:
    """The space that `space_to_plain` wrote."""
    recipe = from_plain(plain["recipe"], classes=classes, incomplete=True)
    declared = {name: declaration for name, declaration, _ in knobs(recipe)}
    found = []
    for item in plain["dimensions"]:
        path = item["path"]
        prior = _prior_from_plain({name: value for name, value in item.items() if name != "path"}, classes)
        inner = _within(recipe, path)
        found.append(Dimension(path, prior, declared.get(inner[0] if inner else path), read_at(recipe, path)[1]))
    return Space(recipe, tuple(found))
