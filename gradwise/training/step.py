"""One update (row B1): gather a batch, differentiate the criterion, move the parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..core.parts import Batch
from .state import Problem, State


def gather(problem: Problem, rows: Int[Array, " B"], present: Float[Array, " B"]) -> Batch:
    """The examples of one update. A slot beyond the end of the epoch has weight 0."""
    train = problem.train
    weights = present if train.weights is None else present * train.weights[rows]
    return Batch(train.inputs[rows], train.targets[rows], weights, present, jnp.asarray(float(len(train))))


def step(problem: Problem, state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
    """The state after one update on this batch, and the criterion's terms before it."""
    recipe = problem.recipe
    key = jr.fold_in(problem.key, state.update)

    def criterion(parameters: PyTree) -> tuple[Array, dict[str, Array]]:
        return recipe.criterion(problem.model(parameters), batch, key=key)

    (total, terms), gradient = jax.value_and_grad(criterion, has_aux=True)(state.parameters)
    moves, optimiser = recipe.optimiser.build().update(gradient, state.optimiser, state.parameters, value=total)
    parameters = optax.apply_updates(state.parameters, moves)
    state = State(parameters, optimiser, state.stopping, state.best, state.update + 1)
    return state, {"total": total, **terms}
