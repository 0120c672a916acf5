"""SGD-QN (row H2): a rate for each parameter from the curvature measured along its own steps.

    SgdQn(decay=0.001, start_updates=10_000.0)      the first rate is 1 / (decay * start_updates) = 0.1

The method is Bordes, Bottou and Gallinari's (2009), in the form of their erratum of 2010 with Chang and Smith. The
original averages the ratios (step / change of the gradient), that is, the inverse curvatures: single examples with
little curvature, such as those without the feature, dominate such a mean, and the rates come out too large. The
correction averages the curvatures themselves, so rates are harmonic means. Its form was checked against the authors'
published program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob
from ...specs.priors import LogUniform


class _QuasiNewtonState(NamedTuple):
    inverse: PyTree  # 1 / B, one for each parameter
    since: Int[Array, ""]  # updates since the curvature was last measured
    before: PyTree  # the point before the last update


def measured_curvature(moves: PyTree, changes: PyTree, least: Any, greatest: Any) -> PyTree:
    """change of the gradient / move, parameter by parameter, within the bounds.

    What neither moved nor changed counts as flat, as it does for the authors; what changed without moving as steep.
    """

    def one(move: Array, change: Array) -> Array:
        still = move == 0
        ratio = change / jnp.where(still, 1.0, move)
        ratio = jnp.where(still, jnp.where(change == 0, least, greatest), ratio)
        return jnp.clip(ratio, least, greatest)

    return jax.tree.map(one, moves, changes)


class SgdQn(AbstractOptimiser):
    """Diagonal quasi-Newton descent, whose rates fall as 1/t, each according to its own curvature.

    theta_{t+1} = theta_t - B g_t(theta_t),    B = 1 / (lambda t0) at first, and before every `skip`-th update
    r = [g_t(theta_t) - g_t(theta_{t-1})] / [theta_t - theta_{t-1}], clipped to [lambda, 100 lambda]
    B <- 1 / (1/B + skip r)

    both gradients on the *same* mini-batch, everything element by element. Unrolled, 1/B = lambda t0 + (the sum over t
    updates of the measured curvature): B tends to 1/(h t), the rate of the best diagonal Newton method on a noisy
    quadratic of curvature h. lambda is the least curvature believed in; the paper's is the L2 coefficient, which the
    criterion holds already, so here it is a bound and nothing else.

    The mini-batch is one that the step did not see, as in the authors' program: along its own gradient a batch is
    steeper than the whole set (badly scaled logistic regression, 10 examples a batch: rates from the step's own batch
    need several times the updates, or do not arrive). The authors choose t0 by trying: it matters as a rate does.

    The authors' (2009, 2010): the bounds, the skip, t0, the sum of curvatures. Derived here: mini-batches in the place
    of examples, any model in the place of a linear one (so one more gradient every `skip` updates, at the last point),
    and a penalty that is part of the gradient at every update, where theirs waits for the skip to spare sparse rows.
    """

    needs_objective = True
    decay: float = knob(
        0.001,
        allowed="(0, inf)",
        prior=LogUniform(1e-5, 0.1),
        row="H2",
        about="lambda: a lower bound on the curvature, which makes the rates fall",
    )
    start_updates: float = knob(
        10_000.0,
        allowed="(0, inf)",
        prior=LogUniform(100.0, 1e6),
        row="H2",
        about="t0: the first rate is 1 / (decay t0)",
    )
    skip_updates: float = knob(
        8.0,
        allowed="[1, inf)",
        prior=LogUniform(1.0, 100.0),
        row="H2",
        about="updates between two measurements of the curvature, each costing one gradient",
    )
    spread: float = knob(
        100.0,
        allowed="(1, inf)",
        prior=LogUniform(10.0, 1e4),
        row="H2",
        about="the upper bound on the curvature, as a multiple of the lower one",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _QuasiNewtonState:
            first = self.decay * self.start_updates
            inverse = optax.tree.full_like(parameters, first)
            return _QuasiNewtonState(inverse, jnp.zeros((), jnp.int32), jax.tree.map(jnp.array, parameters))

        def update(
            updates: PyTree, state: _QuasiNewtonState, parameters: PyTree, *, objective: Objective, **_: Any
        ) -> tuple[PyTree, _QuasiNewtonState]:
            def measure(known: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
                inverse, since = known
                _, then = objective.value_and_gradient(state.before)
                step = optax.tree.sub(parameters, state.before)
                change = optax.tree.sub(updates, then)
                curvature = measured_curvature(step, change, self.decay, self.spread * self.decay)
                return optax.tree.add_scale(inverse, since, curvature), jnp.zeros((), jnp.int32)

            inverse, since = run_when(state.since >= self.skip_updates, measure, (state.inverse, state.since))
            moves = jax.tree.map(lambda g, h: -g / h, updates, inverse)
            return moves, _QuasiNewtonState(inverse, since + 1, parameters)

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: PyTree) -> Scalar:
        """The mean rate of all parameters."""
        leaves = jax.tree.leaves(state.inverse)
        return sum(jnp.sum(1.0 / leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)
