"""One update (row B1): gather a batch, differentiate the criterion, move the parameters."""

import dataclasses
from typing import Any

import jax
import optax
from jaxtyping import Array, Float, Int

from ..curvature import objective
from ..specs.contracts import Batch
from .state import Problem, State


def gather_batch(problem: Problem, rows: Int[Array, " B"], present: Float[Array, " B"]) -> Batch:
    """The examples of one update. A slot beyond the end of the epoch has weight 0."""
    whole = problem.recipe.batches.is_whole(len(problem.train))
    return objective.gather(problem.train, rows, present, whole=whole)


def step(problem: Problem, state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
    """The state after one update on this batch, and the criterion's terms before it."""
    criterion = problem.objective(dataclasses.replace(batch, memory=state.memory), state.update)
    (total, terms), gradient = jax.value_and_grad(criterion.terms, has_aux=True)(state.parameters)
    moves, optimiser = problem.recipe.optimiser.build().update(
        gradient, state.optimiser, state.parameters, value=total, objective=criterion
    )
    parameters = optax.apply_updates(state.parameters, moves)
    memory = terms.pop("memory", state.memory)
    new = {"parameters": parameters, "optimiser": optimiser, "update": state.update + 1, "memory": memory}
    return dataclasses.replace(state, **new), {"total": total, **terms}
