"""The criterion: a loss on targets, and penalties on parameters.

    Supervised(SoftmaxLoss())
    Supervised(SoftmaxLoss(label_smoothing=0.1), penalties=(L2(1.0), L1(0.1, where="layers.0.weight")), mixup=0.2)
    Supervised(SoftmaxLoss(), penalties=(KlToTarget(1.0, where="layers.0"),))      of activations (`code_sparsity.py`)

For a mini-batch with B slots, B' of them in use, out of T training examples it is

    (1/B) [ sum of the B' losses + (B'/T) sum of lambda Omega ],

so that over one epoch every example and every penalty counts exactly as in the whole criterion, divided by B, and
the optimum does not move with B (row D2). In a stream, T is the number of examples seen so far. Penalties on
activations belong to examples: they are averaged over the slots, as losses are.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractCriterion, Batch, Narrowed, ValueAndTerms
from ..specs.dataset import Task
from ..specs.knobs import is_off, knob
from ..specs.networks import apply_batch
from ..specs.priors import Uniform, ZeroOr
from ..specs.sparse.rows import Rows
from .hidden_units import HiddenUnits, active, run_with_units, sum_on_units
from .losses import AbstractLoss
from .penalties import L1, L2, AbstractRegulariser, sum_on_parameters


class Supervised(AbstractCriterion):
    """Loss on targets plus penalties. With `mixup`, alpha of Beta(alpha, alpha), pairs of examples are blended."""

    loss: AbstractLoss
    penalties: tuple[AbstractRegulariser, ...] = (L2(), L1())
    mixup: float = knob(
        0.0,
        allowed="[0, inf)",
        prior=ZeroOr(Uniform(0.05, 1.0)),
        row="J9",
        kind="model",
        off=0.0,
        about="alpha of the Beta distribution from which blends of two examples are drawn",
    )

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        loss = self.loss if batch.update is None else self.loss.at(batch.update)
        if is_off(self.mixup):
            outputs, units = self._forward(model, batch.inputs, key)
            losses = jax.vmap(loss.of_members)(outputs, batch.targets)
        else:
            outputs, losses, units = self._blended(loss, model, batch, key)
        slots = batch.weights.shape[0]
        outputs = outputs if outputs.ndim == 2 else outputs.mean(axis=1)
        terms = {"loss": losses, "score": jax.vmap(self.loss.score)(outputs, batch.targets)}
        terms["margin"] = jax.vmap(self.loss.margin)(outputs, batch.targets)
        share = jnp.sum(batch.present) / (slots * batch.total)
        total = jnp.sum(batch.weights * losses) / slots + share * self.of_parameters(model)
        return (total + sum_on_units(self.penalties, units, batch.weights) if units else total), terms

    def takes_sparse(self) -> bool:
        return is_off(self.mixup)

    def narrowed(self, batch: Batch, *, key: Key[Array, ""]) -> Narrowed | None:
        penalised = any(not is_off(penalty.coefficient) for penalty in self.penalties)
        return None if penalised else Narrowed(jnp.zeros(0, jnp.int32), lambda _: batch.memory)

    def _forward(self, model: PyTree, inputs: Rows, key: Key[Array, ""]) -> tuple[Array, tuple[HiddenUnits, ...]]:
        """The outputs, and the hidden layers if a penalty reads them: both of one pass."""
        if active(self.penalties):
            return run_with_units(apply_batch, model, inputs, key)
        return apply_batch(model, inputs, key), ()

    def of_output(self, output: Float[Array, "..."], target: Array) -> Scalar:
        return self.loss.of_members(output, target)

    def of_parameters(self, model: PyTree) -> Scalar:
        return sum_on_parameters(self.penalties, model)

    def not_summed(self) -> str:
        if read := [type(one).__name__ for one in active(self.penalties)]:
            return f"the penalty {read[0]} reads hidden layers. Set its coefficient to 0, or use another optimiser."
        return "" if is_off(self.mixup) else "mixup blends examples in pairs. Set `criterion.mixup` to 0."

    def curvature_root(self) -> Callable[..., Float[Array, "..."]] | None:
        return self.loss.root_of_members if self.loss.has_root else None

    def _blended(
        self, loss: AbstractLoss, model: PyTree, batch: Batch, key: Key[Array, ""]
    ) -> tuple[Array, Array, tuple[HiddenUnits, ...]]:
        """Outputs, losses and hidden layers with each example blended with the one before it in the batch."""
        amount, network = jr.split(key)
        blend = jr.beta(amount, self.mixup, self.mixup)
        inputs = blend * batch.inputs + (1.0 - blend) * jnp.roll(batch.inputs, 1, axis=0)
        outputs, units = self._forward(model, inputs, network)
        own = jax.vmap(loss.of_members)(outputs, batch.targets)
        other = jax.vmap(loss.of_members)(outputs, jnp.roll(batch.targets, 1, axis=0))
        return outputs, blend * own + (1.0 - blend) * other, units

    def examples(self, model: PyTree, inputs: Rows, targets: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        outputs = apply_batch(model, inputs, None)
        return jax.vmap(self.loss.score)(outputs, targets), jax.vmap(self.loss.loss)(outputs, targets)

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return self.loss.link(output)

    def for_targets(self, task: Task, targets: np.ndarray) -> "Supervised":
        loss = self.loss.for_targets(task, targets)
        return self if loss is self.loss else dataclasses.replace(self, loss=loss)

    def check_task(self, task: Task) -> None:
        if self.loss.task() != task.kind:
            raise RequestError(
                f"the loss {type(self.loss).__name__} learns {self.loss.task()}, but the target holds {task.kind}. "
                f"Use the default recipe for {task.kind}, or --task {self.loss.task()}."
            )
