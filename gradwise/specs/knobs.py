"""A knob is declared once: its default, its allowed range, its prior and the chapter row it comes from.

    class Sgd(AbstractOptimiser):
        learning_rate: Float = knob(0.01, allowed="(0, inf)", prior=LogUniform(1e-6, 1.0), row="C1")

A *knob* is a number that the compiled program reads at run time, so trying another value compiles nothing.
A *switch* shapes the program itself (a width, a batch size, a choice of part), so it is static.
A knob may have an `off` value, usually 0. At that value it is stored as a plain Python float, which is
static: the compiled program then holds nothing of it, and pays nothing for it.
"""

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..runtime.errors import RequestError
from .priors import AbstractPrior

_KNOB = "gradwise_knob"


@dataclasses.dataclass(frozen=True)
class Allowed:
    """An interval written as in mathematics, `(0, 1]`; its text is the rule that an error message quotes."""

    text: str

    @functools.cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = self.text[1:-1].split(",")
        return float(low), float(high)

    def ends(self) -> tuple[float, float]:
        return self._ends

    def __contains__(self, value: float) -> bool:
        low, high = self._ends
        above = operator.gt if self.text[0] == "(" else operator.ge
        below = operator.lt if self.text[-1] == ")" else operator.le
        return bool(above(value, low) and below(value, high))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The declaration of a knob or switch.

    `kind` is "optimiser" (how the criterion is minimised), "model" (what is learned) or "capacity" (a model's
    knob that must never be chosen on training error: row E19).
    """

    static: bool
    default: Any
    allowed: Allowed | tuple[Any, ...] | None
    prior: AbstractPrior | None
    row: str
    kind: str
    off: float | None
    about: str

    def check(self, name: str, value: Any) -> None:
        """Raises an error with the knob, its allowed values, the given value and the default."""
        if isinstance(self.allowed, Allowed):
            whole = self.static and type(self.default) is int
            kind = "a whole number" if whole else "a number"
            alone = isinstance(value, (float, int, tuple, list))  # or an array of a population
            numbers: list[Any] = [value] if alone else np.ravel(np.asarray(value, dtype=object)).tolist()
            for number in numbers:
                if not _is_number(number) or (whole and not isinstance(number, (int, np.integer))):
                    raise RequestError(
                        f"`{name}` must be {kind} in {self.allowed.text}; got {value!r}. Default: {self.default}."
                    )
                if math.isnan(number) or number not in self.allowed:
                    raise RequestError(
                        f"`{name}` must lie in {self.allowed.text}; got {value}.{self._remedy(float(number))}"
                    )
        elif self.allowed is not None and value not in self.allowed:
            choices = ", ".join(map(repr, self.allowed))
            raise RequestError(f"`{name}` must be one of {choices}; got {value!r}.")
        elif self.allowed is None and isinstance(self.default, str) and not isinstance(value, str):
            raise RequestError(f"`{name}` must be text; got {value!r}. Default: {self.default!r}.")

    def _remedy(self, value: float) -> str:
        assert isinstance(self.allowed, Allowed)
        tenth = float(f"{value / 10:.6g}")
        if value > 0 and tenth in self.allowed:
            return f" Did you mean {tenth}? Default: {self.default}."
        return f" Default: {self.default}."


def knob(
    default: float,
    *,
    allowed: str,
    prior: AbstractPrior,
    row: str,
    kind: str = "optimiser",
    off: float | None = None,
    about: str = "",
) -> Any:
    """Declares a numeric field that the compiled program reads at run time."""

    def convert(value: Any) -> Any:
        if not _is_number(value):
            return value  # a tracer, an array of a population, or a mistake that `check` will name
        number = float(value)
        return number if off is not None and number == off else np.float64(number)

    declaration = Declaration(False, default, Allowed(allowed), prior, row, kind, off, about)
    return eqx.field(default=default, converter=convert, metadata={_KNOB: declaration})


def switch(
    default: Any,
    *,
    allowed: str | tuple[Any, ...] | None = None,
    prior: AbstractPrior | None = None,
    row: str,
    kind: str = "model",
    about: str = "",
    convert: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Declares a static field: another value means another compiled program."""

    def plain(value: Any) -> Any:  # a NumPy scalar, as a grid search hands out, is no static value
        return convert(value.item() if isinstance(value, np.generic) else value)

    rule = Allowed(allowed) if isinstance(allowed, str) else allowed
    declaration = Declaration(True, default, rule, prior, row, kind, None, about)
    return eqx.field(default=default, static=True, converter=plain, metadata={_KNOB: declaration})


