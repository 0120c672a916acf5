"""Do signals get through (rows F16, F18, D8): saturated, dead and copied units, vanishing and exploding gradients.

    measured = measure_flow(subject, rehearsal, key=key)
    find_flow(measured)                                          findings GW601 to GW606
    measured.plain()                                             the histograms of activations, before and after

The network is looked at twice, before and after the rehearsal: what a hundred updates repair is no finding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ..core import keys
from ..core.finding import Finding
from ..core.flow import BINS, Summary, Values, by_unit, summarise, values_of
from ..core.layers import Layer, look, maps
from ..core.program import Program
from .codes import found
from .compiling import quickly
from .rehearsal import Rehearsal
from .subject import Subject, count_of, take

EXAMPLES = 256  # looked at, where there are so many
_JACOBIAN_EXAMPLES = 4
_DIRECTIONS = 256  # a wider layer's stretch is measured along so many random directions
_COLUMNS = (256, 512)  # rows and units that are compared to find copies
_LOST = 1e-6  # of the largest singular value
_SAME = 1e-5  # of the largest value: two units that agree so far, before and after, are copies

SATURATED, SATURATED_WHOLLY = 0.5, 0.99
DEAD, DEAD_WHOLLY = 0.4, 0.95
_ROWS = 8  # fewer examples cannot tell that a unit is dead
VANISHED, NOT_REPAIRED = 1e4, 1e2
STRETCHED = 3.0


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


@dataclass(frozen=True)
class Stretch:
    """Singular values of the map from one weighted sum to the next, over a few examples.

    `forwards` and `backwards` are the root mean squares with which it carries activations and gradients on: for square
    layers both are that of the singular values. For wide layers `singular` is empty.
    """

    source: str
    target: str
    forwards: float
    backwards: float
    singular: Float[np.ndarray, " n"]
    last: bool = False  # the outputs: their scale is the loss's affair

    @property
    def carrying(self) -> Float[np.ndarray, " m"]:
        """The singular values of directions that are carried on at all: rectifiers switch the others off."""
        return self.singular[self.singular > _LOST * self.singular.max(initial=0.0)]


@dataclass(frozen=True)
class FlowMeasured:
    """The layers in the order of the flow, the maps between them, and histograms for pictures."""

    layers: tuple[LayerMeasured, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    groups: tuple[dict[str, Any], ...] = ()
    rehearsed: bool = True

    def plain(self) -> dict[str, Any]:
        layers = [{name: _plain(value) for name, value in vars(layer).items()} for layer in self.layers]
        maps = [
            {
                "source": one.source,
                "target": one.target,
                "forwards": _plain(one.forwards),
                "backwards": _plain(one.backwards),
                "singular": _plain(one.carrying),
                "lost": _plain(1.0 - one.carrying.size / one.singular.size) if one.singular.size else None,
                "median": _plain(np.median(one.carrying)) if one.carrying.size else None,
            }
            for one in self.stretches
        ]
        return {"layers": layers, "maps": maps, "groups": list(self.groups), "rehearsed": self.rehearsed}


def _plain(value: Any) -> Any:
    """JSON values; a number that is none becomes None."""
    if isinstance(value, (tuple, list, np.ndarray)):
        return [_plain(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


# --- measuring


def _columns(values: Any, layer: Layer) -> Float[np.ndarray, "rows units"]:
    return np.asarray(by_unit(values, layer, np)[: _COLUMNS[0], : _COLUMNS[1]], np.float64)


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


def _group(name: str, kind: str, summaries: Sequence[Summary], place: int) -> dict[str, Any]:
    """One group of numbers before and after, as the monitor tells it."""
    told: dict[str, Any] = {"layer": name, "kind": kind}
    for word in ("mean", "deviation", "rms", "norm", "histogram"):
        told[word] = [_plain(np.asarray(getattr(one, word))[place]) for one in summaries]
    edges = [np.linspace(float(one.low[place]), float(one.high[place]), BINS + 1) for one in summaries]
    return {**told, "edges": _plain(edges)}


def _batch(subject: Subject, key: Key[Array, ""]) -> Any:
    """Examples of training: more than a small batch where there are more, and not all of a large one."""
    if subject.train is not None and subject.count < EXAMPLES < count_of(subject.train):
        rows = keys.generator(keys.named(key, "flow")).choice(count_of(subject.train), EXAMPLES, replace=False)
        return take(subject.train, rows)
    return take(subject.batch, np.arange(min(subject.count, EXAMPLES)))


def _directions(width: int, count: int, random: np.random.Generator) -> Float[np.ndarray, "count width"]:
    """All unit vectors, the rest zeros; where there are too many, some random ones at right angles."""
    if width <= count:
        return np.eye(count, width, dtype=np.float32)
    return np.linalg.qr(random.normal(size=(width, count)))[0].T.astype(np.float32)


def _stretches(subject: Subject, batch: Any, key: Key[Array, ""]) -> tuple[Stretch, ...]:
    """The Jacobians of all layers at once: each is cut off from the one before, and moved along each direction."""
    few = take(batch, np.arange(min(count_of(batch), _JACOBIAN_EXAMPLES)))
    program, layers = look(subject.value, subject.parameters, few, key)
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

    @partial(quickly, size=subject.size)
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


def _stretch(source: Layer, target: Layer, moved: Float[np.ndarray, "directions examples out"], width: int) -> Stretch:
    known = moved[:width]
    square = np.mean(np.sum(known**2, axis=2))  # of one direction: the mean square of the singular values
    singular = np.zeros(0)
    if width <= len(moved) and np.isfinite(known).all():
        singular = np.sort(np.linalg.svd(known.transpose(1, 0, 2), compute_uv=False).ravel())
    forwards, backwards = float(np.sqrt(square * width / known.shape[2])), float(np.sqrt(square))
    return Stretch(source.name, target.name, forwards, backwards, singular, last=not target.above)


def _measured_layer(
    program: Program, layer: Layer, frozen: frozenset[str], columns: Sequence[Any], numbers: dict[str, Any]
) -> LayerMeasured:
    shape = program.sites[layer.input].shape
    units = 1 if layer.units is None else shape[layer.units]
    return LayerMeasured(
        name=layer.name or layer.line,
        kind=layer.kind,
        line=layer.line,
        units=units,
        rows=int(np.prod(shape)) // units,
        frozen=any(name == layer.name or name.startswith(f"{layer.name}.") for name in frozen),
        copies=tuple(copies(*pair) for pair in columns),  # type: ignore[arg-type]
        above=layer.above,
        **numbers,
    )


def measure_flow(subject: Subject, rehearsal: Rehearsal | None, *, key: Key[Array, ""]) -> FlowMeasured:
    """Looks at the network before and after the rehearsal; without one, twice at the same."""
    batch = _batch(subject, key)
    noise = keys.named(key, "noise")
    program, layers = look(subject.value, subject.parameters, batch, noise)
    if not layers:
        return FlowMeasured(rehearsed=rehearsal is not None)

    @partial(quickly, size=subject.size)
    def seen(parameters: PyTree, batch: Any) -> Values:
        return values_of(program, layers, parameters, batch, noise)

    # The statistics are NumPy's: to compile them would take longer than all the rest.
    points = [subject.parameters] * 2 if rehearsal is None else [rehearsal.start, rehearsal.end]
    looks = [jax.tree.map(np.asarray, seen(point, batch)) for point in points]
    flows = [
        summarise(layers, jax.tree.map(np.asarray, point), one, np) for point, one in zip(points, looks, strict=True)
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


# --- finding


def _worst(layers: Sequence[LayerMeasured], of: Callable[[LayerMeasured], float], least: float) -> list[LayerMeasured]:
    """The layers beyond a threshold, worst first."""
    return sorted((layer for layer in layers if of(layer) > least), key=of, reverse=True)


def _rest(layers: Sequence[LayerMeasured]) -> str:
    more = len(layers) - 1
    return f" So it is in {more} more layer{'s' if more > 1 else ''}." if more else ""


def _evidence(layers: Sequence[LayerMeasured], word: str) -> dict[str, Any]:
    return {"layers": [layer.name for layer in layers], word: [_plain(getattr(layer, word)) for layer in layers]}


def _copied(measured: FlowMeasured) -> list[Finding]:
    # What stands on a dead layer sees nothing: its units are alike, but the cause is below.
    dead = [layer for layer in measured.layers if min(layer.dead) > DEAD_WHOLLY]
    blind = {place for layer in dead for place in layer.above}
    units = [layer for place, layer in enumerate(measured.layers) if place not in blind and not layer.frozen]
    hidden = [layer for layer in units if layer.kind != "linear" and layer.units > 1]
    several = _worst(hidden, lambda layer: min(layer.copies), 0.0)
    whole = [layer for layer in several if min(layer.copies) == 1.0]
    if whole:
        worst = whole[0]
        return [
            found(
                "GW603",
                f"all {worst.units} units of `{worst.name}` compute the same and get the same gradient, before and "
                f"after the rehearsal: the layer is one unit.{_rest(whole)}",
                where=worst.name,
                next=f"draw the initial weights of `{worst.name}` at random: "
                "`jax.nn.initializers.glorot_uniform()(key, weight.shape)`.",
                **_evidence(whole, "copies"),
            )
        ]
    if not several:
        return []
    worst = several[0]
    count = round(min(worst.copies) * min(worst.units, _COLUMNS[1]))
    return [
        found(
            "GW603",
            f"{count} of the {worst.units} units of `{worst.name}` are copies of one another, before and after the "
            f"rehearsal.{_rest(several)}",
            where=worst.name,
            level="warning",
            next=f"draw each unit's initial weights in `{worst.name}` from its own key: `jax.random.split(key, n)`.",
            **_evidence(several, "copies"),
        )
    ]


def _saturated(measured: FlowMeasured) -> list[Finding]:
    several = _worst(measured.layers, lambda layer: layer.saturated[1], SATURATED)
    if not several:
        return []
    worst = several[0]
    wholly = min(worst.saturated) > SATURATED_WHOLLY
    factor = 1.0 / max(worst.rms[0], 1.0)
    return [
        found(
            "GW601",
            f"{worst.saturated[1]:.0%} of what the {worst.kind} units of `{worst.name}` give is flat "
            f"({worst.saturated[0]:.0%} at the start): hardly any gradient gets through.{_rest(several)}",
            where=worst.name,
            level="error" if wholly else "",
            next=f"start with `weight = {factor:.2g} * weight` in `{worst.name}`, or normalise its inputs."
            if worst.saturated[0] > SATURATED
            else "lower the learning rate by 10: the units were driven into saturation by the updates.",
            **_evidence(several, "saturated"),
        )
    ]


def _dead(measured: FlowMeasured, skip: set[str]) -> list[Finding]:
    units = [layer for layer in measured.layers if layer.kind == "other" and layer.rows >= _ROWS]
    several = _worst([layer for layer in units if layer.name not in skip], lambda layer: layer.dead[1], DEAD)
    if not several:
        return []
    worst = several[0]
    from_start = worst.dead[0] > DEAD
    return [
        found(
            "GW602",
            f"{worst.dead[1]:.0%} of the {worst.units} units of `{worst.name}` are off for all {worst.rows} examples "
            f"({worst.dead[0]:.0%} at the start): they get no gradient and stay so.{_rest(several)}",
            where=worst.name,
            level="error" if min(worst.dead) > DEAD_WHOLLY else "",
            next=f"start the biases of `{worst.name}` at 0 and centre its inputs, or use `jax.nn.leaky_relu`."
            if from_start
            else "lower the learning rate by 10: large updates pushed the units below 0 for good.",
            **_evidence(several, "dead"),
        )
    ]


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0.0 else 0.0


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
    layers = measured.layers
    told = []
    factor, after, low, high = _falls(layers, lambda layer, when: layer.gradient[when])
    steps = max(1, high - low)
    if factor > VANISHED and after > NOT_REPAIRED:
        told.append(
            found(
                "GW604",
                f"the gradient shrinks by {factor:.1e} from `{layers[high].name}` down to `{layers[low].name}` "
                f"({after:.1e} after the rehearsal): the lower layers hardly learn.",
                where=layers[low].name,
                next=f"start each layer with weights {factor ** (1 / steps):.1f} times as large, add `x + layer(x)`, "
                "or normalise the activations.",
                factor=_plain(factor),
                after=_plain(after),
                gradients=[_plain(layer.gradient[0]) for layer in layers],
            )
        )
    rise, risen, first, last = _falls(layers, lambda layer, when: _inverse(layer.gradient[when]))
    grow, grown, below, top = _falls(layers, lambda layer, when: layer.rms[when])
    word = "gradient"
    if grow > rise:
        rise, risen, first, last, word = grow, grown, below, top, "activation"
    if rise > VANISHED and risen > NOT_REPAIRED:
        way = (last, first) if word == "gradient" else (first, last)
        told.append(
            found(
                "GW605",
                f"the {word}s grow by {rise:.1e} from `{layers[way[0]].name}` to `{layers[way[1]].name}` "
                f"({risen:.1e} after the rehearsal): no learning rate suits both.",
                where=layers[way[1]].name,
                next=f"start each layer with weights {rise ** (1 / max(1, last - first)):.1f} times smaller, normalise "
                "the activations, or clip the gradient: `optax.clip_by_global_norm(1.0)`.",
                factor=_plain(rise),
                after=_plain(risen),
                of=word,
            )
        )
    return told


def _stretched(measured: FlowMeasured) -> list[Finding]:
    def size(one: Stretch) -> float:
        """How far from 1 it carries both ways: a change of width alone moves one of them only."""
        least, most = sorted((one.forwards, one.backwards))
        return max(least, 1.0 / most) if most > 0.0 else 0.0

    several = sorted(
        (one for one in measured.stretches if not one.last and size(one) > STRETCHED), key=size, reverse=True
    )
    if not several:
        return []
    worst = several[0]
    word = "squeezes" if worst.backwards < 1.0 else "stretches"
    values, factor = worst.singular, 1.0 / max(np.sqrt(worst.forwards * worst.backwards), 1e-30)
    median = f" (median singular value {np.median(values):.2g}, largest {values[-1]:.2g})" if values.size else ""
    more = f" So do {len(several) - 1} more." if len(several) > 1 else ""
    return [
        found(
            "GW606",
            f"the way from `{worst.source}` to `{worst.target}` {word} by {worst.backwards:.2g}{median}; "
            f"near 1 is best.{more}",
            where=worst.target,
            next=f"start with `weight = {factor:.2g} * weight` in `{worst.target}`.",
            forwards=_plain(worst.forwards),
            backwards=_plain(worst.backwards),
            layers=[one.target for one in several],
        )
    ]


def find_flow(measured: FlowMeasured) -> tuple[Finding, ...]:
    """What is wrong with the flow. Copies and what stands on them are not called dead as well: it is one cause."""
    copied = _copied(measured)
    names = {name for finding in copied if finding.level == "error" for name in finding.evidence["layers"]}
    places = {place for layer in measured.layers if layer.name in names for place in layer.above}
    skip = names | {measured.layers[place].name for place in places}
    findings = [*copied, *_saturated(measured), *_dead(measured, skip), *_vanishing(measured)]
    return tuple(findings or _stretched(measured))  # how a layer stretches is worth a note where nothing is wrong
