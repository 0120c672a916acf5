"""An ensemble in one network: members share every weight and differ by factors on each layer's inputs and outputs.

    SharedWeights(Mlp(widths=(128, 128, 128)), members=8)

Gorishniy, Kotelnikov and Babenko 2024 ("TabM"), after the batch ensembles of Wen, Tran and Ba 2020. Member k computes
f(s_k * W (r_k * x) + b_k) in each hidden layer and has its own output layer. In the first layer r_k is random
signs, so that members see different views of one example; all other factors start at 1.

In training (called with a key) the network returns one row of outputs per member, and the criterion averages the
members' losses, so each member learns independently. Otherwise it returns the mean of their outputs, which for classes
is the geometric mean of their probabilities.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..runtime import keys
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractModel
from ..specs.dataset import InputLayout
from ..specs.knobs import switch
from ..specs.paths import Buffer, replace
from ..specs.priors import Choice
from ..specs.schedules import Noise
from .activations import AbstractActivation
from .input_stage import InputStage
from .mlp import Mlp, NoNorm, draw_layer, dropout_of, dropped, scaled


class SharedLayer(eqx.Module):
    """One hidden layer of all members."""

    weight: Float[Any, "out in"]
    input_factors: Float[Any, "members in"]
    output_factors: Float[Any, "members out"]
    bias: Float[Any, "members out"]
    activation: Any
    dropout: Noise | None
    residual: bool = eqx.field(static=True)
    scale: Buffer | None = None

    def __call__(self, x: Float[Array, "members in"], *, key: Key[Array, ""] | None) -> Float[Array, "members out"]:
        a = self.output_factors * scaled((x * self.input_factors) @ self.weight.T, self.scale) + self.bias
        h = dropped(self.activation(a), self.dropout, key)
        return x + h if self.residual else h


class SharedOutput(eqx.Module):
    """An output layer for each member."""

    weight: Float[Any, "members out in"]
    bias: Float[Any, "members out"]
    activation: AbstractActivation
    scale: Buffer | None = None

    def __call__(self, x: Float[Array, "members in"]) -> Float[Array, "members out"]:
        return self.activation(scaled(jnp.einsum("moi,mi->mo", self.weight, x), self.scale) + self.bias)


class SharedNetwork(eqx.Module):
    """All members: a row of outputs per member in training, their mean otherwise."""

    layers: tuple[SharedLayer, ...]
    output: SharedOutput
    inputs: InputStage | None = None

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, "..."]:
        h = jnp.ravel(x) if self.inputs is None else self.inputs(jnp.ravel(x), key=key)
        h = jnp.broadcast_to(h, (self.output.bias.shape[0], h.shape[0]))
        for number, layer in enumerate(self.layers):
            h = layer(h, key=None if key is None else jr.fold_in(key, number))
        outputs = self.output(h)
        return jnp.mean(outputs, axis=0) if key is None else outputs


class SharedWeights(AbstractModel):
    """An ensemble of `mlp`s that needs little more memory than one (row J3's ensemble, trained)."""

    mlp: Mlp = Mlp()
    members: int = switch(
        8,
        allowed="[1, inf)",
        prior=Choice((4, 8, 16, 32)),
        row="J3",
        kind="capacity",
        about="networks that share their weights; the cost of an update is proportional to their number",
    )

    def __check_init__(self) -> None:
        if not isinstance(self.mlp.normalisation, NoNorm):
            raise RequestError("`SharedWeights` has no normalisation: leave `mlp.normalisation` at NoNorm().")

    def for_inputs(self, layout: InputLayout | None) -> AbstractModel:
        return replace(self, "mlp", self.mlp.for_inputs(layout))

    def started(self, network: Any, inputs: Float[Array, "n ..."]) -> Any:
        return self.mlp.started(network, inputs)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> SharedNetwork:
        mlp, members = self.mlp, self.members
        stage, size = mlp.stage(inputs, key)
        layers = []
        for number, width in enumerate(mlp.widths):
            draw = jr.fold_in(key, number)
            weight, _, scale = draw_layer(mlp, mlp.initial, mlp.activation.gain(), (width, size), (width, size), draw)
            signs = jr.rademacher(keys.named(draw, "signs"), (members, size), jnp.float32)
            layers.append(
                SharedLayer(
                    weight=weight,
                    input_factors=signs if number == 0 else jnp.ones((members, size)),
                    output_factors=jnp.ones((members, width)),
                    bias=self._member_layers(mlp.activation.gain(), (width, size), draw)[1],
                    activation=mlp.activation.units(width),
                    dropout=dropout_of(mlp),
                    residual=mlp.residual and width == size,
                    scale=scale,
                )
            )
            size = width
        weights, biases = self._member_layers(1.0, (outputs, size), jr.fold_in(key, len(mlp.widths)))
        scale = draw_layer(mlp, mlp.output_initial, 1.0, (outputs, size), (outputs, size), key)[2]
        return SharedNetwork(tuple(layers), SharedOutput(weights, biases, mlp.output_activation, scale), stage)

    def _member_layers(self, gain: float, shape: tuple[int, int], key: Key[Array, ""]) -> tuple[Array, Array]:
        """Weights and biases of one layer, drawn separately for each member."""

        def one(key: Key[Array, ""]) -> tuple[Array, Array]:
            return draw_layer(self.mlp, self.mlp.output_initial, gain, shape, shape, key)[:2]

        return jax.vmap(one)(jr.split(keys.named(key, "members"), self.members))
