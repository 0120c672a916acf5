"""The signal flow (rows F16, F18, D8): saturated, dead and copied units, vanishing and exploding gradients.

    measured = measure_flow(subject, rehearsal, key=key)
    measured.layers[0].saturated, measured.stretches[0].singular     pairs, before and after; of one layer's map
    measured.evidence()                                              with histograms of activations and gradients

The network is measured before and after the rehearsal. `signal_flow_findings.find_flow` interprets the numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ...records.evidence.check_evidence import FlowEvidence, LayerFlow, LayerMap
from ...records.evidence.recorded_flow import FlowGroup
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ...tracing.layers import TracedLayer, maps, trace_layers
from ...tracing.program import Program
from ...tracing.signal_flow import BINS, Summary, Values, summarise_flow, values_by_unit, values_of
from ..batch_access import count_of, take
from ..rehearsal import Rehearsal
from ..subject import Subject

EXAMPLES = 256  # at most
_JACOBIAN_EXAMPLES = 4
_DIRECTIONS = 256  # the map of a wider layer is measured along so many random directions
COLUMNS = (256, 512)  # rows and units that are compared to find copies
_LOST = 1e-6  # of the largest singular value
_SAME = 1e-5  # of the largest value: two units that agree so far, before and after, are copies


@dataclass(frozen=True)
class LayerMeasured:
    """One layer, before and after: pairs of numbers. `above` are the layers it leads to."""

    name: str
    kind: str
    line: str
    units: int
    rows: int
    frozen: bool
    rms: tuple[float, float]  # of what its non-linearity reads
    gradient: tuple[float, float]  # the norm of the loss's gradient there
    saturated: tuple[float, float]
    dead: tuple[float, float]
    copies: tuple[float, float]  # share of units that equal another one, in value and in gradient
    above: tuple[int, ...] = ()
    step_of: str = ""  # the line of the recurrent network whose step it is


@dataclass(frozen=True)
class JacobianSpectrum:
    """Singular values of the map from one weighted sum to the next, over a few examples.

    `forwards` and `backwards` are the root mean squares with which it carries activations and gradients on: for square
    layers both are that of the singular values. For wide layers `singular` is empty.
    """

    source: str
    target: str
    forwards: float
    backwards: float
    singular: Float[np.ndarray, " n"]
    last: bool = False  # the outputs: their scale depends on the loss

    @property
    def carrying(self) -> Float[np.ndarray, " m"]:
        """The singular values of directions that are carried on at all: rectifiers switch the others off."""
        return self.singular[self.singular > _LOST * self.singular.max(initial=0.0)]


@dataclass(frozen=True)
class FlowMeasured:
    """The layers in the order of the flow, the maps between them, and histograms for pictures."""

    layers: tuple[LayerMeasured, ...] = ()
    stretches: tuple[JacobianSpectrum, ...] = ()
    groups: tuple[FlowGroup, ...] = ()
    rehearsed: bool = True

    def evidence(self) -> FlowEvidence:
        layers = (LayerFlow(one.name, one.saturated[-1], one.dead[-1], one.gradient[-1]) for one in self.layers)
        maps = (
            LayerMap(one.source, one.target, *np.quantile(one.carrying, (0.1, 0.5, 0.9)).tolist())
            for one in self.stretches
            if one.carrying.size and np.isfinite(one.carrying).all()
        )
        return FlowEvidence(tuple(layers), tuple(maps), self.groups)


# --- measuring


def _columns(values: Any, layer: TracedLayer) -> Float[np.ndarray, "rows units"]:
    return np.asarray(values_by_unit(values, layer, np)[: COLUMNS[0], : COLUMNS[1]], np.float64)


def copies(values: Float[np.ndarray, "rows units"], gradients: Float[np.ndarray, "rows units"]) -> float:
    """The share of units that agree with another one in all values and in all gradients.

    Units that agree are neighbours in the order of a random projection, so that no two need be compared twice.
    """
    if values.shape[1] < 2 or not (np.isfinite(values).all() and np.isfinite(gradients).all()):
        return 0.0
    both = [part / max(np.abs(part).max(), np.finfo(np.float32).tiny) for part in (values, gradients)]
    told = np.concatenate(both)
    told = told[:, np.argsort(np.random.default_rng(0).normal(size=told.shape[0]) @ told)]
    same = np.abs(np.diff(told, axis=1)).max(axis=0) <= _SAME
    return float(np.mean(np.append(same, False) | np.append(False, same)))


def _group(name: str, kind: str, summaries: Sequence[Summary], place: int) -> FlowGroup:
    """One group of numbers before and after, in the monitor's form."""

    def each(word: str) -> tuple[Any, ...]:
        return tuple(np.asarray(getattr(one, word))[place].tolist() for one in summaries)

    edges = [np.linspace(float(one.low[place]), float(one.high[place]), BINS + 1) for one in summaries]
    moments = {word: each(word) for word in ("mean", "deviation", "rms", "norm")}
    histogram = tuple(map(tuple, each("histogram")))
    return FlowGroup(name, kind, histogram=histogram, edges=tuple(tuple(one.tolist()) for one in edges), **moments)


