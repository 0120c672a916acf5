"""`--set` and TOML tables: every knob of a recipe is set by its path.

    --set optimiser.learning_rate=0.03            a knob, parsed by its declared type
    --set model.widths=256,256                    one number for each layer
    --set optimiser=Sgd --set optimiser.learning_rate=0.1      another part, then a knob of it
    --set optimiser.groups.0.where=layers.0.*     one more item of a list of parts, by the next number

Order does not matter: parts are replaced first, from the outside in; then the knobs of each part are set together, so
that knobs which constrain each other are validated together. If a path is set twice, the later value wins. New items of
lists come last: a part that an item needs and that its owner has is copied from there.

A path follows the nesting of the recipe. Where an optimiser wraps another (`optimiser.optimiser.learning_rate`) the
repeated name may be left out if the path stays unambiguous, and so may any other wrapper (`model.widths` of
`SharedWeights`); a penalty may be named by its class instead of its index (`criterion.penalties.l2.coefficient`).
"""

import contextlib
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import optimisers
from ...runtime.errors import RequestError, nearest
from ...specs.knobs import Declaration, Spec, declarations
from ...specs.paths import get, knobs, lists_of_parts, parts, replace
from ...specs.recipe import Recipe
from ...specs.schedules import AbstractSchedule
from .training_requests import DataRequest


class AssignmentError(RequestError):
    """An assignment that is refused; the message names it."""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """A path and its new value: text from the command line, or a value from the TOML file `source`."""

    path: str
    value: Any
    source: str = "--set"

    def refuse(self, why: str) -> AssignmentError:
        return AssignmentError(f"{self.source} {self.path}: {why}")


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A recipe, and the `path=value` texts that turn the recommended one into it."""

    recipe: Recipe
    changes: tuple[str, ...]


def assignments_of(request: DataRequest) -> list[Assignment]:
    """The knobs that a request sets: those of its file, then those of the command line, which override them."""
    written = [Assignment(path, value, str(request.config or "set")) for path, value in request.recipe.items()]
    return [*written, *(Assignment(path, value) for path, value in request.set.items())]


def _normal(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _abstract(part: Any) -> type:
    """The contract that a part implements: the last of its ancestors before `Spec`."""
    line = type(part).__mro__
    return line[line.index(Spec) - 1]


def _contract(recipe: Recipe, path: str) -> tuple[type, type]:
    """What a part at a path must be, and a class whose package holds such parts."""
    lists = dict(lists_of_parts(recipe))
    owner, _, number = path.rpartition(".")
    if number.isdigit() and owner in lists:
        return lists[owner], lists[owner]
    part = get(recipe, path)
    return _abstract(part), type(part)


def _classes(contract: type, example: type) -> dict[str, type]:
    """The parts of gradwise that fulfil a contract, by name."""
    # `Constant` stands with the contract of schedules, the others with the optimisers.
    schedules = (optimisers.__name__, AbstractSchedule.__module__)
    homes = schedules if contract is AbstractSchedule else (".".join(example.__module__.split(".")[:2]),)
    package = importlib.import_module(homes[0])
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    found: dict[str, type] = {}
    waiting = [contract]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        public = not kind.__name__.startswith("_") and f"{kind.__module__}.".startswith(tuple(f"{h}." for h in homes))
        if public and not inspect.isabstract(kind):
            found[kind.__name__] = kind
    return dict(sorted(found.items()))


def _required(kind: type) -> list[str]:
    """The arguments without which a part of this class cannot be made."""
    arguments = inspect.signature(kind).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in arguments if one.default is inspect.Parameter.empty and one.kind in named]


def _type_of(kind: Any, name: str) -> Any:
    return next((field.type for field in dataclasses.fields(kind) if field.name == name), None)


def _make(kind: type, present: Any, assignment: Assignment) -> Any:
    """A part of this class with its defaults.

    A field without a default is copied from the current part, or is the current part itself: so a wrapper wraps the
    current part, and another wrapper in its place wraps the same one.
    """
    given: dict[str, Any] = {}
    copied = {field.name for field in dataclasses.fields(present)} if isinstance(present, Spec) else set()
    for name in _required(kind):
        wanted = _type_of(kind, name)
        if name in copied:
            given[name] = getattr(present, name)
        elif isinstance(wanted, type) and isinstance(present, wanted):
            given[name] = present
        else:
            raise assignment.refuse(f"{kind.__name__} needs `{name}`, which can only be given in Python.")
    return kind(**given)


def _part(assignment: Assignment, present: Any, contract: tuple[type, type]) -> Any:
    """The part that replaces the current one (None: the first of a list)."""
    if not isinstance(assignment.value, str):
        raise assignment.refuse(f"expected the name of a class; got {assignment.value!r}.")
    known = _classes(*contract)
    by_name = {_normal(name): kind for name, kind in known.items()}
    kind = by_name.get(_normal(assignment.value))
    if kind is None:
        raise assignment.refuse(f"unknown part {assignment.value!r}.{nearest(assignment.value, known)}")
    return _make(kind, present, assignment)


def _number(value: Any, whole: bool) -> float | int | None:
    """The value as a number, or None; 1e4 counts as whole, 1.5 does not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not whole:
        return number
    return int(number) if number.is_integer() else None


