"""The criterion of sparse coding: the energy of each example at its own best code (row A10).

    Recipe(model=SparseDictionary(units=256), criterion=SparseCode(), ...)
    Recipe(model=PredictiveSparse(units=256), criterion=SparseCode(), ...)

The network defines the energy: `codes(inputs)` minimises `energy(inputs, codes)`. At the minimum its derivative with
respect to the code is 0, so the gradient of the minimal energy in the parameters is the gradient with the code held
fixed (the envelope theorem): nothing is differentiated through the iterations.

More atoms and a smaller penalty always lower that energy on new examples too, because they copy better. So the *score*
of a dictionary, as of auto-encoders, is how well it denoises inputs corrupted in one fixed way (row E20).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..specs.contracts import AbstractCriterion, Batch, ValueAndTerms
from ..specs.knobs import is_off
from ..specs.networks import apply_batch, require_methods
from .corruption import AbstractCorruption, Masking
from .penalties import AbstractPenalty


def _held(model: PyTree) -> PyTree:
    """The model as numbers: stopped here and not behind the codes, no tangent is carried through the iterations."""
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


def _flat(inputs: Float[Array, "n ..."]) -> Float[Array, "n d"]:
    return inputs.reshape(inputs.shape[0], -1)


class SparseCode(AbstractCriterion):
    """The mean of min over z of energy(x, z), and penalties on parameters.

    `denoising_error` is the squared error, summed over inputs, of an input denoised by the network's own features;
    `energy` is what is minimised; `active_share` is the non-zero share of the code.
    """

    learns_from = "inputs"
    penalties: tuple[AbstractPenalty, ...] = ()
    judged_by: AbstractCorruption = Masking(0.25)

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        inputs = _flat(batch.inputs)
        losses = model.energy(inputs, _held(model).codes(inputs))
        slots = batch.weights.shape[0]
        total = jnp.sum(batch.weights * losses) / slots
        share = jnp.sum(batch.present) / (slots * batch.total)
        for penalty in self.penalties:
            if not is_off(penalty.coefficient):
                total += share * penalty.coefficient * penalty(model)
        return total, {"loss": losses, "score": losses}

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return ("denoising_error", "energy", "active_share")

    def measures(self, model: PyTree, inputs: Float[Array, "n ..."]) -> dict[str, Float[Array, " n"]]:
        clean = _flat(inputs)
        spoilt, _ = self.judged_by(inputs, key=jr.key(0))  # one noise for all: scores differ by the model alone
        repaired = model.decode(apply_batch(model, spoilt, None))
        codes = model.codes(clean)
        found = (
            jnp.sum((repaired - clean) ** 2, axis=1),
            model.energy(clean, codes),
            jnp.mean(codes != 0, axis=1, dtype=clean.dtype),
        )
        return dict(zip(self.measured(model), found, strict=True))

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        found = self.measures(model, inputs)
        return found["denoising_error"], found["energy"]

    def decode(self, model: PyTree, code: Float[Array, " k"]) -> Float[Array, " d"]:
        return model.decode(code)

    def check_network(self, network: PyTree) -> None:
        require_methods("SparseCode", network, ("codes", "energy"), "SparseDictionary or PredictiveSparse")
