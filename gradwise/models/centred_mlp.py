"""Centred non-linearities with compensation (row D12; Schraudolph 1998, Raiko, Valpola and LeCun 2012).

A unit's output is scale (f(a) + slope a + shift), with slope and shift such that over the examples its mean output and
its mean slope are 0, and a scale that makes its spread about 1 (the scale: Vatanen, Raiko, Valpola and LeCun 2013).
The linear part of their function, which the units no longer carry, goes through shortcuts: every layer reads all
earlier ones, not only the last. The second derivatives between layers then nearly vanish, and plain gradients come
close to Newton's.

    CentredMlp(widths=(64, 64, 64))                        the network, centred on demand
    Recentred(Sgd(0.1), every_updates=100)                 an optimiser that centres it regularly

When slope, shift and scale change, weights, shortcuts and biases are adjusted so that the network's function stays the
same: with W the weight from layer l to a later layer m, its columns times the old scale, and
a_l = sum_j C_lj h_j + b_l,

    C_mj <- C_mj - W diag(change of slope) C_lj          for every j below l
    b_m  <- b_m  - W (change of slope * b_l + change of shift)
    C_ml <- C_ml diag(old scale / new scale)

With shortcuts from every layer to every later one this is exact at any depth; it is derived here for that case, of
which the published y = A f(Bx) + Cx is the one with a single hidden layer.

Measured on the digits that come with scikit-learn, four layers of 50 units, 240 updates of plain SGD at its best rate,
training loss: sigmoid units 0.15 plain, 0.07 with shortcuts, 0.01 centred; rectifiers 0.06, 0.02, 0.006;
tanh 0.05, 0.04 and 0.06, no gain. Without the scale, centring made nothing faster than shortcuts alone did.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..specs.contracts import AbstractModel
from ..specs.networks import Network
from .activations import AbstractActivation, Sigmoid
from .initial_weights import AbstractInitial, Glorot
from .mlp import check_widths, layer_widths

# Keeps the scale of a unit whose response is all but linear, so that centring leaves next to nothing, below about 30:
# at 1e-4 rectifier nets diverge at every useful rate, at 1e-2 sigmoid units gain little.
_LEAST = 1e-3


class CentredLayer(eqx.Module):
    """scale (f(a) + slope a + shift) with a = sum over all earlier layers of their weights times them, plus a bias."""

    weights: tuple[Float[Any, "out _"], ...]  # one for each earlier layer, the inputs first
    bias: Float[Any, " out"]
    slope: Float[Any, " out"]
    shift: Float[Any, " out"]
    scale: Float[Any, " out"]
    activation: AbstractActivation

    def activate(self, earlier: list[Float[Array, " _"]]) -> Float[Array, " out"]:
        return sum((weight @ h for weight, h in zip(self.weights, earlier, strict=True)), start=self.bias)

    def respond(self, a: Float[Array, " out"]) -> Float[Array, " out"]:
        # Measured, not learned: no gradient moves them.
        slope, shift, scale = jax.lax.stop_gradient((self.slope, self.shift, self.scale))
        return scale * (self.activation(a) + slope * a + shift)


class CentredNetwork(Network):
    """Hidden layers and a linear output, each reading all earlier layers."""

    offers = ("recentred",)
    layers: tuple[CentredLayer, ...]
    output: CentredLayer

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " outputs"]:
        earlier = [jnp.ravel(x)]
        for layer in self.layers:
            earlier.append(layer.respond(layer.activate(earlier)))
        return self.output.activate(earlier)

    def recentred(self, inputs: Float[Array, "n ..."], weights: Float[Array, " n"]) -> "CentredNetwork":
        """The same function with every hidden unit's mean output and mean slope 0 over these examples."""
        share = weights / jnp.maximum(jnp.sum(weights), 1e-12)
        earlier = [inputs.reshape(inputs.shape[0], -1)]
        stack = [*self.layers, self.output]
        for number in range(len(self.layers)):
            layer = stack[number]
            a = jax.vmap(layer.activate)(earlier)
            slopes = jax.vmap(jax.vmap(jax.grad(lambda one, f=layer.activation: f(one))))(a)
            slope = -jnp.einsum("no,n->o", slopes, share)
            shift = -jnp.einsum("no,n->o", layer.activation(a) + slope * a, share)
            spread = jnp.einsum("no,n->o", (layer.activation(a) + slope * a + shift) ** 2, share)
            scale = jax.lax.rsqrt(spread + _LEAST)
            stack[number] = eqx.tree_at(lambda one: (one.slope, one.shift, one.scale), layer, (slope, shift, scale))
            change = (slope - layer.slope, shift - layer.shift, layer.scale / scale)
            for later in range(number + 1, len(stack)):
                stack[later] = _compensated(stack[later], number + 1, layer, change)
            earlier.append(jax.vmap(stack[number].respond)(a))
        return CentredNetwork(tuple(stack[:-1]), stack[-1])


def _compensated(later: CentredLayer, place: int, layer: CentredLayer, change: tuple[Array, ...]) -> CentredLayer:
    """A later layer that compensates the change of the units of `layer`, its `place`-th input."""
    more_slope, more_shift, shrunk = change
    weight = later.weights[place] * layer.scale  # as it meets f(a) + slope a + shift
    weights = tuple(
        later.weights[place] * shrunk
        if number == place
        else one - (weight * more_slope) @ layer.weights[number]
        if number < place
        else one
        for number, one in enumerate(later.weights)
    )
    bias = later.bias - weight @ (more_slope * layer.bias + more_shift)
    return eqx.tree_at(lambda one: (one.weights, one.bias), later, (weights, bias))


class CentredMlp(AbstractModel):
    """A multi-layer perceptron with shortcuts between all layers, whose units can be centred. The shortcuts start at 0.

    It is an ordinary network until it is centred: train it with `Recentred`. Its units are sigmoids by default, since
    those gain most from centring (above); tanh units, whose mean is near 0 already, gain nothing.
    """

    widths: tuple[int, ...] = layer_widths(
        (256, 256), *((128, 128), (256, 256), (512, 512), (128,) * 4), row="D12", about="hidden units of each layer"
    )
    activation: AbstractActivation = Sigmoid()
    initial: AbstractInitial = Glorot()

    def __check_init__(self) -> None:
        check_widths("CentredMlp.widths", self.widths, least=0)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> CentredNetwork:
        sizes = [math.prod(inputs), *self.widths, outputs]
        layers = []
        for number, width in enumerate(sizes[1:]):
            gain = self.activation.gain() if number < len(self.widths) else 1.0
            below = self.initial.draw(width, sizes[number], gain, key=jr.fold_in(key, number))
            shortcuts = tuple(jnp.zeros((width, size)) for size in sizes[:number])
            bias, slope, shift = (jnp.zeros(width) for _ in range(3))
            layers.append(CentredLayer((*shortcuts, below), bias, slope, shift, jnp.ones(width), self.activation))
        return CentredNetwork(tuple(layers[:-1]), layers[-1])
