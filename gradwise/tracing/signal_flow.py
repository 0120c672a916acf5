"""How signals flow through a network (rows F16, F18): what stands at each layer's non-linearity, and what comes back.

program, layers = trace_layers(loss, parameters, batch, key)      tracing/layers.py
flow = statistics(program, layers, parameters, batch, key)        inside `jit`, `scan` or `vmap` as well
flow.layers, flow.inputs.rms, flow.gradients.histogram, flow.dead
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..specs.paths import named_leaves
from .layers import SMOOTH, TracedLayer
from .program import Program

BINS = 32
_MOMENTS = ("mean", "deviation", "rms", "norm", "low", "high")
SATURATED = 0.01  # of the largest slope
DEAD = 1e-4  # a slope below this, for all examples: of a rectifier it is 0
_SAMPLE = 2**12  # entries that make a histogram: more would cost time and show nothing new


class Summary(eqx.Module):
    """Statistics of several groups of numbers, one entry each. Histograms are shares between `low` and `high`.

    These are the extremes, but at most four deviations from the mean; what lies beyond is in the outermost bins.
    """

    mean: Float[Array, "*n"]
    deviation: Float[Array, "*n"]
    rms: Float[Array, "*n"]  # root mean square
    norm: Float[Array, "*n"]
    low: Float[Array, "*n"]
    high: Float[Array, "*n"]
    histogram: Float[Array, "*n bins"]


class Flow(eqx.Module):
    """One look at a network. `gradients` are those of the loss by the inputs of the non-linearities."""

    inputs: Summary
    outputs: Summary
    gradients: Summary
    parameters: Summary
    parameter_gradients: Summary
    saturated: Float[Array, "*n"]  # share of a layer's entries where its non-linearity is flat; NaN where it cannot be
    dead: Float[Array, "*n"]  # share of its units that are flat for every example
    layers: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)


def _moments(flat: Any, library: Any) -> list[Any]:
    mean, square = library.mean(flat), library.sum(library.square(flat))
    deviation = library.sqrt(library.mean(library.square(flat - mean)))
    low = library.maximum(library.min(flat), mean - 4.0 * deviation)
    high = library.minimum(library.max(flat), mean + 4.0 * deviation)
    return [mean, deviation, library.sqrt(square / flat.size), library.sqrt(square), low, high]


def summary(groups: Sequence[Any], library: Any = jnp) -> Summary:
    """Statistics of each of some groups of numbers, with `jax.numpy` or, where nothing need be compiled, `numpy`."""
    flat = [library.ravel(group).astype(library.float32) for group in groups]
    flat = [group if group.size else library.full(1, library.nan, library.float32) for group in flat]
    if not flat:
        return Summary(**dict.fromkeys(_MOMENTS, library.zeros(0)), histogram=library.zeros((0, BINS)))
    moments = library.stack([library.stack(_moments(group, library)) for group in flat], axis=1)
    low, high = moments[4][:, None], moments[5][:, None]
    # All histograms at once: short groups are filled up with what falls into no bin.
    chosen = [group[:: -(-group.size // _SAMPLE)] for group in flat]
    longest = max(group.size for group in chosen)
    padded = [library.pad(group, (0, longest - group.size), constant_values=library.nan) for group in chosen]
    span = library.where(high > low, high - low, 1.0)
    place = library.clip(library.floor((library.stack(padded) - low) / span * BINS), 0, BINS - 1)
    counts = library.sum((place[:, :, None] == library.arange(BINS)).astype(library.float32), axis=1)
    shares = counts / library.asarray([group.size for group in chosen])[:, None]
    return Summary(**dict(zip(_MOMENTS, moments, strict=True)), histogram=shares)


def values_by_unit(values: Any, layer: TracedLayer, library: Any = jnp) -> Any:
    """The values at a layer as rows and units: examples and places are rows."""
    if layer.units is None:
        return library.reshape(values, (-1, 1))
    return library.reshape(library.moveaxis(values, layer.units, -1), (-1, values.shape[layer.units]))


def _flatness(layer: TracedLayer, kept: dict[int, Any], slopes: dict[int, Any], library: Any) -> tuple[Any, Any]:
    """The share of saturated entries and of dead units."""
    nothing = library.full((), library.nan)
    if layer.kind == "linear":
        return nothing, library.zeros(())
    if layer.kind in SMOOTH:
        value = kept[layer.bend].astype(library.float32)
        slope = value * (1.0 - value) * 4.0 if layer.kind == "logistic" else 1.0 - library.square(value)
        # The slope of erf is exp(-x^2): at 1 % of its largest value, erf(x) is 0.99761, where 1 - erf^2 is 0.00477.
        flat = slope < (0.00477 if layer.kind == "erf" else SATURATED)
        saturated = library.mean(flat)
    else:
        flat = library.abs(slopes[layer.input]) < DEAD
        saturated = library.mean(flat) if layer.kind == "hard" else nothing
    return saturated, library.mean(library.all(values_by_unit(flat, layer, library), axis=0))


class Values(eqx.Module):
    """What one run of a program shows at its layers: values at their sites, gradients and slopes at their inputs."""

    kept: dict[int, Array]
    gradients: dict[int, Array]
    slopes: dict[int, Array]
    parameter_gradients: PyTree


def values_of(program: Program, layers: Sequence[TracedLayer], parameters: PyTree, batch: PyTree, key: Any) -> Values:
    """Runs a program, backwards too. The slope is that of the non-linearity at each entry of its input."""
    inputs = {layer.input for layer in layers}
    wanted = inputs | {site for layer in layers for site in (layer.output, layer.bend)}
    bent = [layer for layer in layers if layer.kind in ("hard", "step", "other")]

    def value(there: PyTree, nudges: dict[int, Array]) -> tuple[Array, dict[int, Array]]:
        result, kept = program.run(there, batch, key, nudges=nudges, keep=wanted)
        return (result[0] if isinstance(result, tuple) else result), kept

    def outputs(nudges: dict[int, Array]) -> Array:
        cut = [layer.input for layer in bent]
        _, kept = program.run(parameters, batch, key, nudges=nudges, cut=cut, keep={layer.output for layer in bent})
        return sum((jnp.sum(kept[layer.output].astype(jnp.float32)) for layer in bent), jnp.zeros(()))

    differentiated = jax.grad(value, argnums=(0, 1), has_aux=True)
    (moves, gradients), kept = differentiated(parameters, program.zeros(inputs))
    # Each output depends on its own input alone once all are cut: one pass backwards gives every slope.
    slopes = jax.grad(outputs)(program.zeros({layer.input for layer in bent})) if bent else {}
    return Values(kept, gradients, slopes, moves)


def summarise_flow(layers: Sequence[TracedLayer], parameters: PyTree, values: Values, library: Any = jnp) -> Flow:
    """The statistics of what was seen."""
    flatness = [_flatness(layer, values.kept, values.slopes, library) for layer in layers]
    return Flow(
        inputs=summary([values.kept[layer.input] for layer in layers], library),
        outputs=summary([values.kept[layer.output] for layer in layers], library),
        gradients=summary([values.gradients[layer.input] for layer in layers], library),
        parameters=summary(jax.tree.leaves(parameters), library),
        parameter_gradients=summary(jax.tree.leaves(values.parameter_gradients), library),
        saturated=library.asarray([share for share, _ in flatness]),
        dead=library.asarray([share for _, share in flatness]),
        layers=tuple(layer.title for layer in layers),
        names=tuple(name for name, _ in named_leaves(parameters)),
    )


def statistics(program: Program, layers: Sequence[TracedLayer], parameters: PyTree, batch: PyTree, key: Any) -> Flow:
    """Activations, their gradients, parameters and theirs: one look at a network in training."""
    return summarise_flow(layers, parameters, values_of(program, layers, parameters, batch, key))
