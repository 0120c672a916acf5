"""The network that `Convolutional` builds: layers of filters, dense layers on what they found, a linear output.

    network.convolutions[0].weight     (filters, taps): each filter as patches are, rows, columns, then channels
    network.layers, network.output     as those of a perceptron, and so named

Without `shared` a layer has filters of its own at each place, with the places as the first axes of its weights: local
receptive fields (row A12).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...runtime import keys
from ...specs.networks import Network
from ...specs.schedules import Noise
from ..mlp import BatchNormLayer, Layer, LayerNormLayer, Linear, calibrate_layers, dropped
from .augmentation import AbstractAugmentation
from .patches import apply_filters
from .pooling import AbstractPooling


class ConvolutionLayer(eqx.Module):
    """One layer of filters: pool(f(norm(W * x + b))), optionally with a residual connection and dropout."""

    weight: Float[Any, "*own out taps"]
    bias: Float[Any, "*own out"]
    norm: LayerNormLayer | BatchNormLayer | None
    activation: Any
    pooling: AbstractPooling
    dropout: Noise | None
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)
    residual: bool = eqx.field(static=True)

    def linear(self, x: Float[Array, "*sides c"]) -> Float[Array, "*places out"]:
        """W * x + b."""
        found = apply_filters(self.weight, x, kernel=self.kernel, stride=self.stride, padding=self.padding)
        return found + self.bias

    def __call__(self, x: Float[Array, "*sides c"], *, key: Key[Array, ""] | None) -> Float[Array, "*pooled out"]:
        a = self.linear(x)
        h = self.activation(a if self.norm is None else self.norm(a, training=key is not None))
        return dropped(self.pooling(x + h if self.residual else h), self.dropout, key)


class ConvolutionalNetwork(Network):
    """Layers of filters, then a perceptron on all they found. Called without a key it is deterministic."""

    convolutions: tuple[ConvolutionLayer, ...]
    layers: tuple[Layer, ...]
    output: Linear
    augmentation: AbstractAugmentation | None
    dimensions: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " outputs"]:
        return self.output(self.features(x, key=key))

    def features(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " features"]:
        """What the output layer reads."""
        h = self._with_channels(x)
        if key is not None and self.augmentation is not None:
            h = self.augmentation(h, key=keys.named(key, "augmentation"))
        for number, layer in enumerate(self._hidden):
            h = jnp.ravel(h) if number == len(self.convolutions) else h
            h = layer(h, key=None if key is None else jr.fold_in(key, number))
        return jnp.ravel(h)

    @property
    def _hidden(self) -> tuple[Any, ...]:
        return (*self.convolutions, *self.layers)

    def _with_channels(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return x[..., None] if x.ndim == self.dimensions else x

    @property
    def filters(self) -> Float[Array, "filters taps"] | None:
        """The filters of the first layer; None where each place has its own."""
        weight = self.convolutions[0].weight
        return weight if weight.ndim == 2 else None

    @property
    def filter_shape(self) -> tuple[int, ...]:
        layer = self.convolutions[0]
        window = (layer.kernel,) * self.dimensions
        return (*window, layer.weight.shape[-1] // layer.kernel**self.dimensions)

    @property
    def needs_calibration(self) -> bool:
        return any(isinstance(layer.norm, BatchNormLayer) for layer in self._hidden)

    def calibrate(self, inputs: Float[Array, "n ..."]) -> "ConvolutionalNetwork":
        """A copy whose batch statistics are those of these inputs, measured layer by layer."""
        h = inputs[..., None] if inputs.ndim == self.dimensions + 1 else inputs
        convolutions, h = calibrate_layers(self.convolutions, h)
        layers, _ = calibrate_layers(self.layers, h.reshape(h.shape[0], -1))
        return eqx.tree_at(lambda network: (network.convolutions, network.layers), self, (convolutions, layers))
