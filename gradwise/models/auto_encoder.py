"""Auto-encoders: a code for each input, and the input back from the code (rows A3 to A6).

    MlpAutoEncoder(widths=(500,))                                        500 sigmoid features, tied weights
    MlpAutoEncoder(widths=(500, 250, 30), code_activation=Identity())    deep, with a linear code

Called on an example, the network returns its code; `decode` maps a code to the input of the reconstruction loss:
logits for a cross-entropy, numbers for a squared error (row A7). Whether an auto-encoder is denoising, sparse
or contractive depends on its criterion (`gradwise.criteria.reconstruction`), not its network.

The hidden layers are those of a multi-layer perceptron, so a stack of encoders is one (`gradwise.pretraining`).
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..specs.contracts import AbstractModel
from ..specs.knobs import Spec, switch
from ..specs.networks import Network
from ..specs.priors import Choice
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

    def __call__(self, h: Float[Array, " in"], tied: Float[Array, "in out"]) -> Float[Array, " out"]:
        # Without weights of its own the product reads the encoder's from the right: nothing is transposed in memory.
        return self.activation((h @ tied if self.weight is None else self.weight @ h) + self.bias)


class AutoEncoderNetwork(Network):
    """Encoder layers up to the code, and as many decoder layers."""

    offers = ("decode",)
    encoder: tuple[Layer, ...]
    decoder: tuple[Decoder, ...]

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " code"]:
        h = jnp.ravel(x)
        for layer in self.encoder:
            h = layer(h, key=None)
        return h

    def decode(self, code: Float[Array, " code"]) -> Float[Array, " inputs"]:
        """The input of the reconstruction loss, one number for each input."""
        for layer, mirrored in zip(self.decoder, reversed(self.encoder), strict=True):
            code = layer(code, mirrored.weight)
        return code

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

    def __check_init__(self) -> None:
        check_widths("MlpAutoEncoder.widths", self.widths)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> AutoEncoderNetwork:
        sizes = (math.prod(inputs), *self.widths)
        code = self.activation if isinstance(self.code_activation, AsHidden) else self.code_activation
        activations = (*(self.activation for _ in self.widths[:-1]), code)
        encoder = []
        for number, activation in enumerate(activations):
            fan_in, fan_out = sizes[number], sizes[number + 1]
            weight = self.initial.draw(fan_out, fan_in, activation.gain(), key=jr.fold_in(key, number))
            encoder.append(Layer(weight, jnp.zeros(fan_out), None, activation, None, residual=False))
        decoder = []
        for number in reversed(range(len(self.widths))):
            fan_in, fan_out = sizes[number + 1], sizes[number]
            activation = self.activation if number else Identity()
            own = None
            if not self.tied:
                own = self.initial.draw(fan_out, fan_in, activation.gain(), key=jr.fold_in(key, len(sizes) + number))
            decoder.append(Decoder(own, jnp.zeros(fan_out), activation))
        return AutoEncoderNetwork(tuple(encoder), tuple(decoder))
