"""Auto-encoders: a code for each input, and the input back from the code (rows A3 to A6).

    MlpAutoEncoder(widths=(500,))                                        500 sigmoid features, tied weights
    MlpAutoEncoder(widths=(500, 250, 30), code_activation=Identity())    deep, with a linear code

Called on an example, the network returns its code; `decode` maps a code to the input of the reconstruction loss:
logits for a cross-entropy, numbers for a squared error (row A7). Whether an auto-encoder is denoising, sparse
or contractive depends on its criterion (`gradwise.criteria.reconstruction`), not its network.

The hidden layers are those of a multi-layer perceptron, so a stack of encoders is one (`gradwise.pretraining`).
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from ..specs.contracts import AbstractModel
from ..specs.dataset import InputLayout
from ..specs.knobs import Spec, switch
from ..specs.networks import Network
from ..specs.priors import Choice
from ..specs.sparse.products import products_at
from ..specs.sparse.rows import Rows, SparseRows
from .activations import AbstractActivation, Identity, Sigmoid
from .initial_weights import AbstractInitial, Glorot
from .mlp import Layer, check_widths, layer_widths


class AsHidden(Spec):
    """The code has the activation of the other hidden units, by `code_activation or activation`."""

    def __bool__(self) -> bool:
        return False


class Decoder(eqx.Module):
    """One layer of the decoder: g(W'h + b), with its own weights or the encoder's."""

    weight: Float[Any, "out in"] | None
    bias: Float[Any, " out"]
    activation: AbstractActivation

    def __call__(self, h: Float[Array, " in"], mirrored: Layer) -> Float[Array, " out"]:
        # Without weights of its own the product reads the encoder's from the right: nothing is transposed in memory.
        if self.weight is None:
            made = mirrored.weight @ h if mirrored.turned else h @ mirrored.weight
        else:
            made = self.weight @ h
        return self.activation(made + self.bias)

    def at(self, h: Float[Array, " in"], mirrored: Layer, places: Int[Array, " k"]) -> Float[Array, " k"]:
        """Some of the outputs, of which no others are computed; 0 at a place beyond the last, which is none."""
        table = mirrored.weight if self.weight is None else self.weight
        there = places < self.bias.shape[0]
        bias = self.bias.at[places].get(mode="fill", fill_value=0.0)
        return jnp.where(there, self.activation(products_at(table, places, h) + bias), 0.0)


class AutoEncoderNetwork(Network):
    """Encoder layers up to the code, and as many decoder layers."""

    offers = ("decode", "decode_at")
    encoder: tuple[Layer, ...]
    decoder: tuple[Decoder, ...]

    def __call__(self, x: Rows, *, key: Key[Array, ""] | None = None) -> Float[Array, " code"]:
        h: Any = x if isinstance(x, SparseRows) else jnp.ravel(x)
        for layer in self.encoder:
            h = layer(h, key=None)
        return h

    def decode(self, code: Float[Array, " code"]) -> Float[Array, " inputs"]:
        """The input of the reconstruction loss, one number for each input."""
        return self.decoder[-1](self._before_last(code), self.encoder[0])

    def decode_at(self, code: Float[Array, " code"], columns: Int[Array, " k"]) -> Float[Array, " k"]:
        """What `decode` gives at these inputs, of a network for sparse rows; 0 at a column beyond the last."""
        return self.decoder[-1].at(self._before_last(code), self.encoder[0], columns)

    def _before_last(self, code: Float[Array, " code"]) -> Float[Array, " units"]:
        for layer, mirrored in zip(self.decoder[:-1], reversed(self.encoder[1:]), strict=True):
            code = layer(code, mirrored)
        return code

    @property
    def takes_sparse(self) -> bool:
        return self.encoder[0].turned

    @property
    def column_tables(self) -> tuple[Any, ...]:
        last = self.decoder[-1]
        tables = (self.encoder[0].weight, last.bias) if self.encoder[0].turned else ()
        return tables if not tables or last.weight is None else (*tables, last.weight)

    @property
    def filters(self) -> Float[Array, "units inputs"]:
        weight = self.encoder[0].weight
        return weight.T if self.encoder[0].turned else weight

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The encoder, as layers of a perceptron."""
        return self.encoder


class MlpAutoEncoder(AbstractModel):
    """An encoder and its mirror image (row A3).

    The last of `widths` is the size of the code. With `tied` weights the decoder is the encoder transposed: half the
    parameters, and no layer can become linear through tiny encoder and huge decoder weights.
    """

    widths: tuple[int, ...] = layer_widths(
        (256,), *((128,), (256,), (512,), (1024,)), row="A3", about="hidden units of each layer up to the code"
    )
    activation: AbstractActivation = Sigmoid()
    code_activation: AbstractActivation | AsHidden = AsHidden()
    initial: AbstractInitial = Glorot()
    tied: bool = switch(
        True, allowed=(False, True), prior=Choice((False, True)), row="A3", about="decode with the encoder's weights"
    )

    turned: bool = switch(
        False, allowed=(False, True), row="G2", about="the first layer's weights are (inputs, units), for sparse rows"
    )

    def __check_init__(self) -> None:
        check_widths("MlpAutoEncoder.widths", self.widths)

    def takes_sparse(self) -> bool:
        return True

    def for_inputs(self, layout: InputLayout | None) -> "MlpAutoEncoder":
        sparse = layout is not None and layout.sparse
        return dataclasses.replace(self, turned=True) if sparse and not self.turned else self

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> AutoEncoderNetwork:
        sizes = (math.prod(inputs), *self.widths)
        code = self.activation if isinstance(self.code_activation, AsHidden) else self.code_activation
        activations = (*(self.activation for _ in self.widths[:-1]), code)
        encoder = []
        for number, activation in enumerate(activations):
            fan_in, fan_out = sizes[number], sizes[number + 1]
            weight = self.initial.draw(fan_out, fan_in, activation.gain(), key=jr.fold_in(key, number))
            turned = self.turned and number == 0
            weight = weight.T if turned else weight
            encoder.append(Layer(weight, jnp.zeros(fan_out), None, activation, None, residual=False, turned=turned))
        decoder = []
        for number in reversed(range(len(self.widths))):
            fan_in, fan_out = sizes[number + 1], sizes[number]
            activation = self.activation if number else Identity()
            own = None
            if not self.tied:
                own = self.initial.draw(fan_out, fan_in, activation.gain(), key=jr.fold_in(key, len(sizes) + number))
            decoder.append(Decoder(own, jnp.zeros(fan_out), activation))
        return AutoEncoderNetwork(tuple(encoder), tuple(decoder))
