"""The training criterion as a function of the parameters: what an optimiser may ask beyond the gradient.

Every update receives it as the extra argument `objective`. It stands for the present batch; `on` and `upcoming` give
the same criterion on other examples. Only what is used is computed.

    objective(parameters)                       the criterion on this batch
    objective.upcoming()(parameters)            on the batch of the next update
    objective.on(rows)(parameters)              on any examples of the training set

Some methods need the criterion taken apart: a loss of each example's own output, and a penalty on the parameters.

    objective.outputs(parameters)               (B, k), one row an example
    objective.loss_of(outputs)                  their weighted mean loss: convex in the outputs, as a rule
    objective.penalty(parameters)               criterion = loss_of(outputs(.)) + penalty(.)

If that is impossible, an error names the optimiser that needs it, before training starts.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree, Scalar

from ..runtime import keys
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractBatches, AbstractCriterion, Batch
from ..specs.dataset import UNLABELLED, InputLayout
from ..specs.networks import apply, apply_batch
from ..specs.schedules import with_noise_of
from ..specs.sparse.rows import Rows


class Examples(eqx.Module):
    """Scaled examples on the device, there once for the whole run. Without weights all count alike.

    `layout` says which inputs of a table are numbers, flags and codes of categories, where that is known.
    """

    inputs: Rows
    targets: Array
    weights: Float[Array, " n"] | None = None
    layout: InputLayout | None = eqx.field(static=True, default=None)

    def __len__(self) -> int:
        return int(self.inputs.shape[0])


def labelled(targets: Array) -> Float[Array, " n"]:
    """1 for an example with a target, 0 for one without: a class of -1, or NaN among its numbers."""
    if jnp.issubdtype(targets.dtype, jnp.floating):
        known = ~jnp.isnan(targets)
    elif jnp.issubdtype(targets.dtype, jnp.signedinteger):
        known = targets != UNLABELLED
    else:
        known = jnp.ones(targets.shape, bool)
    return jnp.all(known, axis=tuple(range(1, targets.ndim))).astype(jnp.float32)


def labelled_share(examples: Examples) -> Scalar:
    """The weight of the examples that have a target, in all, as a share of their number."""
    known = labelled(examples.targets)
    return jnp.mean(known if examples.weights is None else known * examples.weights)


def gather(
    train: Examples, rows: Int[Array, " B"], present: Float[Array, " B"], memory: PyTree = None, *, whole: bool = False
) -> Batch:
    """The examples of one update; `whole` says that these are all of them: they are taken as they lie, uncopied.

    A slot beyond the end of the epoch has weight 0.
    """
    rows = jnp.arange(len(train), dtype=jnp.int32) if whole else rows
    taken = train if whole else jax.tree.map(lambda leaf: leaf[rows], train)
    weights = present if taken.weights is None else present * taken.weights
    total = jnp.asarray(float(len(train)))
    # Unused, the share is not computed; used, it is computed once, outside the loop over updates.
    share = labelled_share(train)
    return Batch(taken.inputs, taken.targets, weights, present, total, rows, memory, share)


def count_seen(batch: Batch, batches: AbstractBatches, update: Int[Array, ""], train: Examples) -> Batch:
    """The batch with the examples seen so far for T, where they come as a stream."""
    seen = batches.examples_seen(update, len(train))
    return batch if seen is None else dataclasses.replace(batch, total=seen.astype(batch.total.dtype))


class Objective(eqx.Module):
    """The criterion on one batch. `key` is the run's; the randomness of an update is drawn from it and its number."""

    criterion: AbstractCriterion
    batches: AbstractBatches
    rest: PyTree
    train: Examples
    key: Key[Array, ""]
    update: Int[Array, ""]
    batch: Batch

    def model(self, parameters: PyTree) -> Any:
        """The network with these parameters, its noise as this update has it."""
        return with_noise_of(eqx.combine(parameters, self.rest), self.update)

    @property
    def noise(self) -> Key[Array, ""]:
        """The key of this update's dropout and other noise: the same for every evaluation of the criterion."""
        return jr.fold_in(self.key, self.update)

    @property
    def rows(self) -> Int[Array, " B"]:
        """The places of the batch's examples in the training set."""
        assert self.batch.rows is not None, "a batch that was not gathered from the training set"
        return self.batch.rows

    def terms(self, parameters: PyTree) -> tuple[Scalar, dict[str, Array]]:
        """The criterion, and its terms by name."""
        batch = dataclasses.replace(self.batch, update=self.update)
        further = self.criterion.beside(batch, self.train, key=keys.named(self.noise, "beside"))
        if further is not None:
            beside = gather(self.train, further, jnp.ones(further.shape[0]))
            batch = dataclasses.replace(batch, beside=beside)
        return self.criterion(self.model(parameters), batch, key=self.noise)

    def __call__(self, parameters: PyTree) -> Scalar:
        return self.terms(parameters)[0]

    def value_and_gradient(self, parameters: PyTree) -> tuple[Scalar, PyTree]:
        return jax.value_and_grad(self.__call__)(parameters)

    # --- other examples

    def on(self, rows: Int[Array, " n"], present: Float[Array, " n"] | None = None) -> "Objective":
        """The same criterion on these examples of the training set, with this update's noise."""
        present = jnp.ones(rows.shape[0]) if present is None else present
        batch = dataclasses.replace(gather(self.train, rows, present, self.batch.memory), total=self.batch.total)
        return Objective(self.criterion, self.batches, self.rest, self.train, self.key, self.update, batch)

    def slots(self, chosen: Int[Array, " n"]) -> "Objective":
        """The same criterion on some slots of this batch: unused ones keep their weight 0."""
        return self.on(self.rows[chosen], self.batch.present[chosen])

    def upcoming(self, ahead: int = 1) -> "Objective":
        """The batch of a later update, with that update's noise."""
        number = self.update + ahead
        rows, present, _ = self.batches.indices(number[None], len(self.train), key=self.key)
        later = self.on(rows[0], present[0])
        batch = count_seen(later.batch, self.batches, number, self.train)
        return dataclasses.replace(later, update=number, batch=batch)

    # --- taken apart

    def summed(self, asker: str) -> AbstractCriterion:
        """The criterion as a sum over examples; raises an error, naming the asker, if it is not one."""
        reason = self.criterion.not_summed()
        if reason:
            raise RequestError(f"{asker} needs a loss of each example's own output: {reason}")
        return self.criterion

    def output(self, parameters: PyTree, example: Array, key: Key[Array, ""]) -> Float[Array, " k"]:
        """The network's output for one example of the batch."""
        return apply(self.model(parameters), example, key)

    def example_keys(self) -> Key[Array, " B"]:
        """The noise of each example, as a batch draws it."""
        return jr.split(self.noise, self.batch.inputs.shape[0])

    def check_alone(self, parameters: PyTree, asker: str) -> None:
        """Raises an error, naming the asker, if the output for one example depends on the others of the batch."""
        self.summed(asker)
        try:
            example = self.batch.inputs[0]
            jax.eval_shape(lambda p, x, k: self.output(p, x, k), parameters, example, self.noise)
        except NameError as problem:
            if "axis name" not in str(problem):  # the axis of the batch is unbound where there is none
                raise
            raise RequestError(
                f"{asker} needs each example's own gradient, but the network looks at the whole batch "
                "(batch normalisation). Use LayerNorm or no normalisation, or another optimiser."
            ) from None

    def outputs(self, parameters: PyTree) -> Float[Array, "B k"]:
        """The outputs for the batch, with the noise of training."""
        return apply_batch(self.model(parameters), self.batch.inputs, self.noise)

    def example_losses(self, outputs: Float[Array, "B k"], asker: str = "this optimiser") -> Float[Array, " B"]:
        """The loss of each example, without its weight."""
        return jax.vmap(self.summed(asker).of_output)(outputs, self.batch.targets)

    def loss_of(self, outputs: Float[Array, "B k"], asker: str = "this optimiser") -> Scalar:
        """The criterion's part that depends on the outputs: (1/B) times the weighted sum of the losses."""
        return jnp.sum(self.batch.weights * self.example_losses(outputs, asker)) / self.batch.weights.shape[0]

    def penalty(self, parameters: PyTree, asker: str = "this optimiser") -> Scalar:
        """The criterion's part that depends on the parameters alone."""
        share = jnp.sum(self.batch.present) / (self.batch.present.shape[0] * self.batch.total)
        return share * self.summed(asker).of_parameters(self.model(parameters))

    def root(self, asker: str) -> Callable[[Float[Array, " k"], Array, Float[Array, " k"]], Float[Array, " k"]]:
        """S(output, target) noise, where S S' is the loss's second derivative in the output: linear in the noise.

        The losses of gradwise know theirs. For another loss it is taken from the eigenvectors of its Hessian, a k x k
        matrix for each example, so k is limited; negative eigenvalues count as 0.
        """
        criterion = self.summed(asker)
        known = criterion.curvature_root()
        if known is not None:
            return known

        def general(output: Array, target: Array, noise: Array) -> Array:
            if output.shape[0] > _ROOTS:
                raise RequestError(
                    f"{asker} needs the curvature of the loss in {output.shape[0]} outputs, but "
                    f"{type(criterion).__name__} knows no `curvature_root` of it; without one, {_ROOTS} are the most."
                )
            values, vectors = jnp.linalg.eigh(jax.hessian(criterion.of_output)(output, target))
            return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * noise)

        return general


_ROOTS = 64
