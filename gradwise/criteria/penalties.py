"""Weight decay as a prior (row D2): L2 is a Gaussian one of variance 1/(2 lambda), L1 a Laplace one of scale 1/lambda.

    L2(coefficient=1.0)                          all weights, no biases
    L1(coefficient=0.1, where="output.weight")   output weights only
    (L2(0.1, where="layers.0.*"), L2(1.0, where="output.weight"))   a separate coefficient for each layer

A penalty's coefficient is relative to the *sum* of the losses over the training set, so it does not depend on the
mini-batch size; in its averaged loss, the criterion divides it by T. Penalties on activations stand in the same list
(`code_sparsity.py`).
"""

import abc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from ..runtime.errors import RequestError, nearest
from ..specs.knobs import Spec, is_off, knob, switch
from ..specs.paths import WEIGHTS, matching, named_leaves, trainable
from ..specs.priors import LogUniform, ZeroOr

_COEFFICIENT: dict[str, Any] = {
    "allowed": "[0, inf)",
    "prior": ZeroOr(LogUniform(1e-4, 100.0)),
    "row": "D2",
    "kind": "capacity",
    "off": 0.0,
    "about": "lambda relative to the summed loss; 0 by default, because early stopping does its work",
}
_WHERE: dict[str, Any] = {
    "row": "D2",
    "kind": "model",
    "about": "which parameters, by path; by default weights only",
}


class AbstractRegulariser(Spec):
    """What a criterion's `penalties` may hold: a penalty on parameters, or one on the activations of hidden layers."""

    coefficient: float

    @property
    @abc.abstractmethod
    def reads_units(self) -> bool:
        """Whether it is one on activations (`AbstractSparsity`)."""


class AbstractPenalty(AbstractRegulariser):
    """A penalty on parameters."""

    @property
    def reads_units(self) -> bool:
        return False

    @abc.abstractmethod
    def __call__(self, model: PyTree) -> Scalar:
        """The penalty Omega, without its coefficient."""


def sum_on_parameters(penalties: Sequence[Any], model: PyTree) -> Scalar:
    """The penalties on parameters that are on, each with its coefficient: what stands beside the summed loss."""
    total = jnp.zeros(())
    for penalty in penalties:
        if not penalty.reads_units and not is_off(penalty.coefficient):
            total += penalty.coefficient * penalty(model)
    return total


def matching_parameters(model: PyTree, where: str) -> list[jax.Array]:
    """The trainable parameters whose paths match."""
    parameters, _ = trainable(model)
    named = named_leaves(parameters)
    marks = jax.tree.leaves(matching(parameters, where))
    found = [leaf for (_, leaf), mark in zip(named, marks, strict=True) if mark]
    if not found:
        names = [name for name, _ in named]
        raise RequestError(f"no parameter matches the penalty's `where={where!r}`.{nearest(where, names)}")
    return found


def _absolute(values: jax.Array) -> jax.Array:
    """|w| with the subgradient 0 at 0, so that padded weights are not pushed away from 0."""
    return jnp.where(values == 0, 0.0, jnp.abs(values))


class L2(AbstractPenalty):
    """The sum of squares."""

    coefficient: float = knob(0.0, **_COEFFICIENT)
    where: str = switch(WEIGHTS, **_WHERE)

    def __call__(self, model: PyTree) -> Scalar:
        return sum((jnp.sum(leaf**2) for leaf in matching_parameters(model, self.where)), start=jnp.zeros(()))


class L1(AbstractPenalty):
    """The sum of absolute values, by its subgradient: weights oscillate around 0 without reaching it."""

    coefficient: float = knob(0.0, **_COEFFICIENT)
    where: str = switch(WEIGHTS, **_WHERE)

    def __call__(self, model: PyTree) -> Scalar:
        return sum((jnp.sum(_absolute(leaf)) for leaf in matching_parameters(model, self.where)), start=jnp.zeros(()))
