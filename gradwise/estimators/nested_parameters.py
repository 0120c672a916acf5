"""Nested scikit-learn parameters of a recipe's parts, such as `optimiser__learning_rate`.

    read_parameters("optimiser", MovingAverage(Adam()))["optimiser__learning_rate"]            # 0.0015
    write_parameters("optimiser", MovingAverage(Adam()), "learning_rate", 0.01)                # a changed copy

A name is a knob's path with `__` instead of dots. It may omit the beginning of the path if the rest names only one
knob, so that `optimiser__learning_rate` also reaches through a wrapper.
"""

from typing import Any

import numpy as np

from ..runtime.errors import RequestError, nearest
from ..specs.knobs import Spec
from ..specs.paths import get, knobs, parts, replace


def _paths(part: Any) -> list[str]:
    """The knobs of a part and of the parts within it; none for an object that is not a spec."""
    if not isinstance(part, Spec):
        return []
    return [path for path, _, _ in knobs(part)] + [path for path, _ in parts(part)]


def _shown(path: str) -> str:
    return path.replace(".", "__")


def _meant(known: list[str], path: str) -> list[str]:
    """The paths that a name may mean: itself, or the shallowest ones that end with it."""
    if path in known:
        return [path]
    ends = [one for one in known if one.endswith(f".{path}")]
    return [one for one in ends if one.count(".") == min(each.count(".") for each in ends)]


def find_parameter(slot: str, part: Any, name: str) -> str:
    """The one path that a name stands for."""
    known = _paths(part)
    meant = _meant(known, name.replace("__", "."))
    if len(meant) == 1:
        return meant[0]
    if meant:
        choices = " or ".join(f"`{slot}__{_shown(one)}`" for one in meant)
        raise RequestError(f"`{slot}__{name}` could mean several parameters. Write {choices}.")
    hint = nearest(f"{slot}__{name}", read_parameters(slot, part))
    raise RequestError(f"`{slot}={type(part).__name__}` has no parameter `{slot}__{name}`.{hint}")


def read_parameters(slot: str, part: Any) -> dict[str, Any]:
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
        if short not in known and _meant(known, short) == [path]:
            found[f"{slot}__{_shown(short)}"] = value
    return found


def write_parameters(slot: str, part: Any, name: str, value: Any) -> Any:
    """The part with another value for one parameter; the same object if the value is unchanged."""
    path = find_parameter(slot, part, name)
    before = get(part, path)
    if before is value or (type(value) in (int, float, str, bool, tuple, type(before)) and before == value):
        return part
    return replace(part, path, value)
