"""The contract of every spec: knobs declared, checked, written down and read again exactly."""

import dataclasses
import math
import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..runtime.errors import RequestError
from ..specs.chapter_rows import ROWS
from ..specs.knobs import Allowed, Declaration, Spec, declarations
from ..specs.paths import named_leaves, replace
from ..specs.serialisation import from_json, to_json

_KINDS = ("optimiser", "model", "capacity")
FAR = 1e4


def demand(kept: Any, promise: str) -> None:
    if not bool(kept):
        raise AssertionError(promise)


def all_finite(tree: PyTree) -> bool:
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))


def tree_form(tree: PyTree) -> Any:
    """What `lax.scan` demands to stay the same: structure, shapes and kinds of numbers."""
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def outside(declaration: Declaration) -> list[Any]:
    """Values that a knob or switch must refuse."""
    if isinstance(declaration.allowed, Allowed):
        low, high = declaration.allowed.ends()
        text = declaration.allowed.text
        values: list[Any] = [math.nan, "three"]
        if math.isfinite(low):
            values += [low - 1.0] + ([low] if text[0] == "(" else [])
        if math.isfinite(high):
            values += [high + 1.0] + ([high] if text[-1] == ")" else [])
        return values
    return [] if declaration.allowed is None else ["no such choice"]


def _check_declaration(spec: Spec, name: str, declaration: Declaration) -> None:
    full = f"{type(spec).__name__}.{name}"
    demand(declaration.kind in _KINDS, f"{full}: its kind must be one of {_KINDS}; it is {declaration.kind!r}")
    demand(declaration.row in ("", *ROWS), f"{full}: there is no chapter row {declaration.row!r}")
    demand(declaration.about, f"{full}: says nothing `about` itself for the report")
    declaration.check(full, declaration.default)
    if declaration.prior is not None:
        inside = declaration.default == declaration.off or declaration.prior.supports(declaration.default)
        demand(inside, f"{full}: its default {declaration.default!r} lies outside its prior {declaration.prior}")
        for fraction in (0.0, 0.3, 0.5, 0.7, 0.999999):
            replace(spec, name, declaration.prior.quantile(fraction))  # refuses what is not allowed
    for value in outside(declaration):
        try:
            replace(spec, name, value)
        except RequestError as refusal:
            line = str(refusal)
            demand("\n" not in line, f"{full}: refuses in more than one line: {line}")
            demand(f"`{full}`" in line, f"{full}: the refusal does not name the knob: {line}")
            rule = declaration.allowed.text if isinstance(declaration.allowed, Allowed) else "one of"
            demand(rule in line, f"{full}: the refusal does not quote the rule {rule}: {line}")
            demand(str(value) in line, f"{full}: the refusal does not show the value {value!r}: {line}")
            remedy = "Default: " if isinstance(declaration.allowed, Allowed) else "one of"
            demand(remedy in line, f"{full}: the refusal offers no remedy: {line}")
        else:
            raise AssertionError(f"{full}: accepts {value!r}, which {declaration.allowed} forbids")


def _check_fields(spec: Spec) -> None:
    """Every field is a knob, a switch or a part; none holds a device's array."""
    declared = {name for name, _ in declarations(spec)}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        items = value if isinstance(value, tuple) else (value,)
        parts = field.name in declared or all(isinstance(item, (Spec, eqx.Module)) for item in items)
        demand(parts, f"{type(spec).__name__}.{field.name} is neither knob, switch nor part: {value!r}")
    arrays = [name for name, leaf in named_leaves(spec) if isinstance(leaf, jax.Array)]
    demand(not arrays, f"{type(spec).__name__} holds arrays of a device in {arrays}: reading it would start one")


def check_round_trip(spec: Spec, classes: tuple[type, ...] = ()) -> None:
    """JSON and pickle give the very same spec back, at ugly values too."""
    specs = [spec]
    for name, declaration in declarations(spec):
        if declaration.prior is not None:
            specs.append(replace(spec, name, declaration.prior.quantile(0.7371)))
    for one in specs:
        text = to_json(one)
        again = from_json(text, classes=classes)
        demand(eqx.tree_equal(again, one), f"{type(one).__name__}: comes back changed from JSON: {again} for {one}")
        demand(to_json(again) == text, f"{type(one).__name__}: its JSON is not stable")
        demand(eqx.tree_equal(pickle.loads(pickle.dumps(one)), one), f"{type(one).__name__}: does not pickle")


def check_spec(spec: Spec, classes: tuple[type, ...] = ()) -> None:
    """Frozen, made of knobs, switches and parts, each checked when made, and written down exactly.

    `classes` are those from outside gradwise that its JSON names.
    """
    _check_fields(spec)
    for field in dataclasses.fields(spec):
        try:
            setattr(spec, field.name, getattr(spec, field.name))
        except AttributeError:
            continue
        raise AssertionError(f"{type(spec).__name__}.{field.name} can be changed after the spec was made")
    for name, declaration in declarations(spec):
        _check_declaration(spec, name, declaration)
    check_round_trip(spec, classes)
