"""The border rule: a best value on the end of its interval means that better ones may lie beyond (row E4).

    space, findings = extended(space, trials)       ends moved out where the best trial lies on them
    findings += too_few_values(space, trials)       three values are too few even if the middle one wins

| prior | the end moves by |
|---|---|
| LogUniform | a factor of 10, or the interval's own width where that is less |
| LogInteger | a factor of 2, or its own width: what a size costs grows with its square |
| Uniform | the interval's own width |

No end moves beyond what the knob allows. Both functions are pure: trials of an earlier, narrower space remain
trials of the wider one.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ...records.finding import Finding
from ...records.trial import Trial, best_of
from ...specs.knobs import Allowed
from ...specs.priors import AbstractPrior, LogInteger, LogUniform, Uniform, ZeroOr
from ...specs.search_space import Dimension, Space

BORDER = 0.05  # of the interval, in the prior's own scale
LEAST_VALUES = 4


def _ends_near(scale: Any, value: float) -> tuple[bool, bool]:
    """Whether a value lies on the low and on the high end."""
    if isinstance(scale, LogInteger):  # of few whole numbers none but the last is on the border
        low, high = math.log(scale.low), math.log(scale.high)
        near = BORDER * (high - low)
        return math.log(max(value, 1)) <= low + near, math.log(max(value, 1)) >= high - near
    fraction = scale.fraction(value)
    return fraction <= BORDER, fraction >= 1.0 - BORDER


def _moved(scale: Any, up: bool) -> float:
    """Where one end would go if nothing forbade it."""
    if isinstance(scale, Uniform):
        width = scale.high - scale.low
        return scale.high + width if up else scale.low - width
    factor = min(scale.high / scale.low, 2.0 if isinstance(scale, LogInteger) else 10.0)
    return float(scale.high * factor if up else scale.low / factor)


def _permitted(dimension: Dimension, old: float, new: float) -> float:
    """The new end, or as far towards it as the knob allows; towards an end that is not allowed itself, nine tenths."""
    low, high = dimension.allowed
    end = min(max(low, new), high)
    rule = dimension.declaration.allowed if dimension.declaration else None
    inside = end in rule if isinstance(rule, Allowed) and (low, high) == rule.ends() else True
    return end if inside else old + 0.9 * (end - old)


def _wider(dimension: Dimension, up: bool) -> AbstractPrior | None:
    """The prior with one end moved out; none where the knob allows no more that is worth a search."""
    scale: Any = dimension.scale
    old = scale.high if up else scale.low
    end = _permitted(dimension, old, _moved(scale, up))
    if isinstance(scale, LogInteger):
        end = math.floor(end) if up else max(1, math.ceil(end))
    elif isinstance(scale, LogUniform) and end <= 0:
        end = _moved(scale, up)  # zero is allowed, and no logarithm reaches it
    if isinstance(scale, Uniform):
        moved = abs(end - old) / (scale.high - scale.low)
    else:
        moved = abs(math.log(end / old)) / math.log(scale.high / scale.low)
    if moved < BORDER:
        return None
    wider = dataclasses.replace(scale, **{"high" if up else "low": end})
    return dataclasses.replace(dimension.prior, other=wider) if isinstance(dimension.prior, ZeroOr) else wider


def _distinct(dimension: Dimension, trials: Sequence[Trial]) -> set[float]:
    return {trial.values[dimension.path] for trial in trials if dimension.path in trial.values}


def _interval(dimension: Dimension) -> str:
    scale: Any = dimension.scale
    return f"[{scale.low:.3g}, {scale.high:.3g}]"


def _wanted(dimension: Dimension) -> int:
    """How many values a knob must have had before its best means anything: four, or all where there are fewer."""
    scale = dimension.scale
    return min(LEAST_VALUES, scale.high - scale.low + 1) if isinstance(scale, LogInteger) else LEAST_VALUES


def extend_ranges(space: Space, trials: Sequence[Trial]) -> tuple[Space, list[Finding]]:
    """The space with ends moved out wherever the best trial lies on them, and what was done.

    Nothing moves before a knob has had four values: of one or two trials some always lie near an end. An end that is
    the knob's own limit is no border, since nothing lies beyond it.
    """
    best = best_of(trials)
    changes: dict[str, AbstractPrior] = {}
    findings = []
    for dimension in space.dimensions:
        value = best.values.get(dimension.path) if best else None
        off = isinstance(dimension.prior, ZeroOr) and value == 0
        if value is None or off or not dimension.numeric or len(_distinct(dimension, trials)) < _wanted(dimension):
            continue
        for up, near in zip((False, True), _ends_near(dimension.scale, float(value)), strict=True):
            present = dataclasses.replace(dimension, prior=changes.get(dimension.path, dimension.prior))
            wider = _wider(present, up) if near else None
            if wider is None:
                continue
            changes[dimension.path] = wider
            side, new = "high" if up else "low", _interval(dataclasses.replace(dimension, prior=wider))
            findings.append(
                Finding(
                    "note",
                    f"the best value of `{dimension.path}`, {float(value):.3g}, is at the {side} end of its range "
                    f"{_interval(dimension)}: better values may lie beyond.",
                    "E4",
                    f"The search continues in {new}; start there if you search again.",
                    code="GW707",
                    where=dimension.path,
                )
            )
    return (space.with_priors(changes) if changes else space), findings


def too_few_values(space: Space, trials: Sequence[Trial]) -> list[Finding]:
    """Numeric knobs of which fewer than four values were tried, where there are four."""
    findings = []
    for dimension in space.dimensions:
        tried = len(_distinct(dimension, trials))
        wanted = _wanted(dimension)
        if not dimension.numeric or not trials or tried >= wanted:
            continue
        noun = "value" if tried == 1 else "values"
        findings.append(
            Finding(
                "warning",
                f"only {tried} {noun} of `{dimension.path}` tried: too few to locate the best one, even if a middle "
                "value won.",
                "E4",
                f"Try at least {wanted}, over {_interval(dimension)}.",
                code="GW708",
                where=dimension.path,
            )
        )
    return findings
