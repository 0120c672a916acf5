"""One optimiser for some epochs, then another (row H7): stochastic gradient descent first, second-order steps after it.

    TwoStages(Sgd(0.1), Lbfgs(), epochs=1, size=32)     with `batches.size` in the thousands, or the whole training set

The recipe's mini-batch is the large one of the second optimiser. While the first one runs, it splits each batch into
small ones, so that one update of the run is many updates of the first optimiser.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree, Scalar

from ...curvature.objective import Objective
from ...runtime.control_flow import run_when
from ...runtime.line_search_state import LineSearch, line_search
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import declarations, knob, switch
from ...specs.paths import replace
from ...specs.priors import LogInteger, Uniform
from ..first_order.sgd import Sgd
from ..second_order.lbfgs import Lbfgs


class _AfterState(NamedTuple):
    first: PyTree
    then: PyTree
    began: Bool[Array, ""]  # whether the last update was the second optimiser's


def _patient(state: PyTree) -> PyTree:
    """The state with its line searches as before the first: a failure of the first optimiser does not end the run."""

    def is_search(node: Any) -> bool:
        return isinstance(node, LineSearch)

    return jax.tree.map(lambda node: line_search() if is_search(node) else node, state, is_leaf=is_search)


def _age(objective: Objective) -> Int[Array, ""]:
    """Examples visited before this update."""
    count, size = len(objective.train), objective.batch.inputs.shape[0]
    per_epoch = -(-count // size)
    return objective.update // per_epoch * count + objective.update % per_epoch * size


def _small(objective: Objective, number: Any, rows: Array, present: Array, per_update: int) -> Objective:
    """The criterion on one of the batch's small ones, its number and noise those of a run with such batches only."""
    small = objective.on(rows, present)
    small = eqx.tree_at(lambda one: one.update, small, objective.update * per_update + number)
    batches = objective.batches
    if "size" in dict(declarations(batches)):  # so that what the first optimiser asks of the future is small as well
        small = eqx.tree_at(lambda one: one.batches, small, replace(batches, "size", rows.shape[0]))
    return small


class TwoStages(AbstractOptimiser):
    """`first` for some epochs, then `then`, starting from the point that the first one reached.

    A large batch of B examples is split into ceil(B / size) small ones, whose updates are summed.
    The switch comes with the first update at an age of `epochs` T or more, so with the whole training set as a batch
    only whole epochs count.
    """

    needs_objective = True
    first: AbstractOptimiser = Sgd()
    then: AbstractOptimiser = Lbfgs()
    epochs: float = knob(
        1.0,
        allowed="[0, inf)",
        prior=Uniform(0.0, 5.0),
        row="H7",
        about="epochs of the first optimiser before the second starts",
    )
    size: int = switch(
        32,
        allowed="[1, inf)",
        prior=LogInteger(1, 256),
        row="H7",
        kind="optimiser",
        about="the mini-batch size of the first optimiser",
    )

    def _several(self, objective: Objective, parameters: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The first optimiser's way through the batch: its move in all, and its state."""
        rows, present = objective.rows, objective.batch.present
        size = min(self.size, rows.shape[0])
        pad = -rows.shape[0] % size
        rows = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], pad)]).reshape(-1, size)
        present = jnp.concatenate([present, jnp.zeros(pad, present.dtype)]).reshape(-1, size)

        def body(carry: tuple[PyTree, PyTree], chunk: tuple[Array, Array, Array]) -> tuple[tuple[PyTree, PyTree], None]:
            here, inner = carry
            criterion = _small(objective, *chunk, rows.shape[0])
            value, gradient = criterion.value_and_gradient(here)
            moves, new = self.first.build().update(gradient, inner, here, value=value, objective=criterion)
            used = jnp.any(chunk[2] > 0)
            after = optax.apply_updates(here, moves)
            return optax.tree.where(used, (after, new), carry), None

        numbers = jnp.arange(rows.shape[0], dtype=jnp.int32)
        (there, inner), _ = jax.lax.scan(body, (parameters, state), (numbers, rows, present))
        return optax.tree.sub(there, parameters), _patient(inner)

    def build(self) -> optax.GradientTransformationExtraArgs:
        then = self.then.build()

        def init(parameters: PyTree) -> _AfterState:
            return _AfterState(self.first.build().init(parameters), then.init(parameters), jnp.zeros((), bool))

        def update(updates: PyTree, state: _AfterState, parameters: PyTree = None, **extra: Any) -> Any:
            objective: Objective = extra["objective"]
            begun = _age(objective) >= self.epochs * len(objective.train)

            def through(operand: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
                return self._several(objective, parameters, operand[1])

            def onwards(operand: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
                # Asked for here and not taken from the caller: the first optimiser then does not pay for it.
                value, gradient = objective.value_and_gradient(parameters)
                return then.update(gradient, operand[1], parameters, value=value, objective=objective)

            still = optax.tree.zeros_like(parameters)
            moves, first = run_when(~begun, through, (still, state.first))
            moves, second = run_when(begun, onwards, (moves, state.then))
            return moves, _AfterState(first, second, begun)

        return optax.GradientTransformationExtraArgs(init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        one, other = self.first.judged(parameters, state.first), self.then.judged(parameters, state.then)
        return jax.tree.map(lambda a, b: a if a is b else jnp.where(state.began, b, a), one, other)

    def rate(self, state: PyTree) -> Scalar:
        """The rate of the current optimiser."""
        return jnp.where(state.began, self.then.rate(state.then), self.first.rate(state.first))
