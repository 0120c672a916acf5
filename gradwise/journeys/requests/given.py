"""What only Python can pass to a journey, and its options as arguments: one declaration serves both.

    python_request(FitRequest, frame, y, {"target": "price", "seed": 3, "optimiser": optax.adam(1e-3)})
    call_text("fit", ["data"], {"seed": 3}, ("model.dropout=0.2",))     gw.fit(data, seed=3, set={"model.dropout": 0.2})

An option of a command is an argument of the function of the same name, read by the same reader. Beside them there are
data in memory, parts as objects, and a whole recipe. `set` holds knobs by path.
"""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ...runtime.errors import RequestError, WorkError, nearest
from .options import Request

PARTS = ("model", "optimiser", "criterion", "batches", "scaler", "stopping", "split")
# Of the command line alone; `data` and `set` are arguments of their own.
_SHELL = {"json", "quiet", "dry_run", "config", "data", "set", "trials"}
# What users of other tools look for among the arguments.
_KNOBS = ("optimiser.learning_rate", "stopping.epochs", "batches.size", "model.widths", "model.dropout")
_Request = TypeVar("_Request", bound=Request)


@dataclasses.dataclass(frozen=True)
class GivenObjects:
    """Objects of a call from Python; a command has none.

    `parts` are parts of the recipe as objects; `recipe` is a whole one. `space`, `strategy` and `plan` are those of a
    search. `callbacks` change nothing in the result, so they are no part of what was asked.
    """

    data: Any = None
    targets: Any = None
    test: Any = None
    parts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: Any = None
    space: Any = None
    strategy: Any = None
    plan: Any = None
    callbacks: Any = ()

    @property
    def objects(self) -> dict[str, Any]:
        """What a shell command could not repeat, by argument."""
        single = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        apart = {name: one for name, one in single.items() if name not in ("parts", "callbacks")}
        return {name: one for name, one in {**apart, **self.parts}.items() if one is not None}


def _typed(words: str) -> Any:
    """The value that the words of `--set` stand for."""
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(words)
    return {"true": True, "false": False}.get(words, words)


def _literal(value: Any) -> str:
    """A value of an option as Python writes it; objects as an ellipsis."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool | int | float | str | tuple | list | Mapping):
        return repr(dict(value) if isinstance(value, Mapping) else value).replace("'", '"')
    return repr(str(value)).replace("'", '"') if type(value).__module__.startswith("gradwise") else "..."


def call_text(verb: str, positional: Iterable[str], options: Mapping[str, Any], changes: Iterable[str] = ()) -> str:
    """The Python call that repeats a request, with these knobs set."""
    knobs = {path: _typed(words) for path, _, words in (change.partition("=") for change in changes)}
    named = {**options, **({"set": knobs} if knobs else {})}
    return f"gw.{verb}({', '.join([*positional, *(f'{name}={_literal(value)}' for name, value in named.items())])})"


@contextlib.contextmanager
def arguments_named() -> Iterator[None]:
    """Errors speak of arguments, not of options of a command."""

    def rewritten(problem: Exception) -> str:
        text = re.sub(r"gradwise (fit|search|check) --([a-z]\w*)\b(?!=)", r"gw.\1(..., \2=True)", str(problem))
        return re.sub(r"(?<![\w`])--([a-z][a-z-]*[a-z])", lambda m: f"`{m[1].replace('-', '_')}`", text)

    try:
        yield
    except RequestError as problem:
        raise RequestError(rewritten(problem)) from problem.__cause__
    except WorkError as problem:
        raise WorkError(rewritten(problem)) from problem.__cause__


def _named_options(kind: type[Request]) -> dict[str, Any]:
    return {name: one for name, one in kind.options().items() if name not in _SHELL}


def _read_options(kind: type[Request], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call, read as those of a file are; None means the default."""
    known, chosen = _named_options(kind), {}
    for name, value in options.items():
        if name not in known:
            hint = nearest(name, [*known, *PARTS, "recipe", "set", "callbacks", "progress", *_KNOBS])
            how = " Knobs are set by path: set={...}." if any(f"'{knob}'" in hint for knob in _KNOBS) else ""
            raise RequestError(f"gw.{kind.verb.replace('-', '_')} has no argument `{name}`.{hint}{how}")
        if value is not None:
            chosen[name] = known[name].read(str(value) if isinstance(value, Path) else value, name)
    return chosen


