"""Penalties that make a code insensitive to its input (row A6), so that it keeps only what reconstruction needs.

    Reconstruction(on_codes=(Contraction(0.1),))                           the contractive auto-encoder
    Reconstruction(on_codes=(Contraction(0.1), HigherContraction(0.1)))    also penalises changes of the Jacobian

For a layer h = f(a), a = Wx + b, the Jacobian dh/dx is diag(f'(a)) W, so its squared norm is a product of two sums,

    norm^2 = sum_j f'(a_j)^2 sum_i W_ji^2,      f' = h (1 - h) for a sigmoid, 1 - h^2 for tanh, [h > 0] for a rectifier,

which costs less than the encoding itself. For deeper encoders, autodiff takes one backward pass per unit.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..records.finding import Finding
from ..specs.knobs import knob, switch
from ..specs.networks import apply, as_network
from ..specs.paths import knobs, parts
from ..specs.priors import LogUniform
from .code_sparsity import code_range
from .reconstruction import AbstractCodePenalty, BatchCodes, BatchInputs, ExampleWeights, SquaredError


def _coefficient(default: float, what: str) -> Any:
    return knob(
        default, allowed="[0, inf)", prior=LogUniform(1e-3, 10.0), row="A6", kind="capacity", off=0.0, about=what
    )


def _only_layer(model: PyTree) -> Any:
    """The encoder's layer, where it is one, plain, and of a known slope; else None."""
    layers = as_network(model).hidden_layers
    if len(layers) != 1:
        return None
    (layer,) = layers
    plain = layer.norm is None and layer.mask is None and layer.dropout is None and not layer.residual
    return layer if plain and layer.activation.slope_at(jnp.zeros(1)) is not None else None


def jacobian(model: PyTree, x: Float[Array, "..."]) -> Float[Array, "h d"]:
    """dh/dx at one input by automatic differentiation, in the direction that takes fewer passes."""
    flat = jnp.ravel(x)

    def encode(values: Float[Array, " d"]) -> Float[Array, " h"]:
        return apply(model, values.reshape(x.shape), None)

    units = jax.eval_shape(encode, flat).shape[0]
    return (jax.jacrev if units <= flat.shape[0] else jax.jacfwd)(encode)(flat)


def _departures(recipe: Any) -> tuple[str, ...]:
    """How a recipe differs from the published auto-encoder: tied weights, sigmoid units, sigmoid outputs."""
    inside, found = dict(parts(recipe)), []
    if ("model.tied", False) in ((path, value) for path, _, value in knobs(recipe)):
        found.append("untied weights (the encoder can shrink and the decoder grow, which contracts nothing)")
    units = (inside.get(f"model.{name}") for name in ("activation", "code_activation"))
    kinds = {type(each).__name__ for each in units if each and code_range(each) != (0.0, 1.0)}
    if kinds:
        found.append(f"{' and '.join(sorted(kinds))} units")
    if isinstance(inside.get("criterion.loss"), SquaredError):
        found.append("linear outputs")
    return tuple(found)


def _findings(recipe: Any) -> tuple[Finding, ...]:
    found = _departures(recipe)
    if not found:
        return ()
    return (
        Finding(
            "note",
            f"a contractive auto-encoder with {', '.join(found)}: the published results are for tied weights, sigmoid "
            "hidden and output units and inputs in [0, 1].",
            row="A6",
            next="expect to choose the coefficient anew, or use AutoEncoder(tied=True) with CrossEntropy().",
        ),
    )


class Contraction(AbstractCodePenalty):
    """The squared Frobenius norm of dh/dx, example by example (Rifai, Vincent, Muller, Glorot & Bengio 2011).

    A one-layer encoder uses the closed form, any other autodiff; `form="autodiff"` always uses autodiff.
    """

    coefficient: float = _coefficient(0.1, "how much contraction counts beside the reconstruction of an example")
    form: str = switch("closed", allowed=("closed", "autodiff"), row="A6", about="the closed form if there is one")

    def __call__(
        self, model: PyTree, inputs: BatchInputs, codes: BatchCodes, weights: ExampleWeights, *, key: Key[Array, ""]
    ) -> Scalar:
        layer = _only_layer(model) if self.form == "closed" else None
        if layer is None:
            norms = jax.vmap(lambda x: jnp.sum(jacobian(model, x) ** 2))(inputs)
        else:
            norms = layer.activation.slope_at(codes) ** 2 @ jnp.sum(layer.weight**2, axis=1)
        return jnp.sum(weights * norms) / weights.shape[0]

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        """A note where the auto-encoder is not the published one."""
        return _findings(recipe)


class HigherContraction(AbstractCodePenalty):
    """E of the squared norm of J(x) - J(x + e), e normal: the Hessian's norm without the Hessian (Rifai et al. 2011,
    "Higher order contractive auto-encoder"). For small deviations s it is s^2 times the squared norm of dJ/dx.
    """

    coefficient: float = _coefficient(0.1, "how much the variation of the Jacobian counts beside the reconstruction")
    deviation: float = knob(
        0.1,
        allowed="(0, inf)",
        prior=LogUniform(0.01, 1.0),
        row="A6",
        kind="capacity",
        about="standard deviation of the noise between the two Jacobians, in units of the scaled inputs",
    )
    samples: int = switch(4, allowed="[1, inf)", row="A6", about="noise draws per example")

    def __call__(
        self, model: PyTree, inputs: BatchInputs, codes: BatchCodes, weights: ExampleWeights, *, key: Key[Array, ""]
    ) -> Scalar:
        layer = _only_layer(model)
        here: Any = jax.vmap(lambda x: jacobian(model, x))(inputs) if layer is None else None

        def gap(drawn: Key[Array, ""]) -> Float[Array, " B"]:
            near = inputs + self.deviation * jr.normal(drawn, inputs.shape, inputs.dtype)
            if layer is None:
                there = jax.vmap(lambda x: jacobian(model, x))(near)
                return jnp.sum((here - there) ** 2, axis=(1, 2))
            moved = jax.vmap(lambda x: apply(model, x, None))(near)
            slope = layer.activation.slope_at
            return (slope(codes) - slope(moved)) ** 2 @ jnp.sum(layer.weight**2, axis=1)

        draws = jr.split(key, self.samples)
        # Closed forms make one product; whole Jacobians come one draw after another, or they might not fit.
        norms = jnp.mean(jax.lax.map(gap, draws) if layer is None else jax.vmap(gap)(draws), axis=0)
        return jnp.sum(weights * norms) / weights.shape[0]

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        """A note where the auto-encoder is not the published one."""
        return _findings(recipe)
