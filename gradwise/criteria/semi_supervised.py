"""Labelled and unlabelled examples in one run (row A8): structure learned from the inputs helps to predict the targets.

    SemiSupervised()                                            classes, and a denoising auto-encoder
    SemiSupervised(Supervised(GaussianLoss()), Reconstruction(SquaredError()), weight=0.3)
    defaults.classification(model=Joint(), criterion=SemiSupervised(), scaler=UnitRange())

With T training examples, the labelled ones in L, whose weights w add up to W,

    J = (1/W) sum over L of w loss + (lambda/W) Omega + weight * U,

where U is the unsupervised criterion over all T. With `weight` 0 this is the supervised criterion on L alone, however
many examples have no target: adding some changes neither the scale of the supervised term nor its optimum, so the
learning rate and the penalties keep their meaning. Dividing a mini-batch of B slots by the weight of its own labelled
examples would be biased, and undefined if it has none. So W/T comes from the training set:

    (1/B) (T/W) [sum over its labelled of w loss + (B'/T) lambda Omega] + weight * U of the batch,

so that batch by batch, over one epoch, it adds up to T/B times J exactly.
"""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..curvature.objective import labelled
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractCriterion, Batch, ValueAndTerms
from ..specs.dataset import Task
from ..specs.knobs import is_off, knob
from ..specs.networks import require_methods
from ..specs.priors import LogUniform
from .corruption import Masking
from .losses import SoftmaxLoss
from .reconstruction import Reconstruction
from .supervised import Supervised


class SemiSupervised(AbstractCriterion):
    """J = supervised loss on labelled examples + `weight` * unsupervised criterion on all.

    The network has outputs and, as `features`, the learner that the unsupervised criterion trains (`models.Joint`).
    Larochelle and Bengio (2008) train a Boltzmann machine so, Ranzato and Szummer (2008) an auto-encoder.
    """

    learns_from = "both"
    supervised: Supervised = Supervised(SoftmaxLoss())
    unsupervised: AbstractCriterion = Reconstruction(corruption=Masking(0.25))
    weight: float = knob(
        1.0,
        allowed="[0, inf)",
        prior=LogUniform(1e-2, 10.0),
        row="A8",
        kind="model",
        off=0.0,
        about="the weight of the unsupervised criterion relative to the mean loss of the labelled examples",
    )

    def __check_init__(self) -> None:
        if not is_off(self.supervised.mixup):
            raise RequestError(
                "`SemiSupervised.supervised.mixup` blends the targets of two examples, and some have none. Set it to 0."
            )

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        ours, theirs = jr.split(key)
        known = labelled(batch.targets)
        total, terms = self.supervised(model, self._of_labelled(batch, known), key=ours)
        terms = {**{name: known * terms[name] for name in ("loss", "score")}, "margin": terms["margin"]}
        if batch.memory is not None:
            terms["memory"] = batch.memory
        if not is_off(self.weight):
            blind = dataclasses.replace(batch, targets=jnp.zeros((batch.weights.shape[0], 0)))
            value, told = self.unsupervised(model.features, blind, key=theirs)
            total += self.weight * value
            terms |= {"memory": told["memory"]} if "memory" in told else {}
        return total, terms

    @staticmethod
    def _of_labelled(batch: Batch, known: Float[Array, " B"]) -> Batch:
        """The batch as the supervised term sees it: W examples in total, unlabelled ones with weight 0.

        Their targets are set to 0, a class or a number like any other: not-a-number times 0 would stay what it is.
        """
        share = jnp.sum(batch.weights * known) / jnp.sum(batch.present) if batch.labelled is None else batch.labelled
        share = jnp.maximum(share, jnp.finfo(jnp.float32).tiny)  # a batch on its own without any target: 0, not 0/0
        absent = (known == 0.0).reshape(-1, *(1 for _ in batch.targets.shape[1:]))
        targets = jnp.where(absent, jnp.zeros((), batch.targets.dtype), batch.targets)
        weights = batch.weights * known / share
        return dataclasses.replace(batch, targets=targets, weights=weights, total=batch.total * share)

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        return self.unsupervised.begin(model.features, inputs, key=key)

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return self.supervised.examples(model, inputs, targets)

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return self.supervised.link(output)

    def check_task(self, task: Task) -> None:
        if task.kind == "several":
            raise RequestError(
                f"`SemiSupervised` learns one task, but the targets hold {len(task.names)}: name one with --target."
            )
        self.supervised.check_task(task)

    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        self.unsupervised.check_inputs(inputs)

    def check_network(self, network: PyTree) -> None:
        require_methods("SemiSupervised", network, ("features",), "Joint")
        self.unsupervised.check_network(network.features)
