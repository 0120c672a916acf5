"""The multi-layer perceptron: `Mlp` is the spec, `MlpNetwork` the network it builds.

    Mlp(widths=(256, 256))                                 two rectifier layers
    Mlp(widths=(500,), activation=Tanh(), dropout=0.5)
    Mlp(widths=(200,) * 10, residual=True, normalisation=LayerNorm())
    Mlp(widths=(256,) * 3, activation=Parametric(Selu()), inputs=Embedded(), parametrisation="ntk")

The network takes one example; `jax.vmap` makes the batch. Batch normalisation sees the batch through the axis named
"batch" while training, and otherwise uses statistics that `calibrate` measures on training examples with the
parameters being evaluated. So no running average lags behind, and averaged parameters get their own statistics.
Slots beyond the end of an epoch hold real examples and count in the statistics, so a last batch of one is no noisier.

`padded_mlp.py` builds the same network in arrays larger than it needs.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..records.finding import Finding
from ..runtime import keys
from ..runtime.errors import RequestError
from ..runtime.keys import coins
from ..specs.contracts import AbstractModel
from ..specs.dataset import InputLayout
from ..specs.knobs import Spec, is_off, switch
from ..specs.networks import Network
from ..specs.paths import Buffer
from ..specs.priors import Choice
from ..specs.schedules import AbstractSchedule, Constant, Noise, dropout_knob
from ..specs.sparse.products import weighed
from ..specs.sparse.rows import Rows, SparseRows, flat_rows
from .activations import AbstractActivation, HardTanh, Identity, Rectifier, Sigmoid
from .initial_weights import AbstractInitial, Glorot, normal
from .input_stage import AbstractInputStage, Direct, InputStage, LaidOut, stage_width


class AbstractNormalisation(Spec):
    @abc.abstractmethod
    def build(self, width: int) -> Any:
        """The layer for examples of this width; None if there is nothing to do."""


class NoNorm(AbstractNormalisation):
    """No normalisation."""

    def build(self, width: int) -> Any:
        return None


class LayerNorm(AbstractNormalisation):
    """Each example's activations have mean 0 and variance 1 over the layer, then a learned gain and shift."""

    def build(self, width: int) -> Any:
        return LayerNormLayer(jnp.ones(width), jnp.zeros(width))


class BatchNorm(AbstractNormalisation):
    """Each unit has mean 0 and variance 1 over the batch, then a learned gain and shift."""

    def build(self, width: int) -> Any:
        moments = Buffer((jnp.zeros(width), jnp.ones(width)))
        return BatchNormLayer(jnp.ones(width), jnp.zeros(width), moments)


class LayerNormLayer(eqx.Module):
    """Statistics of one example over its units, the same in training and prediction; of a map over its places too."""

    gain: Float[Any, " width"]
    shift: Float[Any, " width"]

    def __call__(self, a: Float[Array, "*at width"], *, training: bool, mask: Any = None) -> Float[Array, "*at width"]:
        mean = jnp.mean(a, where=mask)
        variance = jnp.mean((a - mean) ** 2, where=mask)
        return (a - mean) * jax.lax.rsqrt(variance + 1e-5) * self.gain + self.shift


def _over_places(a: Float[Array, "*at width"]) -> Float[Array, " width"]:
    """The mean over the places of a map; a layer of units has none."""
    return a if a.ndim == 1 else jnp.mean(a, axis=tuple(range(a.ndim - 1)))


class BatchNormLayer(eqx.Module):
    """Batch statistics while training, calibrated ones otherwise. A filter has one mean and variance at all places."""

    gain: Float[Any, " width"]
    shift: Float[Any, " width"]
    moments: Buffer

    def __call__(self, a: Float[Array, "*at width"], *, training: bool, mask: Any = None) -> Float[Array, "*at width"]:
        mean, variance = self.moments.value  # each unit's own: padded units affect no other
        if training:
            mean = jax.lax.pmean(_over_places(a), "batch")
            variance = jax.lax.pmean(_over_places((a - mean) ** 2), "batch")
        return (a - mean) * jax.lax.rsqrt(variance + 1e-5) * self.gain + self.shift

    def calibrated(self, activations: Float[Array, "n *at width"]) -> "BatchNormLayer":
        rows = activations.reshape(-1, activations.shape[-1])
        moments = Buffer((rows.mean(0), rows.var(0)))
        return eqx.tree_at(lambda layer: layer.moments, self, moments)


