"""An optimiser that changes nothing, for parameters that keep their initial values (rows C10, E15).

    Grouped(Adam(), groups=(ParameterGroup("layers.*", Frozen()),))      only the output layer is trained

Its updates do not depend on the gradient, so the compiler removes the computation of that gradient.
"""

import jax.numpy as jnp
import optax
from jaxtyping import PyTree, Scalar

from ...specs.contracts import AbstractOptimiser


class Frozen(AbstractOptimiser):
    """No update at all; its learning rate is 0."""

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(optax.set_to_zero())

    def rate(self, state: PyTree) -> Scalar:
        return jnp.zeros(())