def _several(assignment: Assignment, whole: bool) -> tuple[Any, ...]:
    """Numbers separated by commas."""
    value = assignment.value
    items = value if isinstance(value, list) else [value]
    if isinstance(value, str):
        bare = value.strip("()[] ")
        items = [] if bare.lower() in {"", "none"} else [item for item in bare.split(",") if item.strip()]
    numbers = tuple(_number(item, whole) for item in items)
    if None in numbers:
        wanted = "whole numbers separated by commas, such as 256,256" if whole else "numbers separated by commas"
        raise assignment.refuse(f"expected {wanted}; got {value!r}.")
    return numbers


_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def _value(assignment: Assignment, declaration: Declaration) -> Any:
    """The value of a knob or switch, parsed by the type of its default. The spec itself checks its range."""
    default, value = declaration.default, assignment.value
    if declaration.static and isinstance(default, bool):
        if isinstance(value, bool):
            return value
        word = str(value).lower()
        if word not in _TRUE | _FALSE:
            raise assignment.refuse(f"expected true or false; got {value!r}.")
        return word in _TRUE
    if declaration.static and isinstance(default, tuple):
        return _several(assignment, whole=not any(isinstance(one, float) for one in default))
    if declaration.static and isinstance(default, str):
        if not isinstance(value, str):
            raise assignment.refuse(f"expected text; got {value!r}.")
        return value
    whole = declaration.static and isinstance(default, int)
    number = _number(value, whole)
    if number is None:
        raise assignment.refuse(f"expected a {'whole ' if whole else ''}number; got {value!r}. Default: {default}.")
    return number


def words_of(value: Any) -> str:
    """A value as typed after `--set path=`."""
    if isinstance(value, Spec):
        return type(value).__name__
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return repr(float(value)) if isinstance(value, float) else str(value)


def _spellings(recipe: Recipe, path: str) -> Iterator[str]:
    """The short forms of a path."""
    names = path.split(".")
    called = [
        type(get(recipe, ".".join(names[: at + 1]))).__name__.lower() if name.isdigit() else name
        for at, name in enumerate(names)
    ]
    for variant in (names, called):
        yield ".".join(variant)
        yield ".".join(name for at, name in enumerate(variant) if at == 0 or name != variant[at - 1])


def _full_path(recipe: Recipe, known: Iterable[str], asked: str, assignment: Assignment) -> str | None:
    """The one of the known paths that is meant, if any; raises if there are several."""
    known = list(known)
    if asked in known:
        return asked
    meant = [path for path in known if asked.lower() in {text.lower() for text in _spellings(recipe, path)}]
    names = asked.split(".")
    for place in range(len(names) - 1, 0, -1):  # within a wrapper: the outermost ones of this name
        if meant:
            break
        head, rest = ".".join(names[:place]), ".".join(names[place:])
        ends = [path for path in known if path.startswith(f"{head}.") and path.endswith(f".{rest}")]
        meant = [path for path in ends if path.count(".") == min(end.count(".") for end in ends)]
    if len(meant) > 1:
        raise assignment.refuse(f"is ambiguous: write the full path, {' or '.join(meant)}.")
    return meant[0] if meant else None


def _find(recipe: Recipe, assignment: Assignment) -> tuple[str, Declaration | None] | None:
    """The full path, with its declaration (None for a part), if exactly one matches."""
    known: dict[str, Declaration | None] = dict.fromkeys(path for path, _ in parts(recipe))
    known |= {path: declaration for path, declaration, _ in knobs(recipe)}
    found = _full_path(recipe, known, assignment.path.removesuffix(".class"), assignment)
    return (found, known[found]) if found is not None else None


@dataclasses.dataclass(frozen=True)
class _NewItem:
    """An assignment within an item that a list of parts does not have yet: `within` is the path inside this item."""

    path: str
    kind: type
    number: int
    within: str
    assignment: Assignment


def _new_item(recipe: Recipe, assignment: Assignment) -> _NewItem | None:
    """The item beyond the end of a list that an assignment writes, if it does."""
    lists = dict(lists_of_parts(recipe))
    names = assignment.path.removesuffix(".class").split(".")
    for place, name in enumerate(names):
        if not (place and name.isdigit()):
            continue
        found = _full_path(recipe, lists, ".".join(names[:place]), assignment)
        if found is not None and int(name) >= len(get(recipe, found)):
            return _NewItem(found, lists[found], int(name), ".".join(names[place + 1 :]), assignment)
    return None