def scaled(a: Float[Array, "..."], scale: Buffer | None) -> Float[Array, "..."]:
    """Activations times the scale of their weights, if the parametrisation has one."""
    return a if scale is None else scale.value * a


def dropped(h: Float[Array, "..."], noise: Noise | None, key: Key[Array, ""] | None) -> Float[Array, "..."]:
    """Units with dropout, the others scaled up to compensate; unchanged without a key."""
    if key is None or noise is None:
        return h
    kept = coins(key, 1.0 - noise.value, h.size).reshape(h.shape)
    return jnp.where(kept, h / (1.0 - noise.value), 0.0)


class Layer(eqx.Module):
    """One hidden layer: f(norm(Wx + b)), optionally with dropout and a residual connection.

    The first layer of sparse rows has `turned` weights, (in, out).
    """

    weight: Float[Any, "_ _"]  # (out, in), or turned
    bias: Float[Any, " out"]
    norm: LayerNormLayer | BatchNormLayer | None
    activation: Any
    dropout: Noise | None
    residual: bool = eqx.field(static=True)
    mask: Buffer | None = None  # which units are there, where the arrays are larger than the layer
    absent: Buffer | None = None  # whether the layer is not there at all, where the network may be deeper than it needs
    scale: Buffer | None = None  # on the weights, where the network is parametrised so

    turned: bool = eqx.field(static=True, default=False)

    def linear(self, x: Rows) -> Float[Array, " out"]:
        """Wx + b."""
        return scaled(weighed(self.weight, x, self.turned), self.scale) + self.bias

    def activate(self, x: Rows, *, training: bool) -> Float[Array, " out"]:
        """Wx + b, normalised."""
        a = self.linear(x)
        if self.norm is None:
            return a
        return self.norm(a, training=training, mask=None if self.mask is None else self.mask.value)

    def __call__(self, x: Rows, *, key: Key[Array, ""] | None) -> Float[Array, " out"]:
        h = dropped(self.activation(self.activate(x, training=key is not None)), self.dropout, key)
        if self.mask is not None:
            h = jnp.where(self.mask.value, h, 0.0)
        if self.absent is not None:
            h = jnp.where(self.absent.value, x, h)
        if self.residual:
            return h + (x.dense() if isinstance(x, SparseRows) else x)
        return h


class Linear(eqx.Module):
    """The output layer: Wh + b, in the form that the loss expects."""

    weight: Float[Any, "_ _"]  # (out, in), or turned
    bias: Float[Any, " out"]
    activation: AbstractActivation
    scale: Buffer | None = None
    turned: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Rows) -> Float[Array, " out"]:
        return self.activation(scaled(weighed(self.weight, x, self.turned), self.scale) + self.bias)


def calibrate_layers(layers: Sequence[Any], h: Rows) -> tuple[tuple[Any, ...], Float[Array, "n ..."]]:
    """The layers with the batch statistics of these inputs, measured one after another, and what the last one gives."""
    found = []
    for layer in layers:
        if isinstance(layer.norm, BatchNormLayer):
            norm = layer.norm.calibrated(jax.vmap(layer.linear)(h))
            layer = eqx.tree_at(lambda one: one.norm, layer, norm)
        h = jax.vmap(lambda x, one=layer: one(x, key=None))(h)
        found.append(layer)
    return tuple(found), h


class MlpNetwork(Network):
    """Hidden layers, then a linear output. Called without a key it is deterministic."""

    layers: tuple[Layer, ...]
    output: Linear
    inputs: InputStage | None = None

    def __call__(self, x: Rows, *, key: Key[Array, ""] | None = None) -> Float[Array, " outputs"]:
        h: Any = x if isinstance(x, SparseRows) else jnp.ravel(x)
        h = h if self.inputs is None else self.inputs(h, key=key)
        for number, layer in enumerate(self.layers):
            h = layer(h, key=None if key is None else jr.fold_in(key, number))
        return self.output(h)

    @property
    def hidden_layers(self) -> tuple[Any, ...]:
        """The layers up to the last hidden one, whose outputs are the features."""
        return self.layers if self.inputs is None else (self.inputs, *self.layers)

    @property
    def takes_sparse(self) -> bool:
        return self.layers[0].turned if self.layers else self.output.turned

    @property
    def column_tables(self) -> tuple[Any, ...]:
        first: Any = (*self.layers, self.output)[0]
        return (first.weight,) if first.turned and not any(layer.residual for layer in self.layers[:1]) else ()

    @property
    def needs_calibration(self) -> bool:
        return any(isinstance(layer.norm, BatchNormLayer) for layer in self.layers)

    def calibrate(self, inputs: Rows) -> "MlpNetwork":
        """A copy whose batch statistics are those of these inputs, measured layer by layer."""
        h = flat_rows(inputs)
        h = h if self.inputs is None else jax.vmap(self.inputs)(h)
        layers, _ = calibrate_layers(self.layers, h)
        return eqx.tree_at(lambda network: network.layers, self, layers)


