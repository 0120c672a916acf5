"""The multi-layer perceptron: `Mlp` is the choice, `MlpNetwork` the network it builds.

    Mlp(widths=(256, 256))                                 two rectifier layers
    Mlp(widths=(500,), activation=Tanh(), dropout=0.5)
    Mlp(widths=(200,) * 10, residual=True, normalisation=LayerNorm())

The network takes one example; `jax.vmap` makes the batch. Batch normalisation sees the batch through the axis named
"batch" while training, and otherwise uses statistics that `calibrate` measures on training examples with the very
parameters that are being judged. So no running average lags, and averaged parameters get statistics of their own.
Slots beyond the end of an epoch hold real examples and count in the statistics: a last batch of one is no noisier.
"""

import abc
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..core.errors import RequestError
from ..core.finding import Finding
from ..core.keys import coins
from ..core.knob import Spec, is_off, knob, switch
from ..core.parts import AbstractModel
from ..core.prior import Choice, Uniform, ZeroOr
from ..core.tree import Buffer
from .activation import AbstractActivation, HardTanh, Identity, Rectifier, Sigmoid
from .initial import AbstractInitial, Glorot


class AbstractNormalisation(Spec):
    @abc.abstractmethod
    def build(self, width: int) -> Any:
        """The layer, for one example of this width; None where there is nothing to do."""


class NoNorm(AbstractNormalisation):
    """Activations as they come."""

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
    """Statistics of one example over its units: the same in training and after."""

    gain: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __call__(self, a: Float[Array, " width"], *, training: bool) -> Float[Array, " width"]:
        return (a - a.mean()) * jax.lax.rsqrt(a.var() + 1e-5) * self.gain + self.shift


class BatchNormLayer(eqx.Module):
    """Batch statistics while training, calibrated ones otherwise."""

    gain: Float[Array, " width"]
    shift: Float[Array, " width"]
    moments: Buffer

    def __call__(self, a: Float[Array, " width"], *, training: bool) -> Float[Array, " width"]:
        mean, variance = self.moments.value
        if training:
            mean = jax.lax.pmean(a, "batch")
            variance = jax.lax.pmean((a - mean) ** 2, "batch")
        return (a - mean) * jax.lax.rsqrt(variance + 1e-5) * self.gain + self.shift

    def calibrated(self, activations: Float[Array, "n width"]) -> "BatchNormLayer":
        moments = Buffer((activations.mean(0), activations.var(0)))
        return eqx.tree_at(lambda layer: layer.moments, self, moments)


class Layer(eqx.Module):
    """One hidden layer: f(norm(Wx + b)), perhaps with units dropped and with its input added."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]
    norm: LayerNormLayer | BatchNormLayer | None
    activation: AbstractActivation
    dropout: Buffer | None
    residual: bool = eqx.field(static=True)

    def activate(self, x: Float[Array, " in"], *, training: bool) -> Float[Array, " out"]:
        """Wx + b, normalised."""
        a = self.weight @ x + self.bias
        return a if self.norm is None else self.norm(a, training=training)

    def __call__(self, x: Float[Array, " in"], *, key: Key[Array, ""] | None) -> Float[Array, " out"]:
        h = self.activation(self.activate(x, training=key is not None))
        if key is not None and self.dropout is not None:
            kept = coins(key, 1.0 - self.dropout.value, h.shape[0])
            h = jnp.where(kept, h / (1.0 - self.dropout.value), 0.0)
        return x + h if self.residual else h


class Linear(eqx.Module):
    """The output layer: Wh + b, as the loss wants it."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]
    activation: AbstractActivation

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.activation(self.weight @ x + self.bias)


