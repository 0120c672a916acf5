"""A monitor of training (row F16): it regularly records activations, gradients and parameters, and changes nothing.

    RunOptions(monitor=FlowMonitor(every=100))  trains as without it, bit for bit
    flow_of(state.looks)                        means, deviations, histograms by layer and kind

The record holds up to `rows` looks. When it is full, every second one is dropped and the interval doubled, so that
a run of any length leaves between half of `rows` and `rows` looks, evenly spread.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..records.evidence.recorded_flow import FlowGroup, RecordedFlow
from ..runtime.control_flow import run_when
from ..specs.knobs import Spec, switch
from ..specs.paths import named_leaves
from .layers import trace_layers
from .signal_flow import BINS, Flow, Summary, statistics

_MOMENTS = ("mean", "deviation", "rms", "norm", "low", "high")
_WIDE = len(_MOMENTS) + BINS + 2  # a group's statistics, its histogram, the shares of saturated and dead
_LAYER_KINDS = ("pre-activation", "activation", "activation gradient")
_PARAMETER_KINDS = ("parameter", "parameter gradient")


class Looks(eqx.Module):
    """The looks so far, `count` of them, in one table: on an accelerator each array of a state costs a kernel.

    Before the first update the program is not known, so there is a place for each layer that a parameter could be of;
    `order` is each layer's place in the flow, -1 where nothing is known of it. The groups of a look are the inputs of
    the non-linearities layer by layer, their outputs, the gradients, then the parameters and their gradients.
    """

    table: Float[Array, "*n rows groups wide"]
    updates: Int[Array, "*n rows"]
    count: Int[Array, "*n"]
    interval: Int[Array, "*n"]
    order: Int[Array, "*n layers"]
    layers: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)


def _numbers(summary: Summary, flat: Array) -> Float[Array, "groups wide"]:
    moments = jnp.stack([getattr(summary, name) for name in _MOMENTS], axis=1)
    return jnp.concatenate([moments, summary.histogram, flat], axis=1)


def _row(flow: Flow, layers: tuple[str, ...]) -> tuple[Float[Array, "groups wide"], Int[Array, " layers"]]:
    """A look in the form of the table, each layer at its own place, and their order in the flow."""
    places = {name: flow.layers.index(name) if name in flow.layers else -1 for name in layers}
    order = np.asarray(list(places.values()), np.int32)
    flat = jnp.stack([flow.saturated, flow.dead], axis=1)
    parts = []
    for summary in (flow.inputs, flow.outputs, flow.gradients):
        told = jnp.concatenate([_numbers(summary, flat), jnp.full((1, _WIDE), jnp.nan)])  # the last for those unknown
        parts.append(told[order])
    blank = jnp.full((len(flow.names), 2), jnp.nan)
    parts += [_numbers(summary, blank) for summary in (flow.parameters, flow.parameter_gradients)]
    return jnp.concatenate(parts), jnp.asarray(order)


def _written(looks: Looks, row: Array, order: Array, update: Int[Array, ""]) -> Looks:
    """The record with one more look; when that fills it, with half as many."""
    rows = looks.updates.shape[0]
    table, updates, count = looks.table.at[looks.count].set(row), looks.updates.at[looks.count].set(update), looks.count
    full = count + 1 == rows
    half = np.minimum(2 * np.arange(rows), rows - 1)
    table, updates = jnp.where(full, table[half], table), jnp.where(full, updates[half], updates)
    count = jnp.where(full, -(-rows // 2), count + 1)
    interval = jnp.where(full, 2 * looks.interval, looks.interval)
    return Looks(table, updates, count, interval, order, looks.layers, looks.names)


class FlowMonitor(Spec):
    """Records the flow of a training, on the batch of the next update, without changing it.

    Looks are at least `every` updates apart; an interval that ends earlier postpones the next one.
    """

    every: int = switch(100, allowed="[1, inf)", row="F16", about="updates between two looks")
    rows: int = switch(64, allowed="[2, inf)", row="F16", about="the maximal number of looks stored")

    def begin(self, parameters: PyTree) -> Looks:
        """The record before the first look."""
        names = tuple(name for name, _ in named_leaves(parameters))
        layers = tuple(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
        groups = len(_LAYER_KINDS) * len(layers) + len(_PARAMETER_KINDS) * len(names)
        return Looks(
            table=jnp.full((self.rows, groups, _WIDE), jnp.nan, jnp.float32),
            updates=jnp.full(self.rows, -1, jnp.int32),
            count=jnp.zeros((), jnp.int32),
            interval=jnp.asarray(self.every, jnp.int32),
            order=jnp.full(len(layers), -1, jnp.int32),
            layers=layers,
            names=names,
        )

    def look(self, looks: Looks, update: Int[Array, ""], loss: Callable[..., Scalar], *given: PyTree) -> Looks:
        """The record after a look at `loss(*given)`, if one is due at this update; the parameters come first.

        The gradient is computed anew, so that the update's own program stays as it is without the look.
        """

        def watch(looks: Looks) -> Looks:
            program, layers = trace_layers(loss, *given)
            row, order = _row(statistics(program, layers, *given), looks.layers)
            return _written(looks, row, order, update)

        last = looks.updates[jnp.maximum(looks.count - 1, 0)]
        return run_when((looks.count == 0) | (update - last >= looks.interval), watch, looks)


def _group(kind: str, where: str, values: Float[np.ndarray, "n wide"]) -> FlowGroup:
    moments = dict(zip(_MOMENTS, values[:, : len(_MOMENTS)].T, strict=True))
    edges = np.linspace(moments["low"], moments["high"], BINS + 1, axis=1)
    flat = {"saturated": values[:, -2], "dead": values[:, -1]} if kind == "activation" else {}
    return FlowGroup(
        layer=where,
        kind=kind,
        histogram=tuple(map(tuple, values[:, len(_MOMENTS) : -2].tolist())),
        edges=tuple(map(tuple, edges.tolist())),
        **{name: tuple(moments[name].tolist()) for name in ("mean", "deviation", "rms", "norm")},
        **{name: tuple(shares.tolist()) for name, shares in flat.items()},
    )


def flow_of(looks: Looks | None) -> RecordedFlow:
    """What was recorded; empty without a record."""
    if looks is None:
        return RecordedFlow()
    count, order = int(looks.count), np.asarray(looks.order)
    table = np.asarray(looks.table[:count], np.float64)
    groups, wide = [], len(looks.layers)
    for place in [number for number in np.argsort(order, kind="stable") if order[number] >= 0]:
        for number, kind in enumerate(_LAYER_KINDS):
            groups.append(_group(kind, looks.layers[place], table[:, number * wide + place]))
    start = len(_LAYER_KINDS) * wide
    for place, name in enumerate(looks.names):
        for number, kind in enumerate(_PARAMETER_KINDS):
            groups.append(_group(kind, name, table[:, start + number * len(looks.names) + place]))
    return RecordedFlow(tuple(np.asarray(looks.updates[:count]).tolist()), tuple(groups))
