"""From measurements of the signal flow to findings (rows F16, F18, D8); no network needed.

    find_flow(measure_flow(subject, rehearsal, key=key))         findings GW601 to GW606
    find_flow(FlowMeasured((layer,)))                            or from given numbers

A fault that a hundred updates repair is not reported: it must be present before and after the rehearsal, except for
units that the updates themselves saturated or killed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...records.finding import Finding
from ...runtime.files import finite
from ...tracing.loops import turn_of
from ..codes import found
from .signal_flow import COLUMNS, FlowMeasured, JacobianSpectrum, LayerMeasured

SATURATED, SATURATED_WHOLLY = 0.5, 0.99
DEAD, DEAD_WHOLLY = 0.4, 0.95
_ROWS = 8  # fewer examples do not show that a unit is dead
VANISHED, NOT_REPAIRED = 1e4, 1e2
STRETCHED = 3.0
_ORTHOGONAL = (
    "initialise the recurrent weights orthogonally: "
    "`jax.nn.initializers.orthogonal()(key, weight.shape)`, or use gates that preserve the state."
)
_CARRIED = 0.4  # rectifiers switch half of the directions off


def _worst(layers: Sequence[LayerMeasured], of: Callable[[LayerMeasured], float], least: float) -> list[LayerMeasured]:
    """The layers beyond a threshold, worst first."""
    return sorted((layer for layer in layers if of(layer) > least), key=of, reverse=True)


def _rest(layers: Sequence[LayerMeasured]) -> str:
    more = len(layers) - 1
    return f" The same holds for {more} more layer{'s' if more > 1 else ''}." if more else ""


def _evidence(layers: Sequence[LayerMeasured], word: str) -> dict[str, Any]:
    return {"layers": [layer.name for layer in layers], word: finite([getattr(layer, word) for layer in layers])}


def _at_every_step(layers: Sequence[LayerMeasured], is_bad: Callable[[LayerMeasured], bool]) -> list[LayerMeasured]:
    """Excludes recurrent layers that are fine at another step: all units are alike on padding at the beginning."""
    well = {layer.step_of for layer in layers if not is_bad(layer)} - {""}
    return [layer for layer in layers if layer.step_of not in well]


def _copied(measured: FlowMeasured) -> list[Finding]:
    # Units above a dead layer are all alike, but the cause is below.
    dead = _at_every_step(measured.layers, lambda layer: min(layer.dead) > DEAD_WHOLLY)
    blind = {place for layer in dead if min(layer.dead) > DEAD_WHOLLY for place in layer.above}
    sighted = [layer for place, layer in enumerate(measured.layers) if place not in blind]
    units = [layer for layer in sighted if not layer.frozen and layer.kind != "linear" and layer.units > 1]
    alike = _at_every_step(units, lambda layer: min(layer.copies) > 0.0)
    several = _worst(alike, lambda layer: min(layer.copies), 0.0)
    whole = [layer for layer in several if min(layer.copies) == 1.0]
    if not several:
        return []
    if whole:
        worst = whole[0]
        what = f"all {worst.units} units of `{worst.name}` have the same outputs and gradients, before and after "
        what += f"a short training run: the layer is equivalent to one unit.{_rest(whole)}"
        step = f"draw the initial weights of `{worst.name}` at random: "
        step += "`jax.nn.initializers.glorot_uniform()(key, weight.shape)`."
        return [found("GW603", what, where=worst.name, next=step, **_evidence(whole, "copies"))]
    worst = several[0]
    count = round(min(worst.copies) * min(worst.units, COLUMNS[1]))
    what = f"{count} of the {worst.units} units of `{worst.name}` are copies of one another, before and after a "
    what += f"short training run.{_rest(several)}"
    step = f"draw each unit's initial weights in `{worst.name}` from its own key: `jax.random.split(key, n)`."
    return [found("GW603", what, where=worst.name, next=step, level="warning", **_evidence(several, "copies"))]


def _saturated(measured: FlowMeasured) -> list[Finding]:
    several = _worst(measured.layers, lambda layer: layer.saturated[1], SATURATED)
    if not several:
        return []
    worst = several[0]
    what = f"{worst.saturated[1]:.0%} of the outputs of the {worst.kind} units of `{worst.name}` are saturated "
    what += f"({worst.saturated[0]:.0%} at the start): hardly any gradient gets through.{_rest(several)}"
    step = "divide the learning rate by 10: the updates drove the units into saturation."
    if worst.saturated[0] > SATURATED:
        factor = 1.0 / max(worst.rms[0], 1.0)
        step = f"start with `weight = {factor:.2g} * weight` in `{worst.name}`, or normalise its inputs."
    level = "error" if min(worst.saturated) > SATURATED_WHOLLY else ""
    return [found("GW601", what, where=worst.name, next=step, level=level, **_evidence(several, "saturated"))]


def _dead(measured: FlowMeasured, skip: set[str]) -> list[Finding]:
    units = [layer for layer in measured.layers if layer.kind == "other" and layer.rows >= _ROWS]
    units = _at_every_step(units, lambda layer: layer.dead[1] > DEAD)
    several = _worst([layer for layer in units if layer.name not in skip], lambda layer: layer.dead[1], DEAD)
    if not several:
        return []
    worst = several[0]
    what = f"{worst.dead[1]:.0%} of the {worst.units} units of `{worst.name}` are off for all {worst.rows} examples "
    what += f"({worst.dead[0]:.0%} at the start): they get no gradient and cannot recover.{_rest(several)}"
    step = "divide the learning rate by 10: large updates pushed the units below 0 for good."
    if worst.dead[0] > DEAD:
        step = f"start the biases of `{worst.name}` at 0 and centre its inputs, or use `jax.nn.leaky_relu`."
    level = "error" if min(worst.dead) > DEAD_WHOLLY else ""
    return [found("GW602", what, where=worst.name, next=step, level=level, **_evidence(several, "dead"))]


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0.0 else 0.0


def _steps_whole(layers: Sequence[LayerMeasured]) -> list[LayerMeasured]:
    """Steps of recurrent networks with their largest gradient and activation: one gate may well be shut at a step."""

    steps = [(layer.step_of, turn_of(layer.name)) if layer.step_of else place for place, layer in enumerate(layers)]
    largest: dict[Any, dict[str, tuple[float, float]]] = {}
    for step, layer in zip(steps, layers, strict=True):
        of = largest.setdefault(step, {"gradient": (0.0, 0.0), "rms": (0.0, 0.0)})
        for name, (before, after) in of.items():
            mine = getattr(layer, name)
            of[name] = max(before, mine[0]), max(after, mine[1])
    return [
        replace(layer, gradient=largest[step]["gradient"], rms=largest[step]["rms"])
        for step, layer in zip(steps, layers, strict=True)
    ]


def _falls(layers: Sequence[LayerMeasured], of: Callable[[LayerMeasured, int], float]) -> tuple[float, float, int, int]:
    """The largest factor by which something falls from a layer to one below it, that factor after, and the layers."""
    worst = (0.0, 0.0, 0, 0)
    for place, layer in enumerate(layers):
        for above in layer.above:
            low, high = (of(layer, 0), of(layer, 1)), (of(layers[above], 0), of(layers[above], 1))
            if min(*low, *high) > 0.0 and high[0] / low[0] > worst[0]:
                worst = (high[0] / low[0], high[1] / low[1], place, above)
    return worst


def _vanishing(measured: FlowMeasured) -> list[Finding]:
    layers = _steps_whole(measured.layers)
    factor, after, low, high = _falls(layers, lambda layer, when: layer.gradient[when])
    if not (factor > VANISHED and after > NOT_REPAIRED):
        return []
    name = layers[low].name
    what = f"the gradient shrinks by a factor of {factor:.1e} from `{layers[high].name}` down to `{name}` "
    what += f"({after:.1e} after a short training run): the lower layers hardly learn."
    larger = f"{factor ** (1 / max(1, high - low)):.1f}"
    step = f"start each layer with weights {larger} times as large, add `x + layer(x)`, or normalise the activations."
    step = _ORTHOGONAL if layers[low].step_of else step
    numbers = finite({"factor": factor, "after": after, "gradients": [layer.gradient[0] for layer in layers]})
    return [found("GW604", what, where=name, next=step, **numbers)]


def _exploding(measured: FlowMeasured) -> list[Finding]:
    layers = _steps_whole(measured.layers)
    rise, risen, first, last = _falls(layers, lambda layer, when: _inverse(layer.gradient[when]))
    grow, grown, below, top = _falls(layers, lambda layer, when: layer.rms[when])
    word = "gradient"
    if grow > rise:
        rise, risen, first, last, word = grow, grown, below, top, "activation"
    if not (rise > VANISHED and risen > NOT_REPAIRED):
        return []
    start, end = (layers[place].name for place in ((last, first) if word == "gradient" else (first, last)))
    what = f"the {word}s grow by a factor of {rise:.1e} from `{start}` to `{end}` "
    what += f"({risen:.1e} after a short training run): no learning rate suits both."
    smaller = f"{rise ** (1 / max(1, last - first)):.1f}"
    step = f"start each layer with weights {smaller} times smaller, normalise the activations, or "
    step = f"{_ORTHOGONAL[:-1]}; " if layers[first].step_of else step
    step += "clip the gradient: `optax.clip_by_global_norm(1.0)`."
    return [found("GW605", what, where=end, next=step, **finite({"factor": rise, "after": risen}), of=word)]


def _stretched(measured: FlowMeasured) -> list[Finding]:
    def size(one: JacobianSpectrum) -> float:
        """How far from 1 it carries both ways: a change of width alone moves one of them only."""
        least, most = sorted((one.forwards, one.backwards))
        return max(least, 1.0 / most) if most > 0.0 else 0.0

    # Where most directions end, only a part of the one goes into the other (a gate): the rest goes elsewhere.
    ways = [one for one in measured.stretches if one.carrying.size >= _CARRIED * one.singular.size]
    several = sorted((one for one in ways if not one.last and size(one) > STRETCHED), key=size, reverse=True)
    if not several:
        return []
    worst = several[0]
    word = "attenuates" if worst.backwards < 1.0 else "amplifies"
    values, factor = worst.singular, 1.0 / max(np.sqrt(worst.forwards * worst.backwards), 1e-30)
    median = f" (median singular value {np.median(values):.2g}, largest {values[-1]:.2g})" if values.size else ""
    more = f" {len(several) - 1} more do so too." if len(several) > 1 else ""
    what = f"the map from `{worst.source}` to `{worst.target}` {word} gradients by a factor of {worst.backwards:.2g}"
    what += f"{median}; near 1 is best.{more}"
    step = f"start with `weight = {factor:.2g} * weight` in `{worst.target}`."
    numbers = finite({"forwards": worst.forwards, "backwards": worst.backwards})
    return [found("GW606", what, where=worst.target, next=step, **numbers, layers=[one.target for one in several])]


def find_flow(measured: FlowMeasured) -> tuple[Finding, ...]:
    """GW601 to GW606. Copies and the layers above them are not reported as dead too: it is one cause."""
    copied = _copied(measured)
    names = {name for finding in copied if finding.level == "error" for name in finding.evidence["layers"]}
    places = {place for layer in measured.layers if layer.name in names for place in layer.above}
    skip = names | {measured.layers[place].name for place in places}
    findings = [*copied, *_saturated(measured), *_dead(measured, skip), *_vanishing(measured), *_exploding(measured)]
    return tuple(findings or _stretched(measured))  # a note only if nothing else is wrong