class MlpNetwork(eqx.Module):
    """Hidden layers, then a linear output. Called without a key it is deterministic."""

    layers: tuple[Layer, ...]
    output: Linear

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " outputs"]:
        h = jnp.ravel(x)
        for number, layer in enumerate(self.layers):
            h = layer(h, key=None if key is None else jr.fold_in(key, number))
        return self.output(h)

    @property
    def needs_calibration(self) -> bool:
        return any(isinstance(layer.norm, BatchNormLayer) for layer in self.layers)

    def calibrate(self, inputs: Float[Array, "n ..."]) -> "MlpNetwork":
        """A copy whose batch statistics are those of these inputs, measured layer by layer."""
        h = inputs.reshape(inputs.shape[0], -1)
        layers = []
        for layer in self.layers:
            if isinstance(layer.norm, BatchNormLayer):
                norm = layer.norm.calibrated(h @ layer.weight.T + layer.bias)
                layer = eqx.tree_at(lambda one: one.norm, layer, norm)
            h = jax.vmap(lambda x, one=layer: one(x, key=None))(h)
            layers.append(layer)
        return eqx.tree_at(lambda network: network.layers, self, tuple(layers))


def _as_widths(value: Any) -> Any:
    return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, (list, tuple)) else value


class Mlp(AbstractModel):
    """A multi-layer perceptron (rows D1, D6, D8, J3, J4).

    Layers of equal size by default, the first wider than most inputs: a net too large costs time, a net too small
    costs error, since early stopping holds capacity back. `dropout` is the probability of dropping a hidden unit.
    """

    widths: tuple[int, ...] = switch(
        (256, 256),
        prior=Choice(((128, 128), (256, 256), (512, 512), (1024, 1024), (256,), (512,), (256, 256, 256))),
        row="D1",
        kind="capacity",
        about="hidden units of each layer",
        convert=_as_widths,
    )
    activation: AbstractActivation = Rectifier()
    initial: AbstractInitial = Glorot()
    output_initial: AbstractInitial = Glorot()
    output_activation: AbstractActivation = Identity()
    normalisation: AbstractNormalisation = NoNorm()
    dropout: float = knob(
        0.1,
        allowed="[0, 1)",
        prior=ZeroOr(Uniform(0.1, 0.6)),
        row="J3",
        kind="capacity",
        off=0.0,
        about="the probability of dropping a hidden unit in an update",
    )
    residual: bool = switch(
        False,
        allowed=(False, True),
        prior=Choice((False, True)),
        row="J4",
        about="adds a layer's input to its output where both have the same width",
    )

    def __check_init__(self) -> None:
        if not isinstance(self.widths, tuple) or not all(type(width) is int and width >= 1 for width in self.widths):
            raise RequestError(
                f"`Mlp.widths` must be whole numbers of at least 1, one for each hidden layer; got {self.widths!r}. "
                "Example: (256, 256)."
            )

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> MlpNetwork:
        fan_in = 1
        for size in inputs:
            fan_in *= size
        layers = tuple(self._layers(fan_in, key))
        top = self.widths[-1] if self.widths else fan_in
        weight = self.output_initial.draw(outputs, top, 1.0, key=jr.fold_in(key, len(self.widths)))
        return MlpNetwork(layers, Linear(weight, jnp.zeros(outputs), self.output_activation))

    def findings(self) -> tuple[Finding, ...]:
        """What the chapter warns of (row D6)."""
        found = []
        if isinstance(self.activation, Sigmoid) and len(self.widths) >= 2:
            found.append(
                Finding(
                    "warning",
                    f"sigmoid units in {len(self.widths)} hidden layers, not pre-trained: the top one saturates early.",
                    row="D6",
                    next="use Tanh() or Rectifier(), or pre-train the layers.",
                )
            )
        if isinstance(self.output_activation, (Rectifier, HardTanh)):
            found.append(
                Finding(
                    "warning",
                    "a hard non-linearity on the outputs: where it is flat the gradient is exactly 0.",
                    row="D6",
                    next="leave `output_activation` linear; the loss already bends it where it should.",
                )
            )
        return tuple(found)

    def _layers(self, fan_in: int, key: Key[Array, ""]) -> Iterator[Layer]:
        for number, width in enumerate(self.widths):
            yield Layer(
                weight=self.initial.draw(width, fan_in, self.activation.gain(), key=jr.fold_in(key, number)),
                bias=jnp.zeros(width),
                norm=self.normalisation.build(width),
                activation=self.activation,
                dropout=None if is_off(self.dropout) else Buffer(jnp.asarray(self.dropout)),
                residual=self.residual and width == fan_in,
            )
            fan_in = width
