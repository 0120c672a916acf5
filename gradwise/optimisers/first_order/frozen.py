"""An optimiser that changes nothing, for parameters that keep their initial values (rows C10, E15).

    Grouped(Adam(), groups=(ParameterGroup("layers.*", Frozen()),))      only the output layer is trained

Its updates do not depend on the gradient, so the compiler removes the computation of that gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree, Scalar

from ...specs.contracts import AbstractOptimiser


def _update(updates: PyTree, state: optax.EmptyState, parameters: PyTree = None, **_: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, updates), state


class Frozen(AbstractOptimiser):
    """No update at all; its learning rate is 0."""

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.GradientTransformationExtraArgs(lambda parameters: optax.EmptyState(), _update)

    def rate(self, state: PyTree) -> Scalar:
        return jnp.zeros(())
