"""Paths into trees: one syntax for knobs (`optimiser.learning_rate`) and parameters (`layers.0.weight`).

A pattern such as `*.weight` or `output.*` picks parameters by path: that is how penalties and optimisers are
given per layer and per kind of parameter (rows C10, D2).
"""

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
from jaxtyping import PyTree

from ..runtime.errors import RequestError, nearest
from .knobs import Declaration, Spec, declarations, part_fields

# What a penalty and a decay mean unless said otherwise: weights, no biases, under the names that layers give them.
WEIGHTS = "*.weight|*.weights.*"


class Buffer(eqx.Module):
    """Values that a model measures rather than learns (batch statistics): never trained, always saved."""

    value: PyTree


def trainable(model: PyTree) -> tuple[PyTree, PyTree]:
    """Splits a model into trainable parameters and the rest; `equinox.combine` joins them again."""
    moves = jax.tree.map(
        lambda leaf: jax.tree.map(lambda _: False, leaf) if isinstance(leaf, Buffer) else eqx.is_inexact_array(leaf),
        model,
        is_leaf=lambda leaf: isinstance(leaf, Buffer),
    )
    return eqx.partition(model, moves)


def name_of(path: tuple[Any, ...]) -> str:
    """A JAX key path as dotted text: `layers.0.weight`."""
    parts = []
    for entry in path:
        for attribute in ("name", "idx", "key"):
            if hasattr(entry, attribute):
                parts.append(str(getattr(entry, attribute)))
                break
        else:
            parts.append(str(entry).strip(".[]'\""))
    return ".".join(parts)


def named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """The leaves of a tree, each with its dotted path."""
    return [(name_of(path), leaf) for path, leaf in jtu.tree_leaves_with_path(tree)]


def matching(tree: PyTree, pattern: str) -> PyTree:
    """A tree of booleans: whether each leaf's path matches the pattern (several patterns: joined by `|`).

    `*.weight` means a parameter `weight` at the top too, which has no layer's name before it.
    """
    patterns = pattern.split("|")

    def matches(path: tuple[Any, ...], _: Any) -> bool:
        name = name_of(path)
        return any(fnmatch.fnmatchcase(word, one) for one in patterns for word in (name, f".{name}"))

    return jtu.tree_map_with_path(matches, tree)


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, tuple):
        yield from ((str(index), item) for index, item in enumerate(node))
    elif isinstance(node, Spec):
        declared = {name for name, _ in declarations(node)}
        for field in dataclasses.fields(node):
            if field.name not in declared:
                yield field.name, getattr(node, field.name)


def knobs(node: Any, prefix: str = "") -> Iterator[tuple[str, Declaration, Any]]:
    """Every knob and switch of a spec and of the parts within it: path, declaration, present value."""
    if isinstance(node, Spec):
        for name, declaration in declarations(node):
            yield prefix + name, declaration, getattr(node, name)
    for name, child in _children(node):
        yield from knobs(child, f"{prefix}{name}.")


def parts(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every part within a spec, with its path: what `--set model=...` can replace."""
    for name, child in _children(node):
        if isinstance(child, (Spec, eqx.Module)):
            yield prefix + name, child
        yield from parts(child, f"{prefix}{name}.")


def lists_of_parts(node: Any) -> Iterator[tuple[str, type]]:
    """Every field that holds any number of parts, with the class of its items: penalties, groups, layers."""
    for path, part in [("", node), *parts(node)]:
        for name, kind, several in part_fields(type(part)) if isinstance(part, Spec) else ():
            if several:
                yield f"{path}.{name}".lstrip("."), kind


def get(node: Any, path: str) -> Any:
    """The knob, switch or part at a path."""
    for name in path.split("."):
        node = node[int(name)] if isinstance(node, tuple) else getattr(node, name)
    return node


def replace(node: Any, path: str, value: Any) -> Any:
    """A copy of a spec with another value at the path, validated like a new one."""
    return replace_several(node, {path: value})


def replace_several(node: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of a spec with other values at paths of which none lies within another; each part is made once."""
    own: dict[str, Any] = {}
    within: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        if rest:
            within.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, inner in within.items():
        own[name] = replace_several(get(node, name), inner)
    if isinstance(node, tuple):
        return tuple(own.get(str(place), item) for place, item in enumerate(node))
    return _copied(node, own) if isinstance(node, Spec) else dataclasses.replace(node, **own)


@functools.cache
def field_converters(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The names of a module's fields, each with what makes its value of a plain one."""
    return tuple((f.name, f.metadata.get("converter", lambda same: same)) for f in dataclasses.fields(kind))


def _copied(spec: Spec, own: Mapping[str, Any]) -> Any:
    """The spec with other values of some fields, validated like a new one.

    A fifth of the time of a constructor, which a search calls eight times for each trial: what stays is as it was.
    """
    kind: Any = type(spec)
    known = vars(spec)
    if not kind.__dataclass_params__.init or hasattr(kind, "__post_init__") or not own.keys() <= known.keys():
        return dataclasses.replace(spec, **own)
    made: Any = object.__new__(kind)
    for name, convert in field_converters(kind):
        object.__setattr__(made, name, convert(own[name]) if name in own else known[name])
    for parent in kind.__mro__:
        if "__check_init__" in vars(parent):
            vars(parent)["__check_init__"](made)
    return made


def check_path(node: Any, path: str) -> None:
    """Raises if the path does not exist, with the closest one that does."""
    known = [name for name, _, _ in knobs(node)] + [name for name, _ in parts(node)]
    if path not in known:
        raise RequestError(f"unknown knob `{path}`.{nearest(path, known)}")


def map_named(function: Callable[[str, Any], Any], tree: PyTree) -> PyTree:
    """`jax.tree.map` whose function also gets each leaf's dotted path."""
    return jtu.tree_map_with_path(lambda path, leaf: function(name_of(path), leaf), tree)
