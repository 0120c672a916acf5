"""Semi-supervised embedding (row G4): neighbours lie close together in some layer, whether they have labels or not.

    EmbedNeighbours()                                                    at the output
    EmbedNeighbours(layer="layers.1", coefficient=0.02, neighbours=5)    at a hidden layer
    defaults.classification(criterion=EmbedNeighbours())

With f the output or the activations of a layer, after Weston, Ratle and Collobert (2008),

    J = mean over the labelled of loss + (lambda/W) Omega + coefficient * mean over all i of L_i,
    L_i = |f_i - f_j|^2 + max(0, margin - |f_i - f_r|)^2,

where j is one of the nearest neighbours of i among the network's inputs, found once before the first update, and r any
example that is none of them. Each update draws one j and one r for every example of its batch, and besides `labelled`
examples that have a target: a few among many unlabelled ones are not lost, and their term keeps its scale.
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree, Scalar

from ...curvature.objective import Examples, labelled
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractCriterion, Batch, ValueAndTerms
from ...specs.dataset import Task
from ...specs.knobs import is_off, knob, switch
from ...specs.networks import apply_batch
from ...specs.priors import LogInteger, LogUniform
from ...specs.sparse.rows import Rows, SparseRows
from ..hidden_units import choose_units, run_with_units
from ..losses import SoftmaxLoss
from ..supervised import Supervised
from .neighbours import hinge_losses, nearest_neighbours, squared_distances

OUTPUT = "output"


def _known(batch: Batch) -> Float[Array, " B"]:
    return labelled(batch.targets)


def _without_gaps(batch: Batch) -> Batch:
    """The batch with targets of 0 where there are none, a class or a number like any other."""
    known = _known(batch).reshape(-1, *(1 for _ in batch.targets.shape[1:]))
    return dataclasses.replace(batch, targets=jnp.where(known > 0, batch.targets, jnp.zeros((), batch.targets.dtype)))


class EmbedNeighbours(AbstractCriterion):
    """J = supervised loss on labelled examples + `coefficient` * loss of pairs of neighbours and of others."""

    learns_from = "both"
    supervised: Supervised = Supervised(SoftmaxLoss())
    coefficient: float = knob(
        0.1,
        allowed="[0, inf)",
        prior=LogUniform(1e-2, 10.0),
        row="G4",
        kind="model",
        off=0.0,
        about="the weight of the pairs relative to the mean loss of the labelled examples",
    )
    margin: float = knob(
        10.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 30.0),
        row="G4",
        kind="model",
        about="the distance beyond which examples that are no neighbours are left alone",
    )
    neighbours: int = switch(
        10,
        allowed="[1, inf)",
        prior=LogInteger(2, 50),
        row="G4",
        kind="model",
        about="how many of the nearest examples count as neighbours",
    )
    layer: str = switch(
        OUTPUT,
        row="G4",
        kind="model",
        about='what is embedded: "output", or the name of a hidden layer such as "layers.0"',
    )
    labelled: int = switch(
        100,
        allowed="[1, inf)",
        prior=LogInteger(8, 256),
        row="G4",
        kind="optimiser",
        about="examples with a target in each update, beside the batch",
    )

    def __check_init__(self) -> None:
        if not is_off(self.supervised.mixup):
            raise RequestError(
                "`EmbedNeighbours.supervised.mixup` blends the targets of two examples, and some have none. Set it "
                "to 0."
            )

    # --- what an update sees beside its batch

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        if is_off(self.coefficient):
            return jnp.zeros((inputs.shape[0], 1), jnp.int32)
        return nearest_neighbours(inputs, self.neighbours)

    def beside(self, batch: Batch, train: Examples, *, key: Key[Array, ""]) -> Int[Array, " rows"]:
        """Labelled examples, drawn by weight; a neighbour of each example of the batch; any other example for each."""
        first, second, third = jr.split(key, 3)
        assert batch.rows is not None, "a batch of the training set"
        known = labelled(train.targets) * (1.0 if train.weights is None else train.weights)
        places = jnp.cumsum(known)
        drawn = jnp.searchsorted(places, jr.uniform(first, (self.labelled,)) * places[-1], side="right")
        slots = batch.rows.shape[0]
        chosen = jr.randint(second, (slots,), 0, batch.memory.shape[1])
        near = batch.memory[batch.rows, chosen]
        far = jr.randint(third, (slots,), 0, len(train))
        return jnp.concatenate([jnp.minimum(drawn, len(train) - 1), near, far]).astype(jnp.int32)

    # --- the criterion

    def _embedded(self, model: PyTree, inputs: Rows, key: Key[Array, ""]) -> tuple[Array, Array]:
        """Outputs, and what is embedded: one row an example."""
        if self.layer == OUTPUT:
            outputs = apply_batch(model, inputs, key)
            return outputs, outputs.reshape(outputs.shape[0], -1)
        outputs, units = run_with_units(apply_batch, model, inputs, key)
        (chosen, *_) = choose_units(units, self.layer)
        return outputs, chosen.activations.reshape(outputs.shape[0], -1)

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        ours, theirs = jr.split(key)
        known, own = _known(batch), _without_gaps(batch)
        other = batch.beside
        if other is None:  # a batch on its own: its labelled examples, and no pairs
            share = jnp.maximum(jnp.sum(batch.weights * known) / jnp.sum(batch.present), jnp.finfo(jnp.float32).tiny)
            alone = dataclasses.replace(own, weights=batch.weights * known / share, total=batch.total * share)
            total, terms = self.supervised(model, alone, key=ours)
            return total, {**terms, "loss": known * terms["loss"], "score": known * terms["score"]}
        total, _ = self.supervised(model, self._labelled_of(other, batch), key=ours)
        paired = not is_off(self.coefficient)
        inputs = jnp.concatenate([batch.inputs, other.inputs[self.labelled :]]) if paired else batch.inputs
        outputs, embedded = self._embedded(model, inputs, theirs)
        loss = self.supervised.loss if batch.update is None else self.supervised.loss.at(batch.update)
        outputs = outputs[: batch.present.shape[0]]
        terms = {
            "loss": known * jax.vmap(loss.of_members)(outputs, own.targets),
            "score": known * jax.vmap(loss.score)(outputs if outputs.ndim == 2 else outputs.mean(1), own.targets),
        }
        if not paired:
            return total, terms
        assert other.rows is not None, "rows of the training set"
        return total + self.coefficient * self._pairs(embedded, batch, other.rows[self.labelled :]), terms

    def _labelled_of(self, other: Batch, batch: Batch) -> Batch:
        """The examples with a target as a batch of their own, drawn by weight: each counts 1, of W in all."""
        inputs, targets = jax.tree.map(lambda leaf: leaf[: self.labelled], (other.inputs, other.targets))
        ones = jnp.ones(self.labelled)
        total = batch.total if batch.labelled is None else batch.total * batch.labelled
        return Batch(inputs, targets, ones, ones, total, update=batch.update)

    def _pairs(self, embedded: Float[Array, "rows k"], batch: Batch, rows: Int[Array, " pairs"]) -> Scalar:
        """The mean loss of the pairs; what was drawn as another example but is a neighbour, or itself, is left out."""
        slots = batch.present.shape[0]
        here, near, far = (embedded[part * slots : (part + 1) * slots] for part in range(3))
        others = rows[slots:]
        assert batch.rows is not None
        close = jnp.any(batch.memory[batch.rows] == others[:, None], axis=1) | (others == batch.rows)
        pulled, pushed = squared_distances(here, near), hinge_losses(here, far, self.margin)
        pushed = jnp.where(close, 0.0, pushed)
        return jnp.sum(batch.weights * (pulled + pushed)) / slots

    # --- scores and predictions are those of the supervised term

    def examples(self, model: PyTree, inputs: Rows, targets: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return self.supervised.examples(model, inputs, targets)

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return self.supervised.link(output)

    def for_targets(self, task: Task, targets: np.ndarray) -> "EmbedNeighbours":
        bound = self.supervised.for_targets(task, targets)
        return self if bound is self.supervised else dataclasses.replace(self, supervised=bound)

    def check_task(self, task: Task) -> None:
        self.supervised.check_task(task)

    def check_inputs(self, inputs: Rows) -> None:
        if isinstance(inputs, SparseRows) or inputs.shape[0] < 2:
            raise RequestError("`EmbedNeighbours` compares dense rows with one another, and needs at least two.")
        if jnp.isnan(inputs).any():
            raise RequestError(
                "`EmbedNeighbours` measures distances between inputs, and some are NaN. Use a scaler that imputes."
            )