def _batch(subject: Subject, key: Key[Array, ""]) -> Any:
    """Training examples: more than a small batch if there are more, and not all of a large one."""
    if subject.train is not None and subject.count < EXAMPLES < count_of(subject.train):
        rows = keys.generator(keys.named(key, "flow")).choice(count_of(subject.train), EXAMPLES, replace=False)
        return take(subject.train, rows)
    return take(subject.batch, np.arange(min(subject.count, EXAMPLES)))


def _directions(width: int, count: int, random: np.random.Generator) -> Float[np.ndarray, "count width"]:
    """All unit vectors, the rest zeros; where there are too many, some random ones at right angles."""
    if width <= count:
        return np.eye(count, width, dtype=np.float32)
    return np.linalg.qr(random.normal(size=(width, count)))[0].T.astype(np.float32)


def _stretches(subject: Subject, batch: Any, key: Key[Array, ""]) -> tuple[JacobianSpectrum, ...]:
    """The Jacobians of all layers at once: each is cut off from the one before, and moved along each direction."""
    few = take(batch, np.arange(min(count_of(batch), _JACOBIAN_EXAMPLES)))
    program, layers = trace_layers(subject.value, subject.parameters, few, key)
    count = count_of(few)
    shapes = [program.sites[layer.input].shape for layer in layers]
    fits = [shape[layer.examples] == count for shape, layer in zip(shapes, layers, strict=True)]
    pairs = [(one, two) for one, two in maps(program, layers) if fits[one] and fits[two]]
    if not pairs:
        return ()
    widths = {one: int(np.prod(shapes[one])) // count for one, _ in pairs}
    number = min(max(widths.values()), _DIRECTIONS)
    random = keys.generator(keys.named(key, "directions"))
    steps = {}
    for one, width in widths.items():
        shape, axis = shapes[one], layers[one].examples
        flat = _directions(width, number, random).reshape(number, *shape[:axis], *shape[axis + 1 :])
        steps[layers[one].input] = np.repeat(np.expand_dims(flat, axis + 1), count, axis + 1)
    cut = [layers[place].input for place in {place for pair in pairs for place in pair}]
    wanted = [layers[two].input for _, two in pairs]

    @partial(compile_quickly, size=subject.size)
    def carried(parameters: PyTree, batch: Any, steps: dict[int, Array]) -> list[Array]:
        def values(nudges: dict[int, Array]) -> list[Array]:
            _, kept = program.run(parameters, batch, key, nudges=nudges, cut=cut, keep=wanted)
            return [
                jnp.moveaxis(kept[layers[two].input], layers[two].examples, 0).reshape(count, -1) for _, two in pairs
            ]

        zeros = program.zeros(steps)
        return jax.vmap(lambda step: jax.jvp(values, (zeros,), (step,))[1])(steps)

    typed = {site: jnp.asarray(step, program.sites[site].dtype) for site, step in steps.items()}
    try:
        results = carried(subject.parameters, few, typed)
    except TypeError:  # a derivative of the user's own (`custom_vjp`) that goes backwards only
        return ()
    return tuple(
        _stretch(layers[one], layers[two], np.asarray(result, np.float64), widths[one])
        for (one, two), result in zip(pairs, results, strict=True)
    )


def _stretch(
    source: TracedLayer, target: TracedLayer, moved: Float[np.ndarray, "directions examples out"], width: int
) -> JacobianSpectrum:
    known = moved[:width]
    square = np.mean(np.sum(known**2, axis=2))  # of one direction: the mean square of the singular values
    singular = np.zeros(0)
    if width <= len(moved) and np.isfinite(known).all():
        singular = np.sort(np.linalg.svd(known.transpose(1, 0, 2), compute_uv=False).ravel())
    forwards, backwards = float(np.sqrt(square * width / known.shape[2])), float(np.sqrt(square))
    return JacobianSpectrum(source.title, target.title, forwards, backwards, singular, last=not target.above)


def _measured_layer(
    program: Program, layer: TracedLayer, frozen: frozenset[str], columns: Sequence[Any], numbers: dict[str, Any]
) -> LayerMeasured:
    shape = program.sites[layer.input].shape
    units = 1 if layer.units is None else shape[layer.units]
    return LayerMeasured(
        name=layer.title,
        kind=layer.kind,
        line=layer.line,
        units=units,
        rows=int(np.prod(shape)) // units,
        frozen=any(name == layer.name or name.startswith(f"{layer.name}.") for name in frozen),
        copies=tuple(copies(*pair) for pair in columns),  # type: ignore[arg-type]
        above=layer.above,
        step_of=(layer.line or layer.name) if layer.shared else "",
        **numbers,
    )


def measure_flow(subject: Subject, rehearsal: Rehearsal | None, *, key: Key[Array, ""]) -> FlowMeasured:
    """Measures the network before and after the rehearsal; without one, twice the same."""
    batch = _batch(subject, key)
    noise = keys.named(key, "noise")
    program, layers = trace_layers(subject.value, subject.parameters, batch, noise)
    if not layers:
        return FlowMeasured(rehearsed=rehearsal is not None)

    @partial(compile_quickly, size=subject.size)
    def seen(parameters: PyTree, batch: Any) -> Values:
        return values_of(program, layers, parameters, batch, noise)

    # The statistics are NumPy's: to compile them would take longer than all the rest.
    points = [subject.parameters] * 2 if rehearsal is None else [rehearsal.start, rehearsal.end]
    looks = [jax.tree.map(np.asarray, seen(point, batch)) for point in points]
    flows = [
        summarise_flow(layers, jax.tree.map(np.asarray, point), one, np)
        for point, one in zip(points, looks, strict=True)
    ]

    def pair(of: Callable[[Any], Any], place: int) -> tuple[float, float]:
        return float(of(flows[0])[place]), float(of(flows[1])[place])

    measured = []
    for place, layer in enumerate(layers):
        numbers = {
            "rms": pair(lambda flow: flow.inputs.rms, place),
            "gradient": pair(lambda flow: flow.gradients.norm, place),
            "saturated": pair(lambda flow: flow.saturated, place),
            "dead": pair(lambda flow: flow.dead, place),
        }
        columns = [[_columns(part[layer.input], layer) for part in (one.kept, one.gradients)] for one in looks]
        measured.append(_measured_layer(program, layer, subject.frozen_names, columns, numbers))
    kinds = (("pre-activation", "inputs"), ("activation", "outputs"), ("activation gradient", "gradients"))
    groups = [
        _group(layer.name, kind, [getattr(flow, field) for flow in flows], place)
        for place, layer in enumerate(measured)
        for kind, field in kinds
    ]
    stretches = _stretches(subject, batch, noise)
    return FlowMeasured(tuple(measured), stretches, tuple(groups), rehearsal is not None)
