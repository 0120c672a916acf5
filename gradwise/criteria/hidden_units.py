"""The activations of hidden layers, out of the very pass that computes the outputs (row D5).

    outputs, layers = run_with_units(lambda model, x, key: apply_batch(model, x, key), model, inputs, key)
    layers[0].name, layers[0].activations          "layers.0", one row for each example and place

The layers are found in the traced program (`tracing/layers.py`), so any network has them, whatever library wrote it.
An activation is the output of a layer's non-linearity, before dropout and before a residual connection.
"""

import fnmatch
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..runtime.errors import RequestError, nearest
from ..specs.knobs import is_off
from ..specs.paths import named_leaves, trainable
from ..tracing.layers import TracedLayer, trace_layers, unit_output, values_between
from .penalties import AbstractRegulariser

ALL = "*"  # every hidden layer
_INPUTS = "inputs"  # an input stage: embeddings, no hidden units
_FAR = 1e4


@dataclass(frozen=True)
class HiddenUnits:
    """One hidden layer in a pass over a batch.

    Places of an example (of a convolution, the members of an ensemble) have rows of their own. `span` gives the
    least and the largest value that the non-linearity can take, or None if that is unknown.
    """

    name: str
    activations: Float[Array, "rows units"]
    path: str = ""  # that of its parameters, as patterns select it
    span: Callable[[], tuple[float, float] | None] = lambda: None
    bias: Float[Array, "..."] | None = None

    def weights(self, weights: Float[Array, " B"]) -> Float[Array, " rows"]:
        """The weight of each row."""
        return jnp.repeat(weights, self.activations.shape[0] // weights.shape[0])


def span_of(respond: Callable[[Array], Array | None]) -> tuple[float, float] | None:
    """The least and the largest value that a function takes between -1e4 and 1e4; None if it cannot be known."""
    with jax.ensure_compile_time_eval():
        near = jnp.linspace(-4.0, 4.0, 33)
        found = respond(jnp.concatenate([jnp.asarray([-_FAR, _FAR, -100.0, 100.0]), near]).astype(jnp.float32))
        return None if found is None else (float(found.min()), float(found.max()))


def active(penalties: Sequence[AbstractRegulariser]) -> tuple[Any, ...]:
    """The penalties that read activations and are on."""
    return tuple(one for one in penalties if one.reads_units and not is_off(one.coefficient))


def _is_within(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")


def _hidden(layers: Sequence[TracedLayer]) -> list[TracedLayer]:
    """The hidden layers: those with a non-linearity, or all of a network that has none."""
    units = [layer for layer in layers if layer.above and not _is_within(layer.name, _INPUTS)]
    return [layer for layer in units if layer.kind != "linear"] or [layer for layer in units if layer.matrix]


def _bias(parameters: PyTree, layer: str) -> Array | None:
    """The biases of a layer, or of the one that it is within."""
    named = dict(named_leaves(parameters))
    words = layer.split(".")
    paths = [".".join([*words[:end], "bias"]) for end in range(len(words), -1, -1)]
    return next((named[path] for path in paths if path in named), None)


def run_with_units(
    function: Callable[[Any, Array, Any], Any], model: PyTree, inputs: Float[Array, "B ..."], key: Any
) -> tuple[Any, tuple[HiddenUnits, ...]]:
    """`function(model, inputs, key)`, and the hidden layers that its network ran through, in the order of the flow."""
    parameters, rest = trainable(model)
    program, layers = trace_layers(lambda p, x, k: function(eqx.combine(p, rest), x, k), parameters, inputs, key)
    # A layer that holds several weights has them in `weights`, as the pattern of a weight decay says.
    hidden = {layer: layer.name.removesuffix(".weights") for layer in _hidden(layers)}
    outputs = {layer: unit_output(program, layer, f"{path}.") for layer, path in hidden.items()}
    result, kept = program.run(parameters, inputs, key, keep=set(outputs.values()))
    found = []
    for layer, path in hidden.items():
        output = outputs[layer]
        values, ends = kept[output], (layer.examples, layer.units)
        places = (0, -1) if layer.units is not None else (0,)
        values = jnp.moveaxis(values, [end for end in ends if end is not None], places)
        respond = functools.partial(values_between, program, layer.input, output)
        found.append(
            HiddenUnits(
                name=f"{path}{layer.title.removeprefix(layer.name)}",
                activations=values.reshape(-1, values.shape[-1] if layer.units is not None else 1),
                path=path,
                span=functools.partial(span_of, respond),
                bias=_bias(parameters, path),
            )
        )
    return result, tuple(found)


def choose_units(units: Sequence[HiddenUnits], where: str) -> list[HiddenUnits]:
    """The layers that match: patterns of parameters' paths, joined by `|`; a layer covers what lies within it."""
    patterns = [pattern for one in where.split("|") for pattern in (one, f"{one}.*")]

    def matches(name: str) -> bool:
        return any(fnmatch.fnmatchcase(word, one) for one in patterns for word in (name, f"{name}."))

    found = [one for one in units if where == ALL or matches(one.path) or matches(one.name)]
    if not found:
        names = [one.name for one in units]
        known = f" They are: {', '.join(names[:8])}{', ...' if names[8:] else ''}." if names else ""
        raise RequestError(f"no hidden layer matches the penalty's `where={where!r}`.{nearest(where, names) or known}")
    return found


def sum_on_units(penalties: Sequence[Any], units: Sequence[HiddenUnits], weights: Float[Array, " B"]) -> Any:
    """The penalties on activations that are on, each with its coefficient, averaged over the batch's slots."""
    total = jnp.zeros(())
    for penalty in active(penalties):
        for layer in choose_units(units, penalty.where):
            total += penalty.coefficient * penalty.of_units(layer, layer.weights(weights))
    return total
