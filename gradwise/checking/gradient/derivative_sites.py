"""A traced program read for derivatives: what each equation reads, and which of them could be wrong.

    places, result = read_sites(program, parameters)               each equation with what it reads
    reaching(places, result)                                       those that the loss depends on
    broken_sites(places, status, wrong_parameters)                 right in their result, wrong in what they read

JAX's derivatives are right; only hand-written derivatives, `stop_gradient` and steps can be wrong.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...specs.paths import named_leaves
from ...tracing.program import OWN_DERIVATIVE, Program, Site, inner, is_library, is_literal

STEPS = ("round", "floor", "ceil", "sign", "argmax", "argmin")


@dataclass(frozen=True)
class Operand:
    """An operand of an equation: the result of a site, or a parameter; whether it depends on the parameters."""

    site: int | None = None
    parameter: str | None = None
    moves: bool = False


@dataclass(frozen=True)
class Place:
    """A site with its equation, what it reads, and what kind it is: "own", "stop", "step" or "".

    `above` are the parameters that reach it, `smoothly` those that do so without a step between. `users` means that the
    derivative or the stop was written by the user, not by a library.
    """

    site: Site
    equation: Any
    operands: tuple[Operand, ...]
    kind: str
    users: bool
    above: frozenset[str]
    smoothly: frozenset[str]


def inside(equation: Any) -> Iterable[Any]:
    """The equations of the programs within one, however deep."""
    for value in equation.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            for deeper in getattr(getattr(one, "jaxpr", one), "eqns", ()):
                yield deeper
                yield from inside(deeper)


def _source(equation: Any) -> tuple[str, str]:
    """Name and file of a function with a custom derivative."""
    called = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr"))
    told = getattr(getattr(called, "jaxpr", called), "debug_info", None)
    name, _, file = str(getattr(told, "func_src_info", "") or "").partition(" at ")
    return name, file


def _kind_alone(equation: Any) -> tuple[str, bool]:
    name = equation.primitive.name
    if name in OWN_DERIVATIVE:
        return "own", not is_library(_source(equation)[1])
    if name == "stop_gradient":
        frames = list(equation.source_info.traceback.frames) if equation.source_info.traceback else []
        asked = [i for i, frame in enumerate(frames) if frame.function_name.rpartition(".")[2] == "stop_gradient"]
        later = [f for f in frames[asked[-1] + 1 :] if "reraise" not in f.function_name] if asked else frames
        return "stop", bool(later) and not is_library(later[0].file_name)
    return ("step", True) if name in STEPS else ("", False)


def derivative_kind(equation: Any) -> tuple[str, bool]:
    """Whether an equation, or one within its loop or branch, has a custom derivative or a stop; whether the user's."""
    kind, users = _kind_alone(equation)
    if kind:
        return kind, users
    within = [_kind_alone(deeper) for deeper in inside(equation)]
    for wanted in (("own", True), ("stop", True), ("own", False), ("stop", False)):
        if wanted in within:
            return wanted
    return "", False


def name_inside(equation: Any, kind: str) -> str:
    """The name of such an equation, or of one that contains it: `soft_clip in scan`."""
    name = equation.primitive.name
    if kind == "stop":
        return "stop_gradient" if name == "stop_gradient" else f"stop_gradient in {name}"
    own = sorted(
        (e for e in inside(equation) if e.primitive.name in OWN_DERIVATIVE), key=lambda e: not _kind_alone(e)[1]
    )
    return f"{_source(own[0])[0]} in {name}" if own else name


def read_sites(program: Program, parameters: Any) -> tuple[tuple[Place, ...], Operand]:
    """Every site as a place, in the order of `program.sites`, and what the loss is read from."""
    places: list[Place] = []
    names = [name for name, _ in named_leaves(parameters)]

    def of(operand: Operand, smoothly: bool) -> frozenset[str]:
        if operand.site is not None:
            return places[operand.site].smoothly if smoothly else places[operand.site].above
        return frozenset() if operand.parameter is None else frozenset({operand.parameter})

    def walk(jaxpr: Any, given: list[Operand]) -> list[Operand]:
        known: dict[Any, Operand] = dict(zip(jaxpr.invars, given, strict=True))
        for equation in jaxpr.eqns:
            operands = tuple(Operand() if is_literal(v) else known.get(v, Operand()) for v in equation.invars)
            opened = inner(equation)
            if opened is not None:
                results = walk(opened[0], list(operands))
            else:
                site = program.sites[len(places)]
                kind, users = derivative_kind(equation)
                above = frozenset[str]().union(*(of(o, False) for o in operands))
                smooth = site.is_float and kind != "step"
                smoothly = frozenset[str]().union(*(of(o, True) for o in operands if smooth))
                places.append(Place(site, equation, operands, kind, users, above, smoothly))
                results = [Operand(site.number, None, bool(above))] * len(equation.outvars)
            known.update(zip(equation.outvars, results, strict=True))
        return [Operand() if is_literal(v) else known.get(v, Operand()) for v in jaxpr.outvars]

    given = [Operand(None, name, True) for name in names]
    given += [Operand()] * (len(program.closed.jaxpr.invars) - len(given))
    result = walk(program.closed.jaxpr, given)[0]
    return tuple(places), result


def reaching(places: Sequence[Place], result: Operand) -> frozenset[int]:
    """The sites that the loss depends on."""
    found: set[int] = set() if result.site is None else {result.site}
    for place in reversed(places):
        if place.site.number in found:
            found.update(o.site for o in place.operands if o.site is not None)
    return frozenset(found)


def broken_sites(places: Sequence[Place], status: dict[int, bool], wrong_parameters: Iterable[str]) -> frozenset[int]:
    """The sites whose result's derivative is right while that of a value they read is wrong.

    `status` says of the measured sites whether the derivative is wrong. A value that was not measured counts as what
    it was made from. Of the readers of one wrong value those that can be wrong are named: an own derivative, a stop.
    """
    wrong = set(wrong_parameters)

    @functools.cache
    def suspect(operand: Operand) -> bool:
        if operand.parameter is not None:
            return operand.parameter in wrong
        if operand.site is None or not operand.moves:
            return False
        known = status.get(operand.site)
        return any(suspect(o) for o in places[operand.site].operands) if known is None else known

    @functools.cache
    def right(number: int) -> bool:
        """By its own derivative; where that is not known, by those that read it."""
        if number in status:
            return not status[number]
        readers = [place.site.number for place in places if any(o.site == number for o in place.operands)]
        return all(right(reader) for reader in readers)

    return frozenset(
        place.site.number
        for place in places
        if place.kind in ("own", "stop") and right(place.site.number) and any(suspect(o) for o in place.operands)
    )


def as_arrays(tree: Any) -> list[Any]:
    """The leaves of a tree on the device, NumPy's in the precision that JAX has at the time."""
    return [jnp.asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf for leaf in jax.tree.leaves(tree)]