def as_widths(value: Any) -> Any:
    return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, (list, tuple)) else value


def layer_widths(default: tuple[int, ...], *choices: tuple[int, ...], row: str, about: str) -> Any:
    """The switch for the hidden units of each layer; a search chooses among `choices`."""
    return switch(default, prior=Choice(choices), row=row, kind="capacity", about=about, convert=as_widths)


def check_widths(name: str, widths: Any, *, least: int = 1) -> None:
    """Raises an error unless these are the widths of at least so many layers."""
    whole = isinstance(widths, tuple) and all(type(width) is int and width >= 1 for width in widths)
    if not whole or len(widths) < least:
        raise RequestError(
            f"`{name}` must be whole numbers of at least 1, one for each hidden layer; got {widths!r}. "
            "Example: (256, 256)."
        )


class Mlp(AbstractModel):
    """A multi-layer perceptron (rows D1, D6, D8, J3, J4).

    Layers of equal size by default, the first wider than most inputs: because early stopping limits capacity, too
    large a network costs only time, too small a one accuracy. `dropout` is the probability of dropping a hidden unit.
    """

    widths: tuple[int, ...] = layer_widths(
        (256, 256),
        *((128, 128), (256, 256), (512, 512), (1024, 1024), (2048, 2048), (256,), (512,), (256, 256, 256)),
        row="D1",
        about="hidden units of each layer",
    )
    activation: AbstractActivation = Rectifier()
    initial: AbstractInitial = Glorot()
    output_initial: AbstractInitial = Glorot()
    output_activation: AbstractActivation = Identity()
    normalisation: AbstractNormalisation = NoNorm()
    dropout: float = dropout_knob(0.1, "a hidden unit")
    residual: bool = switch(
        False,
        allowed=(False, True),
        prior=Choice((False, True)),
        row="J4",
        about="adds a layer's input to its output if both have the same width",
    )
    inputs: AbstractInputStage = Direct()
    dropout_schedule: AbstractSchedule = Constant()
    parametrisation: str = switch(
        "standard",
        allowed=("standard", "ntk"),
        row="D8",
        about='"ntk": weights N(0, 1) used as W / sqrt(fan-in), biases N(0, 1); one rate then suits every width',
    )

    def __check_init__(self) -> None:
        check_widths("Mlp.widths", self.widths, least=0)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> MlpNetwork:
        return build_network(self, self.widths, inputs, outputs, key)

    def takes_sparse(self) -> bool:
        return isinstance(self.inputs.stage if isinstance(self.inputs, LaidOut) else self.inputs, Direct)

    def for_inputs(self, layout: InputLayout | None) -> "Mlp":
        told = isinstance(self.inputs, LaidOut)
        plain = layout is not None and not (layout.categories or layout.texts or layout.sparse)
        if layout is None or told or (isinstance(self.inputs, Direct) and plain):
            return self
        return dataclasses.replace(self, inputs=LaidOut(self.inputs, layout))

    def started(self, network: Any, inputs: Rows) -> Any:
        if network.inputs is None:
            return network
        stage = network.inputs.started(inputs.reshape(inputs.shape[0], -1))
        return eqx.tree_at(lambda one: one.inputs, network, stage)

    def check_inputs(self, inputs: Rows) -> None:
        if inputs.ndim == 3 and jnp.isnan(inputs[:, -1]).all(-1).any():
            raise RequestError(
                "the inputs are sequences, with NaN beyond their ends, which `Mlp` cannot read. Use `Recurrent`."
            )

    def stage(self, inputs: tuple[int, ...], key: Key[Array, ""]) -> tuple[InputStage | None, int]:
        """The input stage, and the number of inputs of the first layer."""
        layout = self.inputs.layout(math.prod(inputs))
        stage = self.inputs.build(layout, key=keys.named(key, "inputs"))
        return stage, stage_width(stage, layout)

    def findings(self) -> tuple[Finding, ...]:
        """Findings that the chapter warns of (row D6)."""
        found = []
        if isinstance(self.activation, Sigmoid) and len(self.widths) >= 2:
            what = f"sigmoid units in {len(self.widths)} hidden layers, not pre-trained: the top one saturates early."
            step, where = "use Tanh() or Rectifier(), or pre-train the layers.", "model.activation"
            found.append(Finding("warning", what, row="D6", next=step, code="GW703", where=where))
        if isinstance(self.output_activation, (Rectifier, HardTanh)):
            what = "a hard non-linearity on the outputs: where it is flat the gradient is exactly 0."
            step = "leave `output_activation` linear; the loss already bends it where it should."
            where = "model.output_activation"
            found.append(Finding("warning", what, row="D6", next=step, code="GW701", where=where))
        return tuple(found)


