"""One update (row B1): gather a batch, differentiate the criterion, move the parameters."""

import dataclasses
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float, Int

from ..curvature import objective
from ..specs.contracts import Batch
from ..specs.networks import as_network
from ..specs.sparse.rows import SparseRows
from ..specs.sparse.touched import TouchedRows
from .state import Problem, State


def gather_batch(problem: Problem, rows: Int[Array, " B"], present: Float[Array, " B"]) -> Batch:
    """The examples of one update. A slot beyond the end of the epoch has weight 0."""
    whole = problem.recipe.batches.is_whole(len(problem.train))
    return objective.gather(problem.train, rows, present, whole=whole)


class _RowsRead(NamedTuple):
    """The rows of tables that an update reads, and its criterion on tables of these rows alone."""

    rows: TouchedRows
    objective: objective.Objective


_WORTH = 0.75  # of the rows of a table: an update that may read more sweeps them all


def rows_read(problem: Problem, criterion: objective.Objective, state: State) -> _RowsRead | None:
    """Which rows of its tables an update needs to see; None where it sees all.

    It sees them all where inputs are dense, where the optimiser moves parameters without a gradient, where the
    criterion has a penalty on them, and where a mini-batch may read most of them.
    """
    optimiser, batch = problem.recipe.optimiser, criterion.batch
    rests = optimiser.acts_elementwise() and optimiser.rests_without_gradient()
    if not rests or not isinstance(batch.inputs, SparseRows) or not as_network(state.parameters).column_tables:
        return None
    needed = criterion.criterion.narrowed(batch, key=criterion.noise)
    width = batch.inputs.width
    if needed is None or batch.inputs.columns.size + needed.columns.size > _WORTH * width:
        return None
    rows = TouchedRows.of((batch.inputs.columns, needed.columns), width)
    inputs = SparseRows(rows.place_of(batch.inputs.columns), batch.inputs.values, rows.columns.shape[0])
    memory = needed.memory(rows.place_of(needed.columns))
    narrow = dataclasses.replace(criterion, batch=dataclasses.replace(batch, inputs=inputs, memory=memory))
    return _RowsRead(rows, narrow)


def step(problem: Problem, state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
    """The state after one update on this batch, and the criterion's terms before it."""
    criterion = problem.objective(dataclasses.replace(batch, memory=state.memory), state.update)
    few, kind = rows_read(problem, criterion, state), type(state.parameters)
    parameters, optimiser = state.parameters, state.optimiser
    if few is not None:
        criterion = few.objective
        parameters, optimiser = (few.rows.narrow(tree, kind) for tree in (parameters, optimiser))
    (total, terms), gradient = jax.value_and_grad(criterion.terms, has_aux=True)(parameters)
    moves, optimiser = problem.recipe.optimiser.build().update(
        gradient, optimiser, parameters, value=total, objective=criterion
    )
    parameters = optax.apply_updates(parameters, moves)
    if few is not None:
        parameters = few.rows.widen(state.parameters, parameters, kind)
        optimiser = few.rows.widen(state.optimiser, optimiser, kind)
    memory = terms.pop("memory", state.memory)
    new = {"parameters": parameters, "optimiser": optimiser, "update": state.update + 1, "memory": memory}
    return dataclasses.replace(state, **new), {"total": total, **terms}