def python_request(
    kind: type[_Request], data: Any, targets: Any, options: Mapping[str, Any], **objects: Any
) -> _Request:
    """The request of a call. A part given by name is set like a knob; one given as an object is passed on."""
    options = dict(options)
    knobs = options.pop("set", None) or {}
    if not isinstance(knobs, Mapping):
        raise RequestError(f'`set` maps knobs to values, such as {{"model.dropout": 0.2}}; got {knobs!r}.')
    knobs = dict(knobs)
    parts = {name: options.pop(name) for name in PARTS if name in options}
    knobs = {name: part for name, part in parts.items() if isinstance(part, str)} | knobs
    parts = {name: part for name, part in parts.items() if part is not None and not isinstance(part, str)}
    test = options.get("test")
    if test is not None and not isinstance(test, str | Path):
        objects["test"] = options.pop("test")
    if data is None:
        raise RequestError("there are no data: pass a path, a named set, a data frame, arrays (X, y) or a Dataset.")
    in_memory = not isinstance(data, str | Path)
    if in_memory:
        objects |= {"data": data, "targets": targets}
    elif targets is not None:
        raise RequestError("the second argument holds targets of data in memory: name the column of a file by target=.")
    given = GivenObjects(parts=parts, **objects)
    fields: dict[str, Any] = _read_options(kind, options)
    name = getattr(data, "name", "") if in_memory else str(data)
    make: Any = kind  # a request of data, which have these fields
    return make(data=(name if isinstance(name, str) else "") or "data", recipe=_as_lists(knobs), given=given, **fields)


def refuse_recipe_first(verb: str, data: Any) -> None:
    """Raises if the first argument is a recipe or a space: the data come first."""
    from ...specs.recipe import Recipe
    from ...specs.search_space import Space

    if isinstance(data, Recipe | Space):
        what = "recipe" if isinstance(data, Recipe) else "space"
        functional = " `gw.train(recipe, dataset, key=key)` is the functional core." if what == "recipe" else ""
        raise RequestError(f"the data come first: gw.{verb}(data, {what}={what}, seed=0).{functional}")


def _as_lists(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs as a file would give them: tuples as lists, NumPy's numbers as Python's."""
    plain = {path: value.item() if hasattr(value, "item") else value for path, value in knobs.items()}
    return {path: list(value) if isinstance(value, tuple) else value for path, value in plain.items()}


Journey = TypeVar("Journey", bound=Callable[..., Any])


def documented(kind: type[Request]) -> Callable[[Journey], Journey]:
    """Gives a journey the signature and the documentation of the options of its request."""

    def describe(journey: Journey) -> Journey:
        every = inspect.signature(journey).parameters.values()
        own = [one for one in every if one.kind != inspect.Parameter.VAR_KEYWORD]
        taken = {one.name for one in own}
        options = {name: one for name, one in _named_options(kind).items() if name not in taken}
        keyword = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(name, keyword, default=kind.default(name)) for name in options]
        parts = [inspect.Parameter(name, keyword, default=None) for name in PARTS if name not in taken]
        journey.__signature__ = inspect.Signature([*own, *parts, *more])  # type: ignore[attr-defined]
        lines = [f"    {name}: {one.help.replace('; repeatable', '')}" for name, one in options.items()]
        journey.__doc__ = f"{inspect.cleandoc(journey.__doc__ or '')}\n\nOptions:\n" + "\n".join(lines)
        return journey

    return describe