def draw_layer(
    mlp: Mlp, initial: AbstractInitial, gain: Any, fans: tuple[Any, Any], shape: tuple[int, int], key: Key[Array, ""]
) -> tuple[Array, Array, Buffer | None]:
    """Initial weights and biases of a layer of `fans` units and inputs in an array of this shape, and their scale."""
    if mlp.parametrisation == "standard":
        return initial.draw(*fans, gain, key=key, shape=shape), jnp.zeros(shape[0]), None
    weights, biases = jr.split(key)
    scale = 1.0 / jnp.sqrt(jnp.asarray(fans[1], jnp.float32))
    return normal(shape, weights), jr.normal(biases, (shape[0],)), Buffer(scale)


def dropout_of(mlp: Mlp) -> Noise | None:
    """The dropout of each hidden layer."""
    return None if is_off(mlp.dropout) else Noise(jnp.asarray(mlp.dropout), mlp.dropout_schedule)


def build_network(
    mlp: Mlp, true: Sequence[Any], inputs: tuple[int, ...], outputs: int, key: Key[Array, ""], *, deeper: bool = False
) -> MlpNetwork:
    """The network in arrays of `mlp.widths`, using the first `true` units of each layer.

    With `deeper` the last layers may have no units and pass their input through.
    """
    layers = []
    padded = true is not mlp.widths
    stage, fan_in = mlp.stage(inputs, key)
    size = fan_in  # of the array
    fan: Any = fan_in  # of the layer
    turned = mlp.inputs.layout(fan_in).sparse  # what reads the inputs themselves
    present: Any = True
    depth: Any = len(mlp.widths)
    for number, (width, units) in enumerate(zip(mlp.widths, true, strict=True)):
        draw = jr.fold_in(key, number)
        weight, bias, scale = draw_layer(mlp, mlp.initial, mlp.activation.gain(), (units, fan), (width, size), draw)
        mask = jnp.arange(width) < units if padded else None
        absent = jnp.asarray(units) == 0 if deeper and number else None
        weight = weight if mask is None else jnp.where(mask[:, None] & present, weight, 0.0)
        layer = Layer(
            weight=weight.T if turned else weight,
            bias=bias if mask is None else jnp.where(mask, bias, 0.0),
            norm=mlp.normalisation.build(width),
            activation=mlp.activation.units(width),
            dropout=dropout_of(mlp),
            residual=mlp.residual and width == size,
            mask=None if mask is None else Buffer(mask),
            scale=scale,
            absent=None if absent is None else Buffer(absent),
            turned=turned,
        )
        layers.append(layer)
        turned = False
        below = True if mask is None else mask[None, :]
        if absent is None:
            size, fan, present = width, units, below
        else:  # what follows reads the last layer that is there, and draws as if it were the next
            fan, present, depth = jnp.where(absent, fan, units), jnp.where(absent, present, below), depth - absent
    last = jr.fold_in(key, depth)
    weight, bias, scale = draw_layer(mlp, mlp.output_initial, 1.0, (outputs, fan), (outputs, size), last)
    weight = jnp.where(present, weight, 0.0) if padded else weight
    output = Linear(weight.T if turned else weight, bias, mlp.output_activation, scale, turned)
    return MlpNetwork(tuple(layers), output, stage)
