"""Nested parameters of parts that know nothing of scikit-learn: `optimiser__learning_rate` and its like.

    read("optimiser", MovingAverage(Adam()))["optimiser__learning_rate"]            # 0.001
    write("optimiser", MovingAverage(Adam()), "learning_rate", 0.01)                # a changed copy

A name is a knob's path with `__` for its dots. It may leave out the beginning of the path where what remains names one
knob only, so that `optimiser__learning_rate` also reaches through a wrapper.
"""

from typing import Any

import numpy as np

from ..core.errors import RequestError, nearest
from ..core.knob import Spec
from ..core.tree import get, knobs, parts, replace


def _paths(part: Any) -> list[str]:
    """The knobs of a part and the parts within it. What is not one of our specs has none."""
    if not isinstance(part, Spec):
        return []
    return [path for path, _, _ in knobs(part)] + [path for path, _ in parts(part)]


def _shown(path: str) -> str:
    return path.replace(".", "__")


def _find(slot: str, part: Any, name: str) -> str:
    """The path that a name stands for: itself, or the shallowest one that ends so."""
    path = name.replace("__", ".")
    known = _paths(part)
    if path in known:
        return path
    ends = [one for one in known if one.endswith(f".{path}")]
    depth = min((one.count(".") for one in ends), default=0)
    hits = [one for one in ends if one.count(".") == depth]
    if len(hits) == 1:
        return hits[0]
    if hits:
        choices = " or ".join(f"`{slot}__{_shown(one)}`" for one in hits)
        raise RequestError(f"`{slot}__{name}` could mean several parameters. Write {choices}.")
    full = [f"{slot}__{_shown(one)}" for one in known]
    owner = type(part).__name__
    raise RequestError(f"`{slot}={owner}` has no parameter `{slot}__{name}`.{nearest(f'{slot}__{name}', full)}")


def read(slot: str, part: Any) -> dict[str, Any]:
    """Every nested parameter of the part in a slot; a wrapped part's also under its short name."""
    known = _paths(part)
    found: dict[str, Any] = {}
    for path in known:
        value = get(part, path)
        value = value.item() if isinstance(value, np.generic) else value
        found[f"{slot}__{_shown(path)}"] = value
        short = path
        while short.startswith(f"{slot}."):  # a wrapper calls what it wraps by the name of the slot
            short = short.removeprefix(f"{slot}.")
        if short not in known and _find(slot, part, _shown(short)) == path:
            found[f"{slot}__{_shown(short)}"] = value
    return found


def write(slot: str, part: Any, name: str, value: Any) -> Any:
    """The part with another value for one parameter; the very same part where the value is what it was."""
    path = _find(slot, part, name)
    before = get(part, path)
    if before is value or (type(value) in (int, float, str, bool, tuple, type(before)) and before == value):
        return part
    return replace(part, path, value)