def _with_item(recipe: Recipe, new: list[_NewItem]) -> Recipe:
    """The recipe with the first of the new items, which stands at the end of its list.

    What its class asks for is set by an assignment, or is a part that the owner of the list has.
    """
    first = min(new, key=lambda item: item.number)
    present, assignment = get(recipe, first.path), first.assignment
    if first.number > len(present):
        raise assignment.refuse(
            f"`{first.path}` has {len(present)} items, so the next is `{first.path}.{len(present)}`."
        )
    given = {one.within: one.assignment for one in new if (one.path, one.number) == (first.path, first.number)}
    if inspect.isabstract(first.kind):
        if "" not in given:
            raise assignment.refuse(f"name its class first, such as {first.path}.{first.number}=NAME.")
        item = _part(given[""], None, (first.kind, first.kind))
    else:
        owner = get(recipe, first.path.rpartition(".")[0])
        item = first.kind(**dict(_asked(first, owner, given)))
    return replace(recipe, first.path, (*present, item))


def _asked(new: _NewItem, owner: Any, given: Mapping[str, Assignment]) -> Iterator[tuple[str, Any]]:
    """The arguments without which the class of a new item cannot be made."""
    declared = dict(declarations(new.kind))
    for name in _required(new.kind):
        if name in declared:
            if name not in given:
                path = f"{new.path}.{new.number}.{name}"
                raise new.assignment.refuse(f"a new {new.kind.__name__} needs `{name}`: set {path} too.")
            yield name, _value(given[name], declared[name])
        else:
            likes = [part for _, part in parts(owner) if isinstance(part, _type_of(new.kind, name))]
            if not likes:
                raise new.assignment.refuse(f"{new.kind.__name__} needs `{name}`, which can only be given in Python.")
            yield name, likes[0]


def _unknown(recipe: Recipe, assignment: Assignment) -> RequestError:
    paths = [path for path, _, _ in knobs(recipe)] + [path for path, _ in parts(recipe)]
    short = [min(_spellings(recipe, path), key=len) for path in paths]
    hint = nearest(assignment.path, dict.fromkeys([*short, *paths]))
    return RequestError(f"{assignment.source}: unknown knob `{assignment.path}`.{hint}")


def locate(recipe: Recipe, path: str, source: str) -> tuple[str, Declaration | None]:
    """The full path and its declaration (None for a part); also for paths within a switch, such as
    `model.widths.count`."""
    asked = Assignment(path, None, source)
    found = _find(recipe, asked)
    head, _, word = path.rpartition(".")
    if found is None and (word in {"count", "each"} or word.isdigit()):
        switch = _find(recipe, Assignment(head, None, source))
        if switch is not None and switch[1] is not None and isinstance(switch[1].default, tuple):
            found = (f"{switch[0]}.{word}", switch[1])
    if found is None:
        raise _unknown(recipe, asked)
    return found


def value_of_word(recipe: Recipe, path: str, word: str, source: str) -> Any:
    """The value of a word at a (full) path: a part by name, or the value of a knob or switch."""
    asked = Assignment(path, word, source)
    _, declaration = locate(recipe, path, source)
    if declaration is None:
        return _part(asked, get(recipe, path), _contract(recipe, path))
    return _value(asked, declaration)


def _next_part(recipe: Recipe, waiting: list[Assignment]) -> tuple[Assignment, str] | None:
    """The outermost assignment that replaces a part of the current recipe."""
    found = []
    for item in waiting:
        with contextlib.suppress(RequestError):  # ambiguous in the parts that are there, perhaps not in those to come
            found.append((item, _find(recipe, item)))
    exchanges = [(item, place[0]) for item, place in found if place is not None and place[1] is None]
    return min(exchanges, key=lambda exchange: exchange[1].count("."), default=None)


def resolve(recipe: Recipe, assignments: Iterable[Assignment]) -> Resolved:
    """The recipe with these assignments applied."""
    waiting = list({item.path.removesuffix(".class"): item for item in assignments}.values())
    changes: dict[str, str] = {}
    while (exchange := _next_part(recipe, waiting)) is not None:
        item, path = exchange
        waiting.remove(item)
        part = _part(item, get(recipe, path), _contract(recipe, path))
        recipe = replace(recipe, path, part)
        changes[path] = words_of(part)
    new = [one for item in waiting if (one := _new_item(recipe, item)) is not None]
    later = [one.assignment for one in new]
    by_owner: dict[str, dict[str, Any]] = {}
    for item in waiting:
        if item in later:
            continue
        place = _find(recipe, item)
        if place is None:
            raise _unknown(recipe, item)
        path, declaration = place
        assert declaration is not None  # every part has been exchanged by now
        owner, _, name = path.rpartition(".")
        by_owner.setdefault(owner, {})[name] = value = _value(item, declaration)
        changes[path] = words_of(value)
    for owner, values in by_owner.items():
        recipe = replace(recipe, owner, dataclasses.replace(get(recipe, owner), **values))
    told = tuple(f"{path}={text}" for path, text in changes.items())
    if not new:
        return Resolved(recipe, told)
    more = resolve(_with_item(recipe, new), later)
    return Resolved(more.recipe, (*told, *more.changes))
