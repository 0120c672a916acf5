"""Diagonal Newton steps (row H4): a learning rate for each parameter from its own second derivative.

DiagonalNewton(learning_rate=0.01, damping=0.02)                        curvature of the batch itself, periodically
DiagonalNewton(curvature_examples=500, every_updates=600, memory=1.0)   500 new random examples each time
DiagonalNewton(exact=True)                                              the exact Gauss-Newton diagonal
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...curvature.diagonals import back_propagated_diagonal, gauss_newton_diagonal
from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...runtime.keys import named
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.priors import LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from ..first_order.schedules import present_rate, scale_by_rate
from ..first_order.sgd import LEARNING_RATE


def draw_examples(objective: Objective, examples: int) -> Objective:
    """The criterion on examples of the training set drawn by this update's key; with 0, on the batch itself."""
    if examples == 0:
        return objective
    rows = jr.randint(named(objective.noise, "curvature"), (examples,), 0, len(objective.train))
    return objective.on(rows)


class _CurvatureState(NamedTuple):
    curvature: PyTree
    update: Int[Array, ""]


class DiagonalNewton(AbstractOptimiser):
    """Stochastic diagonal Levenberg-Marquardt (LeCun et al. 1998).

        theta_k <- theta_k - rate g_k / (h_k + damping),    h <- (1 - memory) h + memory (second derivatives now)

    The second derivatives are back-propagated ones, or with `exact` the Gauss-Newton diagonal; penalties count in both.
    The first estimate is taken whole. LeNet-5 was trained with damping 0.02, 500 examples measured afresh before each
    epoch, and global rates 5e-4 (2 epochs), 2e-4 (3), 1e-4 (3), 5e-5 (4), then 1e-5, one example an update.
    """

    needs_objective = True
    learning_rate: float = knob(0.01, **LEARNING_RATE)
    damping: float = knob(
        0.02,
        allowed="[0, inf)",
        prior=LogUniform(1e-4, 1.0),
        row="H4",
        about="mu: keeps the step finite if the criterion is flat; the largest rate is learning_rate / damping",
    )
    every_updates: float = knob(
        10.0, allowed="[1, inf)", prior=LogUniform(1.0, 1000.0), row="H4", about="updates between two estimates"
    )
    memory: float = knob(
        0.1, allowed="(0, 1]", prior=Uniform(0.01, 1.0), row="H4", about="the share of each new estimate in the mean"
    )
    curvature_examples: int = switch(
        0,
        allowed="[0, inf)",
        row="H4",
        kind="optimiser",
        about="training examples drawn per estimate; 0: those of the batch",
    )
    exact: bool = switch(
        False,
        allowed=(False, True),
        row="H4",
        kind="optimiser",
        about="the exact Gauss-Newton diagonal, one backward pass for each output",
    )
    schedule: AbstractSchedule = Constant()

    def _scale_by_curvature(self) -> optax.GradientTransformationExtraArgs:
        diagonal = gauss_newton_diagonal if self.exact else back_propagated_diagonal

        def init(parameters: PyTree) -> _CurvatureState:
            return _CurvatureState(optax.tree.zeros_like(parameters), jnp.zeros((), jnp.int32))

        def update(
            updates: PyTree, state: _CurvatureState, parameters: PyTree = None, *, objective: Objective, **_: Any
        ) -> Any:
            share = jnp.where(state.update == 0, 1.0, self.memory)

            def estimate(old: PyTree) -> PyTree:
                there = draw_examples(objective, self.curvature_examples)
                new = diagonal(there, parameters, "DiagonalNewton", penalty=True)
                return jax.tree.map(lambda mean, now: mean + share * (now - mean), old, new)

            due = state.update % jnp.round(self.every_updates).astype(jnp.int32) == 0
            curvature = run_when(due, estimate, state.curvature)

            def scaled(slope: Array, bend: Array) -> Array:
                below = bend + self.damping
                return jnp.where(below > 0, slope / jnp.where(below > 0, below, 1.0), 0.0)

            return jax.tree.map(scaled, updates, curvature), _CurvatureState(curvature, state.update + 1)

        return optax.GradientTransformationExtraArgs(init, update)

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(self._scale_by_curvature(), scale_by_rate(self.learning_rate, self.schedule))

    def rate(self, state: PyTree) -> Scalar:
        """The global rate, before the division by the curvature."""
        return present_rate(state)
