"""Bounds the length of each gradient before another optimiser sees it.

    Clipped(Adam(0.003), norm=1.0)

Where a criterion has cliffs, as that of a recurrent network over many steps has, one gradient can be thousands of times
as long as the others, and a single step would throw the parameters far away. The direction stays (Pascanu, Mikolov and
Bengio 2013). A gradient that is not finite stays as it is, so that divergence shows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob
from ...specs.priors import LogUniform


class Clipped(AbstractOptimiser):
    """An optimiser whose gradients are scaled down to length `norm` where they are longer."""

    optimiser: AbstractOptimiser
    norm: float = knob(
        1.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 10.0),
        row="A12",
        about="the largest length of a gradient, of all parameters together",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def update(updates: PyTree, state: PyTree, parameters: PyTree = None, **extra: Any) -> Any:
            length = optax.tree.norm(updates)
            factor = jnp.where(length > self.norm, self.norm / length, 1.0)
            shorter = jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), updates)
            return inner.update(shorter, state, parameters, **extra)

        return optax.GradientTransformationExtraArgs(inner.init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state)

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state)
