"""A whole predictor as one function of JAX, from raw encoded rows to predictions, for any number of rows.

    whole = whole_predictor(predictor)
    whole.function(rows)                    as `predictor.predict(rows)`, but traceable
    whole.program                           its equations, with the number of rows left open as `n`

Scaler, temperature and link run in 64 bits as they do in `predict`, the network in 32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from jax import export
from jaxtyping import Array, Float

from ..specs.networks import apply_batch
from ..training.committee import Committee, mean_prediction
from ..training.predictor import AbstractPredictor, Predictor


class _Library:
    """`jax.numpy` for scalers, whose places lie within, with a search that compares with every value at once."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def searchsorted(values: Array, found: Array) -> Array:
        return jnp.sum(values < found[..., None], axis=-1)

    @staticmethod
    def take(values: Array, places: Array) -> Array:
        return jnp.take(values, places, mode="clip")


@dataclass(frozen=True)
class WholePredictor:
    """One function of rows (n, *shape) in 64 bits; call and trace it where JAX has 64 bits."""

    function: Callable[[Array], Array]
    shape: tuple[int, ...]

    @property
    def rows(self) -> jax.ShapeDtypeStruct:
        """What it takes: any number of rows."""
        (count,) = export.symbolic_shape("n")
        return jax.ShapeDtypeStruct((count, *self.shape), jnp.float64)

    @property
    def program(self) -> Any:
        """Its closed program."""
        with jax.enable_x64(True):
            return jax.jit(self.function).trace(self.rows).jaxpr


def _one(predictor: Predictor, rows: Float[Array, "n ..."]) -> Float[Array, "n k"]:
    with jax.named_scope("scaling"):
        inputs = predictor.scaler.map(rows, _Library()).astype(jnp.float32)
    # Traced where JAX has 32 bits, as in `predict`: a network written for them need not compile in 64.
    with jax.enable_x64(False):
        given = jax.ShapeDtypeStruct(inputs.shape, jnp.float32)
        network = jax.make_jaxpr(lambda x: apply_batch(predictor.network, x, None))(given)
    with jax.named_scope("network"):
        (outputs,) = jax.extend.core.jaxpr_as_fun(network)(inputs)
    with jax.named_scope("prediction"):
        outputs = outputs.astype(jnp.float64)
        if predictor.task.kind in ("numbers", "inputs"):
            return outputs * predictor.scale + predictor.shift
        return jax.vmap(predictor.criterion.link)(outputs / predictor.temperature)


def _several(committee: Committee, rows: Float[Array, "n ..."]) -> Float[Array, "n k"]:
    found: list[Any] = []
    for number, member in enumerate(committee.members):
        with jax.named_scope(f"member {number + 1}"):
            found.append(_one(member, rows))
    with jax.named_scope("committee"):
        mean = mean_prediction(found, committee.weights)
        if committee.task.kind != "classes" or committee.temperature == 1.0:
            return mean
        logs = jnp.log(jnp.maximum(mean, 1e-38))  # bounded as in `Committee.tempered`
        return jax.nn.softmax(logs / committee.temperature, axis=1)


def whole_predictor(predictor: AbstractPredictor) -> WholePredictor:
    """The predictor, one network or a committee, as one function."""
    if isinstance(predictor, Committee):
        return WholePredictor(lambda rows: _several(predictor, rows), predictor.shape)
    assert isinstance(predictor, Predictor)
    return WholePredictor(lambda rows: _one(predictor, rows), predictor.shape)
