"""Centres a network regularly while it is trained (row D12).

    Recentred(Sgd(0.1), every_updates=100)

The network must be able to centre itself: it needs a method `recentred(inputs, weights)` that returns the same function
with other parameters, as networks of `models.CentredMlp` have. It is called every `every_updates` updates on the
examples of the current batch; the change is added to that update.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob
from ...specs.networks import require_methods
from ...specs.paths import trainable
from ...specs.priors import LogUniform


class RecentredState(NamedTuple):
    inner: PyTree
    update: Int[Array, ""]


class Recentred(AbstractOptimiser):
    """Applies an optimiser, and centres the network at the first update and every `every_updates` after it.

    The moments of the inner optimiser are not transformed with the parameters, so do not combine frequent centring
    with long memory.
    """

    needs_objective = True
    optimiser: AbstractOptimiser
    every_updates: float = knob(
        100.0, allowed="[1, inf)", prior=LogUniform(10.0, 1000.0), row="D12", about="updates between two centrings"
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def init(parameters: PyTree) -> RecentredState:
            return RecentredState(inner.init(parameters), jnp.zeros((), jnp.int32))

        def update(
            updates: PyTree, state: RecentredState, parameters: PyTree = None, *, objective: Objective, **extra: Any
        ) -> Any:
            require_methods("Recentred", objective.model(parameters), ("recentred",), "CentredMlp")

            def centre(moves: PyTree) -> PyTree:
                moved = objective.model(optax.apply_updates(parameters, moves))
                centred, _ = trainable(moved.recentred(objective.batch.inputs, objective.batch.weights))
                return optax.tree.sub(centred, parameters)

            moves, after = inner.update(updates, state.inner, parameters, objective=objective, **extra)
            due = jnp.remainder(state.update, jnp.floor(self.every_updates).astype(jnp.int32)) == 0
            return run_when(due, centre, moves), RecentredState(after, state.update + 1)

        return optax.GradientTransformationExtraArgs(init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state.inner)

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state.inner)