def is_off(value: Any) -> bool:
    """Whether a knob stands at its `off` value, so that the program need not mention it."""
    return type(value) is float


def declarations(spec: Any) -> Iterator[tuple[str, Declaration]]:
    """The knobs and switches of one spec or spec class, parts within it left out."""
    for field in dataclasses.fields(spec):
        if _KNOB in field.metadata:
            yield field.name, field.metadata[_KNOB]


def is_plain_number(value: Any) -> bool:
    """Whether a spec's own check may compute with it; anything else fails the declared range."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def check_whole(spec: Any, *names: str) -> None:
    """Raises if a switch that counts something is not a whole number."""
    for name in names:
        value = getattr(spec, name)
        if is_plain_number(value) and int(value) != value:
            raise RequestError(f"`{type(spec).__name__}.{name}` must be a whole number; got {value}.")


class Spec(eqx.Module):
    """An immutable specification. Every field is a knob, a switch or another part, validated on creation."""

    def __check_init__(self) -> None:
        values = vars(self)
        for name, declaration in _declared(type(self)):
            if not _is_traced(values[name]):
                declaration.check(f"{type(self).__name__}.{name}", values[name])
        for name, part, several in part_fields(type(self)):
            _check_part(f"{type(self).__name__}.{name}", part, several, values[name])

    def findings(self) -> tuple[Any, ...]:
        """Warnings about this choice, whatever else was chosen."""
        return ()

    def findings_in(self, recipe: Any) -> tuple[Any, ...]:
        """Warnings about this choice beside the others: a penalty on codes does not know the model's units."""
        return ()


@functools.cache
def _declared(kind: type) -> tuple[tuple[str, Declaration], ...]:
    return tuple(declarations(kind))


@functools.cache
def part_fields(kind: Any) -> tuple[tuple[str, type, bool], ...]:
    """The fields of a spec class whose type is a part, or (True) a tuple of parts."""
    found = []
    for field in dataclasses.fields(kind):
        several = typing.get_origin(field.type) is tuple
        part = typing.get_args(field.type)[0] if several else field.type
        if isinstance(part, type) and issubclass(part, Spec):
            found.append((field.name, part, several))
    return tuple(found)


def _check_part(name: str, part: type, several: bool, value: Any) -> None:
    """Raises if a field that must be a part, or a tuple of parts, is not."""
    if several and not isinstance(value, tuple):
        raise RequestError(
            f"`{name}` must be a tuple of {part.__name__} instances; got {_word(value)}. Write ({_word(value)},)."
        )
    for item in value if several else (value,):
        if not isinstance(item, part):
            raise RequestError(f"`{name}` must be an instance of {part.__name__}; got {_word(item)}.")


def _word(value: Any) -> str:
    """A value in a word: a part's own text has many lines."""
    return f"{type(value).__name__}(...)" if isinstance(value, eqx.Module) else repr(value)


def _is_traced(value: Any) -> bool:
    return isinstance(value, (jax.core.Tracer, jax.ShapeDtypeStruct))


def changed_knobs(spec: Any) -> dict[str, Any]:
    """The knobs of one spec that differ from their defaults."""
    return {n: getattr(spec, n) for n, d in declarations(spec) if getattr(spec, n) != d.default}
